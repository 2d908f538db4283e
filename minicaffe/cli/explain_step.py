"""Tell what an iteration of training runs, or a pass that infers: the rows of its program, and the Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from minicaffe.backends.cpu import threads
from minicaffe.backends.device import Device
from minicaffe.backends.replay.command_buffer import Program
from minicaffe.backends.replay.replay import Call, Graph, Node, Segment
from minicaffe.cli.streams import say
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import Net
from minicaffe.core.net.summary import table
from minicaffe.core.solver import Solver
from minicaffe.errors import mib

HEAD = ("of", "loop", "slices", "us", "share %", "MiB", "GFLOP/s")
NOTHING = "-"  # what computes a layer that passes on what it reads
REPEATS = 10  # of each row, the least counts
SETTLED = 5  # passes and iterations: what is replayed is replayed by then
QUIET: dict[str, Any] = {"test_interval": 0, "display": 0, "snapshot": 0, "test_iter": ()}
Line = tuple[str, str, int, float, int, float]  # of, loop, slices, us, bytes, flop


def explain_step(spec: NetSpec, device: Device, settings: dict[str, Any]) -> None:
    """Train a few iterations, of which nothing is kept, and print what they ran."""
    solver = Solver(spec, device=device, **settings, **QUIET)
    solver.step(SETTLED)
    nodes = [node for part in solver._iteration.recordings.values() for node in part]
    what = f"an iteration of {solver.spec.type}"
    explain_nodes(solver.net, what, lambda: solver.step(1), nodes, flops(solver.net, True))


def explain_pass(spec: NetSpec, device: Device, settings: dict[str, Any]) -> None:
    """Infer a few times, and print what a forward pass of the phase TEST ran."""
    net = Net(spec, "TEST", device=device, **settings)
    for _ in range(SETTLED):
        net.forward()
    nodes, flop = net.passes.nodes, flops(net, False)
    explain_nodes(net, "a forward pass of the phase TEST", net.forward, nodes, flop)


def explain_net(spec: NetSpec, device: Device, settings: dict[str, Any]) -> None:
    """Infer a few times with nothing kept between, and print of each layer what computes it then."""
    net = Net(spec, "TEST", device=device, keep=(), **settings)
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
        elif isinstance(node, Graph):
            for part in node.parts:
                computed.setdefault(part.what.rpartition(" ")[0], []).append("a CUDA graph")
        else:
            for what, row in zip(node.whose, node.rows, strict=True):
                first, _, last = what.rpartition(" ")[0].partition(" to ")
                computed.setdefault(first, []).append(row.name)
                behind = names[names.index(first) + 1 : names.index(last) + 1] if last else []
                for name in behind:
                    computed.setdefault(name, []).append(f"with {first}")
    for name in names:
        yield name, ", ".join(dict.fromkeys(computed.get(name, [NOTHING])))


def explain_nodes(
    net: Net, what: str, call: Callable[[], Any], nodes: Sequence[Node], flop: dict[str, float]
) -> None:
    """Print how long a call takes, and the nodes that it goes through."""

    def whole() -> None:
        call()
        net.device.synchronize()

    where = f"{net.context.dtype}, on {net.device.name}, {threads.count()} threads"
    say(f"{net.name or 'the net'}, {what}, {where}: {least(whole) / 1e3:.3f} ms")
    if not nodes:
        print(f"nothing of it is replayed: {why_nothing(net.device)}")
        return
    lines = list(measured(nodes, flop))
    taken = sum(line[3] for line in lines)
    print(table([cells(line, taken) for line in joined(lines)], HEAD, left=(0, 1)))
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
    if device.is_cuda:
        return "on CUDA it runs layer by layer"
    return "it changes from one to the next"


def flops(net: Net, learning: bool) -> dict[str, float]:
    """The arithmetic of products, by what a row is of."""
    found = {}
    for step in net.steps:
        layer, name = step.layer, step.spec.name
        found[f"{name} forward"] = 2.0 * layer.multiply_adds
        if learning:
            learns = any(param.owner.lr_mult for param in layer.params)
            products = learns + any(layer.needs_gradient)
            found[f"{name} backward"] = 2.0 * layer.multiply_adds * products
    return found


def measured(nodes: Sequence[Node], flop: dict[str, float]) -> Iterator[Line]:
    """A line for each row, and each call between rows; the arithmetic is of all rows of a pass of a layer."""
    for node in nodes:
        if isinstance(node, Call):
            yield node.what, f"Python: {node.why}", 0, least(node.work), 0, 0.0
            continue
        if isinstance(node, Graph):
            name = f"CUDA graph of {len(node.parts)}" if not node.why else f"as it is: {node.why}"
            of = f"{node.parts[0].what} to {node.parts[-1].what}"
            yield of, name, 0, least(partial(_waited, node)), 0, 0.0
            continue
        times = Program(node.rows).times(REPEATS)
        for what, row, seconds in zip(node.whose, node.rows, times, strict=True):
            first = what.partition(" to ")[0]  # of layers that are computed as one
            arithmetic = flop.get(what, flop.get(f"{first} {what.rpartition(' ')[2]}", 0.0))
            yield what, row.name, row.slices, 1e6 * seconds, row.bytes, arithmetic


def _waited(graph: Graph) -> None:
    graph.work()
    graph.device.synchronize()


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
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start))
    return min(found)
