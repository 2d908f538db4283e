"""The table of targets: complete rows, with Caffe's own names of layers."""

import re

import pytest

from minicaffe.core.layers import REGISTRY
from minicaffe.interop.chips.chips import CHIPS


@pytest.mark.parametrize("name", CHIPS)
def test_a_row_is_whole(name):
    chip = CHIPS[name]
    assert chip.name == name
    assert chip.title and chip.sources
    assert all(re.match(r"https://\S+( \(.+\))?$", source) for source in chip.sources)
    assert chip.layers >= {"Convolution", "Pooling", "InnerProduct", "ReLU", "Softmax"}
    spelling = {kind.lower(): kind for kind in REGISTRY if kind not in {"Lstm", "LSTM"}}
    assert all(spelling.get(kind.lower(), kind) == kind for kind in chip.layers)


def test_caffe_is_the_release_of_2017():
    caffe = CHIPS["caffe"]
    assert len(caffe.layers) == 59
    assert caffe.layers <= set(REGISTRY)
    assert not caffe.layers & {"Clip", "Swish", "Permute", "Normalize", "PriorBox", "Upsample"}
    assert caffe.ceil_only
