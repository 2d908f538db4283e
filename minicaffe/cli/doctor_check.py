"""`minicaffe doctor --check`: whether a GPU computes what the CPU does, replays what it computes, how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backend import Device
from minicaffe.cli.check_layers import engines, layers
from minicaffe.errors import DeviceError, mib
from minicaffe.net import parse
from minicaffe.net.summary import table
from minicaffe.ops import conv
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Window
from minicaffe.solver import Solver
from minicaffe.solver.replay import Silent

TYPES = ("float32", "float64", "float16")
REPLAYS = 20
COPIED = 256 << 20  # bytes
MATRIX = 2048  # rows and columns
LARGE = (16, 64, 56)  # a convolution 3 x 3: samples, channels and filters, pixels along an axis
BATCH = 64
SOLVER = """
solver: {base_lr: 0.01, momentum: 0.9, weight_decay: 0.0005, lr_policy: inv, gamma: 0.0001, power: 0.75,
  clip_gradients: 10, max_iter: 1000000}
"""
LENET = """
layers:
  - {name: data, type: Input, top: [data, label], shape: [{dim: [BATCH, 1, 28, 28]}, {dim: [BATCH]}]}
  - {name: conv1, type: Convolution, bottom: data, num_output: 20, kernel_size: 5}
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: conv2, type: Convolution, num_output: 50, kernel_size: 5}
  - {name: pool2, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: ip1, type: InnerProduct, num_output: 500}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: drop1, type: Dropout, top: ip1}
  - {name: ip2, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]}
"""
RESIDUAL = """
blocks:
  conv:
    layers:
      - {name: conv<n>, type: Convolution, bottom: <from>, num_output: <width>, kernel_size: 3, pad: 1,
         stride: <stride>, bias_term: false, weight_filler: msra}
      - {name: bn<n>, type: BatchNorm, top: conv<n>}
      - {name: scale<n>, type: Scale, top: conv<n>, bias_term: true}
    defaults: {from: null, stride: 1}
  sum:
    layers:
      - {name: sum<n>, type: Eltwise, bottom: [<other>, conv<n>]}
      - {name: relu<n>, type: ReLU, top: sum<n>}
