"""Train LeNet on MNIST to the end, with several seeds; record accuracy, time and peak memory.

    python examples/benchmarks/lenet_mnist.py --seeds 1 2 3
    python examples/benchmarks/lenet_mnist.py --device cuda

Each seed is a process of its own. Results go to results/lenet_mnist_DEVICE.json after each.
"""

import statistics
import sys
import time
from pathlib import Path

from machine import describe, peak_memory
from measure import ROOT, parsed, parser, save
from turns import asked, child, say


def one_run(model: str, device: str, seed: int, max_iter: int | None) -> dict[str, object]:
    """Train once, in this process."""
    from minicaffe import Solver
    from minicaffe.core.solver import Report

    class Recorder(Report):
        def __init__(self):
            self.curve: dict[int, float] = {}

        def line(self, text: str) -> None:
            print(f"seed {seed}: {text}", file=sys.stderr, flush=True)

        def tested(self, iteration, scores):
            self.curve[iteration] = round(scores["accuracy"], 6)
            super().tested(iteration, scores)

    settings = {"snapshot": 0, "snapshot_after_train": False, "random_seed": seed}
    if max_iter is not None:
        settings["max_iter"] = max_iter
    recorder = Recorder()
    start = time.perf_counter()
    solver = Solver(model, device=device, report=recorder, **settings)
    scores = solver.solve()
    solver.device.synchronize()
    return {
        "seed": seed,
        "iterations": solver.iteration,
        "accuracy": round(scores["accuracy"], 6),
        "loss": round(scores["loss"], 6),
        "seconds": round(time.perf_counter() - start, 1),
        "peak_memory_mib": peak_memory(),
        "device": repr(solver.device),
        "warnings": solver.net.warnings,
        "accuracies": recorder.curve,
    }


def main() -> None:
    if settings := asked():
        say(one_run(**settings))
        return
    words = parser(__doc__)
    words.add_argument("--model", default=str(ROOT / "models" / "lenet.yaml"))
    words.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    words.add_argument("--max-iter", type=int)
    args = parsed(words)
    path, runs = args.into / f"lenet_mnist_{args.kind}.json", []
    settings = {"model": args.model, "device": args.device}
    settings["max_iter"] = 100 if args.quick else args.max_iter
    for seed in args.seeds:
        runs.append(child("lenet_mnist.py", settings | {"seed": seed}))
        mean = round(statistics.mean(run["accuracy"] for run in runs), 6)
        report = {"model": Path(args.model).name, "mean_accuracy": mean, "quick": args.quick}
        save(path, report | {"machine": describe(), "runs": runs})
        accuracy, seconds = runs[-1]["accuracy"], runs[-1]["seconds"]
        print(f"seed {seed}: accuracy {accuracy:.4f} in {seconds} s -> {path}")


if __name__ == "__main__":
    main()
