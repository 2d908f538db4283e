"""Where the files that a model or a list names are looked for."""

from pathlib import Path

import pytest

from minicaffe.errors import DataError
from minicaffe.storage import lists
from minicaffe.storage.lists import find


def test_where_a_file_is_looked_for(tmp_path, here):
    (tmp_path / "nets").mkdir()
    with pytest.raises(DataError, match=r"^source: no such file; looked for 'a' and 'nets/a'$"):
        find("a", [Path("nets")], "source")
    (tmp_path / "nets" / "a").touch()
    assert str(find("a", [Path("nets")], "source")) == "nets/a"
    (tmp_path / "a").touch()
    assert str(find("a", [Path("nets")], "source")) == "a"
    assert str(find("a", [None], "source")) == "a"


def test_a_byte_order_mark_before_a_list_is_read(tmp_path):
    """Notepad saves one."""
    windows = "# 0 a/0.png 3 8 8 1\n1 0.9 0 0 4 4\n"
    for read, text, first in [
        (lists.labelled, "a/0.png 0\n", "a/0.png"),
        (lists.pairs, "a/0.png a/0.xml\n", "a/0.png"),
        (lists.files, "a.h5\n", "a.h5"),
        (lambda path: lists.windows(path, 0.5, 0.5).pictures, windows, "a/0.png"),
    ]:
        path = tmp_path / "list.txt"
        path.write_text(text, encoding="utf-8-sig")
        found = read(path)
        assert (found[0][0] if isinstance(found, tuple) else found[0]) == first
