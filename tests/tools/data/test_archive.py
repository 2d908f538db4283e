"""CIFAR-10's archive: fetched from servers on this machine, and archives that are not what they should be."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from kit import refusal
from mirrors import served

from minicaffe.errors import DataError
from minicaffe.tools.data import fetch, readers

FOLDER = "cifar-10-batches-bin"
FILE = "cifar-10-binary.tar.gz"


def contents():
    """Small files of CIFAR-10's names."""
    rng = np.random.default_rng(0)
    found = {"batches.meta.txt": b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"}
    for file in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = rng.integers(0, 256, (4, 3073), np.uint8)
        records[:, 0] %= 10
        found[file] = records.tobytes()
    return found


def packed(files, change=None):
    """A .tar.gz of these files in their folder; `change(info)` changes the last, or gives what to write for it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, content in {"": None, **files, "readme.html": b"<html>"}.items():
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            info.size = len(content or b"")
            changed = change(info) if change and name == "test_batch.bin" else None
            for member in changed or [info]:
                whole = io.BytesIO((content or b"").ljust(member.size % (1 << 30)))
                tar.addfile(member, whole if member.size < 1 << 30 else None)
    return out.getvalue()


@pytest.fixture
def published(monkeypatch):
    """An archive that takes the place of CIFAR-10's: its bytes."""
    return publish(monkeypatch, packed(contents()))


def publish(monkeypatch, data):
    monkeypatch.setenv("no_proxy", "*")
    sizes = {name: len(content) for name, content in contents().items()}
    digests = hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()
    row = fetch.Archive(("http://127.0.0.1:1/",), FILE, len(data), *digests, FOLDER, sizes)
    monkeypatch.setitem(fetch.ARCHIVES, "cifar10", row)
    return data


def fetched(folder, mirror):
    return fetch.fetch("cifar10", folder, [mirror.url], progress=False)


def test_cifar10_is_fetched(tmp_path, published, monkeypatch):
    with served({FILE: published}) as mirror:
        home = fetched(tmp_path, mirror)
        assert home == tmp_path / "cifar10"
        assert {path.name: path.read_bytes() for path in home.iterdir()} == contents()
        mirror.asked.clear()
        (home / ".1ab.tmp").mkdir()  # of one that was killed
        assert fetched(tmp_path, mirror) == home
        assert not mirror.asked and not list(home.glob(".*"))
        (home / "test_batch.bin").write_bytes(b"short")
        fetched(tmp_path, mirror)
    monkeypatch.setenv("MINICAFFE_DATA", str(tmp_path))
    found = readers.open("cifar10", "test")
    assert len(found) == 4 and found.classes == tuple("abcdefghij")


def test_a_download_that_broke_off_or_is_another_leaves_nothing(tmp_path, published):
    with served({FILE: published}) as mirror:
        mirror.break_after[FILE] = 1000
        assert "broke off after 1000 of" in refusal(fetched, tmp_path, mirror)
        mirror.break_after.clear()
        mirror.files[FILE] = published[:-9] + bytes(9)
        assert "the SHA-256 does not match" in refusal(fetched, tmp_path, mirror)
        assert not os.listdir(tmp_path)
        mirror.files[FILE] = published
        fetched(tmp_path, mirror)
    assert sorted(os.listdir(tmp_path / "cifar10")) == sorted(contents())


def _link(info):
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


def _long(info):
    info.size += 1


def _outside(info):
    info.name = f"../{info.name}"


def _huge(info):
    """It promises more than the archive could hold: nothing of it is looked at."""
    info.size += 1 << 33


def _twice(info):
    return [info, info]


ONCE = "test_batch.bin: expected a file of 12292 bytes, once"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_link, ONCE),
        (_long, ONCE),
        (_twice, ONCE),
        (_outside, "it lacks test_batch.bin"),
        (_huge, "it holds other files than it should"),
    ],
)
def test_members_that_should_not_be_there(tmp_path, monkeypatch, change, message):
    data = publish(monkeypatch, packed(contents(), change))
    with served({FILE: data}) as mirror:
        line = refusal(fetched, tmp_path, mirror)
    assert line == f"{FILE}: is not a whole archive of {FOLDER}: {message}"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("cut", [0, 5, 500, -9000])
def test_an_archive_cut_short(tmp_path, published, cut):
    path = Path(tmp_path, "x.tar.gz")
    path.write_bytes(published[:cut])
    line = refusal(fetch.unpack, path, fetch.ARCHIVES["cifar10"], tmp_path, error=DataError)
    assert "x.tar.gz: is not a whole archive" in line
