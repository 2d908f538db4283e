"""Readers beside those of others, on files with mistakes: what both take means the same, and who takes what.

Prototxt beside protobuf's own text parser, with a description of caffe.proto that is built at run time, and
.caffemodel beside its parser of bytes; .npz beside NumPy. YAML beside the JSON schema is in spec/test_schema.py.
"""

import random
import re

import numpy as np
import pytest
from caffe_messages import drawn, filled, same
from interop.caffe import test_fuzz_text
from interop.caffe.test_text import read as read_text
from test_fuzz_files import mutated, seeds, spoilt

from minicaffe.core.net import model
from minicaffe.errors import MinicaffeError
from minicaffe.interop.caffe import weights

DecodeError = pytest.importorskip("google.protobuf.message").DecodeError
text_format = pytest.importorskip("google.protobuf.text_format")
caffe_pb2 = pytest.importorskip("minicaffe.interop.pycaffe.proto.caffe_pb2")
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


# Why one of the two refuses what the other takes, and is right to.
THEIRS_ALONE = (
    r"Invalid octal float|Couldn't parse float: -?0x",  # protobuf 2, which Caffe had, takes both as integers
    r"Couldn't parse (float|integer): -$",  # a sign apart: protobuf of C++ takes it
    r"Enum type \".*Engine\" has no value",  # forks have engines of their own
    r"has no field named",  # of parameters that no layer of the given type reads: they are carried as they are
    r"Expected \"true\" or \"false\"",  # -0
)
OURS_ALONE = (
    r"'\w+_\w+' is not a number",  # protobuf of C++ refuses it, too
    r"expected a number, got -?9999",  # which is infinite
    r"the escape .* is not understood",  # as for protobuf of C++
)


def theirs(kind, text):
    """What protobuf reads, or why it refuses."""
    try:
        return plain(text_format.Parse(text, getattr(caffe_pb2, kind)())), ""
    except (text_format.ParseError, UnicodeError) as error:
        return None, str(error)


def ours(kind, text):
    try:
        return read_text(text, kind), ""
    except MinicaffeError as error:
        return None, str(error)


def alike(got, wanted):
    """The same, but for what text alone does not tell.

    Of what is carried as it is nobody knows that one of a kind is a list, protobuf has no empty ones, and there
    what no float32 holds is infinite.
    """
    if isinstance(wanted, dict) and isinstance(got, dict):
        got = {key: value for key, value in got.items() if value != []}
        return got.keys() == wanted.keys() and all(alike(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        got = got if isinstance(got, list) else [got]
        return len(got) == len(wanted) and all(map(alike, got, wanted))
    if isinstance(wanted, float) and abs(wanted) == np.inf:
        return got * wanted > 0 and abs(got) > float(np.finfo(np.float32).max)
    return same(got, wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of protobuf, for escapes
@pytest.mark.parametrize("kind", ["NetParameter", "SolverParameter", "LayerParameter"])
def test_prototxt_and_protobufs_text(request, kind):
    counts = {"both": 0, "neither": 0}
    for i, rng in mutations(request, kind):
        text = texts(kind, rng)
        (mine, refused), (other, why) = ours(kind, text), theirs(kind, text)
        if mine is None or other is None:
            known = THEIRS_ALONE if other is None else OURS_ALONE
            reason = why if other is None else refused
            assert mine is other or any(re.search(one, reason) for one in known), (i, reason, text)
            counts["neither"] += mine is other
        else:
            counts["both"] += 1
            assert alike(mine, other), (i, text)
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
        blobs = {in_utf_8(layer.name): layer.blobs for layer in other.layer if layer.blobs}
        assert mine.keys() == blobs.keys(), i
        for name, arrays in mine.items():
            for array, blob in zip(arrays, blobs[name], strict=True):
                numbers = blob.double_data or blob.data
                assert np.array_equal(np.float32(numbers), array.ravel(), equal_nan=True), i
    assert counts["both"] > FEW // 10


def in_utf_8(name):
    """A name as a text, also one that protobuf leaves bytes, since it is none."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def test_npz_and_numpys(request, tmp_path):
    (whole,) = seeds("npz", tmp_path)
    file, both = tmp_path / "x.npz", 0
    for i, rng in mutations(request, "npz"):
        file.write_bytes(spoilt(rng.choice(["npz", "entry.npz"]), whole, rng))
        try:
            with model.opened(file) as found:
                mine = {name: found[name] for name in found.shapes}
        except MinicaffeError:
            continue
        with np.load(file) as other:
            for name, array in mine.items():
                assert np.array_equal(array, other[name], equal_nan=True), (i, name)
        both += 1
    assert both > FEW // 20
