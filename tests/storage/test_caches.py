"""The one folder of all caches, and files in it that are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from minicaffe.backends import device as backend
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.storage import caches
from minicaffe.tools.data import datasets


@pytest.fixture
def nobody(monkeypatch):
    """A user without any of the variables, and without a home."""
    pwd = pytest.importorskip("pwd")
    for name in ("MINICAFFE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_where_the_folder_is(nobody, monkeypatch, tmp_path):
    assert caches.folder() == Path(os.devnull, "minicaffe")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert caches.folder() == tmp_path / ".cache" / "minicaffe"
    for base in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert caches.folder() == tmp_path / ".cache" / "minicaffe"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert caches.folder() == tmp_path / "xdg" / "minicaffe"
    monkeypatch.setenv("MINICAFFE_CACHE", "~/mine")
    assert caches.folder() == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINICAFFE_CACHE", "here")
    assert caches.folder() == tmp_path / "here"


def test_plans_loops_and_digits_lie_in_it(monkeypatch, tmp_path):
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 10, "test": 10})
    datasets.load("digits", "test")
    assert [path.name for path in tmp_path.iterdir()] == [f"digits-{datasets._DRAWING}"]
    assert autotune_cache.path(backend.device("cpu")).parent == tmp_path
    kept = pytest.importorskip("minicaffe.backends.cpu.compile_cache")
    assert kept.folder.__wrapped__().parent == tmp_path / "loops"


def test_what_keeps_a_folder_from_being_written(tmp_path):
    assert caches.obstacle(tmp_path / "a" / "b") == ""
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "folder"
    assert caches.obstacle(below) == (
        f"{below} cannot be written: Not a directory; MINICAFFE_CACHE names another"
    )


def test_a_file_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "file"
    assert caches.keep(file, b"one") == ""
    assert caches.keep(file, b"two") == ""
    assert file.read_bytes() == b"two"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write_bytes", "replace"):
        with monkeypatch.context() as disk:
            disk.setattr(*((Path, name) if name == "write_bytes" else (os, name)), full)
            why = caches.keep(file, b"three")
        assert why == f"{file.parent} cannot be written: No space left on device"
        assert file.read_bytes() == b"two"
        assert os.listdir(file.parent) == ["file"]
