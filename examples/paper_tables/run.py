"""Measure the paper's two speed tables here: Caffe's lowering, the loop-free one, and our fastest.

    python examples/paper_tables/run.py
    python examples/paper_tables/run.py --device cuda
    python examples/paper_tables/run.py --quick --out /tmp/quick.json

Table 3 is the iterations a second of the modified LeNet (models/lenet_paper.yaml); an iteration is
forward, backward and update, on drawn digits that are in memory. Table 4 is the ms of its two
convolutions, forward and backward, at batch 128. A third part times im2col alone against a copy. The
result goes to results/DEVICE.json after every row; tables.py makes Markdown and a chart of it.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from machine import describe, free_process, new_plans, version, warn_if_busy
from measure import ROOT, digits, drawn, in_memory, interleaved, rates, ratios, save, spread

HERE = Path(__file__).resolve().parent
MODEL = ROOT / "models" / "lenet_paper.yaml"
ENGINES = ("caffe", "loopfree", "auto")
BATCHES = (32, 64, 128, 256)
BATCH = 128  # of Table 4
PASSES = ("conv1 forward", "conv1 backward", "conv2 forward", "conv2 backward")
COPIED = 256 << 20  # bytes of the copy that im2col is compared with


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    parser.add_argument(
        "--minutes", type=float, default=60, help="after which no row is begun; default: 60"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats: a look, no result")
    parser.add_argument("--out", type=Path, help="default: results/DEVICE.json")
    args = parser.parse_args()
    free_process()
    warn_if_busy()
    out = args.out or HERE / "results" / f"{args.device.partition(':')[0]}.json"
    if args.quick and args.out is None:
        parser.error("--quick makes no result to keep: say with --out where it goes")
    until = time.monotonic() + 60 * args.minutes
    with new_plans():
        for found in measured(args.device, *((3, 30.0) if args.quick else (15, 150.0))):
            save(out, found | {"quick": args.quick})
            if time.monotonic() > until:
                print("no time remains for what is missing")
                break
    print(f"-> {out}")


def measured(
    device_name: str,
    rounds: int,
    block_ms: float,
    batches: tuple[int, ...] = BATCHES,
    batch: int = BATCH,
    copied: int = COPIED,
) -> Iterator[dict[str, object]]:
    """Both tables and im2col alone, with what they were measured on: all there is, after every row."""
    from minicaffe.backends import device as backend
    from minicaffe.backends.cpu import available, threads

    device = backend.device(device_name)
    report: dict[str, object] = {
        "device": repr(device) if device.is_cuda else device.name,
        "form": "CUDA" if device.is_cuda else "Numba" if available() else "NumPy",
        "threads": threads.count(),
        "machine": describe() | {"numba": version("numba"), "cupy": cupy_version(device)},
        "batch": batch,
    }
    report["table3"] = table = {}
    for n in batches:
        table[str(n)] = table3(device, n, rounds, block_ms)
        yield report
    for passes, plan in table4(device, batch, rounds, block_ms):
        yield report | {"table4": passes, "plan": plan}
    report |= {"table4": passes, "plan": plan}
    for rows in im2col_alone(device, batch, rounds, block_ms, copied):
        yield report | {"im2col": rows}


def cupy_version(device) -> str | None:
    return device.xp.__version__ if device.is_cuda else None


def solvers(device, batch: int) -> dict[str, object]:
    """A solver for each engine, with the same weights and the same digits in memory."""
    from minicaffe import Solver, parse

    images, labels = drawn(batch)
    made = {}
    for engine in ENGINES:
        made[engine] = Solver(parse(in_memory(MODEL, batch, engine)), device=device, keep=None)
        made[engine].net.forward(data=images, label=labels)
    return made


def table3(device, batch: int, rounds: int, block_ms: float) -> dict[str, object]:
    """Iterations a second of each engine at one batch size."""
    made = solvers(device, batch)
    losses = {}
    for engine, solver in made.items():
        solver.step(3)
        losses[engine] = solver.loss()
    if max(losses.values()) - min(losses.values()) > 1e-3:
        raise SystemExit(f"the engines disagree after 3 iterations at batch {batch}: {losses}")
    steps = {engine: partial(solver.step, 1) for engine, solver in made.items()}
    times = interleaved(steps, device.timer, rounds, block_ms)
    shown = {engine: rates(times[engine]) for engine in ENGINES}
    print(f"batch {batch}: " + ", ".join(f"{k} {v['median']:.1f} iter/s" for k, v in shown.items()))
    return {"rates": shown, "ratios": over_caffe(times), "losses": losses}


def table4(device, batch: int, rounds: int, block_ms: float) -> Iterator[tuple[object, object]]:
    """The ms of each convolution's passes with each engine, and what `auto` chose, after every row."""
    made = solvers(device, batch)
    for solver in made.values():
        solver.net.backward()  # every diff holds what it would hold
    layers = made["auto"].net.layers
    plan = {name: layers[name].plan.names for name in ("conv1", "conv2")}
    table = {}
    for one in PASSES:
        name, direction = one.split()
        calls = {
            engine: partial(getattr(solver.net, direction), name, name)
            for engine, solver in made.items()
        }
        times = interleaved(as_graphs(device, calls), device.timer, rounds, block_ms / 2)
        table[one] = {
            "ms": {engine: spread(times[engine]) for engine in ENGINES},
            "ratios": over_caffe(times),
        }
        print(
            f"{one}: " + ", ".join(f"{k} {v['median']:.3f} ms" for k, v in table[one]["ms"].items())
        )
        yield table, plan


