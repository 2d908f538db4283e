"""A ladder of single convolutions in minicaffe and in PyTorch, forward and backward.

    python examples/benchmarks/ladder.py                   some 12 minutes on 2 CPU cores
    python examples/benchmarks/ladder.py --device cuda
    python examples/benchmarks/ladder.py --quick --into /tmp --only "LeNet conv1"

Speeds and errors are compared in one process; peak memory is that of a process with one contender alone.
Backward is the gradients of input, weight and bias. PyTorch's are called without its autograd, as
aten::convolution and aten::convolution_backward, in its own format and in channels_last: the fastest counts.
Ours are replayed, as a net's are, without the Python that recorded them; on CUDA all are CUDA graphs. Results
go to results/ladder_DEVICE.json after every rung; readme.py shows them.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from contenders import MODES, recorded
from machine import describe, free_process, gpu, new_plans, peak_memory, version, warn_if_busy
from measure import (
    digits,
    fastest,
    geometric_mean,
    in_time,
    interleaved,
    parsed,
    parser,
    ratios,
    save,
    spread,
)
from turns import answers, asked, child, say

# name: channels, image, filters, kernel, stride, pad, dilation, group
LADDER = {
    "LeNet conv1": (1, 28, 20, 5, 1, 0, 1, 1),
    "LeNet conv2": (20, 12, 50, 5, 1, 0, 1, 1),
    "AlexNet conv1": (3, 227, 96, 11, 4, 0, 1, 1),
    "AlexNet conv2": (96, 27, 256, 5, 1, 2, 1, 2),
    "AlexNet conv3": (256, 13, 384, 3, 1, 1, 1, 1),
    "AlexNet conv4": (384, 13, 384, 3, 1, 1, 1, 2),
    "AlexNet conv5": (384, 13, 256, 3, 1, 1, 1, 2),
    "VGG-16 conv1_1": (3, 224, 64, 3, 1, 1, 1, 1),
    "VGG-16 conv1_2": (64, 224, 64, 3, 1, 1, 1, 1),
    "VGG-16 conv2_1": (64, 112, 128, 3, 1, 1, 1, 1),
    "VGG-16 conv2_2": (128, 112, 128, 3, 1, 1, 1, 1),
    "VGG-16 conv3_1": (128, 56, 256, 3, 1, 1, 1, 1),
    "VGG-16 conv3_2": (256, 56, 256, 3, 1, 1, 1, 1),
    "VGG-16 conv4_1": (256, 28, 512, 3, 1, 1, 1, 1),
    "VGG-16 conv4_2": (512, 28, 512, 3, 1, 1, 1, 1),
    "VGG-16 conv5": (512, 14, 512, 3, 1, 1, 1, 1),
    "ResNet-50 1x1, 64-64": (64, 56, 64, 1, 1, 0, 1, 1),
    "ResNet-50 1x1, 64-256": (64, 56, 256, 1, 1, 0, 1, 1),
    "ResNet-50 1x1, 256-64": (256, 56, 64, 1, 1, 0, 1, 1),
    "ResNet-50 3x3, 64": (64, 56, 64, 3, 1, 1, 1, 1),
    "ResNet-50 1x1, 512-128": (512, 28, 128, 1, 1, 0, 1, 1),
    "ResNet-50 3x3, 128": (128, 28, 128, 3, 1, 1, 1, 1),
    "ResNet-50 1x1, 128-512": (128, 28, 512, 1, 1, 0, 1, 1),
    "ResNet-50 1x1, 1024-256": (1024, 14, 256, 1, 1, 0, 1, 1),
    "ResNet-50 3x3, 256": (256, 14, 256, 3, 1, 1, 1, 1),
    "ResNet-50 1x1, 256-1024": (256, 14, 1024, 1, 1, 0, 1, 1),
    "ResNet-50 1x1, 2048-512": (2048, 7, 512, 1, 1, 0, 1, 1),
    "ResNet-50 3x3, 512": (512, 7, 512, 3, 1, 1, 1, 1),
    "ResNet-50 1x1, 512-2048": (512, 7, 2048, 1, 1, 0, 1, 1),
    "depthwise 3x3, 128": (128, 56, 128, 3, 1, 1, 1, 128),
    "dilated 3x3 by 2, 256": (256, 28, 256, 3, 1, 2, 2, 1),
    "strided 3x3 by 2, 128": (128, 56, 128, 3, 2, 1, 1, 1),
}
FORMATS = MODES[:2]  # of PyTorch
SMALL = 64  # batch of LeNet's, whatever the others'
ARRAYS = ("y", "dx", "dweight", "dbias")


class Ours:
    """A planned convolution of minicaffe with its arrays; on the CPU as an iteration of a net replays it."""

    def __init__(self, geometry, arrays: dict, device, engine: str = "auto"):
        from minicaffe.backends import aligned
        from minicaffe.backends.cuda import cublas
        from minicaffe.backends.cuda.capture import captured
        from minicaffe.backends.replay.command_buffer import replayed

        def array(shape: tuple[int, ...] | int) -> Any:  # as a net's are
            return aligned.empty(device.xp, shape, np.float32)

        self.x, self.weight, self.bias, self.dy = given = [array(a.shape) for a in arrays.values()]
        for mine, one in zip(given, arrays.values(), strict=True):
            device.copy_from_host(mine, one)
        self.plan = planned(geometry, device, engine)
        self.work = array(self.plan.workspace)
        self.y, self.dx = array(self.dy.shape), array(self.x.shape)
        self.dweight, self.dbias = array(self.weight.shape), array(self.bias.shape)
        self.forward, self._gradients = self._forward_once, self._gradients_once
        if device.is_cuda:
            for once in (
                self._forward_once,
                self.backward,
            ):  # kernels are compiled, as before a replay
                once()
            self.forward = captured(device, self._forward_once, [cublas.work])
            self.backward = captured(device, self.backward, [cublas.work])
        else:
            self.forward, self._gradients = map(replayed, (self.forward, self._gradients))

    def backward(self) -> None:
        self.dweight.fill(0)
        self.dbias.fill(0)
        self._gradients()

    def _forward_once(self) -> None:
        self.plan.forward(self.x, self.weight, self.bias, self.y, self.work)

    def _gradients_once(self) -> None:
        grads = self.dx, self.dweight, self.dbias
        self.plan.gradients(self.x, self.dy, self.weight, *grads, self.work)


class Torchs:
    """The same convolution of PyTorch, in one of its formats."""

    def __init__(self, geometry, arrays: dict, device: str, dtype: str, mode: str = "eager"):
        import torch

        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        kind = getattr(torch, dtype)
        self.aten = torch.ops.aten
        self.x, self.weight, self.bias, self.dy = (
            torch.from_numpy(a).to(device, kind) for a in arrays.values()
        )
        if mode == "channels_last":
            self.x, self.weight, self.dy = (
                a.to(memory_format=torch.channels_last) for a in (self.x, self.weight, self.dy)
            )
        window, self.graphs = geometry.window, device != "cpu" and dtype == "float32"
        self.how = (window.stride, window.pad, window.dilation, False, (0, 0), geometry.group)

    def forward(self) -> None:
        self.y = self.aten.convolution(self.x, self.weight, self.bias, *self.how)

    def backward(self) -> None:
        found = self.aten.convolution_backward(
            self.dy, self.x, self.weight, [self.bias.numel()], *self.how, [True, True, True]
        )
        self.dx, self.dweight, self.dbias = found

    def calls(self) -> dict[str, Callable[[], object]]:
        """Its two passes, as CUDA graphs where there are such."""
        both = {"forward": self.forward, "backward": self.backward}
        return {way: recorded(call) for way, call in both.items()} if self.graphs else both


def geometry(name: str, batch: int) -> Any:
    """The convolution of a rung."""
    from minicaffe.core.ops.geometry import ConvGeometry, Window

    c, size, f, *window, group = LADDER[name]
    kernel, stride, pad, dilation = ((k, k) for k in window)
    n = SMALL if name.startswith("LeNet") else batch
    return ConvGeometry(n, c, (size, size), f, Window(kernel, stride, pad, dilation), group)


def given(g: Any) -> dict[str, np.ndarray]:
    """Random arrays for a convolution."""
    rng = np.random.default_rng(1)
    shapes = {"x": g.x_shape, "weight": g.weight_shape, "bias": (g.f,), "dy": g.y_shape}
    return {key: rng.standard_normal(shape, np.float32) for key, shape in shapes.items()}


def planned(g: Any, device: Any, engine: str = "auto") -> Any:
    """minicaffe's plan for it."""
    from minicaffe.core.ops.conv import CAP
    from minicaffe.core.ops.conv.plan import plan

    return plan(g, np.float32, device, engine, CAP)


