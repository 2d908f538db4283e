"""Processes that mpiexec starts: the run of one process, resumed on any number of them, killed, refused."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import test_kill as kill
from kit import same_numbers
from tools.parallel.mpi import TRAIN, alive, environment, launched, needs_mpi, ran, ranks_of, train

pytestmark = [
    needs_mpi,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
RUN = kill.RUN
ITERATIONS = 60
WORDS = ["small.yaml", "--device", "cpu", "--run", str(RUN), "--deterministic"]
SHORT = [*WORDS, "--max-iter", str(ITERATIONS)]
DOUBLE = [*SHORT, "--dtype", "float64"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LAST = f"small_iter_{ITERATIONS}.npz"


def folder_of(tmp_path_factory, name):
    return kill.prepare(tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process in float64."""
    folder = folder_of(tmp_path_factory, "alone")
    done = train(folder, 1, *DOUBLE)
    assert done.returncode == 0, done.stderr
    return folder


def near(one: Path, other: Path, tolerance: float) -> None:
    """Two runs have the same weights, history and log but for rounding."""
    wanted, got = kill.final(one, LAST), kill.final(other, LAST)
    assert set(wanted) == set(got)
    for name, array in wanted.items():
        if array.dtype.kind == "f":
            scale = max(float(np.abs(array).max(initial=0)), 1e-300)
            assert np.abs(got[name] - array).max(initial=0) <= tolerance * scale, name
    mine, theirs = kill.numbers(one), kill.numbers(other)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys() and a["iteration"] == b["iteration"]
        for key in ("loss", "lr", "scores"):
            wanted = b.get(key)
            assert a.get(key) == (wanted and pytest.approx(wanted, rel=100 * tolerance))


def test_three_ranks_have_the_run_of_one(alone, tmp_path_factory):
    """Batches of 8, which three do not divide; one voice, one record, one set of snapshots; twice the same bits."""
    folders = [folder_of(tmp_path_factory, name) for name in ("three", "again")]
    for folder in folders:
        done = train(folder, 3, *DOUBLE)
        assert done.returncode == 0, done.stderr
        near(alone, folder, 1e-12)
        ranks = "3 ranks, 1 thread each, 2 of the 8 samples of a batch on rank 0"
        for said in ("iteration 50: loss", ranks):
            assert done.stderr.count(said) == 1, done.stderr
        assert done.stdout.count("test output") == 1
    one, other = (kill.final(folder, LAST) for folder in folders)
    assert all(one[name].tobytes() == array.tobytes() for name, array in other.items())
    assert json.loads((folders[0] / RUN / "run.json").read_text())["ranks"] == 3


def test_four_ranks_go_on_as_two_and_as_one(alone, tmp_path_factory):
    folder = folder_of(tmp_path_factory, "fewer")
    for size, until in ((4, 20), (2, 40), (1, ITERATIONS)):
        words = [*DOUBLE[:-3], str(until), *DOUBLE[-2:], *["--resume"] * (until > 20)]
        done = train(folder, size, *words)
        assert done.returncode == 0, done.stderr
    near(alone, folder, 1e-11)


def test_a_rank_that_is_killed_ends_the_job(tmp_path_factory, request):
    """At any instant, in snapshots too: soon, not with 0; what is resumed has the bits of the run."""
    straight, broken = (folder_of(tmp_path_factory, name) for name in ("straight", "broken"))
    begun = time.monotonic()
    assert train(straight, 2, *SHORT).returncode == 0
    took, chance = time.monotonic() - begun, random.Random(3)
    kills, sooner, wanted = 0, 1.0, 30 if request.config.getoption("--long") else 1
    while kills < wanted:
        command = launched(2, *TRAIN, *SHORT, "--resume")
        job = subprocess.Popen(command, cwd=broken, env=environment(), **QUIET)
        try:
            job.wait(chance.uniform(0.3, 1.1) * took * sooner)
        except subprocess.TimeoutExpired:
            ranks = ranks_of(job.pid)
            if not ranks:
                job.kill()
                job.wait()
                continue
            os.kill(chance.choice(ranks), signal.SIGKILL)
            code = job.wait(600)
            kills, sooner = kills + 1, 1.0
            assert code != 0
            deadline = time.monotonic() + 600
            while any(map(alive, ranks)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(alive, ranks)), "a rank outlives the job"
            kill.whole(broken)
        else:
            assert job.returncode in (0, 2)
            sooner *= 0.8  # the machine is less busy than when the first one ran
        if (broken / RUN / LAST).exists() and kills < wanted:
            for path in (broken / RUN).iterdir():
                path.unlink()
    assert train(broken, 2, *SHORT, "--resume").returncode == 0
    same_numbers(kill.final(broken, LAST), kill.final(straight, LAST))
    assert kill.numbers(broken) == kill.numbers(straight)


