"""Where the files that a model or a list names are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from minicaffe.data.lists import find
from minicaffe.errors import DataError


def test_where_a_file_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    with pytest.raises(DataError, match=r"^source: no such file; looked for 'a' and 'nets/a'$"):
        find("a", [Path("nets")], "source")
    (tmp_path / "nets" / "a").touch()
    assert str(find("a", [Path("nets")], "source")) == "nets/a"
    (tmp_path / "a").touch()
    assert str(find("a", [Path("nets")], "source")) == "a"
    assert str(find("a", [None], "source")) == "a"
