"""examples/im2col_walkthrough.py: its pictures, and that a wrong number stops it."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def walkthrough(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield importlib.import_module("im2col_walkthrough")
    for name in ("im2col_walkthrough", "drawing"):
        sys.modules.pop(name, None)


def test_the_walkthrough_draws_its_pictures(walkthrough, tmp_path):
    pytest.importorskip("matplotlib")
    assert walkthrough.main(tmp_path / "pictures") == 0
    pictures = sorted(tmp_path.glob("pictures/*.png"))
    assert [path.name[0] for path in pictures] == list("123456")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_walkthrough_notices_a_wrong_number(walkthrough):
    columns = np.zeros((18, 4), int)
    with pytest.raises(SystemExit, match="im2col row 0, column 0: minicaffe gives 0"):
        walkthrough.check(columns, columns[:2])


def test_the_walkthrough_without_matplotlib(walkthrough, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert walkthrough.main(tmp_path) == 2
    assert re.fullmatch(r".*pip install -e '.\[pictures\]'\n", capsys.readouterr().err)