def test_a_signal_to_one_rank_stops_all(tmp_path_factory):
    """After the same iteration, with a snapshot; the line that says how to go on says on how many."""
    folder = folder_of(tmp_path_factory, "stopped")
    words = [*WORDS, "--max-iter", "1000000"]
    for one in ("display=1", "snapshot=0", "test_interval=0", "best=null", "lr_policy=fixed"):
        words += ["--set", f"solver.{one}"]
    command, lines = launched(2, *TRAIN, *words), []
    told_on = {"stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment(), **told_on) as job:
        for line in job.stderr:
            lines.append(line)
            if line.startswith("iteration 20:"):
                os.kill(max(ranks_of(job.pid)), signal.SIGTERM)
    assert job.returncode != 0
    told = "".join(lines)
    assert len(re.findall(r"asked to stop: rank [01] of 2", told)) == 1
    (found,) = re.findall(r"stopped at iteration (\d+); to go on: mpiexec -n 2 .*--resume", told)
    assert (folder / RUN / f"small_iter_{found}.npz").exists()
    assert "Traceback" not in told


def test_a_mistake_is_told_once(tmp_path_factory):
    folder = folder_of(tmp_path_factory, "mistake")
    (folder / "other.yaml").write_text(kill.MODEL.replace("num_output: 4", "num_ouput: 4"))
    done = train(folder, 2, "other.yaml", "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.count("did you mean 'num_output'") == 1 and "Traceback" not in done.stderr
    assert not (folder / "runs").exists()


def test_a_larger_batch_at_a_larger_rate(tmp_path_factory):
    """Two ranks of 8 are one of 16; by compiled loops."""
    two, one = (folder_of(tmp_path_factory, name) for name in ("two", "one"))
    done = train(two, 2, *SHORT, "--batch-per-rank", "--scale-lr", MINICAFFE_NUMBA="1")
    assert done.returncode == 0, done.stderr
    larger = ["--set", "layers.data.batch_size=16", "--set", "solver.base_lr=0.002"]
    assert train(one, 1, *SHORT, *larger, MINICAFFE_NUMBA="1").returncode == 0
    wanted, got = kill.final(one, LAST), kill.final(two, LAST)
    for name in ("conv__0", "ip__0"):
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-6)


def test_what_cannot_be_summed_is_told(cuda):
    """Arrays of no host, numbers that this MPI does not know, several GPUs without NCCL, or pieces."""
    script = """
import sys
sys.path.insert(0, TESTS)
import gpu
import numpy as np
from minicaffe.backends import device as backend
from minicaffe.tools.parallel import mpi
def told(call):
    try:
        call()
    except Exception as error:
        print(error)
alone, device = mpi.Mpi(), backend.device("cuda")
told(lambda: alone.allreduce(object()))
with device.current():
    told(lambda: mpi.Nccl(device).allreduce(device.asarray(np.ones((4, 4)))[:, ::2]))
device.xp.cuda.nccl.available = False
told(lambda: mpi.Nccl(device))
mpi.MPI.FLOAT16_T = mpi.MPI.DATATYPE_NULL
told(lambda: alone.allreduce(np.ones(3, np.float16)))
"""
    script = script.replace("TESTS", repr(str(Path(__file__).parent.parent.parent)))
    done = ran(launched(1, sys.executable, "-c", script))
    assert done.stdout.splitlines() == [
        "MPI adds arrays of the host; those of GPUs are NCCL's",
        "NCCL sums C-contiguous arrays only",
        "CuPy finds no NCCL, which several GPUs need: pip install nvidia-nccl-cu12 (-cu13)",
        "this MPI knows no numbers of 16 bits: leave --reduce-dtype out (MPICH 5 does)",
    ], done.stderr


SUMMED = """
import copy
from minicaffe import Solver, read
from minicaffe.tools.parallel import world
from minicaffe.tools.parallel import ranks as module

def trained(overlaps):
    ranks = copy.copy(world())
    ranks.overlaps, begun = overlaps, []
    begin = ranks.iallreduce
    ranks.iallreduce = lambda array: begun.append(array.size) or begin(array)
    solver = Solver(read("small.yaml"), device="cpu", deterministic=True, communicator=ranks)
    solver.step(6)
    return {name: array.tobytes() for name, array in solver.net.weights().items()}, begun

assert not world().overlaps  # of one machine
module.BUCKET, module.WORTH = 40, 0
(behind, none), (meanwhile, begun) = trained(False), trained(True)
assert behind == meanwhile and not none and len(set(begun)) > 1
module.WORTH = 2**30
assert trained(False)[0] == behind
"""


def test_sums_between_machines_have_the_bits_of_those_of_one(tmp_path_factory):
    """There they begin while the backward pass goes on, in an MPI's own time; of two numbers there is one sum."""
    folder = folder_of(tmp_path_factory, "summed")
    done = ran(launched(2, sys.executable, "-c", SUMMED), folder, MINICAFFE_NUMBA="1")
    assert done.returncode == 0, done.stderr


ALONE = """
import sys
from minicaffe import Solver
from minicaffe.tools.parallel import ALONE, world
assert world() is ALONE
print([name for name in sys.modules if name.startswith("mpi4py")])
"""


def test_alone_nothing_of_mpi_is_imported():
    done = ran([sys.executable, "-c", ALONE])
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])
def test_started_together_without_mpi4py(tmp_path, error):
    """Each would train alone otherwise, into the same folder; a RuntimeError says that there is no libmpi."""
    (tmp_path / "mpi4py.py").write_text(f"raise {error}('it is not here')")
    script = "from minicaffe.tools.parallel import world; world()"
    more = {"PMI_SIZE": "4", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = ran([sys.executable, "-c", script], **more)
    together = "one of 4 processes that were started together, and mpi4py cannot be imported"
    assert together in done.stderr
    assert "[mpi]'" in done.stderr


def test_a_rank_ends_even_where_mpis_abort_returns():
    """As MPICH's may: nothing is done or said after it."""
    script = """
from types import SimpleNamespace
from minicaffe.tools.parallel.mpi import Mpi
rank = Mpi.__new__(Mpi)
rank.comm = SimpleNamespace(Abort=lambda code: print("asked for", code, flush=True))
rank.abort(3)
print("went on")
"""
    done = ran([sys.executable, "-c", script])
    assert (done.returncode, done.stdout, done.stderr) == (3, "asked for 3\n", "")
