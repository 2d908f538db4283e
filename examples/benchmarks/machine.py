"""What a measurement was made on, for its result file."""

import os
import platform
from pathlib import Path

import numpy as np

PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # taken away from everything that is measured


def describe() -> dict[str, object]:
    """The processor, the cores, the versions."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "as OpenBLAS chooses"),
        "note": f"every contender runs without {' and '.join(PINS)} in its environment",
    }


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def free_environment() -> dict[str, str]:
    """The environment without the variables that pin OpenBLAS to older instructions."""
    return {key: value for key, value in os.environ.items() if key not in PINS}
