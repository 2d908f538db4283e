"""The IDX format: round trips, every kind of damage, and memory that only the file can claim."""

import gzip
import os
import stat
import struct
import tracemalloc

import kit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minicaffe.errors import DataError, printable
from minicaffe.tools.data import idx

arrays = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=7))
quick = settings(max_examples=60)
IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


def raw(array):
    """An IDX file as the format's description spells it, apart from the code under test."""
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes()


def zipped(content):
    return gzip.compress(content, mtime=0)


def peak(work, *args):
    """The most memory that Python takes while work(*args) runs, in bytes; and what it returns."""
    tracemalloc.start()
    try:
        found = work(*args)
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def refusal(path, reader=idx.read, **how):
    """The one line with which a reader refuses a file; it names the file."""
    text = kit.refusal(reader, path, error=DataError, **how)
    assert "\n" not in text and printable(path) in text
    return text


@quick
@given(arrays, st.sampled_from(["a", "a.gz"]))
def test_round_trip(tmp_path, array, name):
    path = tmp_path / name
    idx.write(path, array)
    assert idx.read_shape(path) == array.shape
    back = idx.read(path)
    assert back.dtype == np.uint8
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array)
    assert os.listdir(tmp_path).count(name) == 1
    assert not [left for left in os.listdir(tmp_path) if left.endswith(".tmp")]


@quick
@given(arrays)
def test_written_bytes_are_the_format(tmp_path, array):
    idx.write(tmp_path / "a", array.T)  # contiguous or not
    assert (tmp_path / "a").read_bytes() == raw(array.T)
    idx.write(tmp_path / "a.gz", array)
    first = (tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(first) == raw(array)
    assert first[4:8] == bytes(4)  # no time in it
    idx.write(tmp_path / "a.gz", array)
    assert (tmp_path / "a.gz").read_bytes() == first


def test_gzip_is_known_by_its_magic_not_by_the_name(tmp_path):
    (tmp_path / "zipped").write_bytes(gzip.compress(raw(IMAGES)))
    (tmp_path / "plain.gz").write_bytes(raw(IMAGES))
    for name in ("zipped", "plain.gz"):
        np.testing.assert_array_equal(idx.read(str(tmp_path / name)), IMAGES)


@quick
@given(arrays, st.data(), st.booleans())
def test_every_truncation_is_refused(tmp_path, array, data, zipped):
    whole = gzip.compress(raw(array)) if zipped else raw(array)
    path = tmp_path / "a"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refusal(path)


@quick
@given(arrays, st.binary(min_size=1, max_size=9), st.booleans())
def test_bytes_too_many_are_refused(tmp_path, array, more, zipped):
    path = tmp_path / "a"
    whole = raw(array) + more
    path.write_bytes(gzip.compress(whole) if zipped else whole)
    assert "expected" in refusal(path)


def read_or_refused(path, content):
    """The array of a file of these bytes, or None where it is refused by name."""
    path.write_bytes(content)
    try:
        return idx.read(path)
    except DataError as error:
        assert str(path) in str(error)


@quick
@given(st.data())
def test_a_flipped_bit_is_refused_or_leaves_the_array_right(tmp_path, data):
    """gzip's CRC finds it, or it sits in a field of the gzip header that does not matter."""
    whole = bytearray(zipped(raw(IMAGES)))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    found = read_or_refused(tmp_path / "a", whole)
    assert found is None or np.array_equal(found, IMAGES)


@quick
@given(st.binary(max_size=80))
def test_random_bytes_never_raise_anything_else(tmp_path, noise):
    for content in (noise, b"\0\0\x08" + noise, b"\x1f\x8b\x08" + noise, gzip.compress(noise)):
        read_or_refused(tmp_path / "a", content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("sizes", [(2**20, 2**20), (2**32 - 1,) * 4, (0,) + (2**32 - 1,) * 3])
def test_an_oversized_header_is_refused_without_memory(tmp_path, sizes, zipped):
    header = b"\0\0\x08" + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
    content = header + bytes(1000)
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content) if zipped else content)
    taken, told = peak(refusal, path)
    assert taken < 1 << 19
    if 0 not in sizes:
        cannot = f"but a gzip file of {path.stat().st_size} bytes cannot hold more than " * zipped
        assert "the header promises " in told and cannot in told


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_reading_takes_little_more_memory_than_the_array(tmp_path, name):
    array = np.random.default_rng(1).integers(0, 4, (8, 1024, 1024), np.uint8)
    idx.write(tmp_path / name, array)
    assert peak(idx.read, tmp_path / name)[0] < array.nbytes + (3 << 20)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut short in its header: expected 4 bytes more, found 0"),
        (b"\0\0\x08", "cut short in its header: expected 4 bytes more, found 3"),
        (b"\0\0\x08\x03\0\0\0\x01", "cut short in its header: expected 12 bytes more, found 4"),
        (b"\x89PN.....", "not an IDX file: expected it to begin with 00 00 08 (or gzip's 1f 8b)"),
        (b"<html>", "found a web page"),
        (b"\0\0\x0d\x01\0\0\0\0", "expected uint8 (type 08), found float32"),
        (b"\0\0\x08\x00", "expected 1 to 4 axes, found 0"),
        (b"\0\0\x08\x05" + bytes(20), "expected 1 to 4 axes, found 5"),
        (raw(IMAGES)[:-1], "the header promises 3x4x5: expected 76 bytes, found 75"),
        (raw(IMAGES) + b"!", "promises 3x4x5: expected 76 bytes, found 77"),
        (zipped(raw(IMAGES)[:-1]), "cut short: expected 60 bytes for 3x4x5, found 59"),
        (zipped(raw(IMAGES) + b"!"), "expected 60 bytes for 3x4x5, found more bytes after them"),
        (zipped(raw(IMAGES))[:-9], "damaged gzip file"),
        (zipped(raw(IMAGES))[:-8] + bytes(8), "damaged gzip file: CRC check failed"),
        (zipped(raw(IMAGES)) + b"junk", "damaged gzip file"),
        (b"\x1f\x8b\x08\0" + bytes(30), "damaged gzip file"),
    ],
)
def test_damage_is_named(tmp_path, content, words):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    assert words in refusal(path)


