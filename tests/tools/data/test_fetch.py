"""Fetching from servers on this machine that break off, forbid, lie and stall; and from nowhere."""

import gzip
import hashlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import kit
import numpy as np
import pytest
from mirrors import served

from minicaffe.errors import DataError
from minicaffe.tools.data import fetch, idx

ROOT = Path(__file__).resolve().parents[3]
SHAPES = ((100, 28, 28), (100,), (50, 28, 28), (50,))
IMAGES = f"{fetch.FILES[0]}.gz"


@pytest.fixture
def published(monkeypatch):
    """A small data set that takes MNIST's place among the known ones: name -> .gz bytes."""
    rng = np.random.default_rng(7)
    raws, files = {}, {}
    for name, shape in zip(fetch.FILES, SHAPES, strict=True):
        raws[name] = idx.header(shape) + rng.integers(0, 256, shape, np.uint8).tobytes()
        zipped = gzip.compress(raws[name], mtime=0)
        files[name] = {"size": len(zipped), "sha256": hashlib.sha256(zipped).hexdigest()}
        files[name] |= {"shape": [*shape], "raw_md5": hashlib.md5(raws[name]).hexdigest()}
    monkeypatch.setitem(fetch.KNOWN, "mnist", fetch.Known(("http://127.0.0.1:1/",), files))
    monkeypatch.setenv("no_proxy", "*")
    return {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in raws.items()}


@pytest.fixture
def mirror(published):
    with served(published) as server:
        yield server


@pytest.fixture
def second(published):
    with served(published) as server:
        yield server


def get(folder, *mirrors):
    urls = [mirror if isinstance(mirror, str) else mirror.url for mirror in mirrors]
    return fetch.fetch("mnist", folder, urls, progress=False)


def refusal(folder, *mirrors):
    line = kit.refusal(get, folder, *mirrors, error=DataError)
    assert "\n" not in line
    return line


def installed(folder):
    return sorted(os.listdir(folder / "mnist")) if (folder / "mnist").exists() else []


def test_the_bar_is_shown_on_a_terminal_only(tmp_path, mirror, monkeypatch, capsys):
    fetch.fetch("mnist", tmp_path / "a", [mirror.url])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch.fetch("mnist", tmp_path / "b", [mirror.url], progress=False)
    assert capsys.readouterr().err == ""
    fetch.fetch("mnist", tmp_path / "b2", [mirror.url])
    assert IMAGES in capsys.readouterr().err


def test_the_mirror_that_works_is_asked_first_for_the_rest(tmp_path, published, mirror, second):
    mirror.break_after[IMAGES] = 1000
    get(tmp_path, mirror, second)
    assert len(mirror.asked) == 1 and len(second.asked) == 4
    assert installed(tmp_path) == sorted(published)


@pytest.mark.parametrize("lengths", [True, False])
def test_wrong_files_are_refused_and_the_next_mirror_asked(
    tmp_path, published, mirror, second, lengths
):
    mirror.lengths = lengths
    size = len(published[IMAGES])
    mirror.files[IMAGES] = b"<html>log in first</html>"
    words = f"offers 25 bytes, expected {size}" if lengths else f"broke off after 25 of {size}"
    assert words in refusal(tmp_path, mirror)
    mirror.files[IMAGES] = bytes(size + 10**6)
    words = "offers" if lengths else "the SHA-256 does not match"
    assert words in refusal(tmp_path / "b", mirror)
    assert not (tmp_path / "b").exists()
    get(tmp_path, mirror, second)
    assert (tmp_path / "mnist" / IMAGES).read_bytes() == published[IMAGES]


