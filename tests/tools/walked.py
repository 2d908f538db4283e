"""Which files of minicaffe some work walks through, and in how many calls: what a reader has to follow.

PYTHONPATH=tests/tools python -m walked
"""

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

import minicaffe
from minicaffe import Net, Solver, parse

PACKAGE = Path(minicaffe.__file__).parent
CONVOLUTION = """
layers:
  - {name: data, type: Input, shape: {dim: [4, 3, 12, 12]}}
  - {name: conv, type: Convolution, num_output: 8, kernel_size: 5, weight_filler: {type: xavier}}
"""


def walked(work: Callable[[], object]) -> Counter[str]:
    """How often a function of each file is called, of all threads; files in the order they are entered in."""
    calls: Counter[str] = Counter()

    def enter(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)):
            calls[str(Path(path).relative_to(PACKAGE))] += 1

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def convolution(engine: str = "auto") -> Counter[str]:
    """A convolution's forward pass on the CPU, called as a net calls it."""
    net = Net(parse(CONVOLUTION), "TRAIN", device="cpu", engine=engine, deterministic=True)
    net.forward(data=np.ones((4, 3, 12, 12), np.float32))
    layer = net.layers["conv"]
    bottom = net.blobs["data"].data
    return walked(lambda: layer.forward(bottom))


def step(before: int = 1, engine: str = "auto", replays: bool = False) -> Counter[str]:
    """An iteration of LeNet, passes and update, no test, line or snapshot, after some others.

    It is an ordinary one; or one that `replays`, which it does from the fourth on.
    """
    settings = {"max_iter": 100, "test_interval": 0, "display": 0, "best": None}
    with contextlib.ExitStack() as stack:
        for file in () if replays else ("core.net.net", "core.solver.solver"):
            stack.enter_context(patch(f"minicaffe.{file}.replayed", lambda _, ordinary: ordinary))
        solver = Solver("lenet", device="cpu", engine=engine, deterministic=True, **settings)
    solver.step(before)
    return walked(lambda: solver.step(1))


if __name__ == "__main__":
    for name, calls in (
        ("a convolution's forward pass", convolution()),
        ("a step of LeNet", step()),
        ("a replayed step of LeNet", step(10, replays=True)),
        ("a replayed step of LeNet, engine caffe", step(10, "caffe", replays=True)),
    ):
        print(f"{name}: {len(calls)} files, {sum(calls.values())} calls", *calls, sep="\n    ")
