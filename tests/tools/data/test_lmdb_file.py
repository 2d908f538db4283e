"""What is wrong with an LMDB database is said in one line: a table of a byte each, spoilt in a whole one."""

import struct

import pytest
from reading_files import write_lmdb

from minicaffe.errors import DataError
from minicaffe.tools.data.lmdb_file import Lmdb

HEADS = (16, 4096 + 16)  # of its two states


@pytest.fixture
def whole(tmp_path):
    """The bytes of a database of three entries, of which the second has pages of its own; its leaf, that page."""
    write_lmdb(tmp_path, [b"first", b"second" * 1000, b"third"])
    data = bytearray((tmp_path / "data.mdb").read_bytes())
    newer = max(HEADS, key=lambda head: struct.unpack_from("<Q", data, head + 128))
    (leaf,) = struct.unpack_from("<Q", data, newer + 72 + 40)
    (node,) = struct.unpack_from("<H", data, leaf * 4096 + 16 + 2)
    (large,) = struct.unpack_from("<Q", data, leaf * 4096 + node + 8 + 8)
    assert [bytes(one) for one in Lmdb(tmp_path)] == [b"first", b"second" * 1000, b"third"]
    return data, leaf * 4096, leaf * 4096 + node, large * 4096


def told(folder, data):
    (folder / "data.mdb").write_bytes(data)
    with pytest.raises(DataError) as caught:
        for _ in Lmdb(folder):
            pass
    text = str(caught.value)
    assert text.startswith(f"{folder / 'data.mdb'}: is not a whole LMDB database: ")
    return text.partition("database: ")[2]


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, "<I0", "it does not begin as one"),
        (4, "<I7", "it is of version 7, expected 1"),
        (24, "<I100", "its pages are of 100 bytes"),
        (76, "<H4", "a key may have several values, which Caffe's do not"),
        (78, "<H65", "it promises a tree of 1 pages, 65 deep"),
        (78, "<H0", "its tree is larger than the 1 pages and 0 levels it promises"),
        (80, f"<Q{2**40}", f"it promises a tree of {2**40 + 1} pages, 1 deep"),
        (104, "<Q9", "it promises 9 entries, its leaves hold 3"),
        (112, "<Q999999", "page 999999 is past its end"),
        (112, "<Q0", "page 0 is no page of its tree"),
    ],
)
def test_a_head_that_is_wrong(tmp_path, whole, at, value, message):
    data, *_ = whole
    for head in HEADS:
        struct.pack_into(value[:2], data, head + at, int(value[2:]))
    assert told(tmp_path, data) == message


@pytest.mark.parametrize(
    ("place", "at", "value", "message"),
    [
        ("leaf", 16, 65535, "page {leaf} is damaged at entry 0"),
        ("node", 0, 65535, "page {leaf} is damaged at entry 1"),
        ("node", 4, 2, "it holds databases by name, which Caffe's do not"),
        ("node", 8 + 8, 9999, "page 9999 is past its end"),
        ("large", 10, 0, "page {large} holds no value"),
    ],
)
def test_a_page_that_is_wrong(tmp_path, whole, place, at, value, message):
    data, *starts = whole
    places = dict(zip(("leaf", "node", "large"), starts, strict=True))
    struct.pack_into("<H", data, places[place] + at, value)
    pages = {name: start // 4096 for name, start in places.items()}
    assert told(tmp_path, data) == message.format(**pages)


def test_one_that_is_cut_short(tmp_path, whole):
    assert told(tmp_path, whole[0][:100]) == "it ends before it has begun"
