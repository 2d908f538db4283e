"""What was measured, remembered on disk, so that a net gets the same plan the next time.

One JSON file for each minicaffe and device, named by both, in the cache folder. Of two processes that
measure the same the first to write is right, and both use what it found. A file that is damaged counts
as empty; where none can be written the findings last as long as the process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe import __version__, caches, checkpoint, cpu
from minicaffe.backend import Device
from minicaffe.cpu import threads
from minicaffe.errors import CheckpointError
from minicaffe.ops.conv.autotune import DIRECTIONS, Finding, measure
from minicaffe.ops.conv.problem import Case

REVISION = 16  # of the engines: times of others are of no use
MOST_BYTES = 2**24
_forgotten: set[tuple[Path, str]] = set()  # what this process is to measure, whatever the disk says
_known: dict[tuple[Path, str], dict[str, Finding]] = {}  # of this process


def findings(case: Case) -> tuple[dict[str, Finding], str]:
    """What is known of a convolution in each direction, measured if need be; and since when."""
    file, key = path(case.device), _key(case)
    anew = (file, key) in _forgotten
    found = None if anew else _known.get((file, key)) or _read(file).get(key)
    if found is not None and _fits(found, case):
        origin = f"remembered from {found['forward'].date}"
    else:
        found, origin = _keep(file, key, measure(case), case, anew), "measured now"
        _forgotten.discard((file, key))
    _known[file, key] = found
    return found, origin


def forget(case: Case) -> None:
    """See that a convolution is measured when next asked for, whatever is known of it."""
    _forgotten.add((path(case.device), _key(case)))


def path(device: Device) -> Path:
    """The file for a device."""
    digest = hashlib.blake2b(_device(device).encode(), digest_size=6).hexdigest()
    return caches.folder() / f"plans-{__version__}-{REVISION}-{digest}.json"


def _device(device: Device) -> str:
    """All that a speed depends on."""
    if device.is_cuda:
        runtime = device.xp.cuda.runtime
        name = runtime.getDeviceProperties(device.number)["name"].decode()
        name += ", TF32" * device.tf32
        return f"{name}, CUDA {runtime.runtimeGetVersion()}, CuPy {device.xp.__version__}"
    parts = [_cpu(), f"{threads.count()} threads", f"NumPy {np.__version__}"]
    variables = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    parts += [f"{name} {os.environ[name]}" for name in variables if name in os.environ]
    if cpu.available():
        parts.append(f"Numba {importlib.metadata.version('numba')}")
    if cpu.with_blas("blas", np.empty(0, np.float32))[1]:
        parts.append("BLAS called from loops")
    return ", ".join(parts)


@functools.cache
def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _key(case: Case) -> str:
    g, window = case.g, case.g.window
    sizes = ["x".join(map(str, part)) for part in (g.x_shape, g.weight_shape)]
    parts = [getattr(window, name) for name in ("stride", "pad", "dilation")]
    sizes += ["x".join(map(str, part)) for part in parts]
    return f"{' '.join(sizes)} group {g.group} {case.dtype} cap {case.cap}"


def _fits(found: Mapping[str, Finding], case: Case) -> bool:
    """Whether findings are of the candidates there are now, and times of those that are exact enough."""
    return all(
        set(one.error) == set(case.candidates) and set(one.ms) == set(case.exact(one.error))
        for one in found.values()
    )


def _read(file: Path) -> dict[str, dict[str, Finding]]:
    """All findings of a file that make sense."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return {}
        plans = json.loads(file.read_text(encoding="utf-8"))["plans"].items()
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
    found = {}
    for key, directions in plans:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            found[key] = {name: _finding(directions[name]) for name in DIRECTIONS}
    return found


def _finding(given: Mapping[str, Any]) -> Finding:
    """A finding as JSON holds it. Raises ValueError, TypeError, LookupError, AttributeError."""
    ms = {name: float(value) for name, value in given["ms"].items()}
    error = {name: float(value) for name, value in given["error"].items()}
    if not all(math.isfinite(value) and value >= 0 for value in ms.values()):
        raise ValueError("ms that are none")
    if not all(value >= 0 for value in error.values()):
        raise ValueError("errors that are none")
    return Finding(ms, error, str(given["date"])[:10])


def _keep(
    file: Path, key: str, found: dict[str, Finding], case: Case, anew: bool
) -> dict[str, Finding]:
    """Add findings to a file, unless another process was first, or in their place; gives those that hold."""
    with contextlib.suppress(OSError, CheckpointError), _locked(file):
        plans = _read(file)
        if key in plans and _fits(plans[key], case) and not anew:
            return plans[key]
        plans[key] = found
        content = {
            "device": _device(case.device),
            "plans": {
                key: {name: asdict(one) for name, one in directions.items()}
                for key, directions in plans.items()
            },
        }
        text = json.dumps(content, indent=1).encode()
        checkpoint.replace(file, lambda target: target.write(text))
    return found


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold others off a file, where files can be locked so. Raises OSError if it cannot be written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_suffix(".lock"), "w") as lock:
        with contextlib.suppress(ImportError):  # Windows has no fcntl: the last to write is right
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
