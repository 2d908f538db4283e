"""One training step of LeNet in minicaffe and in PyTorch: the same shapes, data, weights and arithmetic.

peers.py starts this as a process of its own, with settings as JSON; the answer is the last line printed.
A step is: gradients cleared, forward, backward, and SGD with momentum 0.9, weight decay 5e-4 and a rate
of 0.01 (biases 0.02, as in Caffe's LeNet), on drawn digits that are in memory. PyTorch is written as its
users write it, with the fused SGD, its fastest, and runs eager, with channels_last and with torch.compile.
"""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import forms
from machine import peak_memory
from measure import ROOT, drawn, in_memory, interleaved, rates, ratios
from zoo_peers import MODES, in_mode, recorded

SOLVER = {"base_lr": 0.01, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005}
NAMES = ("conv1", "conv2", "ip1", "ip2")
TOLERANCE, ROUGH = 1e-4, 1e-2  # of the losses of the first steps; of those by TF32
TF32 = ", TF32"  # a mode in which PyTorch multiplies so: nine bits and more of a product are not looked at
STEPS = 5  # whose losses are compared


@dataclass
class Contender:
    """What takes a training step, and tells the loss of the last one."""

    step: Callable[[], object]
    loss: Callable[[], float]
    kept: object = None  # memory that the step reads, where it does not hold it


def ours(batch: int, device: str, **settings: object) -> tuple[Contender, object]:
    """minicaffe; and its solver, of the settings given."""
    from minicaffe import Solver, parse

    model = in_memory(ROOT / "models" / "lenet.yaml", batch, **SOLVER)
    solver = Solver(parse(model), device=device, **settings)
    images, labels = drawn(batch)
    solver.net.forward(data=images, label=labels)
    return Contender(lambda: solver.step(1), solver.loss), solver


def torchs(batch: int, device: str, weights: dict, mode: str) -> Contender:
    """PyTorch in a mode, from the weights given; in the mode graph, its steps are one CUDA graph."""
    import torch

    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    cuda.matmul.allow_tf32 = cudnn.allow_tf32 = mode.endswith(TF32)
    cudnn.benchmark = True
    plain = module().to(device)
    layers = [getattr(plain, name) for name in NAMES]
    groups = [
        {"params": [layer.weight for layer in layers]},
        {"params": [layer.bias for layer in layers], "lr": 2 * SOLVER["base_lr"]},
    ]
    sgd = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=0.0005, fused=True)
    given = dict(zip(plain.inputs, drawn(batch), strict=True))
    net, inputs = in_mode(plain, given, mode, device)
    loss = None

    def start() -> None:
        with torch.no_grad():
            for name, layer in zip(NAMES, layers, strict=True):
                for i, param in enumerate((layer.weight, layer.bias)):
                    if weights:
                        param.copy_(torch.from_numpy(weights[f"{name}__{i}"]))
                    if sgd.state[param]:
                        sgd.state[param]["momentum_buffer"].zero_()

    def step() -> None:
        nonlocal loss
        sgd.zero_grad()
        loss = net(*inputs)
        loss.backward()
        sgd.step()

    def last_loss() -> float:
        return float(loss.detach())

    start()
    if not mode.startswith("graph"):
        return Contender(step, last_loss)

    def forget() -> (
        None
    ):  # it holds what was made for the other stream, which a capture must not see
        nonlocal loss
        loss = None

    replay = recorded(step, forget)
    cuda.matmul.allow_tf32 = cudnn.allow_tf32 = False  # of the graph it is known
    start()
    return Contender(replay, last_loss, (plain, inputs, sgd))


def module():
    """LeNet in PyTorch: gives the loss of images and labels."""
    from torch import nn

    class LeNet(nn.Module):
        inputs = ("data", "label")

        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
            self.ip1, self.ip2 = nn.Linear(800, 500), nn.Linear(500, 10)

        def forward(self, data, label):
            pool, relu = nn.functional.max_pool2d, nn.functional.relu
            x = pool(self.conv2(pool(self.conv1(data), 2)), 2)
            x = self.ip2(relu(self.ip1(x.flatten(1))))
            return nn.functional.cross_entropy(x, label.long())

    return LeNet()


def modes(device: str) -> tuple[str, ...]:
    """How PyTorch is run on a device; the fastest counts."""
    return MODES if device == "cpu" else (*MODES[:2], "graph", "graph" + TF32)


def compare(batch: int, device: str, rounds: int, block_ms: float) -> dict[str, object]:
    """Iterations a second side by side, after all have shown the same losses."""
    mine, solver = ours(batch, device)
    weights = solver.net.weights()
    contenders = {"minicaffe": mine}
    contenders |= {f"torch {mode}": torchs(batch, device, weights, mode) for mode in modes(device)}
    losses = {name: [] for name in contenders}
    for name, one in contenders.items():
        for _ in range(STEPS):
            one.step()
            losses[name].append(one.loss())
    apart = {
        name: max(abs(a - b) for a, b in zip(losses["minicaffe"], found, strict=True))
        for name, found in losses.items()
    }
    if not all(one <= (ROUGH if name.endswith(TF32) else TOLERANCE) for name, one in apart.items()):
        raise SystemExit(f"the contenders compute different losses at batch {batch}: {losses}")
    steps = {name: one.step for name, one in contenders.items()}
    times = interleaved(steps, solver.device.timer, rounds, block_ms, warm_up=10)
    layers = solver.net.layers
    return {
        "rates": {name: rates(ms) for name, ms in times.items()},
        "ratios": {
            name: ratios(times[name], times["minicaffe"]) for name in times if name != "minicaffe"
        },
        "losses": losses["minicaffe"],
        "losses_apart": max(one for name, one in apart.items() if not name.endswith(TF32)),
        "plan": {name: layers[name].plan.names for name in ("conv1", "conv2")},
    }


def memory(contender: str, batch: int, device: str) -> dict[str, float]:
    """Peak memory of this process, MiB, with one contender alone: imports, and all of 20 steps."""
    whose, _, mode = contender.partition(" ")
    importlib.import_module("torch" if whose == "torch" else "minicaffe.core.solver")
    imports = peak_memory()
    one = torchs(batch, device, {}, mode) if whose == "torch" else ours(batch, device)[0]
    for _ in range(20):
        one.step()
    found = {"imports": imports, "peak": peak_memory(), "loss": one.loss()}
    if device.startswith("cuda"):
        found["device_pool"] = device_pool(whose)
    return found


def device_pool(whose: str) -> float:
    """The device memory that an allocator holds, PyTorch's or CuPy's, MiB."""
    if whose == "torch":
        import torch

        return torch.cuda.max_memory_reserved() / 2**20
    import cupy

    return cupy.get_default_memory_pool().total_bytes() / 2**20


def main(settings: dict) -> None:
    forms.prepare(settings)
    common = (settings["batch"], settings["device"])
    if settings["what"] == "memory":
        found = memory(settings["contender"], *common)
    else:
        found = compare(*common, settings["rounds"], settings["block_ms"])
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