def rung(
    name: str, batch: int, device_name: str, rounds: int, block_ms: float
) -> dict[str, object]:
    """One convolution: ratios, ms, errors against float64, workspace, and the plan."""
    from minicaffe.backends import device as backend

    g = geometry(name, batch)
    arrays = given(g)
    n, c, size, f = g.n, g.c, g.image[0], g.f
    device = backend.device(device_name)
    mine = Ours(g, arrays, device)
    theirs = {f"torch {mode}": Torchs(g, arrays, device_name, "float32", mode) for mode in FORMATS}
    wanted = Torchs(g, arrays, device_name, "float64")
    for one in (mine, *theirs.values(), wanted):
        one.forward()
        one.backward()
    truth = {key: wanted.__dict__[key].cpu().numpy() for key in ARRAYS}
    found = {key: device.to_host(getattr(mine, key)) for key in ARRAYS}
    others = {key: getattr(theirs["torch eager"], key).cpu().numpy() for key in ARRAYS}
    del wanted
    peers = {name: one.calls() for name, one in theirs.items()}
    report: dict[str, object] = {
        "shape": f"{n} x {c} x {size} x {size} -> {f}",
        "gflop": digits(2e-9 * g.multiply_adds),
        "plan": mine.plan.names,
        "error": {key: error(found[key], truth[key]) for key in ARRAYS},
        "torch_error": {key: error(others[key], truth[key]) for key in ARRAYS},
        "workspace_mib": digits(mine.plan.workspace * 4 / 2**20),
        "columns_mib": digits(n * g.column_elements * 4 / 2**20),
    }
    for direction in ("forward", "backward"):
        calls = {"minicaffe": getattr(mine, direction)}
        calls |= {name: one[direction] for name, one in peers.items()}
        times = interleaved(calls, device.timer, rounds, block_ms, warm_up=1)
        taken = {one: spread(ms) for one, ms in times.items()}
        ratio = ratios(times[fastest(taken)], times["minicaffe"])
        report[direction] = {"ratio": ratio, "ms": taken}
    return report


