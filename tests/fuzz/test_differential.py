"""Readers beside those of others, on files with mistakes: what both take means the same, and who takes what.

Prototxt beside protobuf's own text parser, with a description of caffe.proto that is built at run time, and
.caffemodel beside its parser of bytes; .npz beside NumPy. YAML beside the JSON schema is in spec/test_schema.py.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from caffe import test_fuzz_text
from caffe.test_text import read as read_text
from caffe_messages import drawn, filled, same
from test_fuzz_files import mutated, seeds, spoilt

from minicaffe.caffe import weight_files, weights
from minicaffe.errors import MinicaffeError

DecodeError = pytest.importorskip("google.protobuf.message").DecodeError
text_format = pytest.importorskip("google.protobuf.text_format")
caffe_pb2 = pytest.importorskip("minicaffe.pycaffe.proto.caffe_pb2")
MANY, FEW = 4000, 150  # mutations, with --long and without


def mutations(request, name):
    """Numbers of mutations, each with what it is drawn from."""
    count = MANY if request.config.getoption("--long") else FEW
    return [(i, random.Random(f"{name} {i}")) for i in range(count)]


def texts(kind, rng):
    """A text of a message of this kind, mostly with something wrong in it."""
    text = text_format.MessageToString(
        filled(getattr(caffe_pb2, kind)(), drawn(rng, kind)), as_utf8=True
    )
    return test_fuzz_text.mutated(text, rng) if text and rng.random() < 0.9 else text


def plain(message):
    """A message of protobuf's as nested mappings and lists, enums as words."""
    found = {}
    for field, value in message.ListFields():
        word = field.enum_type and field.enum_type.values_by_number
        each = [
            plain(one) if field.message_type else word[one].name if word else one
            for one in (value if field.is_repeated else [value])
        ]
        found[field.name] = each if field.is_repeated else each[0]
    return found


def theirs(kind, text):
    try:
        return plain(text_format.Parse(text, getattr(caffe_pb2, kind)()))
    except (text_format.ParseError, UnicodeError):
        return None


def ours(kind, text):
    try:
        return read_text(text, kind)
    except MinicaffeError:
        return None


@pytest.mark.parametrize("kind", ["NetParameter", "SolverParameter", "LayerParameter"])
def test_prototxt_and_protobufs_text(request, kind):
    counts = {"both": 0, "neither": 0}
    apart = []
    for i, rng in mutations(request, kind):
        text = texts(kind, rng)
        mine, other = ours(kind, text), theirs(kind, text)
        if (mine is None) != (other is None):
            apart.append((i, "protobuf" if mine is None else "minicaffe", text))
        elif mine is not None:
            counts["both"] += 1
            assert same(mine, other), (i, text)
        else:
            counts["neither"] += 1
    assert not apart, apart[:3]
    assert min(counts.values()) > FEW // 10


def test_caffemodels_and_protobufs_bytes(request, tmp_path):
    counts = {"both": 0, "one": 0}
    (whole,) = seeds("caffemodel", tmp_path)
    file = tmp_path / "x.caffemodel"
    for i, rng in mutations(request, "caffemodel"):
        data = mutated(whole, rng)
        file.write_bytes(data)
        try:
            mine = weights.read(file)
            other = caffe_pb2.NetParameter.FromString(data)
        except (MinicaffeError, DecodeError):
            counts["one"] += 1
            continue
        counts["both"] += 1
        blobs = {layer.name: layer.blobs for layer in other.layer if layer.blobs}
        assert mine.keys() == blobs.keys(), i
        for name, arrays in mine.items():
            for array, blob in zip(arrays, blobs[name], strict=True):
                numbers = blob.double_data or blob.data
                assert np.array_equal(np.float32(numbers), array.ravel(), equal_nan=True), i
    assert counts["both"] > FEW // 10


def test_npz_and_numpys(request, tmp_path):
    (whole,) = seeds("npz", tmp_path)
    file, both = tmp_path / "x.npz", 0
    for i, rng in mutations(request, "npz"):
        file.write_bytes(spoilt(rng.choice(["npz", "entry.npz"]), whole, rng))
        try:
            with weight_files.opened(file) as found:
                mine = {name: found[name] for name in found}
        except MinicaffeError:
            continue
        with np.load(file) as other:
            for name, array in mine.items():
                assert np.array_equal(array, other[name], equal_nan=True), (i, name)
        both += 1
    assert both > FEW // 20
