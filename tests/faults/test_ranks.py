"""Two ranks that train, whose files rank 0 writes, on a disk on which one call after the other fails.

Whatever fails, the job ends, says so in one line or trains on, and two ranks that go on come to the same bits. The
default suite tries few calls, since each takes a job; `--long` all of those that were not tried without ranks.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
from faults.disk import ERRORS
from faults.test_training import prepared, same, whole_with_its_page
from tools.parallel.mpi import launched, needs_mpi, ran

pytestmark = [
    needs_mpi,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
WORDS = ["train", "small.yaml", "--device", "cpu", "--run", "runs/a", "--quiet", "--report"]
WORDS += ["--resume"]
PROGRAM = Path(__file__).with_name("rank.py")


def train(folder: Path, number: int = 0, error: str = "EIO") -> tuple[int, str, list[list[str]]]:
    """Train with two ranks: the exit status, what they told, and rank 0's calls, unless one is to fail."""
    calls = folder.parent / "calls.json"
    own = [str(PROGRAM), str(folder), str(calls), str(number), error]
    done = ran(launched(2, sys.executable, *own, *WORDS), folder)
    return done.returncode, done.stderr, [] if number else json.loads(calls.read_text())


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = prepared(tmp_path_factory.mktemp("straight"))
    code, told, calls = train(folder)
    assert code == 0, told
    return folder, calls


def test_calls_fail(tmp_path, straight, request):
    whole, calls = straight
    assert {kind for kind, _ in calls} >= {"open", "write", "fsync", "rename"}
    every = [(k, ERRORS[kind][0]) for k, (kind, _) in enumerate(calls, 1) if ERRORS[kind]]
    for k, error in every if request.config.getoption("--long") else every[5 :: len(every) // 2]:
        folder = prepared(tmp_path / f"{k}")
        code, told, _ = train(folder, k, error)
        assert code in (0, 2) and "Traceback" not in told, (k, error, told)
        said = [line for line in told.splitlines() if line.startswith("minicaffe: ")]
        assert len(said) <= 1, (k, error, told)
        whole_with_its_page(folder)
        code, again, _ = train(folder)
        assert code == 0, (k, error, again)
        same(whole, folder, best="no best snapshot" not in told)
        shutil.rmtree(folder)
