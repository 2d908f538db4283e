"""Ranks with a GPU each, by NCCL: on the stand-in for CuPy, whose sums are done as late as an event allows."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu import HAS_GPU
from kit import arrays
from tools.parallel.mpi import launched, needs_mpi, ran
from tools.parallel.on_stand_in import trained

SCRIPT = Path(__file__).parent / "on_stand_in.py"
FAULTS = {  # what is left out of Nccl of tools/parallel/mpi.py, and what comes of it
    "the sum does not wait for the gradients": "        self.beside.wait_event(self._current().record(self._event()))\n",
    "nobody waits for the sum": "        self._current().wait_event(self.beside.record(self._event()))\n",
}
needs_two = pytest.mark.skipif(HAS_GPU, reason="a GPU is no stand-in with two")


def run(tmp_path, *words, **more):
    command = launched(2, sys.executable, str(SCRIPT), str(tmp_path / "found.npz"), *words)
    given = {"MINICAFFE_CACHE": os.environ.get("MINICAFFE_CACHE", str(tmp_path)), **more}
    return ran(command, tmp_path, **given)


@needs_mpi
@needs_two
@pytest.mark.parametrize(
    ("dtype", "near"),
    [("", {"rtol": 1e-12, "atol": 1e-14}), ("float16", {"rtol": 0.02, "atol": 2e-3})],
)
def test_two_gpus_have_the_run_of_one_process(cuda, tmp_path, dtype, near):
    """In graphs, with iter_size, clipping, dropout, labels counted and statistics summed over both.

    In 16 bits masters in float32 are summed behind the backward pass.
    """
    done = run(tmp_path, "true", *dtype.split())
    assert done.returncode == 0, done.stderr
    wanted, _, _ = trained(cuda, None, dtype=dtype) if dtype else trained("cpu", None)
    found = arrays(tmp_path / "found.npz")
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, err_msg=name, **near)


@needs_mpi
@needs_two
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wait_left_out_is_found(cuda, tmp_path, fault):
    """A capture refuses a stream that was not brought into it, or not led back."""
    import minicaffe

    package, other = Path(minicaffe.__file__).parent, tmp_path / "minicaffe"
    shutil.copytree(package, other, ignore=shutil.ignore_patterns("__pycache__"))
    nccl = other / "tools" / "parallel" / "mpi.py"
    text = nccl.read_text()
    assert FAULTS[fault] in text
    nccl.write_text(text.replace(FAULTS[fault], "        pass\n"))
    done = run(tmp_path, "true", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert done.returncode != 0
    assert "cudaErrorStreamCapture" in (tmp_path / "found.why").read_text()


@needs_mpi
@needs_two
def test_two_ranks_on_one_gpu_are_refused(cuda, tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parents[2])!r}); import gpu\n"
        "from minicaffe.backends import device as backend; from minicaffe.tools.parallel import world\n"
        "from minicaffe.errors import DeviceError\n"
        "try:\n    world().on(backend.device('cuda:0'))\n"
        "except DeviceError as error:\n    print(error)\n"
    )
    done = ran(launched(2, sys.executable, "-c", script))
    assert done.stdout.count("several ranks have cuda:0 of ") == 2, done.stderr


def test_the_real_cupy_takes_our_calls():
    """Its NCCL has what the stand-in has, with the same parameters."""
    script = (
        "from cupy.cuda import nccl\n"
        "if nccl.available:\n"
        "    for name in ('allReduce', 'bcast'):\n"
        "        print(getattr(nccl.NcclCommunicator, name).__doc__.splitlines()[0])\n"
        "    print(all(hasattr(nccl, n) for n in ('NCCL_SUM', 'NCCL_UINT8', 'NCCL_FLOAT16', 'NCCL_FLOAT32',"
        " 'NCCL_FLOAT64', 'NCCL_BFLOAT16')), len(nccl.get_unique_id()))\n"
    )
    kept = [path for path in sys.path if "standin" not in path]
    more = {"PYTHONPATH": os.pathsep.join(kept), "PYTHONWARNINGS": "ignore"}
    done = ran([sys.executable, "-c", script], **more)
    if done.returncode or not done.stdout:
        pytest.skip("CuPy or NCCL is not installed: pip install cupy-cuda12x nvidia-nccl-cu12")
    assert done.stdout.splitlines() == [
        "NcclCommunicator.allReduce(self, intptr_t sendbuf, intptr_t recvbuf, size_t count, int datatype, int op, intptr_t stream)",
        "NcclCommunicator.bcast(self, intptr_t buff, size_t count, int datatype, int root, intptr_t stream)",
        "True 128",
    ]
