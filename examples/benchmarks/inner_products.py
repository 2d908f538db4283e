"""Inner products of a few vectors, forward and backward, beside PyTorch and OpenBLAS: [cpu] on this CPU.

    python examples/benchmarks/inner_products.py            some 2 minutes on 2 CPU cores
    python examples/benchmarks/inner_products.py --quick --only "LeNet ip1" --into /tmp

Backward is the gradients of vectors, weight and bias. PyTorch's are called without its autograd. `BLAS` is
minicaffe without ops.skinny; of one vector, of small products, and of all else that is BLAS's (see there),
both are the same. All take turns in one process and have first been seen to find the same. Goes to
results/inner_products_cpu.json, which readme.py makes a table of.
"""

import argparse
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import forms
from machine import describe, free_process, version, warn_if_busy
from measure import clock, interleaved, parsed, ratios, spread, write
from peer_tables import NOT_YET, faster, milliseconds, where
from tables import lay_out

LAYERS = {  # numbers of a vector, and of what comes out
    "AlexNet fc6": (9216, 4096),
    "AlexNet fc7": (4096, 4096),
    "GoogLeNet's": (1024, 1000),
    "LeNet ip1": (800, 500),
}
VECTORS = (1, 2, 4, 8, 16, 32, 64)
WAYS = ("forward", "backward")
CLOSE = 1e-4


class Ours:
    """minicaffe's, by its own loops or by BLAS alone: recorded once, then run as a training step does."""

    def __init__(self, arrays: dict, few: bool):
        import numpy as np

        from minicaffe.backends.cpu import aligned
        from minicaffe.backends.replay.command_buffer import Program
        from minicaffe.backends.replay.trace import recording
        from minicaffe.core.ops import linear, skinny

        x, weight, bias, dy = (aligned.empty(np, a.shape, a.dtype) for a in arrays.values())
        for array, given in zip((x, weight, bias, dy), arrays.values(), strict=True):
            array[:] = given
        self.y, self.dx, self.dweight, self.dbias = map(np.empty_like, (dy, x, weight, bias))
        work = np.empty(linear.workspace(*x.shape, len(bias)), x.dtype)
        with mock.patch.object(skinny, "_few", skinny._few if few else lambda *_: range(0)):
            with recording() as forward:
                linear.linear(x, weight.T, bias, self.y, work)
            with recording() as backward:
                linear.gradients(x, dy, (self.dweight, True), (self.dbias, True), work)
                linear.input_gradient(dy, weight, self.dx, work)
        self.forward, self.backward = Program(forward.rows).run, Program(backward.rows).run


class Torchs:
    """PyTorch's."""

    def __init__(self, arrays: dict):
        import torch

        self.x, self.weight, self.bias, self.dy = map(torch.from_numpy, arrays.values())
        self.y, self.dx, self.dweight, self.dbias = map(
            torch.empty_like, (self.dy, self.x, self.weight, self.bias)
        )

    def forward(self) -> None:
        import torch

        torch.addmm(self.bias, self.x, self.weight.T, out=self.y)

    def backward(self) -> None:
        import torch

        torch.mm(self.dy.T, self.x, out=self.dweight)
        torch.mm(self.dy, self.weight, out=self.dx)
        torch.sum(self.dy, 0, out=self.dbias)


def measure(name: str, vectors: int, rounds: int) -> dict:
    """The ms of all contenders, and how others compare with ours."""
    import numpy as np

    k, f = LAYERS[name]
    rng = np.random.default_rng(1)
    shapes = {"x": (vectors, k), "weight": (f, k), "bias": (f,), "dy": (vectors, f)}
    arrays = {key: rng.uniform(-1, 1, shape).astype(np.float32) for key, shape in shapes.items()}
    each = {
        "minicaffe": Ours(arrays, True),
        "BLAS": Ours(arrays, False),
        "torch eager": Torchs(arrays),
    }
    for one in each.values():
        one.forward()
        one.backward()
    for key in ("y", "dx", "dweight", "dbias"):
        first, *others = (np.asarray(getattr(one, key)) for one in each.values())
        for other in others:
            if not np.abs(first - other).max() <= CLOSE * np.abs(first).max():
                raise SystemExit(f"{name}, {vectors}: the contenders find different {key}")
    found = {}
    for way in WAYS:
        calls = {who: getattr(one, way) for who, one in each.items()}
        times = interleaved(calls, clock, rounds, 50.0)
        ms = {who: spread(taken) for who, taken in times.items()}
        others = {who: ratios(times[who], times["minicaffe"]) for who in ms if who != "minicaffe"}
        found[way] = {"ms": ms, "ratio": others}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    args = parsed(parser)
    free_process()
    warn_if_busy()
    machine = describe() | {name: version(name) for name in ("torch", "numba", "threadpoolctl")}
    forms.prepare({"form": "numba", "threads": args.threads})
    found = {"device": "cpu", "threads": args.threads, "quick": args.quick, "machine": machine}
    found["layers"] = {}
    for name in args.only:
        found["layers"][name] = layer = {}
        for vectors in VECTORS:
            layer[str(vectors)] = one = measure(name, vectors, 3 if args.quick else 11)
            told = {way: {w: r["median"] for w, r in one[way]["ratio"].items()} for way in WAYS}
            print(name, vectors, told, flush=True)
    write(args.into / "inner_products_cpu.json", found)


def table(found: dict | None) -> str:
    """A row a layer and a number of vectors."""
    if found is None:
        return NOT_YET
    rows = []
    for name, layer in found["layers"].items():
        for vectors, one in layer.items():
            row = [name, vectors]
            for way in WAYS:
                ratio, ms = one[way]["ratio"], one[way]["ms"]["minicaffe"]
                row += [faster(ratio["torch eager"]), faster(ratio["BLAS"]), milliseconds(ms)]
            rows.append(row)
    head = ["inner product", "vectors"]
    head += ["forward : PyTorch", ": BLAS", "ms", "backward : PyTorch", ": BLAS", "ms"]
    return lay_out(head, rows) + "\n\n" + where(found)


if __name__ == "__main__":
    main()