layers:
  - {name: data, type: Input, top: [data, label], shape: [{dim: [BATCH, 3, 32, 32]}, {dim: [BATCH]}]}
  - {block: conv, n: 1, from: data, width: 16}
  - {name: relu1, type: ReLU, top: conv1}
  - {block: conv, n: 2, width: 16}
  - {block: sum, n: 2, other: conv1}
  - {block: conv, n: 3, width: 64, stride: 2}
  - {name: relu3, type: ReLU, top: conv3}
  - {block: conv, n: 4, width: 64}
  - {block: sum, n: 4, other: conv3}
  - {name: pool, type: Pooling, pool: AVE, global_pooling: true}
  - {name: ip, type: InnerProduct, num_output: 10, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""
WIDE = """
layers:
  - {name: data, type: Input, top: [data, label], shape: [{dim: [BATCH, 1024]}, {dim: [BATCH]}]}
  - {name: ip1, type: InnerProduct, num_output: 2048, weight_filler: xavier}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: ip2, type: InnerProduct, num_output: 10, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]}
"""
NETS = {"LeNet": LENET, "a residual net": RESIDUAL, "products by cuBLAS": WIDE}
Row = tuple[str, str, str]  # what, what was found, ok or what is wrong


def check(device: Device) -> None:
    """Print a table of all checks. Raises DeviceError, after that, if any of them failed."""
    rows: list[Row] = []
    for part in (kernels, replays, rates):
        rows += part(device)
    print(table(rows, ("check", "found", ""), left=(0, 1, 2)))
    if failed := [row for row in rows if row[2] not in ("ok", "")]:
        what, _, wrong = failed[0]
        raise DeviceError(f"{len(failed)} of {len(rows)} checks failed; the first: {what}: {wrong}")


def kernels(device: Device) -> Iterator[Row]:
    """Every layer and every way to compute a convolution, in three types, beside the CPU in float64."""
    for dtype in TYPES:
        for what, found in (
            ("layers", layers(device, dtype)),
            ("convolutions", engines(device, dtype)),
        ):
            everything = list(found)
            findings = [one for one in everything if one is not None]
            left = len(everything) - len(findings)
            wrong = [one for one in findings if one.wrong]
            worst = max(findings, key=lambda one: one.error)
            told = (
                f"{len(findings)}, {left} left out; largest error {worst.error:.1e}, {worst.what}"
            )
            yield f"{what} in {dtype}", told, f"{len(wrong)} are wrong" if wrong else "ok"
            for one in wrong:
                yield f"  {one.what}", f"error {one.error:.1e}", one.wrong


def replays(device: Device) -> Iterator[Row]:
    """Iterations as a CUDA graph beside such as they are: bits, memory, iterations a second."""
    for name, text in NETS.items():
        yield from replay(device, name, text)


def replay(device: Device, name: str, text: str) -> Iterator[Row]:
    """The same of one net."""
    plain, graph = solver_of(text, device, graph=False), solver_of(text, device, graph=True)
    for solver in (plain, graph):
        solver.step(5)  # in which an iteration is noted twice, captured and compared
        device.synchronize()
    pool = device.xp.get_default_memory_pool()
    before = pool.total_bytes()
    seconds = []
    for solver in (plain, graph):
        start = time.perf_counter()
        solver.step(REPLAYS)
        device.synchronize()
        seconds.append(time.perf_counter() - start)
    taken = pool.total_bytes() - before
    nodes = graph._recordings["iteration"]
    launched = sum(hasattr(node, "parts") for node in nodes)
    reasons = "; ".join(graph._reasons)
    yield (
        f"{name}: iteration",
        f"{launched} CUDA graphs",
        reasons or ("ok" if nodes else "no graph"),
    )
    mine, theirs = graph.net.weights(), plain.net.weights()
    apart = [one for one in mine if mine[one].tobytes() != theirs[one].tobytes()]
    told = f"{REPLAYS} replayed, {REPLAYS} as they are"
    yield f"{name}: weights after them", told, f"{', '.join(apart)} differ" if apart else "ok"
    yield f"{name}: memory taken meanwhile", mib(taken), "it grows" if taken else "ok"
    rate = [REPLAYS / one for one in seconds]
    yield f"{name}, batch {BATCH}", f"{rate[1]:.0f} iterations/s, without a graph {rate[0]:.0f}", ""


def solver_of(text: str, device: Device, graph: bool) -> Solver:
    """A net with a batch of noise."""
    given: dict[str, Any] = {"deterministic": True, "engine": "implicit", "report": Silent()}
    spec = parse(text.replace("BATCH", str(BATCH)) + SOLVER)
    solver = Solver(spec, device=device, graph=graph, **given)
    random, blobs = np.random.default_rng(0), solver.net.blobs
    device.copy_from_host(blobs["data"].data, random.random(blobs["data"].shape))
    device.copy_from_host(blobs["label"].data, random.integers(0, 10, BATCH).astype(np.float32))
    return solver


def rates(device: Device) -> Iterator[Row]:
    """Copies, products of matrices, a convolution by each engine, and the two that the paper compares."""
    xp = device.xp
    with device.current():
        one, other = (xp.zeros(COPIED, np.uint8) for _ in range(2))
        ms = least(device, partial(xp.copyto, one, other))
        yield "copy on the device", f"{2 * COPIED / ms / 1e6:.0f} GB/s", ""
        for dtype in TYPES:
            a, b, out = (xp.zeros((MATRIX, MATRIX), dtype) for _ in range(3))
            ms = least(device, partial(gemm, a, b, out))
            yield f"cuBLAS in {dtype}", f"{2 * MATRIX**3 / ms / 1e9:.1f} TFLOP/s", ""
    n, channels, size = LARGE
    large = ConvGeometry(n, channels, (size, size), channels, Window((3, 3), (1, 1), (1, 1)))
    for name, ms in forward_times(device, large, ("implicit", "winograd", "batched")).items():
        speed = 2 * large.multiply_adds / ms / 1e9
        yield f"3 x 3 of {channels} channels, {name}", f"{ms:.3f} ms, {speed:.1f} TFLOP/s", ""
    lenets = ConvGeometry(BATCH, 20, (12, 12), 50, Window((5, 5)))
    times = forward_times(device, lenets, ("caffe", "loopfree"))
    told = ", ".join(f"{name} {ms:.3f} ms" for name, ms in times.items())
    yield f"the paper's two, LeNet's conv2, batch {BATCH}", told, ""


def forward_times(device: Device, g: ConvGeometry, names: tuple[str, ...]) -> dict[str, float]:
    """The ms of a forward pass by some engines."""
    found, xp = {}, device.xp
    with device.current():
        x, y, weight = (
            xp.zeros(shape, np.float32) for shape in (g.x_shape, g.y_shape, g.weight_shape)
        )
        for name in names:
            plan = conv.plan(g, np.dtype(np.float32), device, name, conv.CAP, True, None)
            work = xp.empty(plan.workspace, np.float32)
            found[name] = least(device, partial(plan.forward, x, weight, None, y, work))
    return found


def least(device: Device, work: Callable[[], Any], repeats: int = 5) -> float:
    """The least ms of some runs, after one that is not timed."""
    work()
    found = []
    for _ in range(repeats):
        stop = device.timer()
        work()
        found.append(stop())
    return min(found)
