"""Commands that run a net to tell what it takes: explain, time and warm."""

import dataclasses
import functools
import math
import multiprocessing
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from typing import Annotated, Any

import numpy as np

from minicaffe.backends import cpu
from minicaffe.backends.device import PRECISIONS, Device
from minicaffe.backends.dispatch import threads
from minicaffe.backends.replay.command_buffer import Program
from minicaffe.backends.replay.replay import Call, CudaGraph, Node, Segment
from minicaffe.cli.options import Computed, Model, Phased
from minicaffe.cli.parser import Arg, CommandOptions, number
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.blob import check_type
from minicaffe.core.layers.context import Numerics
from minicaffe.core.layers.convolution import Filtered
from minicaffe.core.net import Net
from minicaffe.core.net.summary import table
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.core.ops.conv.autotune import DIRECTIONS, measure
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.core.solver import Solver
from minicaffe.errors import MinicaffeError, mib, pip_install, say
from minicaffe.storage import caches
from minicaffe.tools.training import speed

STEP_HEAD = ("of", "loop", "slices", "us", "share %", "MiB", "GFLOP/s")
NOTHING = "-"  # what computes a layer that passes on what it reads
REPEATS = 10  # of each row, the least counts
SETTLED = 5  # passes and iterations: what is replayed is replayed by then
QUIET: dict[str, Any] = {"test_interval": 0, "display": 0, "snapshot": 0, "test_iter": ()}
Line = tuple[str, str, int, float, int, float]  # of, loop, slices, us, bytes, flop


def explain_net(spec: NetSpec, device: Device, numerics: Numerics) -> None:
    """Infer a few times with nothing kept between, and print of each layer what computes it then."""
    net = Net(spec, "TEST", device=device, keep=(), numerics=numerics)
    for _ in range(SETTLED):
        net.forward()
    say(f"{net.name or 'the net'}, inference, {net.context.dtype}, on {net.device.name}")
    if not net.passes.nodes:
        print(f"nothing of it is replayed: {why_nothing(net.device)}")
        return
    computed = dict(who_computes(net))
    rows = [(step.spec.name, step.spec.type, computed[step.spec.name]) for step in net.steps]
    print(table(rows, ("layer", "type", "computed by"), left=(0, 1, 2)))
    sharing = net.memory.sharing
    both = f"{mib(sharing.before)}, sharing memory {mib(sharing.after)}"
    print(f"{sum(row[2] == NOTHING for row in rows)} layers compute nothing; blobs: {both}")


def who_computes(net: Net) -> Iterator[tuple[str, str]]:
    """(layer, what computes it): its loops, the layer in whose loop it is, or Python."""
    names = [step.spec.name for step in net.steps]
    computed: dict[str, list[str]] = {}
    for node in net.passes.nodes:
        if isinstance(node, Call):
            computed.setdefault(node.what.rpartition(" ")[0], []).append(f"Python: {node.why}")
        elif isinstance(node, CudaGraph):
            for part in node.parts:
                computed.setdefault(part.what.rpartition(" ")[0], []).append("a CUDA graph")
        else:
            for what, row in zip(node.whose, node.rows, strict=True):
                first, _, last = what.rpartition(" ")[0].partition(" to ")
                computed.setdefault(first, []).append(row.name)
                for name in names[names.index(first) + 1 : names.index(last) + 1] if last else []:
                    computed.setdefault(name, []).append(f"with {first}")
    for name in names:
        yield name, ", ".join(dict.fromkeys(computed.get(name, [NOTHING])))


def explain_program(spec: NetSpec, device: Device, phase: str | None, numerics: Numerics) -> None:
    """Train a few iterations, which are not kept, or infer in TEST; print what that ran, and its time."""
    if phase == "TEST":
        net = Net(spec, "TEST", device=device, numerics=numerics)
        call: Callable[[], Any] = net.forward
        for _ in range(SETTLED):
            net.forward()
        nodes, what = net.passes.nodes, "a forward pass of the phase TEST"
    else:
        solver = Solver(spec, device=device, numerics=numerics, **QUIET)
        net, call = solver.net, partial(solver.step, 1)
        solver.step(SETTLED)
        nodes = [node for part in solver.iterations.recordings.values() for node in part]
        what = f"an iteration of {solver.spec.type}"

    def whole() -> None:
        call()
        net.device.synchronize()

    where = f"{net.context.dtype}, on {net.device.name}, {threads()} threads"
    say(f"{net.name or 'the net'}, {what}, {where}: {least(whole) / 1e3:.3f} ms")
    if not nodes:
        print(f"nothing of it is replayed: {why_nothing(net.device)}")
        return
    lines = list(measured(nodes, flops(net, phase != "TEST")))
    taken = sum(line[3] for line in lines)
    print(table([cells(line, taken) for line in joined(lines)], STEP_HEAD, left=(0, 1)))
    if net.device.is_cuda:
        return
    rows = sum(line[3] for line in lines if line[2])
    count = sum(len(node.rows) for node in nodes if isinstance(node, Segment))
    print(f"{count} rows {rows / 1e3:.3f} ms, Python between them {(taken - rows) / 1e3:.3f} ms,")
    print(
        "each behind the one before, the least of some runs; MiB are all arrays that a row is given"
    )


