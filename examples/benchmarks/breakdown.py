"""Where each millisecond of LeNet's training step goes, beside the time its products alone would take.

    python examples/benchmarks/breakdown.py [BATCH ...]        default: 64

The floor of a layer is its multiply-adds at the speed of large square products on all threads: one
product forward; backward one for the weight and, where it is wanted, one for the input.
"""

import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from lenet_step import ours
from machine import free_process
from measure import clock, interleaved, spread
from tables import lay_out

SIDE = 768  # of the square products


def gflops(rounds: int, block_ms: float) -> float:
    """GFLOP/s of square products, one on each thread at a time."""
    import numpy as np

    from minicaffe.backends.cpu import threads
    from minicaffe.backends.replay import dispatch

    pieces = threads.count()
    a, b, out = (np.ones((pieces, SIDE, SIDE), np.float32) for _ in range(3))

    def part(first: int, last: int, _: object) -> None:
        for i in range(first, last):
            np.matmul(a[i], b[i], out=out[i])

    call = partial(dispatch.in_slices, part, pieces)
    ms = spread(interleaved({"gemm": call}, clock, rounds, block_ms)["gemm"])["median"]
    return 2e-6 * pieces * SIDE**3 / ms


def breakdown(batch: int, rounds: int = 9, block_ms: float = 50.0) -> str:
    """The step layer by layer, as a Markdown table."""
    from minicaffe.core.net.run import forward

    contender, solver = ours(batch, "cpu", keep=None)  # for passes of single layers
    net, speed = solver.net, gflops(rounds, block_ms)
    contender.step()
    calls = {}
    for step in net.steps[1:]:
        name = step.spec.name
        calls[name, "forward"] = partial(forward, step, net.graph, net.memory)  # in place, too
        calls[name, "backward"] = partial(net.backward, name, name)
    calls["update", "forward"] = partial(solver.rule.update, 0.0, 0)
    calls["clear", "forward"] = net.clear_param_diffs
    calls["step", "forward"] = contender.step
    times = interleaved(calls, clock, rounds, block_ms)
    ms = {key: spread(values)["median"] for key, values in times.items()}
    whole = ms.pop(("step", "forward"))
    rows, floors = [], []
    for step in net.steps[1:]:
        name = step.spec.name
        floor = 2e-6 * step.layer.multiply_adds / speed
        products = 1 + step.layer.needs_gradient[0]
        floors += [floor, products * floor]
        figures = (ms[name, "forward"], floor, ms[name, "backward"], products * floor)
        rows.append([name, *(f"{value:.3f}" for value in figures)])
    for name in ("update", "clear"):
        rows.append([name, f"{ms[name, 'forward']:.3f}", "", "", ""])
    rows.append(["all of these", f"{sum(ms.values()):.3f}", f"{sum(floors):.3f}", "", ""])
    rows.append(["a step, whole", f"{whole:.3f}", "", "", ""])
    head = [f"batch {batch}: ms", "forward", "floor", "backward", "floor"]
    note = f"{1e3 / whole:.1f} iter/s; the floor is at {speed:.0f} GFLOP/s"
    return lay_out(head, rows) + f"\n\n{note}, {1e3 / sum(floors):.0f} iter/s."


if __name__ == "__main__":
    free_process()
    for size in sys.argv[1:] or ["64"]:
        print(breakdown(int(size)), end="\n\n")
