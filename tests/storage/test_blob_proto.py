"""Caffe's BlobProto: every spelling of it, one of Caffe's own, and bytes that are none."""

import random
import struct

import numpy as np
import pytest
from calls import calls
from kit import refusal

from minicaffe.errors import DataError, MinicaffeError
from minicaffe.storage import wire
from minicaffe.storage.wire import read_array

VALUES = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3) - 2.5


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, kind, body):
    return varint(number << 3 | kind) + (varint(len(body)) if kind == 2 else b"") + body


def legacy(shape):
    return b"".join(field(i + 1, 0, varint(size)) for i, size in enumerate(shape))


def shaped(shape, packed=True):
    sizes = [varint(size) for size in shape]
    inside = field(1, 2, b"".join(sizes)) if packed else b"".join(field(1, 0, s) for s in sizes)
    return field(7, 2, inside)


PACKED = field(5, 2, VALUES.tobytes())
SINGLE = b"".join(field(5, 5, v.tobytes()) for v in VALUES.ravel())
DOUBLE = field(8, 2, VALUES.astype("<f8").tobytes())
DOUBLES = b"".join(field(8, 1, struct.pack("<d", v)) for v in VALUES.ravel())
GOOD = {
    "legacy": legacy(VALUES.shape) + PACKED,
    "shape": shaped(VALUES.shape) + PACKED,
    "shape, not packed": SINGLE + shaped(VALUES.shape, packed=False),
    "both": legacy(VALUES.shape) + shaped((9, 9, 9, 9)) + PACKED,
    "double": shaped(VALUES.shape) + DOUBLE,
    "doubles": legacy(VALUES.shape) + DOUBLES,
    "in two": legacy(VALUES.shape) + field(5, 2, PACKED[2:10]) + field(5, 2, PACKED[10:]),
    "with diff": legacy(VALUES.shape) + field(6, 2, bytes(24)) + PACKED + field(99, 5, bytes(4)),
}


def written(tmp_path, content, name="blob.binaryproto"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("spelling", GOOD)
def test_every_spelling(tmp_path, spelling):
    got = wire.read_blob(written(tmp_path, GOOD[spelling]))
    assert got.dtype == ("float64" if spelling.startswith("double") else "float32")
    np.testing.assert_array_equal(got, VALUES)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (legacy((1, 1, 2, 4)) + PACKED, "a blob promises 1 x 1 x 2 x 4, holds 6 numbers"),
        (legacy((2**30, 2**30, 1, 1)) + PACKED, "promises 1073741824 x 1073741824"),
        (shaped((1,) * 40) + field(5, 2, bytes(4)), "expected at most 32 integers"),
        (b"", "a blob promises one number, holds 0 numbers"),
        (PACKED[:-1], "field 5 promises 24 bytes, 23 are left"),
        (field(5, 2, bytes(7)), "expected numbers of float32"),
        (SINGLE[:-1], "field 5 is cut short"),
        (b"".join(field(5, 2, bytes(4)) for _ in range(2)), "a blob promises one number, holds 2"),
        (legacy((2**32 - 1, 1, 1, 1)), "a blob has the shape (-1, 1, 1, 1)"),
        (shaped((1,) * 32) * 2 + PACKED, "a blob is in too many pieces, or has too many axes"),
        (field(1, 2, b""), "expected an integer, found something else"),
        (field(12, 0, varint(300)), "expected a message, found something else"),
        (field(7, 2, field(1, 5, bytes(4))), "expected integers, found something else"),
        (b"\x80" * 20, "a number at byte 0 of a message has no end"),
        (b"\x0b", "field 1 is of kind 3, which Caffe does not write"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, content, said):
    path = written(tmp_path, content)
    told = refusal(wire.read_blob, path, error=DataError)
    assert told.startswith(f"{path}: is not a whole BlobProto (.binaryproto): ")
    assert said in told and "\n" not in told


def test_any_bytes_are_read_or_refused_in_one_line(tmp_path):
    rng, good = random.Random(3), list(GOOD.values())
    counts = {True: 0, False: 0}
    for i in range(400):
        data = bytearray(good[i % len(good)])
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(data))
            data[at : at + rng.choice((0, 1, 1, 3))] = rng.randbytes(rng.choice((0, 1, 1, 2)))
        try:
            counts[wire.read_blob(written(tmp_path, bytes(data))).size == 6] += 1
        except DataError as error:
            assert str(error).isprintable()
            counts[False] += 1
    assert min(counts.values()) > 50


def test_numbers_by_turns_are_no_more_work_than_their_file_is_long(tmp_path):
    def refuse(count):
        path = written(tmp_path, (field(5, 5, bytes(4)) + field(9, 5, bytes(4))) * count)
        with pytest.raises(DataError):
            wire.read_blob(path)

    refuse(50_000)
    assert calls(refuse, 2000) < 2.2 * calls(refuse, 1000)


def test_an_npy_file_is_known_by_its_beginning(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.npy").rename(tmp_path / "mean")
    np.testing.assert_array_equal(read_array(tmp_path / "mean"), VALUES)
    np.testing.assert_array_equal(read_array(written(tmp_path, GOOD["legacy"], "mean.any")), VALUES)
    for name, said in (("a.npy", "npy"), ("a.onnx", "ONNX"), ("a.binaryproto", "BlobProto")):
        with pytest.raises(MinicaffeError, match=said):
            read_array(written(tmp_path, b"x" * 9, name))
    with pytest.raises(DataError, match="Is a directory"):
        wire.read_blob(tmp_path)
