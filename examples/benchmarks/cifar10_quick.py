"""CIFAR-10 quick, trained as Caffe trains it: 4000 iterations, then 1000 at a tenth of the rate; about 75%.

    python examples/benchmarks/cifar10_quick.py [--source cifar10] [--device cuda] [--json FILE]

Writes results/cifar10_quick_DEVICE.json. Where the data set is not at hand it says in one line how to fetch
it, fetches nothing, and ends with exit code 3.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml
from machine import describe, peak_memory
from measure import ROOT, digits, write

from minicaffe import DataError, Solver
from minicaffe.tools.data import readers

MODEL = ROOT / "models" / "cifar10_quick.yaml"
CAFFE = 0.75  # Caffe's examples/cifar10: "about 75%"
NOT_HERE = 3  # exit code


def at_hand(source: str) -> np.ndarray:
    """The mean picture of the training set. Raises DataError where there is none; fetches nothing."""
    reader = readers.open(source, "train")
    if reader.origin == "not fetched yet":
        raise DataError(f"{source} is not at hand: minicaffe fetch {source} brings it (162 MiB)")
    found = reader.arrays()
    if found is None:
        raise DataError(f"{reader.origin}: expected CIFAR-10's own files")
    return found[0].mean(axis=0, dtype=np.float64).astype(np.float32)


def model(source: str, mean: Path, first: int, last: int) -> dict:
    """The model in Caffe's order, with Caffe's mean image; after `first` iterations a tenth of the rate."""
    tree = yaml.safe_load(MODEL.read_text())
    for layer in tree["layers"]:
        if layer.get("source") == "cifar10":
            layer |= {"source": source, "shuffle": False, "transform": {"mean_file": str(mean)}}
    tree["solver"] |= {
        "train_state": {"stage": ["cifar10"]},
        "test_state": [{"stage": ["cifar10"]}],
        "lr_policy": "multistep",
        "stepvalue": [first],
        "gamma": 0.1,
        "max_iter": first + last,
        "snapshot": 0,
        "snapshot_after_train": False,
    }
    return tree


def train(source: str, device: str, first: int, last: int, **settings: object) -> dict[str, object]:
    """Train, and tell the accuracy on the test images after each part. Raises DataError without the data."""
    mean = at_hand(source)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "mean.npy")
        np.save(file, mean)
        solver = Solver(model(source, file, first, last), device=device, **settings)
        start = time.perf_counter()
        solver.step(first)
        halfway = solver.test()["accuracy"]
        solver.step(last)
        return {
            "iterations": [first, first + last],
            "accuracies": [digits(halfway), digits(solver.test()["accuracy"])],
            "caffe": CAFFE,
            "seconds": round(time.perf_counter() - start, 1),
            "peak_memory_mib": peak_memory(),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--source", default="cifar10")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--iterations", type=int, nargs=2, default=[4000, 1000], metavar="N")
    parser.add_argument("--json", type=Path, help="default: results/cifar10_quick_DEVICE.json")
    args = parser.parse_args()
    kind = args.device.partition(":")[0]
    out = args.json or ROOT / "examples" / "benchmarks" / "results" / f"cifar10_quick_{kind}.json"
    machine = describe()
    try:
        found = train(args.source, args.device, *args.iterations)
    except DataError as error:
        print(error, file=sys.stderr)
        return NOT_HERE
    write(out, {"machine": machine, **found})
    reached = found["accuracies"][-1]
    print(f"accuracy {reached:.4f}, Caffe's is about {CAFFE:.2f}")
    return 0 if reached >= CAFFE else 1


if __name__ == "__main__":
    sys.exit(main())
