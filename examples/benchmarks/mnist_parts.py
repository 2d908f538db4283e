"""Where the time goes until LeNet reads 99 % of MNIST's test digits, from the start of Python on.

    python examples/benchmarks/mnist_parts.py
    python examples/benchmarks/mnist_parts.py --device cuda --into /tmp

A process does what `minicaffe train models/lenet.yaml` does, part by part, first with empty caches (loops or
kernels are compiled, convolutions are measured), then two more find them filled. Needs the true MNIST
(`minicaffe data mnist`). Goes to results/mnist_parts_DEVICE.json; the table shows the second of the two.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from machine import describe, free_environment
from measure import ROOT, write
from peer_tables import NOT_YET, lay_out

RESULTS = Path(__file__).resolve().parent / "results"
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
    found = {part: round(value, 4) for part, value in seconds.items()}
    return found | {"iteration_count": solver.iteration, "accuracy": accuracy, "on": repr(made)}


def process(device: str, caches: str) -> dict:
    """That of a process of its own, with the caches in a folder."""
    own = {"MINICAFFE_CACHE": caches, "CUPY_CACHE_DIR": str(Path(caches, "cupy"))}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = free_environment() | own | {"PYTHONPATH": path}
    command = [sys.executable, str(Path(__file__).resolve()), "--device", device]
    command += ["--one", str(time.time())]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(result: dict | None) -> str:
    """A row a part; a column each for empty and filled caches."""
    if result is None:
        return NOT_YET
    runs = result["empty"], result["filled"]
    rows = [[title, *(f"{run[part]:.2f}" for run in runs)] for part, title in PARTS.items()]
    rows.append(["in all", *(f"**{sum(run[part] for part in PARTS):.2f}**" for run in runs)])
    head = ["seconds until 99 %", "caches empty", "caches filled"]
    last = runs[1]
    said = f"{last['iteration_count']} iterations, accuracy {last['accuracy']:.4f}; {last['on']}"
    return f"{lay_out(head, rows)}\n\n{said}, {result['machine']['processor']}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    parser.add_argument("--into", type=Path, default=RESULTS, help="default: results/")
    parser.add_argument("--one", type=float, metavar="BEGIN", help="one run, in this process")
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(one(args.device, args.one)))
        return
    with tempfile.TemporaryDirectory() as caches:
        empty, _, filled = (process(args.device, caches) for _ in range(3))
    result = {"machine": describe(), "empty": empty, "filled": filled}
    path = args.into / f"mnist_parts_{args.device.partition(':')[0]}.json"
    write(path, result)
    print(table(result), f"-> {path}", sep="\n")


if __name__ == "__main__":
    main()