def as_graphs(device, calls: dict[str, Callable]) -> dict[str, Callable]:
    """On CUDA each call as a graph: a few launches a sample, from Python, would be all that is measured."""
    if not device.is_cuda:
        return calls
    from minicaffe.backends.cuda import cublas
    from minicaffe.backends.cuda.capture import captured

    for call in calls.values():
        call()  # so that its kernels are compiled
    needs = [] if cublas.library() is None else [cublas.work]
    return {name: captured(device, call, needs) for name, call in calls.items()}


def over_caffe(times: dict[str, list[float]]) -> dict[str, object]:
    """How many times faster than Caffe's lowering the others are."""
    return {engine: ratios(times["caffe"], times[engine]) for engine in ENGINES[1:]}


def im2col_alone(
    device, batch: int, rounds: int, block_ms: float, copied: int
) -> Iterator[dict[str, object]]:
    """GB/s of im2col at conv2's shape, a sample at a time and the whole batch at once, batch by batch.

    Bytes are those of the images read and the columns written, each once. On the CPU there is one
    form. The larger batch fits no cache.
    """
    forms = ("caffe", "loopfree") if device.is_cuda else ("caffe",)
    copy = copy_rate(device, rounds, block_ms, copied)
    rows = []
    for n in (batch, 16 * batch):
        calls, moved = im2col_calls(device, n, forms)
        times = interleaved(as_graphs(device, calls), device.timer, rounds, block_ms / 2)
        for name, ms in times.items():
            rate = spread([moved / value / 1e6 for value in ms])
            share = digits(rate["median"] / copy["median"])
            rows.append({"form": name, "batch": n, "gb_s": rate, "share_of_copy": share})
            print(f"im2col {name}, batch {n}: {rate['median']:.1f} GB/s, {share:.0%} of a copy")
        yield {"copy_gb_s": copy, "copied_bytes": copied, "rows": rows}


def im2col_calls(device, n: int, forms: tuple[str, ...]) -> tuple[dict[str, Callable], int]:
    """im2col of n samples in each form, both ways, as calls; and the bytes each of them moves."""
    import numpy as np

    from minicaffe.backends.cpu import slices, threads
    from minicaffe.core.ops.geometry import Window, column_shape
    from minicaffe.core.ops.im2col import im2col

    xp, window = device.xp, Window((5, 5))
    images = np.random.default_rng(1).standard_normal((n, 20, 12, 12), np.float32)
    x = device.asarray(images)
    whole = xp.empty(column_shape(x.shape, window), xp.float32)
    pieces = 1 if device.is_cuda else threads.count()
    work = xp.empty(pieces * whole[0].size, xp.float32)

    def sample_by_sample(form: str) -> None:
        def part(first: int, last: int, piece) -> None:
            column = piece.reshape(1, *whole.shape[1:])
            for s in range(first, last):
                im2col(x[s : s + 1], window, column, form=form)

        slices.in_slices(part, n, work)

    calls = {}
    for form in forms:
        calls[f"{form}, sample by sample"] = partial(sample_by_sample, form)
        calls[f"{form}, whole batch"] = partial(im2col, x, window, whole, form=form)
    return calls, x.nbytes + whole.nbytes


def copy_rate(device, rounds: int, block_ms: float, size: int) -> dict[str, float]:
    """GB/s of copying, bytes read and bytes written together; on the CPU by all threads."""
    from minicaffe.backends.cpu.slices import in_slices

    xp = device.xp
    source, target = xp.ones(size // 4, xp.float32), xp.zeros(size // 4, xp.float32)

    def part(first, last, _):
        xp.copyto(target[first:last], source[first:last])

    copy = (
        (lambda: part(0, source.size, None))
        if device.is_cuda
        else (lambda: in_slices(part, source.size))
    )
    times = interleaved({"copy": copy}, device.timer, rounds, block_ms)["copy"]
    return spread([2 * size / ms / 1e6 for ms in times])


if __name__ == "__main__":
    main()
