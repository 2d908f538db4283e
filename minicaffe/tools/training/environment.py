"""What a run is made with: the versions of packages, the machine, the process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from typing import Any

from minicaffe import __version__
from minicaffe.backends.cpu import threads
from minicaffe.backends.device import PRECISIONS

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
NONE = "not installed"


def version(name: str) -> str:
    """The version of an installed package.

    >>> version("no such package")
    'not installed'
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return NONE


def cupy_version() -> str:
    """CuPy's version, whichever CUDA it was built for."""
    found = [f"{name} {version(name)}" for name in CUPY if version(name) != NONE]
    return ", ".join(found) or NONE


def whole_batch(solver: Any) -> int:
    """Samples in a batch of a Solver, those of all ranks together."""
    share, first = solver.net.context.share, solver.net.steps[0].tops[0].shape
    return int(share.whole if share.size > 1 else first[0] if first else 1)


def facts(solver: Any) -> dict[str, Any]:
    """What run.json says of a Solver, of the machine and of this process."""
    return {
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "versions": {
            "minicaffe": __version__,
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "numba": version("numba"),
            "cupy": cupy_version(),
        },
        "device": repr(solver.device),
        "dtype": solver.net.context.dtype.name,
        "precision": PRECISIONS[solver.device.tf32],
        "threads": threads.count(),
        "ranks": solver.communicator.size,
        "batch": whole_batch(solver),
        "seed": solver.net.context.seed,
    }
