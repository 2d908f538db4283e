"""A ladder of single convolutions in minicaffe and in PyTorch, forward and backward.

peers.py starts this as a process of its own, with settings as JSON; the answer is the last line printed.
Speeds and errors are compared in one process; peak memory is that of a process with one contender alone.
Backward is the gradients of input, weight and bias. PyTorch's are called without its autograd, as
aten::convolution and aten::convolution_backward, in its own format and in channels_last: the fastest counts.
Ours are replayed, as a net's are, without the Python that recorded them; on CUDA all are CUDA graphs.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import fma
import forms
import numpy as np
from machine import peak_memory
from measure import digits, fastest, interleaved, ratios, spread
from zoo_peers import MODES, recorded

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
RESULTS = ("y", "dx", "dweight", "dbias")


class Ours:
    """A planned convolution of minicaffe with its arrays; on the CPU as an iteration of a net replays it."""

    def __init__(self, geometry, arrays: dict, device, engine: str = "auto"):
        from minicaffe.backends.cpu import aligned
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
            self.input_gradient = replayed(lambda: self._some(self.dx, None))
            self.weight_gradient = replayed(lambda: self._some(None, self.dweight))

    def backward(self) -> None:
        self.dweight.fill(0)
        self.dbias.fill(0)
        self._gradients()

    def _forward_once(self) -> None:
        self.plan.forward(self.x, self.weight, self.bias, self.y, self.work)

    def _some(self, dx: Any, dweight: Any) -> None:
        self.plan.gradients(self.x, self.dy, self.weight, dx, dweight, None, self.work)

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
    from minicaffe.core.layers.base import Context
    from minicaffe.core.ops.conv.plan import plan

    return plan(g, np.float32, device, engine, Context(device).workspace_cap)


def rung(
    name: str, batch: int, device_name: str, rounds: int, block_ms: float
) -> dict[str, object]:
    """One convolution: ratios, ms, errors against float64, workspace, and the plan."""
    from minicaffe.backends import device as backend
    from minicaffe.backends.cpu import available

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
    truth = {key: wanted.__dict__[key].cpu().numpy() for key in RESULTS}
    found = {key: device.to_host(getattr(mine, key)) for key in RESULTS}
    others = {key: getattr(theirs["torch eager"], key).cpu().numpy() for key in RESULTS}
    del wanted
    peers = {name: one.calls() for name, one in theirs.items()}
    report: dict[str, object] = {
        "shape": f"{n} x {c} x {size} x {size} -> {f}",
        "gflop": digits(2e-9 * g.multiply_adds),
        "plan": mine.plan.names,
        "error": {key: error(found[key], truth[key]) for key in RESULTS},
        "torch_error": {key: error(others[key], truth[key]) for key in RESULTS},
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
    if not device.is_cuda and available():
        report["fma"] = of_the_cores(mine, rounds, block_ms)
    return report


def of_the_cores(mine: Ours, rounds: int, block_ms: float) -> dict[str, float]:
    """GFLOP/s of a loop of multiply-adds, just now, and the share of it that each direction reaches.

    Winograd needs fewer multiplications than are counted: its share may exceed 1.
    """
    from minicaffe.backends.cpu import threads

    gflops = fma.rate(threads.count())
    ways = {"forward": mine.forward, "dx": mine.input_gradient, "dweight": mine.weight_gradient}
    times = interleaved(ways, mine.plan.case.device.timer, rounds, block_ms, warm_up=1)
    gflop = 2e-9 * mine.plan.case.g.multiply_adds
    shares = {way: gflop / (1e-3 * spread(ms)["median"]) / gflops for way, ms in times.items()}
    return {"gflops": digits(gflops)} | {way: digits(share) for way, share in shares.items()}


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


def main(settings: dict) -> None:
    forms.prepare(settings)
    if "contender" in settings:
        (name,) = settings["rungs"]
        told = (settings["batch"], settings["device"], settings["contender"])
        print(json.dumps(memory(name, *told)))
        return
    from minicaffe.backends import device as backend

    args = (settings["batch"], settings["device"], settings["rounds"], settings["block_ms"])
    for name in settings["rungs"]:
        with backend.device(settings["device"]).current():
            found = rung(name, *args)
        ratio = {way: found[way]["ratio"]["median"] for way in ("forward", "backward")}
        print(
            f"{name:<24} forward {ratio['forward']:.2f}x, backward {ratio['backward']:.2f}x of PyTorch",
            file=sys.stderr,
        )
        print(json.dumps({name: found}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
