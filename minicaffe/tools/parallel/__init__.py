"""Several processes that train one net together: MPI and NCCL, and what their solvers do together."""

import functools
import os

from minicaffe.core.communicator import ALONE as ALONE
from minicaffe.core.communicator import Communicator as Communicator
from minicaffe.core.communicator import device_of as device_of
from minicaffe.errors import DeviceError, pip_install

# How many processes there are, as launchers tell each: MPICH's and Intel's, Open MPI's, srun of Slurm
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def count() -> int:
    """How many processes the launcher has started, as it says; 1 without one."""
    sizes = [os.environ.get(name, "") for name in SIZES]
    return max((int(text) for text in sizes if text.isdecimal()), default=1)


def mpi_library() -> str:
    """MPI's library and what it sends by, as far as it says; raises DeviceError where it cannot be loaded."""
    try:
        from minicaffe.tools.parallel.mpi import library
    except ImportError as error:
        raise DeviceError(f"mpi4py cannot be imported: {error}: {pip_install('mpi')}") from None
    return library()


def world() -> Communicator:
    """All processes that mpiexec, or srun, has started with this one; without a launcher it is alone.

    MPI is imported only where there are several. Raises DeviceError where mpi4py is missing, or is of another
    MPI than the launcher.
    """
    started = count()
    return ALONE if started == 1 else _mpi(started)


@functools.cache
def _mpi(started: int) -> Communicator:
    try:
        from minicaffe.tools.parallel.mpi import Mpi
    except ImportError as error:
        raise DeviceError(
            f"one of {started} processes that were started together, and mpi4py cannot be imported "
            f"({error}): {pip_install('mpi')}, or start one process"
        ) from None
    mpi = Mpi()
    if mpi.size == 1:
        raise DeviceError(
            f"one of {started} processes that were started together, but MPI knows of this one alone: "
            f"the launcher is not of mpi4py's {mpi.name}; take the mpiexec that lies beside"
            f" {pip_install('mpi')}"
        )
    return mpi
