"""The table of chips: complete rows, and the rules that a source states, with Caffe's own names."""

import re
from pathlib import Path

import pytest

from minicaffe.bridges.chips import CHIPS
from minicaffe.layers import REGISTRY


@pytest.mark.parametrize("name", CHIPS)
def test_a_row_is_whole(name):
    chip = CHIPS[name]
    assert chip.name == name
    assert chip.title and chip.notes and chip.sources
    assert all(re.match(r"https://\S+( \(.+\))?$", source) for source in chip.sources)
    assert all(note.endswith(".") and "  " not in note for note in chip.notes)
    assert chip.layers >= {"Convolution", "Pooling", "InnerProduct", "ReLU", "Softmax"}


def test_types_are_spelled_as_caffe_spells_them():
    spelling = {kind.lower(): kind for kind in REGISTRY if kind not in {"Lstm", "LSTM"}}
    for chip in CHIPS.values():
        for kind in chip.layers - {"Lstm", "LSTM"}:
            assert spelling.get(kind.lower(), kind) == kind, f"{chip.name}: {kind}"


def test_caffe_is_the_release_of_2017():
    caffe = CHIPS["caffe"]
    assert len(caffe.layers) == 59
    assert caffe.layers <= set(REGISTRY)
    assert not caffe.layers & {"Clip", "Swish", "Permute", "Normalize", "PriorBox", "Upsample"}
    assert caffe.ceil_only and caffe.input_form == "layer"


def test_rules_that_a_bridge_asks_for():
    assert CHIPS["nnie"].permutes == ((0, 2, 3, 1),)
    assert "Permute" in CHIPS["ascend"].layers and CHIPS["ascend"].permutes is None
    assert not CHIPS["nvdla"].layers & {"Reshape", "Permute", "Slice", "Split"}
    assert [name for name, chip in CHIPS.items() if chip.input_form == "input_dim"] == ["nnie"]


def test_the_page_says_what_the_rows_say():
    page = (Path(__file__).parents[2] / "docs" / "chips.md").read_text(encoding="utf-8")
    for chip in CHIPS.values():
        if chip.name == "caffe":
            continue  # it is no chip
        for note in chip.notes:
            assert f"- {note}\n" in page
        for source in chip.sources:
            address, _, what = source.partition(" ")
            assert f"- <{address}>{' ' * bool(what)}{what}\n" in page
