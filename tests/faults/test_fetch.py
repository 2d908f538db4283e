"""Data sets and weights that are fetched onto a disk on which one call after the other fails, or whose power is cut.

Whatever fails: each file under a final name has the bytes that were published, one error tells of it, and the
next attempt brings all of them and leaves nothing else. The default suite tries some calls; `--long` all.
"""

import gzip
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faults.disk import STATES, Disk, Fault, cut, faults_of, noted
from mirrors import served
from tools.data.test_archive import FILE, contents, packed, publish

from minicaffe.errors import DataError
from minicaffe.tools.data import fetch, idx
from minicaffe.tools.data.weights import WEIGHTS, fetch_weights

CONTENT = bytes(range(256)) * 400
WEIGHTS_FILE = "bvlc_alexnet.caffemodel"


@pytest.fixture(params=["mnist", "cifar10", "weights"])
def published(request, monkeypatch):
    """What brings one of them into a folder, and the files that are there then."""
    monkeypatch.setenv("no_proxy", "*")
    if request.param == "mnist":
        chance, files, rows = np.random.default_rng(0), {}, {}
        for name, shape in zip(fetch.FILES, ((9, 8, 8), (9,), (5, 8, 8), (5,)), strict=True):
            raw = idx.header(shape) + chance.integers(0, 256, shape, np.uint8).tobytes()
            data = files[f"{name}.gz"] = gzip.compress(raw, mtime=0)
            rows[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            rows[name] |= {"shape": [*shape], "raw_md5": hashlib.md5(raw).hexdigest()}
        monkeypatch.setitem(fetch.KNOWN, "mnist", fetch.Known(("http://127.0.0.1:1/",), rows))
        sent, wanted, place = files, files, "mnist"
    elif request.param == "cifar10":
        sent, wanted, place = {FILE: packed(contents())}, contents(), "cifar10"
        publish(monkeypatch, sent[FILE])
    else:
        sent = wanted = {WEIGHTS_FILE: CONTENT}
        place = "weights"
        digest = hashlib.sha1(CONTENT).hexdigest()
        row = replace(WEIGHTS["bvlc_alexnet"], digest=digest, kind="sha1")
        monkeypatch.setitem(WEIGHTS, "bvlc_alexnet", row)

    with served(sent) as mirror:

        def bring(folder: Path) -> None:
            if place == "weights":
                fetch_weights("bvlc_alexnet", folder, [mirror.url], progress=False)
            else:
                fetch.fetch(place, folder, [mirror.url], progress=False)

        yield bring, {f"{place}/{name}": data for name, data in wanted.items()}


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def whole(folder: Path, wanted: dict[str, bytes]) -> None:
    """What stands under a final name is what was published; and the next attempt brings all."""
    for name, data in files(folder).items():
        assert name not in wanted or data == wanted[name], name


def test_each_call_fails_in_turn(tmp_path, published, request):
    bring, wanted = published
    with Disk(tmp_path / "straight") as disk:
        bring(tmp_path / "straight")
    assert files(tmp_path / "straight") == wanted and len(disk.calls) > 5
    wrong: list[str] = []
    broken = tmp_path / "broken"
    for k, error in faults_of(disk.calls, None if request.config.getoption("--long") else 40):
        with noted(wrong, disk, k, error):
            try:
                with Disk(broken, {k: Fault(error)}):
                    bring(broken)
            except DataError as refusal:
                assert str(refusal).isprintable() and error != "short"
            whole(broken, wanted)
            bring(broken)
            assert files(broken) == wanted
        shutil.rmtree(broken, ignore_errors=True)
    assert not wrong, "\n".join(wrong)


def test_the_power_is_cut_after_each_call(tmp_path, published, request):
    bring, wanted = published
    with Disk(tmp_path / "straight") as disk:
        bring(tmp_path / "straight")
    every = [(k, state) for k in range(len(disk.calls) + 1) for state in STATES]
    wrong, long, left = list[str](), request.config.getoption("--long"), tmp_path / "left"
    for k, state in every if long else every[:: max(1, len(every) // 40)]:
        left.mkdir()
        with noted(wrong, disk, k, state):
            cut(disk, k, state, left)
            whole(left, wanted)
            bring(left)
            assert files(left) == wanted
        shutil.rmtree(left)
    assert not wrong, "\n".join(wrong)
