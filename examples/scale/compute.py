"""What one rank computes: the ms of a training step by batch, layer by layer on the way back. One thread.

python examples/scale/compute.py                       some 6 minutes; results/compute.json
"""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from machine import PINS, describe, version  # noqa: E402

for name in PINS:
    if os.environ.pop(name, None) is not None:  # libraries read them once, when they are loaded
        os.execv(sys.executable, [sys.executable, *sys.argv])
os.environ |= dict.fromkeys(("MINICAFFE_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np  # noqa: E402
from measure import ROOT, clock, digits, spread, write  # noqa: E402

from minicaffe import Solver, parse, read  # noqa: E402
from minicaffe.core.solver import Report  # noqa: E402
from minicaffe.tools.visualize.timing import measure, medians  # noqa: E402

BATCHES = {
    "lenet": (1, 4, 16, 64, 128, 256),
    "cifar10_quick": (1, 4, 16, 64, 100),
    "squeezenet": (1, 2, 4, 8),
    "resnet50": (1, 2, 4),
}
SHAPES = {"lenet": (1, 28, 28), "cifar10_quick": (3, 32, 32), "squeezenet": (3, 227, 227)}
SHAPES |= {"resnet50": (3, 224, 224)}


class Quiet(Report):
    """Says nothing."""

    def write(self, text: str) -> None:
        """Nothing."""


def solver_of(net: str, batch: int) -> Solver:
    """A solver whose data are drawn once, and stay."""
    spec = read(ROOT / "models" / f"{net}.yaml", "solver.display=0", "solver.snapshot=0")
    shapes = [{"dim": [batch, *SHAPES[net]]}, {"dim": [batch]}]
    data = {"name": "data", "type": "Input", "top": ["data", "label"], "shape": shapes}
    layers = [layer for layer in spec.layers if layer.type not in ("Data", "Input", "Accuracy")]
    given = dataclasses.replace(spec, layers=(*parse({"layers": [data]}).layers, *layers))
    quiet = {"test_iter": (), "test_interval": 0, "snapshot_after_train": False}
    solver = Solver(given, device="cpu", report=Quiet(), base_lr=1e-5, iter_size=1, **quiet)
    rng = np.random.default_rng(0)
    solver.net.blobs["data"].data = rng.random((batch, *SHAPES[net]), np.float32)
    solver.net.blobs["label"].data = rng.integers(0, 10, batch).astype(np.float32)
    return solver


def measured(net: str, batch: int, ms: float) -> dict:
    """A step, and of it the way back by layer; and how many bytes of gradients each layer has."""
    solver = solver_of(net, batch)
    for _ in range(4):
        solver.step(1)
    stop = clock()
    solver.step(1)
    count = max(5, min(200, round(ms / stop())))
    steps, updates = [], []
    for _ in range(count):
        stop = clock()
        solver.step(1)
        steps.append(stop())
        stop = clock()
        solver.update()
        updates.append(stop())
    layers = medians(measure(solver.net, max(3, count // 4)))
    back = {name: digits(backward) for name, (_, backward) in layers.items()}
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    for step in solver.net.steps:
        new = [p for p in step.layer.params if p.learns and id(p.owner) not in seen]
        seen |= {id(p.owner) for p in new}
        sizes[step.spec.name] = sum(p.size * p.data.itemsize for p in new)
    return {
        "step_ms": spread(steps),
        "update_ms": spread(updates),
        "forward_ms": digits(sum(forward for forward, _ in layers.values())),
        "backward_ms": back,
        "gradient_bytes": sizes,
    }


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--ms", type=float, default=4000.0, help="that a batch is measured for")
    parser.add_argument("--into", type=Path, default=HERE / "results")
    args = parser.parse_args()
    machine = describe() | {"numba": version("numba"), "threads": 1}
    found: dict[str, dict] = {}
    for net in args.nets:
        found[net] = {}
        for batch in BATCHES[net]:
            found[net][str(batch)] = one = measured(net, batch, args.ms)
            print(net, batch, one["step_ms"]["median"], "ms", flush=True)
    write(args.into / "compute.json", {"machine": machine, "nets": found})


if __name__ == "__main__":
    main()