def memory(name: str, batch: int, device_name: str, contender: str) -> float:
    """MiB of the host at the peak of three passes of one contender, beyond what tiny ones have taken."""
    from minicaffe.backends import device as backend

    g, device = geometry(name, batch), backend.device(device_name)
    whose, _, mode = contender.partition(" ")
    tiny = dataclasses.replace(g, n=1, c=g.group, f=g.group, image=(32, 32))

    def passes(g: Any, engine: str = "auto") -> None:
        if whose == "torch":
            one: Ours | Torchs = Torchs(g, given(g), device_name, "float32", mode)
        else:
            one = Ours(g, given(g), device, engine)
        for _ in range(3):
            one.forward()
            one.backward()

    engines = ["auto"] if whose == "torch" else planned(g, device).names.values()
    for engine in set(engines):
        passes(tiny, engine)
    before = peak_memory()
    passes(g)
    return digits(peak_memory() - before)


def error(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest number there is."""
    return float(f"{np.abs(got - wanted).max() / np.abs(wanted).max():.2g}")


def process(settings: dict) -> None:
    """A process that measures rungs, or the memory of a contender alone."""
    import torch

    from minicaffe.backends import device as backend

    torch.set_num_threads(settings["threads"])
    batch, device = settings["batch"], settings["device"]
    for name in settings["rungs"]:
        if "contender" in settings:
            say({"mib": memory(name, batch, device, settings["contender"])})
            continue
        with backend.device(device).current():
            say({name: rung(name, batch, device, settings["rounds"], settings["block_ms"])})


def main() -> None:
    if settings := asked():
        process(settings)
        return
    words = parser(__doc__)
    words.add_argument("--only", nargs="+", choices=[*LADDER], default=[*LADDER], metavar="RUNG")
    words.add_argument("--batch", type=int, default=8, help="LeNet's apart; default: 8")
    args = parsed(words)
    free_process()
    if version("torch") is None:
        sys.exit("torch is not installed here: there is no peer to measure against")
    warn_if_busy()
    machine = describe() | {name: version(name) for name in ("torch", "numba")}
    machine["blas_threads"] = "1 a thread"  # in every process
    if args.kind == "cuda":
        machine |= gpu(args.device)
    head = {"device": args.kind, "threads": args.threads, "quick": args.quick, "machine": machine}
    head |= {"form": "cuda" if args.kind == "cuda" else "numba", "batch": args.batch}
    path, rungs = args.into / f"ladder_{args.kind}.json", {}
    with new_plans():
        for name, found in measured(args):
            rungs[name] = found
            ratio = {way: found[way]["ratio"]["median"] for way in ("forward", "backward")}
            print(f"{name}: {ratio}", flush=True)
            means = {
                way: geometric_mean([one[way]["ratio"]["median"] for one in rungs.values()])
                for way in ratio
            }
            save(path, head | {"geometric_means": means, "rungs": rungs})
    print(f"geometric means: {means}\n-> {path}")


def measured(args: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Each rung with its numbers: on the CPU by a process of its own, on CUDA all by one."""
    speed = (
        {"rounds": 9, "block_ms": 100.0} if args.kind == "cpu" else {"rounds": 5, "block_ms": 40.0}
    )
    speed = {"rounds": 3, "block_ms": 60.0} if args.quick else speed
    settings = {"device": args.device, "threads": args.threads, "batch": args.batch} | speed
    if args.kind == "cuda":
        every = (
            item
            for answer in answers("ladder.py", settings | {"rungs": args.only})
            for item in answer.items()
        )
        for _, item in zip(in_time(args.only, args.until), every, strict=False):
            yield item
        return
    for name in in_time(args.only, args.until):
        found = child("ladder.py", settings | {"rungs": [name]})[name]
        found["memory_mib"] = {
            one.partition(" ")[0]: child(
                "ladder.py", settings | {"rungs": [name], "contender": one}
            )["mib"]
            for one in ("minicaffe", fastest(found["backward"]["ms"]))
        }
        yield name, found


if __name__ == "__main__":
    main()
