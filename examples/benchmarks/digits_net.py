"""Train the net of digits that comes with minicaffe: models/digits.npz, of models/digits.yaml.

    python examples/benchmarks/digits_net.py [--iterations N] [--out FOLDER]

It needs MNIST's own files. Half of what it is trained with are MNIST's digits, half drawn ones; it is tested
on the test digits of both, which it never saw.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe
from measure import ROOT, parsed, parser, write

import minicaffe
from minicaffe.tools.data import readers


def sets(split: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The digits of both sources: images (count, 1, 28, 28) and labels."""
    arrays_of = {}
    for name in ("mnist", "digits"):
        reader = readers.open(name, split)
        if reader.warning:
            raise SystemExit(f"MNIST is needed: {reader.warning}")
        arrays = reader.arrays()
        assert arrays is not None
        arrays_of[name] = arrays
    return arrays_of


def main() -> None:
    words = parser(__doc__)
    words.add_argument("--iterations", type=int, default=20_000)
    words.add_argument("--out", type=Path, default=ROOT / "models", help="folder of the net")
    args = parsed(words)
    before, train, test = describe(), sets("train"), sets("test")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        both = Path(home) / "both.npz"
        names = {"x_train": 0, "y_train": 1}
        arrays = {key: np.concatenate([train[k][i] for k in train]) for key, i in names.items()}
        arrays |= {
            f"{k}_test": np.concatenate([test[n]["xy".index(k)] for n in test]) for k in "xy"
        }
        np.savez(both, **arrays)
        model = minicaffe.read(ROOT / "models/digits.yaml", f"layers.mnist.source={both}")
        solver = minicaffe.Solver(
            model, device="cpu", max_iter=args.iterations, snapshot=0, snapshot_after_train=False
        )
        solver.solve()
    seconds = time.perf_counter() - start
    net = minicaffe.Net(ROOT / "models/digits.yaml", "TEST", device="cpu")
    net.share_with(solver.net)
    target = args.out / "digits.npz"
    net.save(target)
    classifier = minicaffe.Classifier(ROOT / "models/digits.yaml", target, device="cpu")
    scores = {
        name: float((classifier.predict(images).argmax(axis=1) == labels).mean())
        for name, (images, labels) in test.items()
    }
    report = {
        "machine": before,
        "iterations": args.iterations,
        "seconds": round(seconds, 1),
        "trained_with": {name: len(labels) for name, (_, labels) in train.items()},
        "tested_with": {name: len(labels) for name, (_, labels) in test.items()},
        "accuracy": scores,
        "bytes": target.stat().st_size,
    }
    print(report)
    write(args.into / "digits_net.json", report | {"quick": args.quick})


if __name__ == "__main__":
    main()