def why_nothing(device: Device) -> str:
    """Why there is no program."""
    return "on CUDA it runs layer by layer" if device.is_cuda else "it changes from one to the next"


def flops(net: Net, learning: bool) -> dict[str, float]:
    """The arithmetic of products, by what a row is of."""
    counts = {}
    for step in net.steps:
        layer, name = step.layer, step.spec.name
        counts[f"{name} forward"] = 2.0 * layer.multiply_adds
        if learning:
            learns = any(param.owner.lr_mult for param in layer.params)
            products = learns + any(layer.needs_gradient)
            counts[f"{name} backward"] = 2.0 * layer.multiply_adds * products
    return counts


def measured(nodes: Sequence[Node], flop: dict[str, float]) -> Iterator[Line]:
    """A line for each row, and each call between rows; the arithmetic is of all rows of a pass of a layer."""
    for node in nodes:
        if isinstance(node, Call):
            yield node.what, f"Python: {node.why}", 0, least(node.work), 0, 0.0
            continue
        if isinstance(node, CudaGraph):
            name = f"CUDA graph of {len(node.parts)}" if not node.why else f"as it is: {node.why}"
            of = f"{node.parts[0].what} to {node.parts[-1].what}"

            def work(graph: CudaGraph = node) -> None:
                graph.work()
                graph.device.synchronize()

            yield of, name, 0, least(work), 0, 0.0
            continue
        times = Program(node.rows).times(REPEATS)
        for what, row, seconds in zip(node.whose, node.rows, times, strict=True):
            first = what.partition(" to ")[0]  # of layers that are computed as one
            arithmetic = flop.get(what, flop.get(f"{first} {what.rpartition(' ')[2]}", 0.0))
            yield what, row.name, row.slices, 1e6 * seconds, row.bytes, arithmetic


