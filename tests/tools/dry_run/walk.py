"""A net's steps, dry: built, run a few times, and looked at."""

from pathlib import Path
from typing import Any

import cupy
import numpy as np

from dry_run import elementwise, kernels, memory, products, reductions
from dry_run.cases import Case
from dry_run.record import Operation, complaints, differences, record
from minicaffe import Net, Solver, parse
from minicaffe.backends.cuda.device import CudaDevice
from minicaffe.backends.cuda.fusion import FIRST, may_begin
from minicaffe.backends.replay.command_buffer import recording
from minicaffe.core.layers.elementwise import Dropout
from minicaffe.core.net import read
from minicaffe.core.solver import Report
from minicaffe.tools.data import datasets
from minicaffe.tools.data.layers.data import Data
from minicaffe.tools.data.layers.memory_data import MemoryData

GIVEN: dict[str, Any] = {"deterministic": True}  # no stopwatch
KNOWN = (  # reasons
    "its Python is not minicaffe's",
    "pixels are drawn",
    "the host gives the device something",  # pictures of files, arrays of the user's
)
UNTESTED = {"test_iter": 0, "test_interval": 0}
seen: set[str] = set()  # types of layers that were walked


def install() -> CudaDevice:
    """A device for nets, once the real one's place in CuPy is taken."""
    for part in (memory, elementwise, reductions, products, kernels):
        part.install()
    images, labels = np.zeros((300, 1, 28, 28), np.uint8), np.zeros(300, np.uint8)
    datasets.shape = lambda *_: images.shape
    datasets.load = lambda *_: datasets.Dataset("none", images, labels, "nowhere")
    return CudaDevice("dry run", 0)


class Quiet(Report):
    """Says nothing."""

    def line(self, text: str) -> None:
        """Nothing."""


def walk(case: Case, device: CudaDevice) -> list[str]:
    """All that is wrong with a net's steps, in each type and phase."""
    found = []
    for dtype in case.types:
        spec = read(case.net) if isinstance(case.net, Path) else parse(case.net)
        for phase in case.phases:
            given = {"device": device, "dtype": dtype, "engine": case.engine, **GIVEN}
            try:
                if spec.solver is not None and phase == "TRAIN":
                    solver = Solver(spec, report=Quiet(), **UNTESTED, **given)
                    give(solver.net)
                    wrong = trained(solver)
                else:
                    wrong = run(Net(spec, phase, **given))
            except Exception as error:  # what CuPy, or the check of a call, says
                wrong = [f"{type(error).__name__}: {error}"]
            found += [f"{dtype}, {phase}: {complaint}" for complaint in wrong]
    return found


def give(net: Net) -> None:
    """Arrays of two batches to each layer that asks for some."""
    for layer in net.layers.values():
        if isinstance(layer, MemoryData):
            n = 2 * layer.batch_size
            layer.reset(np.zeros((n, *layer.image)), np.zeros(n))


def trained(solver: Solver) -> list[str]:
    """What is wrong with two iterations of a solver, or differs between them."""
    slots = memory.room(solver.watch.losses.data.ptr)
    steps = repeated(lambda: solver.step(1))
    # Uploads: the rule's, and how much of the average is new
    numbers = 1 if solver.average is None else 2
    found = judged(solver.net, steps, slots, solver.spec.iter_size, numbers)
    found += captured(solver, slots, numbers)
    solver.loss()
    return found


def captured(solver: Solver, slots: tuple[int, int], numbers: int) -> list[str]:
    """What is wrong with iterations that are replayed; what is not in a graph is there for a known reason."""
    solver.step(3)  # from one of these on iterations are captured, and compared
    steps = repeated(lambda: solver.step(1))
    found = judged(solver.net, steps, slots, solver.spec.iter_size, numbers)
    reasons = [said for said in solver.iterations.reasons if not any(why in said for why in KNOWN)]
    if not any(operation.kind == "graph" for operation in steps[-1]):
        reasons.append("no graph was launched")
    return [*found, *reasons, *untold(solver)]


def untold(solver: Solver) -> list[str]:
    """Where a graph's work, of which some may be one with what is beside it, has CUDA do what nobody hears."""
    found = []
    for node in solver.iterations.recordings["iteration"]:
        for part in getattr(node, "parts", ()):
            if not part.whole:
                continue
            record.take()
            with solver.device.current(), recording() as heard:
                part.again()
            done, names = [op.name for op in record.take()], [name for name, *_ in heard.launches]
            able = may_begin(heard.launches) or any(name in FIRST for name in names)
            if able and len(done) != len(names):
                found.append(f"{part.what}: CUDA does {done}, and {names} are heard of")
    return found


def run(net: Net) -> list[str]:
    """What is wrong with two passes of a net, or differs between them."""
    give(net)
    with net.device.current():
        total = cupy.empty((), net.context.sum_dtype)

    def step() -> None:
        net.forward()
        net.clear_param_diffs()
        if net.phase == "TRAIN" or net.spec.force_backward:
            net.backward()
        net.loss_into(total)

    return judged(net, repeated(step), (0, 0), 1)


def repeated(step: Any) -> list[list[Operation]]:
    """The operations of two steps, after a first at which nobody looks."""
    taken = []
    for _ in range(3):
        step()
        taken.append(record.take())
    return taken[1:]


def uploaded(layer: Any) -> int:
    """How many arrays a layer moves to the device for a pass: which entries it takes, its tops, or a key."""
    if getattr(layer, "feeding", None) is not None:
        return len(layer.top)
    return len(getattr(layer, "staged", ())) or isinstance(layer, (Data, MemoryData, Dropout))


def judged(
    net: Net, steps: list[list[Operation]], slots: tuple[int, int], batches: int, numbers: int = 0
) -> list[str]:
    """The complaints of two steps, and how they differ."""
    seen.update(type(layer).__name__ for layer in net.layers.values())
    uploads = batches * sum(map(uploaded, net.layers.values())) + numbers
    found = [complaint for step in steps for complaint in complaints(step, uploads)]
    return [*dict.fromkeys(found), *differences(*steps, slots)]
