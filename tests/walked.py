"""Which files of minicaffe some work walks through: what a reader who follows it has to open.

PYTHONPATH=tests python -m walked
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

import minicaffe
from minicaffe import Net, Solver, parse

PACKAGE = Path(minicaffe.__file__).parent
CONVOLUTION = """
layers:
  - {name: data, type: Input, shape: {dim: [4, 3, 12, 12]}}
  - {name: conv, type: Convolution, num_output: 8, kernel_size: 5, weight_filler: {type: xavier}}
"""


def walked(work: Callable[[], object]) -> list[str]:
    """The files whose functions are called, in the order in which they are entered, of all threads."""
    found: dict[str, None] = {}

    def enter(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)):
            found.setdefault(str(Path(path).relative_to(PACKAGE)))

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def convolution(engine: str = "auto") -> list[str]:
    """A convolution's forward pass on the CPU, called as a net calls it."""
    net = Net(parse(CONVOLUTION), "TRAIN", device="cpu", engine=engine, deterministic=True)
    x = np.ones((4, 3, 12, 12), np.float32)
    net.forward(data=x)
    layer = net.layers["conv"]
    bottom = net.blobs["data"].data
    return walked(lambda: layer.forward(bottom))


def step() -> list[str]:
    """An ordinary iteration of LeNet, not replayed: passes and update, no test, line or snapshot."""
    settings = {"max_iter": 100, "test_interval": 0, "display": 0, "best": None}
    solver = Solver("lenet", device="cpu", deterministic=True, **settings)
    solver.step(1)
    return walked(lambda: solver.step(1))


if __name__ == "__main__":
    for name, files in (
        ("a convolution's forward pass", convolution()),
        ("a step of LeNet", step()),
    ):
        print(f"{name}: {len(files)} files", *files, sep="\n    ")
