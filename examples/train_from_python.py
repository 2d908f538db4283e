"""Train LeNet from Python, look inside, score, save.

python examples/train_from_python.py [ITERATIONS]
"""

import sys
from pathlib import Path

import minicaffe

MODEL = Path(__file__).parent.parent / "models" / "lenet.yaml"


def main(iterations: int = 500) -> None:
    solver = minicaffe.Solver(
        MODEL, max_iter=iterations, test_interval=250, snapshot_after_train=False
    )
    solver.solve()

    net = solver.net
    for name, params in net.params.items():
        print(name, [param.shape for param in params])
    print("largest activation of conv1:", net.blobs["conv1"].data.max())
    print("largest gradient of conv1's weight:", abs(net.params["conv1"][0].diff).max())

    net.save("lenet.npz")
    test_net = minicaffe.Net(MODEL, "TEST")
    print("weights:", test_net.load("lenet.npz"))
    print("accuracy of the first test batch:", test_net.forward()["accuracy"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
