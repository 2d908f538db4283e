"""Weights by name, from servers on this machine: fetched, refused, kept, shared."""

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit import refusal
from mirrors import served

from minicaffe.core.net.model import models
from minicaffe.errors import DataError
from minicaffe.tools.data import fetch, weights
from minicaffe.tools.data.weights import WEIGHTS, Published, fetch_weights, lookup, weights_named

ROOT = Path(__file__).resolve().parents[3]
CONTENT = bytes(range(256)) * 40
FILE = "bvlc_alexnet.caffemodel"
DIGESTS = {
    "sha1": hashlib.sha1(CONTENT).hexdigest(),
    "git_blob": hashlib.sha1(b"blob 10240\0" + CONTENT).hexdigest(),
}


@pytest.fixture(params=["sha1", "git_blob"])
def mirror(request, monkeypatch):
    """A server of a small file that takes AlexNet's place in the table."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("MINICAFFE_OFFLINE", raising=False)
    with served({FILE: CONTENT}) as server:
        ours = {"folder": server.url, "kind": request.param, "digest": DIGESTS[request.param]}
        monkeypatch.setitem(WEIGHTS, "bvlc_alexnet", replace(WEIGHTS["bvlc_alexnet"], **ours))
        yield server


@pytest.mark.parametrize("name", ["bvlc_alexnet", "alexnet"])
def test_they_are_fetched_by_their_own_name_and_the_models(tmp_path, mirror, name):
    path = weights_named(name, tmp_path)
    assert path == tmp_path / "weights" / FILE
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == [FILE]
    mirror.asked.clear()
    assert weights_named(name, tmp_path) == fetch_weights(name, tmp_path) == path
    assert mirror.asked == []


def test_the_data_folder_is_the_default(tmp_path, mirror, monkeypatch, capsys):
    monkeypatch.setenv("MINICAFFE_DATA", str(tmp_path / "mine"))
    assert weights_named("alexnet") == tmp_path / "mine" / "weights" / FILE
    assert f"minicaffe: fetching {mirror.url}{FILE} into " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "value", "told"),
    [
        ("break_after", {FILE: 1000}, "broke off after 1000 of 10240 bytes"),
        ("files", {FILE: CONTENT[:-1] + b"?"}, "the SHA-1 (.* )?does not match"),
        ("lengths", False, "does not say how long the file is"),
        ("MOST", 10000, "offers 10240 bytes, expected at most 10000"),
    ],
)
def test_what_a_server_has_wrong_is_refused_and_leaves_nothing(
    tmp_path, mirror, monkeypatch, how, value, told
):
    monkeypatch.setattr(fetch if how == "MOST" else mirror, how, value)
    line = f"cannot fetch bvlc_alexnet: {FILE}: {mirror.url}: {told}"
    line += f"; a file that you have from elsewhere goes into {tmp_path}/weights"
    assert re.fullmatch(line, refusal(fetch_weights, "bvlc_alexnet", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_that_is_there_is_replaced(tmp_path, mirror):
    path = tmp_path / "weights" / FILE
    path.parent.mkdir()
    path.write_bytes(b"wrong")
    mirror.missing.add(FILE)
    assert "HTTP 404" in refusal(fetch_weights, "bvlc_alexnet", tmp_path)
    assert path.read_bytes() == b"wrong"  # not before there is a better one
    mirror.missing.clear()
    assert fetch_weights("alexnet", tmp_path).read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == [FILE]


def test_offline_only_what_is_there_is_used(tmp_path, mirror, monkeypatch):
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    told = refusal(weights_named, "alexnet", tmp_path, error=DataError)
    assert re.search("MINICAFFE_OFFLINE is set; .*minicaffe fetch bvlc_alexnet", told)
    assert mirror.asked == []
    assert fetch_weights("alexnet", tmp_path).is_file()  # asked for by name
    assert weights_named("alexnet", tmp_path).is_file()


def test_unknown_names(tmp_path):
    assert weights_named("lenet", tmp_path) is None
    told = refusal(fetch_weights, "bvlc_googlnet", tmp_path, error=DataError)
    assert "there are no weights 'bvlc_googlnet'; did you mean 'bvlc_googlenet'" in told


def test_two_at_once_share_one_download(tmp_path, mirror):
    pytest.importorskip("fcntl")
    code = (
        "from minicaffe.tools.data.weights import WEIGHTS, Published\n"
        "from minicaffe.tools.data.weights import weights_named\n"
        f"WEIGHTS['bvlc_alexnet'] = {WEIGHTS['bvlc_alexnet']!r}\n"
        f"weights_named('alexnet', {str(tmp_path)!r})\n"
    )
    words = [sys.executable, "-c", code]
    ran = [subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=600)[1] for process in ran]
    assert [process.returncode for process in ran] == [0, 0], errors
    assert len(mirror.asked) == 1
    assert [entry.name for entry in (tmp_path / "weights").iterdir()] == [FILE]


@pytest.mark.parametrize("name", WEIGHTS)
def test_each_row_of_the_table(name):
    row = WEIGHTS[name]
    assert lookup(name) == (name, row)
    assert re.fullmatch("[0-9a-f]{40}", row.digest)
    assert re.match(r"https?://\S+/$", row.folder) and row.source.startswith("https://")
    assert row.licence and row.accuracy
    if row.kind == "git_blob":  # pinned to a commit
        assert re.search("/[0-9a-f]{40}/", row.folder)
    if row.model is not None:
        assert row.model in models()
        assert lookup(row.model) == (name, row)


def test_the_table_of_the_docs_is_that_of_the_code():
    page = (ROOT / "docs" / "zoo.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and "](http" in line]
    assert rows == [row_of_docs(name, row) for name, row in WEIGHTS.items()]


def row_of_docs(name: str, row: Published) -> str:
    """A row as docs/zoo.md has it."""
    kind = {"sha1": "SHA-1", "git_blob": "git's blob"}[row.kind]
    whose = f" ({row.digest_source})" if row.digest_source else ""
    model = f"`{row.model}`" if row.model else "none"
    cells = f"`{name}`", model, row.licence, row.accuracy, f"[page]({row.source})"
    return f"| {' | '.join(cells)} | {kind} `{row.digest}`{whose} |"


def test_names_are_those_of_the_table():
    assert {"alexnet", "bvlc_alexnet", "squeezenet", "mobilenet"} < set(weights.NAMES)
    assert len(set(weights.NAMES)) == len(weights.NAMES)
