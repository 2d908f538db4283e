"""HDF5Output on a disk on which one call after the other fails, whose power is cut, or that is full.

Whatever fails: the file of that name is the old one or the new one, whole; one error tells of it; what is left
beside it is removed by the next that is written. The default suite tries some calls; `--long` all.
"""

import gc
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from faults.disk import STATES, Disk, Fault, cut, faults_of, full, noted

from minicaffe import Net, parse
from minicaffe.errors import DataError
from minicaffe.storage.hdf5 import Writable

h5py = pytest.importorskip("h5py")
TEXT = """
layers:
  - {name: in, type: Input, top: [x, y], shape: [{dim: [300, 40]}, {dim: [300]}]}
  - {name: out, type: HDF5Output, bottom: [y, x], file_name: out.h5}
"""
PASSES = 3


@pytest.fixture
def write(monkeypatch, tmp_path):
    """Writes numbers that `seed` draws into out.h5 of a folder; finished, or as where a program ends."""

    def written(folder: Path, seed: int = 0, finish: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        chance = np.random.default_rng(seed)
        try:
            net = Net(parse(TEXT), "TEST", device="cpu")
            for _ in range(PASSES):
                net.forward(x=chance.standard_normal((300, 40)), y=np.arange(300))
            if finish:
                net.layers["out"].finish()
            del net
            gc.collect()
        finally:
            monkeypatch.chdir(tmp_path)

    return written


def rows(folder: Path) -> bytes | None:
    """What out.h5 holds, if it is there; it must be whole."""
    path = folder / "out.h5"
    if not path.exists():
        return None
    with h5py.File(path) as file:
        assert len(file["data"]) == len(file["label"]) == PASSES * 300
        return file["data"][()].tobytes() + file["label"][()].tobytes()


@pytest.fixture
def straight(tmp_path, write):
    """A folder with the old file, the one with the new one, and the calls that this took."""
    for name in ("old", "new"):
        write(tmp_path / name, 1)
    with Disk(tmp_path / "new") as disk:
        write(tmp_path / "new", 2)
    return tmp_path / "old", tmp_path / "new", disk


@pytest.mark.parametrize("finish", [True, False])
def test_each_call_fails_in_turn(tmp_path, write, straight, capsys, request, finish):
    old, new, disk = straight
    wrong, broken = list[str](), tmp_path / "broken"
    before = h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE)
    assert {call.kind for call in disk.calls} >= {"open", "write", "fsync", "rename", "close"}
    for k, error in faults_of(disk.calls, None if request.config.getoption("--long") else 8):
        shutil.copytree(old, broken)
        with noted(wrong, disk, k, error):
            refused = False
            with Disk(broken, {k: Fault(error)}):
                try:
                    write(broken, 2, finish)
                except DataError as refusal:
                    refused = "cannot be written" in str(refusal)
            refused |= "out.h5: cannot be written" in capsys.readouterr().err
            assert rows(broken) == rows(old if refused else new)
            # HDF5 would write to what is open when Python has ended
            assert h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE) <= before
            assert not [*broken.glob(".*")] or disk.calls[k - 1].kind == "unlink"
            write(broken, 2)
            assert rows(broken) == rows(new)
        shutil.rmtree(broken)
    assert not wrong, "\n".join(wrong)


def test_the_power_is_cut_after_each_call(tmp_path, write, straight, request):
    old, new, disk = straight
    every = [(k, state) for k in range(len(disk.calls) + 1) for state in STATES]
    wrong, left, long = list[str](), tmp_path / "left", request.config.getoption("--long")
    for k, state in every if long else every[:: max(1, len(every) // 8)]:
        left.mkdir()
        with noted(wrong, disk, k, state):
            cut(disk, k, state, left)
            assert rows(left) in (rows(old), rows(new))
            for path in left.iterdir():
                os.utime(path, (0, 0))
            write(left, 2)
            assert rows(left) == rows(new) and not [*left.glob(".*")]
        shutil.rmtree(left)
    assert not wrong, "\n".join(wrong)


def test_what_is_written_may_be_closed_before_it_goes(tmp_path):
    """Python flushes it then, and 3.13 tells of it if that raises."""
    with (tmp_path / "a").open("w+b") as file:
        target = Writable(file)
        target.write(b"data")
    target.close()
    target.check()
    assert (tmp_path / "a").read_bytes() == b"data"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
@pytest.mark.parametrize("most", [0, 50, 2_000, 30_000, 100_000])
def test_a_full_disk(tmp_path, write, most):
    """Beneath Python: the system lets no file grow beyond so many bytes."""
    write(tmp_path, 1)
    before = rows(tmp_path)
    with full(most), pytest.raises(DataError, match=r"out\.h5: cannot be written: File too large"):
        write(tmp_path, 2)
    assert rows(tmp_path) == before and not [*tmp_path.glob(".*")]