def test_every_mirror_tells_its_reason(tmp_path, mirror, second, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/"
    monkeypatch.setattr(fetch, "TIMEOUT", 0.3)
    mirror.missing.add(IMAGES)
    second.break_after[IMAGES] = 1000
    second.stall = True
    text = refusal(tmp_path, mirror, second, nobody, "nonsense", "http://[")
    assert text.startswith(f"cannot fetch mnist: {IMAGES}: {mirror.url}: HTTP 404 Not Found; ")
    assert f"{second.url}: no answer within 0.3 s" in text
    assert f"{nobody}: Connection refused" in text
    assert "nonsense: unknown url type" in text
    assert "no mirror given" in refusal(tmp_path)


def test_a_right_file_in_another_packing_is_kept(tmp_path, published, mirror):
    home = tmp_path / "mnist"
    home.mkdir()
    raws = [gzip.decompress(content) for content in published.values()]
    kept = {
        fetch.FILES[0]: raws[0],
        fetch.FILES[1].replace("-idx", ".idx"): raws[1],
        f"{fetch.FILES[2]}.gz": gzip.compress(raws[2], 1, mtime=1),
        f"{fetch.FILES[3].replace('-idx', '.idx')}.gz": gzip.compress(raws[3], mtime=1),
    }
    for name, content in kept.items():
        (home / name).write_bytes(content)
    get(tmp_path, mirror)
    assert mirror.asked == []
    assert {name: (home / name).read_bytes() for name in os.listdir(home)} == kept


@pytest.mark.parametrize("damage", ["cut", "other", "noise"])
def test_a_wrong_file_is_replaced(tmp_path, published, mirror, damage):
    get(tmp_path, mirror)
    path = tmp_path / "mnist" / IMAGES
    idx.write(path, np.zeros(SHAPES[0], np.uint8))
    other = path.read_bytes()
    content = {"cut": other[:-3], "other": other, "noise": b"noise"}[damage]
    path.write_bytes(content)
    mirror.asked.clear()
    mirror.missing.add(IMAGES)
    refusal(tmp_path, mirror)
    assert path.read_bytes() == content  # not before there is a better one
    mirror.missing.clear()
    get(tmp_path, mirror)
    assert set(mirror.asked) == {IMAGES}
    assert path.read_bytes() == published[IMAGES]
    assert installed(tmp_path) == sorted(published)


def test_a_wrong_file_that_would_hide_the_right_one(tmp_path, mirror):
    """Of another name than what is fetched: it is not ours to remove."""
    path = tmp_path / "mnist" / fetch.FILES[0]
    path.parent.mkdir()
    path.write_bytes(b"mine")
    told = f"cannot fetch mnist: {path} is not mnist's: remove it first"
    assert refusal(tmp_path, mirror) == told
    assert path.read_bytes() == b"mine" and mirror.asked == []


def test_unknown_names():
    with pytest.raises(DataError, match=r"'fashion_mnist'.*did you mean 'fashion-mnist'"):
        fetch.fetch("fashion_mnist", Path("nowhere"))
    with pytest.raises(DataError, match="expected mnist, fashion-mnist, cifar10"):
        fetch.fetch("../mnist", Path("nowhere"))


def test_a_folder_that_cannot_be_made(tmp_path, mirror):
    (tmp_path / "file").touch()
    told = f"cannot fetch mnist: {tmp_path / 'file' / 'mnist'}: "
    assert told in refusal(tmp_path / "file", mirror)


def test_a_full_disk_is_no_fault_of_the_mirror(tmp_path, mirror, second, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    text = refusal(tmp_path, mirror, second)
    assert text == f"cannot fetch mnist: {tmp_path / 'mnist'}: No space left on device"
    assert second.asked == []


def child(tmp_path, mirror):
    """Another process that fetches the same data set from `mirror`."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from minicaffe.tools.data import fetch; Known = fetch.Known\n"
        f"fetch.KNOWN['mnist'] = {fetch.KNOWN['mnist']!r}\n"
        f"fetch.fetch('mnist', Path({str(tmp_path)!r}), [{mirror.url!r}], progress=False)\n"
    )
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def until(condition):
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_in_the_middle_nothing_is_installed(tmp_path, published, mirror):
    name = f"{fetch.FILES[2]}.gz"
    mirror.break_after[name] = 1000
    mirror.stall = True
    with child(tmp_path, mirror) as process:
        until(lambda: name in mirror.asked)
        time.sleep(0.1)
        process.kill()
    assert not [name for name in installed(tmp_path) if not name.startswith(".")]
    mirror.break_after.clear()
    get(tmp_path, mirror)
    assert sorted(os.listdir(tmp_path / "mnist")) == sorted(published)


def test_two_at_once_share_one_download(tmp_path, published, mirror):
    pytest.importorskip("fcntl")
    with child(tmp_path, mirror) as one, child(tmp_path, mirror) as other:
        errors = one.communicate(timeout=600)[1], other.communicate(timeout=600)[1]
        assert (one.returncode, other.returncode) == (0, 0), errors
    assert len(mirror.asked) == 4
    assert sorted(os.listdir(tmp_path / "mnist")) == sorted(published)


def test_mnist_as_other_people_packed_it(monkeypatch):
    """True MNIST with other gzip bytes, where this machine has it."""
    for folder in (os.environ.get("MINICAFFE_DATA"), ROOT.parent / "shared" / "data"):
        if folder and all(any(fetch.find(Path(folder, "mnist"), name)) for name in fetch.FILES):
            break
    else:
        pytest.skip("no MNIST in $MINICAFFE_DATA or ../shared/data")
    home = Path(folder, "mnist")
    for name, published in fetch.KNOWN["mnist"].files.items():
        assert fetch._is_right(next(fetch.find(home, name)), published)


def test_importing_brings_no_network_modules():
    code = (
        "import sys; before = set(sys.modules); import minicaffe.tools.data.datasets\n"
        "print({'urllib.request', 'http.client', 'ssl', 'tqdm', 'minicaffe.tools.data.digits'}"
        " & (set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_a_failed_fetch_leaves_no_empty_folders_behind(tmp_path, published):
    for before in ([], [tmp_path / "data"]):
        for folder in before:
            folder.mkdir()
        refusal(tmp_path / "data", "http://127.0.0.1:1/")
        assert list(tmp_path.iterdir()) == before
