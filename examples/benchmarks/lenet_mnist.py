"""Train LeNet on MNIST to the end, with several seeds; record accuracy, time and peak memory.

    python examples/benchmarks/lenet_mnist.py --seeds 1 2 3
    python examples/benchmarks/lenet_mnist.py --device cuda

Each seed is a process of its own. The result file is written after each, with the machine's description.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from machine import describe, free_environment, peak_memory
from measure import save

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = Path(__file__).parent / "results"


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(ROOT / "models" / "lenet.yaml"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--max-iter", type=int)
    parser.add_argument("--out", type=Path, help="default: results/lenet_mnist_DEVICE.json")
    parser.add_argument(
        "--one", action="store_true", help="train the one seed here and print the result"
    )
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_run(args.model, args.device, args.seeds[0], args.max_iter)))
        return
    out = args.out or RESULTS / f"lenet_mnist_{args.device.partition(':')[0]}.json"
    runs = []
    for seed in args.seeds:
        command = [
            sys.executable,
            __file__,
            "--one",
            "--model",
            args.model,
            "--device",
            args.device,
        ]
        command += ["--seeds", str(seed)]
        if args.max_iter is not None:
            command += ["--max-iter", str(args.max_iter)]
        result = subprocess.run(
            command, env=free_environment(), stdout=subprocess.PIPE, text=True, check=True
        )
        runs.append(json.loads(result.stdout))
        report = {
            "model": Path(args.model).name,
            "mean_accuracy": round(statistics.mean(run["accuracy"] for run in runs), 6),
            "machine": describe(),
            "runs": runs,
        }
        save(out, report)
        print(
            f"seed {seed}: accuracy {runs[-1]['accuracy']:.4f} in {runs[-1]['seconds']} s -> {out}"
        )


if __name__ == "__main__":
    main()
