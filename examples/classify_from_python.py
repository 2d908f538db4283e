"""Classify arrays of one's own: train LeNet a little, then ask it about pictures it has not seen.

python examples/classify_from_python.py [ITERATIONS]
"""

import sys
from pathlib import Path

import minicaffe
from minicaffe.tools.data import digits

MODEL = Path(__file__).parent.parent / "models" / "lenet.yaml"


def main(iterations: int = 500) -> None:
    solver = minicaffe.Solver(
        MODEL, max_iter=iterations, test_interval=250, snapshot_after_train=False
    )
    solver.solve()

    classifier = minicaffe.Classifier(
        MODEL, solver.net.weights()
    )  # or a file: "lenet_iter_500.npz"
    pictures, labels = digits.draw(
        250, seed=7
    )  # any arrays (n, 28, 28) of 0 to 255, white on black
    prob = classifier.predict(pictures)
    print("probabilities:", prob.shape, "right:", (prob.argmax(axis=1) == labels).mean())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
