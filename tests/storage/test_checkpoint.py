"""Weight files: whole or refused, never half-written, never executed."""

import io
import os
import pickle
import stat
import zipfile

import numpy as np
import pytest
from kit import refusal

from minicaffe import CheckpointError
from minicaffe.storage import checkpoint
from minicaffe.storage.checkpoint import Reader

WEIGHTS = np.arange(24.0).reshape(2, 3, 4)
ARRAYS = {"conv1__0": WEIGHTS, "@iteration": np.array(7), "empty": np.zeros((0, 3))}


def test_what_is_written_is_read(tmp_path):
    checkpoint.write(tmp_path / "a.npz", ARRAYS)
    with Reader(tmp_path / "a.npz") as reader:
        assert reader.shapes == {"conv1__0": (2, 3, 4), "@iteration": (), "empty": (0, 3)}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(reader[name], array)
        with pytest.raises(CheckpointError, match="has no entry 'conv2__0'"):
            reader["conv2__0"]
    assert os.listdir(tmp_path) == ["a.npz"]


def test_missing_and_foreign_files(tmp_path):
    for read in (Reader, checkpoint.read_npy):
        assert refusal(read, tmp_path / "a.np") == f"{tmp_path}/a.np: no such file"
    (tmp_path / "b.npz").write_bytes(b"not a zip")
    assert "is not a whole .npz file" in refusal(Reader, tmp_path / "b.npz")


@pytest.fixture
def pipe(tmp_path):
    """A named pipe with something in it, so that who reads it all the same does not hang here."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    path = tmp_path / "a pipe"
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR)
    os.write(handle, bytes(100))
    yield path
    os.close(handle)


def test_what_is_no_regular_file_is_not_read(pipe, tmp_path):
    """Reading a pipe waits for ever, reading a device may find no end."""
    for path in (pipe, "/dev/zero", tmp_path):
        kind = "a directory" if path is tmp_path else "a pipe or a device"
        for read in (Reader, checkpoint.read_npy):
            assert refusal(read, path).startswith(f"{path}: cannot be read: Is {kind}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_finite_in_a_narrower_type(dtype):
    narrow = np.dtype(getattr(pytest.importorskip("ml_dtypes"), dtype, dtype))
    largest = {"float16": 65504.0, "bfloat16": 3.38e38}[dtype]
    checkpoint.check_finite(np.array([largest, -largest]), narrow, "a")
    checkpoint.check_finite(np.array([3]), narrow, "a")
    with pytest.raises(CheckpointError, match=f"^a holds numbers too large for {dtype}$"):
        checkpoint.check_finite(np.array([0, 1.1 * largest]), narrow, "a")


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


def test_nothing_is_unpickled(tmp_path, here):
    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], dtype=object))
    with pytest.raises(CheckpointError, match="promises"), Reader(tmp_path / "a.npz") as reader:
        reader["x"]
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="damaged"):
        Reader(tmp_path / "b.npz")
    assert not (tmp_path / "exploded").exists()


def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(tmp_path):
    head, says = io.BytesIO(), {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(head, says)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(100))
    with pytest.raises(CheckpointError, match="promises 8796093022208 bytes, holds 100"):
        Reader(tmp_path / "a.npz")


def test_what_is_no_file_is_not_written_over(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(CheckpointError, match=f"{name}: cannot be written: Is a "):
            checkpoint.write(tmp_path / name, {"a": np.zeros(1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_folder_that_cannot_be_flushed_has_the_file_all_the_same(tmp_path, monkeypatch):
    """It may be written but not read, or be of a file system that flushes no folders."""

    def fails(*_):
        raise PermissionError(13, "Permission denied")

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            fails()

    monkeypatch.setattr(checkpoint.os, "fsync", fsync)
    checkpoint.write(tmp_path / "a.npz", {"a": np.ones(2)})
    with Reader(tmp_path / "a.npz") as reader:
        assert reader["a"].tolist() == [1, 1]
