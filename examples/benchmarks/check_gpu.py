"""Whether a GPU computes what the CPU does, replays what it computes, and how fast.

It compares every layer and convolution of a GPU with the CPU, and replayed iterations with iterations without
replay, and measures the GPU's rates, in a table that you can paste into an issue. Each row is printed as soon
as it is known, also for a part that fails; a lost CUDA context ends the checks.

    python examples/benchmarks/check_gpu.py
    python examples/benchmarks/check_gpu.py layers replays --minutes 10
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from check_gpu_layers import Finding, engines, is_lost, layers
from machine import gpu_at_work
from turns import one_line

from minicaffe.backends import device as backend
from minicaffe.backends.device import Device
from minicaffe.core.net import parse
from minicaffe.core.ops import conv
from minicaffe.core.ops.gemm import gemm
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.solver import Solver
from minicaffe.core.solver.report import Mute
from minicaffe.errors import DeviceError, MinicaffeError, mib

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
PARTS = ("layers", "convolutions", "replays", "rates")
Row = tuple[str, str, str]  # what, what was found, ok or what is wrong
Step = tuple[str, Callable[[Device], Iterator[Row | None]]]  # None: nothing to say yet


def check(device: Device, parts: Sequence[str] = PARTS, minutes: float = math.inf) -> None:
    """Print a row of each check as it is made, for so many minutes at the most.

    What a check raises is its row, and the next one is made; but without the CUDA context no other can be.
    Raises DeviceError, after the last row, if any of them failed.
    """
    until, rows = time.monotonic() + 60 * minutes, []
    todo = list(steps(parts))

    def say(row: Row) -> None:
        rows.append(row)
        what, found, wrong = row
        fine = wrong in ("ok", "")
        text = found if fine else "; ".join(filter(None, (wrong, found)))
        print(f"{what:<34}  {wrong if fine else 'WRONG':<5}  {text}".rstrip(), flush=True)

    while todo and time.monotonic() < until:
        name, step = todo[0]
        try:
            for row in step(device):
                if row is not None:
                    say(row)
                if time.monotonic() >= until:
                    break
            else:
                todo.pop(0)
        except Exception as error:  # whatever CuPy, NVRTC or CUDA say is a finding
            say((name, "", one_line(error)))
            todo.pop(0)
            if is_lost(device):
                say(("the CUDA context", "", "is lost"))
                break
    if todo:
        print(f"not checked: {', '.join(name for name, _ in todo)}")
    if failed := [row for row in rows if row[2] not in ("ok", "")]:
        what, _, wrong = failed[0]
        raise DeviceError(
            f"{len(failed)} of {len(rows)} checks failed; the first: {what.strip()}: {wrong}"
        )


def steps(parts: Sequence[str]) -> Iterator[Step]:
    """The checks of some parts, each of which can fail alone."""
    for dtype in TYPES:
        if "layers" in parts:
            yield f"layers in {dtype}", partial(kernels, f"layers in {dtype}", layers, dtype)
        if "convolutions" in parts:
            what = f"convolutions in {dtype}"
            yield what, partial(kernels, what, engines, dtype)
    if "replays" in parts:
        for name, text in NETS.items():
            yield f"{name}: replayed", partial(replay, name, text)
    if "rates" in parts:
        yield "rates", rates


def kernels(
    what: str,
    findings: Callable[[Device, str], Iterator[Finding | None]],
    dtype: str,
    device: Device,
) -> Iterator[Row | None]:
    """Layers, or ways to compute a convolution, in a type beside the CPU in float64; what is wrong first."""
    left, wrong, worst, count = 0, 0, Finding("nothing", 0.0), 0
    for one in findings(device, dtype):
        if one is None:
            left += 1
            continue
        count += 1
        wrong += bool(one.wrong)
        worst = one if one.error > worst.error else worst
        yield (f"  {one.what}", f"error {one.error:.1e}", one.wrong) if one.wrong else None
    told = f"{count}, {left} left out; largest error {worst.error:.1e}, {worst.what}"
    yield what, told, f"{wrong} are wrong" if wrong else "ok"


def replay(name: str, text: str, device: Device) -> Iterator[Row]:
    """Iterations as a CUDA graph beside such as they are: bits, memory, iterations a second."""
    plain, graph = solver_of(text, device, graph=False), solver_of(text, device, graph=True)
    for solver in (plain, graph):
        solver.step(5 + REPLAYS)  # in five it is noted twice, captured and compared
        device.synchronize()
    pool = device.xp.get_default_memory_pool()
    before = pool.used_bytes()
    seconds = []
    for solver in (plain, graph):
        start = time.perf_counter()
        solver.step(REPLAYS)
        device.synchronize()
        seconds.append(time.perf_counter() - start)
    taken = pool.used_bytes() - before
    nodes = graph.iterations.recordings["iteration"]
    launched = sum(hasattr(node, "parts") for node in nodes)
    reasons = "; ".join(graph.iterations.reasons)
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
    given: dict[str, Any] = {"deterministic": True, "engine": "implicit", "report": Mute()}
    spec = parse(text.replace("BATCH", str(BATCH)) + SOLVER)
    solver = Solver(spec, device=device, graph=graph, **given)
    random, blobs = np.random.default_rng(0), solver.net.blobs
    device.copy_from_host(blobs["data"].data, random.random(blobs["data"].shape))
    device.copy_from_host(blobs["label"].data, random.integers(0, 10, BATCH).astype(np.float32))
    return solver


def rates(device: Device) -> Iterator[Row]:
    """Copies, products of matrices, a convolution by each engine, and the two that the paper compares.

    All of random numbers: on zeros a GPU draws less power, and may clock higher. Beside a rate stands, where
    nvidia-smi tells it, what the GPU was like while it did the same.
    """
    xp = device.xp
    with device.current():
        one, other = xp.empty(COPIED, np.uint8), drawn(device, COPIED, np.uint8)
        ms, state = timed(device, partial(xp.copyto, one, other))
        yield "copy on the device", f"{2 * COPIED / ms / 1e6:.0f} GB/s{state}", ""
        for dtype in TYPES:
            a, b = (drawn(device, (MATRIX, MATRIX), dtype) for _ in range(2))
            out = xp.empty((MATRIX, MATRIX), dtype)
            ms, state = timed(device, partial(gemm, a, b, out))
            yield f"cuBLAS in {dtype}", f"{2 * MATRIX**3 / ms / 1e9:.1f} TFLOP/s{state}", ""
    n, channels, size = LARGE
    large = ConvGeometry(n, channels, (size, size), channels, Window((3, 3), (1, 1), (1, 1)))
    names = ("implicit", "winograd", "batched")
    for name, (ms, state) in forward_times(device, large, names).items():
        speed = 2 * large.multiply_adds / ms / 1e9
        yield (
            f"3 x 3 of {channels} channels, {name}",
            f"{ms:.3f} ms, {speed:.1f} TFLOP/s{state}",
            "",
        )
    lenets = ConvGeometry(BATCH, 20, (12, 12), 50, Window((5, 5)))
    times = forward_times(device, lenets, ("caffe", "loopfree"))
    told = ", ".join(f"{name} {ms:.3f} ms{state}" for name, (ms, state) in times.items())
    yield f"the paper's two, LeNet's conv2, batch {BATCH}", told, ""


def forward_times(
    device: Device, g: ConvGeometry, names: tuple[str, ...]
) -> dict[str, tuple[float, str]]:
    """The ms of a forward pass by some engines, each with what the GPU was like."""
    found, xp = {}, device.xp
    with device.current():
        x, weight = (drawn(device, shape, np.float32) for shape in (g.x_shape, g.weight_shape))
        y = xp.empty(g.y_shape, np.float32)
        for name in names:
            plan = conv.plan(g, np.dtype(np.float32), device, name, conv.CAP, True, None)
            work = xp.empty(plan.workspace, np.float32)
            found[name] = timed(device, partial(plan.forward, x, weight, None, y, work))
    return found


def drawn(device: Device, shape: Any, dtype: Any) -> Any:
    """Random numbers on the device, of a normal distribution; or all bytes, each as likely as the others."""
    random = np.random.default_rng(0)
    if dtype == np.uint8:
        return device.asarray(random.integers(0, 256, shape, np.uint8))
    return device.asarray(random.standard_normal(shape).astype(dtype))


def timed(device: Device, work: Callable[[], Any]) -> tuple[float, str]:
    """The least ms of some work, and in brackets what the GPU is like while it does it, if that is known."""
    ms, state = least(device, work), gpu_at_work(device, work)
    return ms, f" ({state})" if state else ""


def least(device: Device, work: Callable[[], Any], repeats: int = 5) -> float:
    """The least ms of some runs, after one that is not timed."""
    work()
    found = []
    for _ in range(repeats):
        stop = device.timer()
        work()
        found.append(stop())
    return min(found)


def main(words: Sequence[str]) -> int:
    """Check what the command line names. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many minutes")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...")
    args = parser.parse_args(words)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    try:
        device = backend.device(args.device)
        if not device.is_cuda:
            raise DeviceError(f"this check is for a GPU; here is {device!r}")
        check(device, args.parts or PARTS, args.minutes)
    except MinicaffeError as error:
        print(f"check_gpu: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