def test_an_array_that_memory_does_not_hold(tmp_path, monkeypatch):
    idx.write(tmp_path / "a", np.zeros((2, 3), np.uint8))
    monkeypatch.setattr(np, "empty", lambda *given: (_ for _ in ()).throw(MemoryError))
    assert refusal(tmp_path / "a").endswith("a: an array of 2x3 (0 MiB) does not fit in memory")


def test_what_is_no_file(tmp_path):
    assert "expected an IDX file, found a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "missing")
    assert "embedded null byte" in refusal(f"{tmp_path}/\0")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert "not a regular file" in refusal(tmp_path / "pipe")


def test_labels_given_for_images(tmp_path):
    path = tmp_path / "labels"
    idx.write(path, IMAGES[0, 0])
    for reader in (idx.read, idx.read_shape):
        assert "expected 3 or 4 axes, found 1 (5)" in refusal(path, reader, axes=(3, 4))
    assert idx.read_shape(path, axes=(1,)) == (5,)


@pytest.mark.parametrize("array", [np.zeros(3), np.uint8(0), np.zeros((1,) * 5, np.uint8)])
def test_arrays_that_idx_cannot_hold(tmp_path, array):
    assert "IDX files hold uint8" in refusal(tmp_path / "a", lambda path: idx.write(path, array))
    assert not os.listdir(tmp_path)


def test_written_files_have_the_users_mode(tmp_path):
    (tmp_path / "other").touch()
    idx.write(tmp_path / "a", IMAGES)
    assert len({stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "other")}) == 1
