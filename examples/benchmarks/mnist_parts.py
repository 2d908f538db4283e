"""Where the time goes until LeNet reads 99 % of MNIST's test digits, from the start of Python on.

    python examples/benchmarks/mnist_parts.py
    python examples/benchmarks/mnist_parts.py --device cuda --into /tmp

A process does what `minicaffe train models/lenet.yaml` does, part by part, first with empty caches (loops or
kernels are compiled, convolutions are measured), then two more find them filled. Needs the true MNIST
(`minicaffe data mnist`). Goes to results/mnist_parts_DEVICE.json; the table shows the second of the two.
"""

import os
import tempfile
import time
from pathlib import Path

from machine import describe
from measure import ROOT, parsed, parser, write
from turns import asked, child, say

WANTED = 0.99
FIRST = 5  # iterations: ordinary, traced twice, compared twice
PARTS = {
    "import": "Python, and importing minicaffe",
    "device": "the device",
    "build": "reading MNIST, building the nets, planning convolutions",
    "test": "the first test, of 100 batches",
    "iteration": "the first iteration",
    "replay": "the next four: traced, captured, compared",
    "iterations": "all further iterations",
    "tests": "all further tests",
}


def one(device: str, begin: float) -> dict:
    """The seconds of each part, in this process, which was started at `begin`."""
    seconds = dict.fromkeys(PARTS, 0.0)
    last = begin

    def ends(part: str) -> None:
        nonlocal last
        now = time.time()
        seconds[part] += now - last
        last = now

    from minicaffe import Solver
    from minicaffe.backends import device as backend
    from minicaffe.backends.cuda import ahead
    from minicaffe.core.solver import Report

    class Quiet(Report):
        def line(self, text: str) -> None:
            pass

    ends("import")
    made = backend.device(device)
    ends("device")
    settings = {"snapshot": 0, "snapshot_after_train": False, "random_seed": 1}
    solver = Solver(str(ROOT / "models" / "lenet.yaml"), device=made, report=Quiet(), **settings)
    ends("build")
    if made.is_cuda:
        with ahead.allowed(made):
            solver.test()
            ends("test")
            solver.step(1)
    else:
        solver.test()
        ends("test")
        solver.step(1)
    made.synchronize()
    ends("iteration")
    solver.step(FIRST - 1)
    made.synchronize()
    ends("replay")
    accuracy = 0.0
    while accuracy < WANTED and solver.iteration < solver.spec.max_iter:
        every = solver.spec.test_interval
        solver.step(every - solver.iteration % every)
        made.synchronize()
        ends("iterations")
        accuracy = solver.test()["accuracy"]
        ends("tests")
    rounded = {part: round(value, 4) for part, value in seconds.items()}
    return rounded | {"iteration_count": solver.iteration, "accuracy": accuracy, "on": repr(made)}


def main() -> None:
    if settings := asked():
        say(one(**settings))
        return
    words = parser(__doc__)
    args = parsed(words)
    runs = []
    with tempfile.TemporaryDirectory() as caches:
        os.environ |= {"MINICAFFE_CACHE": caches, "CUPY_CACHE_DIR": str(Path(caches, "cupy"))}
        for _ in range(2 if args.quick else 3):
            runs.append(child("mnist_parts.py", {"device": args.device, "begin": time.time()}))
    report = {"machine": describe(), "quick": args.quick, "empty": runs[0], "filled": runs[-1]}
    print(report)
    write(args.into / f"mnist_parts_{args.kind}.json", report)


if __name__ == "__main__":
    main()