def joined(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines; over several rows of one thing stands their sum, and only there the arithmetic."""
    for what, group in groupby(lines, key=lambda line: line[0]):
        rows = list(group)
        if len(rows) == 1:
            yield rows[0]
            continue
        yield what, f"{len(rows)} parts", 0, sum(row[3] for row in rows), 0, rows[0][5]
        for row in rows:
            yield "", f"  {row[1]}", *row[2:5], 0.0


def cells(line: Line, whole: float) -> tuple[str, ...]:
    """A line as the table shows it."""
    what, loop, slices, us, size, flop = line
    return (
        what,
        loop,
        str(slices or ""),
        f"{us:.1f}",
        f"{100 * us / whole:.1f}",
        f"{size / 2**20:.2f}" if size else "",
        f"{1e-3 * flop / us:.1f}" if flop else "",
    )


def least(call: Callable[[], Any]) -> float:
    """The us of a call, the least of some."""
    return 1e6 * min(timeit.repeat(call, number=1, repeat=REPEATS))


HEAD = ("engine", "forward", "input gradient", "weight gradient", "errors", "workspace")


class Explain(Model, Computed, Phased):
    """Show how each convolution is computed: its sizes, the engines' speed and error, the choice and why.

    Times that are not known yet are measured and stored, and if the machine was busy then, measured again the
    next time that it is quiet; --measure measures all again. It times the engines that `auto` chooses from and
    the one that you select by name; with --all, it times every engine that can compute the convolution, and
    does not store these times. The choice (*) is the one that training with the same options would make. A
    Deconvolution is the adjoint of the convolution shown: its forward pass is that one's input gradient. On
    CUDA an InnerProduct is a convolution of images of one place: `implicit` is our kernel, `batched` is
    cuBLAS. With --net it shows which layers of a net that infers are computed with others, in one pass over
    memory. With --step it shows, row by row, what a training iteration runs, and what it does in Python, and
    why; with --phase TEST, what a forward pass runs.

    example:
      minicaffe explain lenet
      minicaffe explain lenet --batch 256 --workspace 64
      minicaffe explain lenet --measure
      minicaffe explain lenet --all
      minicaffe explain resnet50 --net
      minicaffe explain lenet --step
      minicaffe explain lenet --step --phase TEST
    """

    batch: Annotated[int | None, number(1), "samples, instead of the model's"] = None
    measure: Annotated[bool, "measure again, instead of using stored times"] = False
    all: Annotated[bool, "time every engine that can compute the convolution"] = False
    net: Annotated[bool, "explain which layers of inference are computed as one"] = False
    step: Annotated[bool, "explain an iteration or a pass, not the convolutions"] = False

    def __call__(self) -> None:
        if (self.step or self.net) and (self.batch or self.measure or self.all):
            which = "--step" if self.step else "--net"
            raise MinicaffeError(f"{which} is of the net as it is: no --batch, --measure or --all")
        if self.net and (self.step or self.phase == "TRAIN"):
            raise MinicaffeError("--net is of inference: no --step, and no --phase but TEST")
        spec = self.read_model()
        device = self.pick_device(spec)
        if self.net:
            explain_net(spec, device, self.numerics())
            return
        if self.step:
            explain_program(spec, device, self.phase, self.numerics())
            return
        settings: Any = {"device": device, "numerics": self.numerics(), "keep": ()}
        net = Net(spec, self.phase, shapes_only=True, **settings)
        check_type(net.context.dtype, device)
        say(f"{net.name or self.model}, phase {net.phase}, {net.context.dtype}, on {device.name}")
        count = 0
        anew: list[Case] = []
        for step in net.steps:
            layer: Any = step.layer
            if not isinstance(getattr(layer, "plan", None), conv.Plan):
                continue
            if self.batch is not None:
                if isinstance(layer, Filtered):
                    layer.geometry = dataclasses.replace(layer.geometry, n=self.batch)
                else:
                    layer.m = layer.m * self.batch // step.bottoms[0].shape[0]
            with step:
                plan(layer, anew if self.measure else None)
                adjoint = "the adjoint of " if step.spec.type == "Deconvolution" else ""
                print(f"\n{step.spec.name}: {adjoint}{sizes(layer.plan.case.g, net.context.dtype)}")
                if not layer.plan.case.too_large:
                    compare(layer.plan, self.all)
                for title, way in zip(HEAD[1:4], DIRECTIONS, strict=True):
                    print(f"  {title}: {layer.plan.names[way]} ({layer.plan.reasons[way]})")
            count += 1
        if count:
            print(f"\nmeasurements: {autotune_cache.path(device)}")
        else:
            print("there is no convolution in it")


def plan(layer: Any, anew: list[Case] | None) -> None:
    """Plan a layer's convolution; given a list of those measured anew, measure it too, unless it is in it."""
    layer.choose(deterministic=True)  # its case, with no measurement
    if anew is not None and layer.plan.case not in anew:
        anew.append(layer.plan.case)
        autotune_cache.forget(layer.plan.case)
    layer.allocate()


def sizes(g: ConvGeometry, dtype: np.dtype) -> str:
    """Shapes, and what follows from them."""
    x, y, weight = ("x".join(map(str, s)) for s in (g.x_shape, g.y_shape, g.weight_shape))
    elements = sum(map(math.prod, (g.x_shape, g.y_shape, g.weight_shape)))
    columns, moved = g.n * g.column_elements, elements * dtype.itemsize
    times = columns / max(1, math.prod(g.x_shape))
    window = [(name, getattr(g.window, name)) for name in ("stride", "pad", "dilation")]
    shown = [f"{name} {'x'.join(map(str, size))}" for name, size in window]
    return (
        f"{x} -> {y}, weight {weight}, {', '.join(shown)}, group {g.group}\n"
        f"  {g.multiply_adds:,} multiply-adds, {mib(moved)} moved (x, weight and y), "
        f"{2 * g.multiply_adds / max(1, moved):.1f} flop/byte\n"
        f"  column matrix {mib(columns * dtype.itemsize)}, each entry of x {times:.1f} times"
    )


OURS = ("implicit",)
BESIDE = {"high": "", "highest": ", summed as by cuBLAS", "tf32": ", as PyTorch has cuDNN round"}
of_precision = functools.cache(Device.of_precision)
timed = functools.cache(measure)  # engines side by side, once for all layers of a shape


def compare(plan: conv.Plan, everything: bool) -> None:
    """Print the engines of one convolution, those taken with a star."""
    case, rows, out = plan.case, [], []
    names = {*(case.able if everything else case.candidates), *plan.names.values()}
    known = names == set(case.candidates)
    findings = autotune_cache.findings(case)[0] if known else timed(case, tuple(sorted(names)))
    for name in conv.ENGINES:
        if why := case.refuses(name):
            out.append(f"  {name}: {why}")
        elif name not in names:
            out.append(f"  {name}: {case.passes_over(name)}")
        else:
            error = " ".join(f"{one.error[name]:.0e}" for one in findings.values())
            times = []
            for way, one in findings.items():
                star, ms = "* " * (plan.names[way] == name), one.ms.get(name)
                times.append("inaccurate" if ms is None else f"{star}{ms:.3f}")
            times += ["-"] * (len(DIRECTIONS) - len(findings))
            work = mib(case.workspace(name) * case.dtype.itemsize)
            rows.append((f"  {name}", *times, error, work))
    print(table(rows, ("  engine", *(f"{way} ms" for way in HEAD[1:4]), *HEAD[4:])))
    most = " ".join(f"{case.tolerance(way):.0e}" for way in findings)
    print(f"  errors of each against float64, root mean squares; at most {most}")
    single = everything and case.device.is_cuda and case.dtype == np.float32
    for precision in PRECISIONS if single else ():
        of = dataclasses.replace(case, device=of_precision(case.device, precision))
        if of.device.precision != precision:
            continue  # it has none
        errors = " ".join(f"{one.error['implicit']:.0e}" for one in timed(of, OURS).values())
        print(f"  errors of implicit with precision {precision}: {errors}{BESIDE[precision]}")
    for line in out:
        print(line)


class Time(Model, Computed, Phased):
    """Time each layer, forward and backward: medians in ms over repeated passes, and shares of the whole.

    example:
      minicaffe time lenet --iterations 20
    """

    iterations: Annotated[int, number(1), "passes timed; default: 20"] = 20

    def __call__(self) -> None:
        spec = self.read_model()
        phase, device = self.phase_of(spec), self.pick_device(spec)
        net = Net(spec, phase, device=device, numerics=self.numerics())
        for _ in range(2):
            net.forward()
            net.backward()
        medians = speed.medians(speed.measure(net, self.iterations))
        whole = sum(map(sum, medians.values()))
        rows = [
            (name, f"{forward:.3f}", f"{backward:.3f}", f"{100 * (forward + backward) / whole:.1f}")
            for name, (forward, backward) in medians.items()
        ]
        sums = [sum(values) for values in zip(*medians.values(), strict=True)]
        rows.append(("all", f"{sums[0]:.3f}", f"{sums[1]:.3f}", "100.0"))
        print(table(rows, ("layer", "forward ms", "backward ms", "share %")))
        print(
            f"medians of {self.iterations} passes; forward + backward {whole:.3f} ms, {1e3 / whole:.1f} iter/s"
        )


COMMON = ("lenet", "squeezenet", "mobilenet", "resnet50")


class Warm(CommandOptions):
    """Compile the loops of some nets, and measure their convolutions, so that no later command waits for that.

    Once after the extra `cpu` was installed, or minicaffe was updated. Nets are compiled side by side, as many
    at a time as there are cores; then their convolutions are measured, one after the other. Without names
    these are a few nets whose loops are those of most. With --train their training step is compiled, too.

    example:
      minicaffe warm
      minicaffe warm lenet mobilenet
      minicaffe warm lenet --train
    """

    models: Annotated[
        Sequence[str], Arg("models", nargs="*"), "MODEL", f"default: {' '.join(COMMON)}"
    ] = COMMON
    train: Annotated[bool, "compile the training step, too"] = False

    def __call__(self) -> None:
        if not cpu.available():
            raise MinicaffeError(
                "there are no loops to compile: Numba is not there, which the extra brings: "
                f"{pip_install('cpu')}"
            )
        for name in self.models:
            Net(name, "TEST", device="cpu", shapes_only=True)  # a mistake is told before all work
        start = time.perf_counter()
        spawned = multiprocessing.get_context("spawn")
        workers = min(threads(), len(self.models))
        with ProcessPoolExecutor(workers, mp_context=spawned) as pool:
            work = partial(compiled, train=self.train)
            for name, seconds in zip(self.models, pool.map(work, self.models), strict=True):
                print(f"{name}: compiled in {seconds:.1f} s", flush=True)
        for name in self.models:  # with nothing beside: what the others measured is forgotten
            for phase in ("TEST", "TRAIN") if self.train else ("TEST",):
                anew: list[Case] = []
                for step in Net(name, phase, device="cpu", shapes_only=True).steps:
                    if isinstance(getattr(step.layer, "plan", None), conv.Plan):
                        plan(step.layer, anew)
        taken = time.perf_counter() - start
        say(f"{taken:.0f} s in all; kept for the next command in {caches.folder()}")


def compiled(name: str, train: bool) -> float:
    """The seconds of some passes, and iterations, of a net."""
    start = time.perf_counter()
    net = Net(name, "TEST", device="cpu", keep=())
    for _ in range(SETTLED):
        net.forward()
    if train:
        Solver(name, device="cpu", **QUIET).step(SETTLED)
    return time.perf_counter() - start
