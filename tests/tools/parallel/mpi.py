"""mpiexec and mpi4py, as far as they are here; and what a job of several processes is made of."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or find_spec("mpi4py") is None,
    reason="needs mpi4py and mpiexec: pip install mpi4py mpich",
)
TRAIN = [sys.executable, "-m", "minicaffe", "train"]


def environment(**more: str) -> dict[str, str]:
    """That of a rank: one thread each, quiet, nothing fetched, and NumPy's form, which starts soonest."""
    given = {"MINICAFFE_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1", "MINICAFFE_NUM_THREADS": "1"}
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{which}": "1" for which in ("", "_CONFIRM")}  # of Open MPI
    return {**os.environ, **given, **root, "MINICAFFE_NUMBA": "0", **more}


def launched(size: int, *words: str) -> list[str]:
    """A command line that starts so many processes of one; MPICH's own launcher, or another."""
    return [str(MPIEXEC), "-n", str(size), *words]


def ran(command: list[str], folder: Path | None = None, **more: str) -> subprocess.CompletedProcess:
    """What became of a command that has been waited for."""
    heard: Any = {"capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command, cwd=folder, env=environment(**more), **heard)


def train(folder: Path, size: int, *words: str, **more: str) -> subprocess.CompletedProcess:
    """Train on so many ranks, and wait."""
    command = [*TRAIN, *words] if size == 1 else launched(size, *TRAIN, *words)
    return ran(command, folder, **more)


def below(pid: int) -> list[int]:
    """All processes that one has started, and those that these have."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if int(status[1]) == pid:
                found += [int(entry.name), *below(int(entry.name))]
    return found


def ranks_of(pid: int) -> list[int]:
    """The processes of a job that are ranks."""
    found = []
    for child in below(pid):
        try:
            if b"minicaffe" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                found.append(child)
        except OSError:  # it has ended meanwhile
            continue
    return [pid for pid in found if not any(other in found for other in below(pid))]


def alive(pid: int) -> bool:
    """Whether a process is there, and is more than what its parent has not asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
