"""LMDB databases written by minicaffe, against LMDB's own library and our reader."""

from __future__ import annotations

import random

import pytest

from minicaffe.data import lmdb_file, lmdb_write


@pytest.mark.parametrize(
    ("count", "largest"),
    [(0, 0), (1, 10), (3, 9000), (40, 5000), (1500, 60), (6000, 3), (300, 2100)],
)
@pytest.mark.parametrize("long_keys", [False, True])
def test_lmdbs_library_reads_what_we_write(tmp_path, count, largest, long_keys):
    lmdb = pytest.importorskip("lmdb")
    rng = random.Random(count)
    tail = b"x" * 480 if long_keys else b""
    written = [
        (b"%08d" % i + tail[: rng.randrange(481)], rng.randbytes(rng.randrange(largest + 1)))
        for i in range(count)
    ]
    with lmdb_write.Writer(tmp_path) as out:
        for key, value in written:
            out.put(key, value)
    ours = lmdb_file.Lmdb(tmp_path)
    assert [bytes(ours[i]) for i in range(len(ours))] == [value for _, value in written]
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as env, env.begin() as view:
        assert list(view.cursor()) == written
        for key, value in written[:: max(1, count // 50)]:
            assert view.get(key) == value
        told = view.stat()
        pages = told["branch_pages"] + told["leaf_pages"] + told["overflow_pages"]
        assert told["entries"] == count
        assert env.info()["last_pgno"] == pages + 1
        assert (tmp_path / "data.mdb").stat().st_size == (pages + 2) * lmdb_write.PAGE


def test_others_may_write_on(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb_write.Writer(tmp_path) as out:
        for i in range(200):
            out.put(b"%08d" % i, b"v" * (i * 30))
    with lmdb.open(str(tmp_path), map_size=1 << 26) as env, env.begin(write=True) as put:
        for i in range(200, 300):
            put.put(b"%08d" % i, b"w" * i)
        put.delete(b"00000100")
    found = lmdb_file.Lmdb(tmp_path)
    assert len(found) == 299 and bytes(found[298]) == b"w" * 299 and len(found[100]) == 3030


def test_what_is_not_finished_is_no_database(tmp_path):
    with pytest.raises(ZeroDivisionError), lmdb_write.Writer(tmp_path) as out:
        out.put(b"a", b"b")
        raise ZeroDivisionError
    with pytest.raises(Exception, match="does not begin as one"):
        lmdb_file.Lmdb(tmp_path)
