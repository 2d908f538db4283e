"""How fast training and each layer is, how far training is, and what with: versions, machine, process."""

import importlib.metadata
import math
import os
import platform
import socket
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from minicaffe import __version__
from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import threads
from minicaffe.core.config.declare import NetSpec, SolverSpec
from minicaffe.core.net import Net
from minicaffe.core.net.run import backward, forward
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import SpecError
from minicaffe.tools.data.layers.hdf5_data import HDF5Data

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
NONE = "not installed"


def version(name: str) -> str:
    """The version of an installed package; else that it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return NONE


def cupy_version() -> str:
    """CuPy's version, whichever CUDA it was built for."""
    return ", ".join([f"{name} {version(name)}" for name in CUPY if version(name) != NONE]) or NONE


def whole_batch(solver: Any, step: Step | None = None) -> int:
    """Samples in a batch of a Solver, by default of its first layer, those of all ranks together."""
    share, shape = solver.net.context.share, (step or solver.net.steps[0]).tops[0].shape
    return int(share.whole if share.size > 1 else shape[0] if shape else 1)


def facts(solver: Any) -> dict[str, Any]:
    """What run.json says of a Solver, of the machine and of this process."""
    return {
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "versions": {"minicaffe": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("numpy", "numba")}
        | {"cupy": cupy_version()},
        "device": repr(solver.device),
        "dtype": solver.net.context.dtype.name,
        "precision": solver.device.precision,
        "threads": threads(),
        "ranks": solver.communicator.size,
        "batch": whole_batch(solver),
        "seed": solver.net.context.seed,
    }


def memory_used(device: Device) -> int:
    """Bytes: on CUDA what CuPy has taken of the device, on the CPU what the process has in memory.

    Where the system does not tell that (no /proc), the most that it has had; 0 where it tells neither.
    """
    if device.is_cuda:
        with device.current():
            return int(device.xp.get_default_memory_pool().total_bytes())
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if resource else 0
        return most if sys.platform == "darwin" else most << 10


class Speed:
    """Iterations per second since it was last asked, from `iteration` on."""

    def __init__(self, iteration: int):
        self.rate, self.count, self.since = 0.0, iteration, time.perf_counter()

    def at(self, iteration: int) -> float:
        """The speed since the last call or test, 0 before there is one; at the same iteration, as before."""
        now, done = time.perf_counter(), iteration - self.count
        if done and now > self.since:
            self.rate = done / (now - self.since)
        self.since, self.count = now, iteration
        return self.rate

    def skip(self, iteration: int) -> None:
        """What was done since the last call, such as a test, does not count."""
        self.since, self.count = time.perf_counter(), iteration


def images_per_iteration(solver: Any) -> int:
    """Samples that one iteration of a Solver sees."""
    return whole_batch(solver) * int(solver.spec.iter_size)


def epochs(solver: Any) -> float | None:
    """How often a Solver has seen the data of its first layer that has a data set; None without one."""
    for step in solver.net.steps:
        data = getattr(step.layer, "dataset", None)
        if data is not None and len(data):
            batch = whole_batch(solver, step) * solver.spec.iter_size
            return float(solver.iteration * batch / len(data))
    return None


def iterations(spec: NetSpec, solver: SolverSpec, count: int, batches: int = 1) -> int:
    """How many iterations see the data of the first layer that has a set so many times.

    `batches` are those that ranks compute together in a pass. Raises SpecError without such a layer.
    """
    state = solver.train_state
    keys: Any = {"device": "cpu", "shapes_only": True, "level": state.level, "stages": state.stage}
    for layer in Net(spec, "TRAIN", **keys).layers.values():
        entries = len(getattr(layer, "reader", None) or ())
        if entries := sum(layer.rows) if isinstance(layer, HDF5Data) else entries:
            batch = getattr(layer, "batch_size", 1) * batches * solver.iter_size
            epoch = math.ceil(entries / batch)  # of `adapt`, which tests at the end of each
            adapted = solver.test_interval == solver.display == epoch
            return count * epoch if adapted else math.ceil(count * entries / batch)
    raise SpecError(
        "--epochs: nothing says how many entries the training data has; give --max-iter"
    )


Times = dict[str, tuple[list[float], list[float]]]


def measure(net: Net, passes: int, seconds: float = math.inf) -> Times:
    """The ms of every layer in so many forward and backward passes, fewer where the seconds are over."""
    times: Times = {step.spec.name: ([], []) for step in net.steps}
    until = time.perf_counter() + seconds
    for done in range(passes):
        if done and time.perf_counter() >= until:
            break
        for step in net.steps:
            stop = net.device.timer()
            forward(step, net.graph, net.memory)
            times[step.spec.name][0].append(stop())
        net.context.passes += 1
        written: set[Value] = set()
        for step in reversed(net.steps):
            stop = net.device.timer()
            backward(step, net.device, written, net.memory.scratch, net.loss_scale)
            times[step.spec.name][1].append(stop())
    return times


def medians(times: Mapping[str, tuple[list[float], list[float]]]) -> dict[str, tuple[float, float]]:
    """The median ms of every layer, forward and backward."""
    return {
        name: (statistics.median(forth), statistics.median(back))
        for name, (forth, back) in times.items()
    }
