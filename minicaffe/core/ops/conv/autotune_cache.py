"""The autotuner's measurements on disk, so that a net has the same plan the next time.

There is one JSON file for each version of minicaffe and each device, in the cache folder. If two processes
measure the same convolution, both use the measurements of the first to write. A damaged file counts as empty.
If no file can be written, the measurements last as long as the process. What was measured while other
processes kept the machine busy is measured again by a later process that finds the machine quiet.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe import __version__
from minicaffe.backends import load
from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import module, threads
from minicaffe.core.ops.conv.autotune import DIRECTIONS, Finding, measure
from minicaffe.core.ops.conv.engine import ENGINES
from minicaffe.core.ops.conv.problem import Case
from minicaffe.errors import CheckpointError
from minicaffe.storage import caches, checkpoint

REVISION = 23  # of the engines: times of another revision are not used
NO_FILE = "of no file: "  # an engine whose findings last as long as the process
MOST_BYTES = 2**24  # of a file that is read
_forgotten: set[tuple[Path, str]] = set()  # measured by this process even if they are on disk
_known: dict[tuple[Path, str], dict[str, Finding]] = {}  # findings of this process


def findings(case: Case) -> tuple[dict[str, Finding], str]:
    """Returns a Finding for each direction of a convolution, measured if necessary, and their origin."""
    file, key = path(case.device), _key(case)
    anew = (file, key) in _forgotten
    measured = None if anew else _known.get((file, key)) or _read(file).get(key)
    again = measured is not None and (file, key) not in _known and _busy(measured)
    if again and load.quiet(threads()):
        measured = None
    if measured is not None and _fits(measured, case):
        origin = f"remembered from {measured['forward'].date}"
    else:
        since = None if case.device.is_cuda else load.now()  # on CUDA nothing tells that
        measured, origin = measure(case), "measured now"
        busy = load.busy(since, threads())
        measured = {direction: replace(one, busy=busy) for direction, one in measured.items()}
        if NO_FILE not in key:
            measured = _keep(file, key, measured, case, anew)
        _forgotten.discard((file, key))
    if _busy(measured):
        origin += ", measured while the machine was busy"
    _known[file, key] = measured
    return measured, origin


def _busy(findings: Mapping[str, Finding]) -> bool:
    return any(one.busy for one in findings.values())


def forget(case: Case) -> None:
    """Makes the next `findings` of a convolution measure it again."""
    _forgotten.add((path(case.device), _key(case)))


def path(device: Device) -> Path:
    """Returns the file for a device."""
    digest = hashlib.blake2b(_device(device).encode(), digest_size=6).hexdigest()
    return caches.folder() / f"plans-{__version__}-{REVISION}-{digest}.json"


def _device(device: Device) -> str:
    """The name of a device, with all versions and settings that its speed depends on."""
    if device.is_cuda:
        runtime = device.xp.cuda.runtime
        name = runtime.getDeviceProperties(device.number)["name"].decode()
        name += ", TF32" * device.tf32
        return f"{name}, CUDA {runtime.runtimeGetVersion()}, CuPy {device.xp.__version__}"
    parts = [_cpu(), f"{threads()} threads", f"NumPy {np.__version__}"]
    variables = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    parts += [f"{name} {os.environ[name]}" for name in variables if name in os.environ]
    cpu = module("minicaffe.backends.cpu")
    return ", ".join(parts + ([] if cpu is None else cpu.versions()))


@functools.cache
def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _key(case: Case) -> str:
    """A convolution's key in the file: its sizes, type and cap."""
    g, window = case.g, case.g.window
    parts = g.x_shape, g.weight_shape, window.stride, window.pad, window.dilation
    sizes = ["x".join(map(str, part)) for part in parts]
    engines: list[Any] = [ENGINES[name] for name in case.candidates]
    others = [one for one in engines if not type(one).__module__.startswith("minicaffe.")]
    own = [f"{engine.name} {_code(engine)}" for engine in others]
    kind = f"group {g.group} {case.dtype} cap {case.cap}" + " inference" * case.infers
    kind += f" {case.device.precision}"
    return " ".join([*sizes, kind, *own])


@functools.cache
def _code(engine: Any) -> str:
    """What an engine of a user's own is, as far as can be told: a digest of its file, else a random word."""
    file = getattr(sys.modules.get(type(engine).__module__), "__file__", None)
    with contextlib.suppress(OSError, TypeError):
        return hashlib.blake2b(Path(file).read_bytes(), digest_size=6).hexdigest()  # type: ignore[arg-type]
    return f"{NO_FILE}{secrets.token_hex(6)}"


def _fits(findings: Mapping[str, Finding], case: Case) -> bool:
    """Whether findings hold the errors of today's candidates, and times of those that are exact enough."""
    return all(
        set(one.error) == set(case.candidates)
        and set(one.ms) == set(case.exact(one.error, direction))
        for direction, one in findings.items()
    )


def _read(file: Path) -> dict[str, dict[str, Finding]]:
    """Returns the valid findings of a file by key and direction; none if it cannot be read."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return {}
        plans = json.loads(file.read_text(encoding="utf-8"))["plans"].items()
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
    findings = {}
    for key, directions in plans:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            findings[key] = {
                name: _finding(directions[name])
                for name in DIRECTIONS[: 1 if " inference" in key else None]
            }
    return findings


def _finding(entry: Mapping[str, Any]) -> Finding:
    """A Finding from its JSON. Raises ValueError, TypeError, LookupError or AttributeError if invalid."""
    ms = {name: float(value) for name, value in entry["ms"].items()}
    error = {name: float(value) for name, value in entry["error"].items()}
    sound = all(0 <= value < math.inf for value in ms.values())
    if not sound or not all(value >= 0 for value in error.values()):
        raise ValueError
    return Finding(ms, error, str(entry["date"])[:10], entry["busy"] is True)


def _keep(
    file: Path, key: str, findings: dict[str, Finding], case: Case, anew: bool
) -> dict[str, Finding]:
    """Writes findings, unless others were first or the machine was busy (or if `anew`); returns the file's."""
    with contextlib.suppress(OSError, CheckpointError), _locked(file):
        plans = _read(file)
        first = key in plans and _fits(plans[key], case) and not anew
        if first and (_busy(findings) or not _busy(plans[key])):
            return plans[key]
        plans[key] = findings
        content = {"device": _device(case.device), "plans": plans}
        checkpoint.replace(file, json.dumps(content, indent=1, default=asdict).encode())
    return findings


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Locks a file against other processes, if the system can. Raises OSError if it cannot be written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_suffix(".lock"), "w") as lock:
        with contextlib.suppress(ImportError):  # Windows has no fcntl: the last to write is right
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
