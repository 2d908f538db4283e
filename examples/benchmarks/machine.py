"""What a measurement was made on, for its result file."""

import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
STATUS = Path("/proc/self/status")  # of Linux
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # taken away from everything that is measured

# What a GPU does depends on these: it clocks lower where it draws much power, or is hot
OF_GPU = ("clocks.sm", "power.draw", "temperature.gpu")


def describe() -> dict[str, object]:
    """The processor, the cores, the versions; `load` is how busy it was, to be asked before measuring."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "as OpenBLAS chooses"),
        "load": round(os.getloadavg()[0], 2),
        "note": f"every contender runs without {' and '.join(PINS)} in its environment",
    }


def commit(checkout: Path = ROOT) -> str | None:
    """The commit that a checkout is at, `-dirty` where its code differs; None where git does not know."""
    if shutil.which("git") is None:
        return None
    git = ["git", "-C", str(checkout)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    code = [".", ":!*.json", ":!*.md"]  # results may have been written meanwhile
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *code], capture_output=True)
    return (head.stdout.strip() + "-dirty" * (same.returncode == 1)) or None


def warn_if_busy() -> None:
    """Say so where others use the machine: PyTorch suffers more from it than minicaffe does."""
    if os.getloadavg()[0] > 0.5:
        print("other work is running here: this will be no result to keep", file=sys.stderr)


def version(package: str) -> str | None:
    """The version of a package that may not be there."""
    if importlib.util.find_spec(package) is None:
        return None
    return str(importlib.import_module(package).__version__)


def gpu(name: str) -> dict[str, object]:
    """The GPU of a CUDA device, by its own name, and the version of CuPy."""
    from minicaffe.backends import device as backend

    device = backend.device(name)
    found = device.xp.cuda.runtime.getDeviceProperties(device.number)["name"]
    return {"cupy": device.xp.__version__, "gpu": found.decode()}


def nvidia_smi(*fields: str) -> list[str]:
    """The command that asks for such fields of all GPUs, a line each; empty where there is no nvidia-smi."""
    found = shutil.which("nvidia-smi")
    return [found, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"] if found else []


def gpu_at_work(device: Any, work: Callable[[], Any], seconds: float = 5) -> str:
    """The clock, power and temperature of a CUDA device while it does some work again and again.

    As `1980 MHz, 650.10 W, 61 C`, the power a mean of up to a second; nothing where nvidia-smi is missing or
    fails, or says nothing in so many seconds.
    """
    if not (command := nvidia_smi(*OF_GPU)):
        return ""
    bus = getattr(device.xp.cuda.runtime, "deviceGetPCIBusId", str)  # its numbers are not CUDA's
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen([*command, "-i", bus(device.number)], **pipes)
    try:
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            work()
            device.synchronize()
    finally:
        process.kill()
        said = process.communicate()[0]
    ok = process.returncode == 0 and said.count(",") == len(OF_GPU) - 1
    return f"{said.strip()} C" if ok else ""


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


def free_process() -> None:
    """Start this script anew without those variables, if they are there: a library reads them once."""
    if any(name in os.environ for name in PINS):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], free_environment())


@contextmanager
def new_plans() -> Iterator[None]:
    """An empty cache folder, so that plans are made anew, not remembered; compiled loops are kept."""
    from minicaffe.storage import caches

    loops = caches.folder() / "loops"
    with tempfile.TemporaryDirectory() as cache:
        if not caches.obstacle(loops):
            Path(cache, "loops").symlink_to(loops)
        os.environ["MINICAFFE_CACHE"] = cache
        yield


def peak_memory() -> float:
    """Peak resident memory of this process in MiB.

    Linux's VmHWM; `ru_maxrss` elsewhere, for on Linux a child inherits its parent's.
    """
    if STATUS.exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 1024), 1)


def resident_memory() -> float:
    """Resident memory of this process now, in MiB; where that cannot be asked for, its peak so far."""
    return _status("VmRSS") if STATUS.exists() else peak_memory()


def _status(name: str) -> float:
    lines = STATUS.read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(name))
    return round(int(kib) / 1024, 1)
