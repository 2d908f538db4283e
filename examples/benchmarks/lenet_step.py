"""One training step of LeNet in minicaffe and in PyTorch: the same shapes, data, weights and arithmetic.

peers.py starts this as a process of its own, with settings as JSON; the answer is the last line printed.
A step is: gradients cleared, forward, backward, and SGD with momentum 0.9, weight decay 5e-4 and a rate
of 0.01 (biases 0.02, as in Caffe's LeNet), on drawn digits that are in memory. PyTorch is written as its
users write it, with the fused SGD, its fastest.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import forms
from machine import peak_memory
from measure import ROOT, drawn, in_memory, interleaved, rates, ratios

SOLVER = {"base_lr": 0.01, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005}
NAMES = ("conv1", "conv2", "ip1", "ip2")
TOLERANCE = 1e-4  # of the losses of the first steps
STEPS = 5  # whose losses are compared


@dataclass
class Contender:
    """What takes a training step, and tells the loss of the last one."""

    step: Callable[[], object]
    loss: Callable[[], float]


def ours(batch: int, device: str, **settings: object) -> tuple[Contender, object]:
    """minicaffe; and its solver, of the settings given."""
    from minicaffe import Solver, parse

    model = in_memory(ROOT / "models" / "lenet.yaml", batch, **SOLVER)
    solver = Solver(parse(model), device=device, **settings)
    images, labels = drawn(batch)
    solver.net.forward(data=images, label=labels)
    return Contender(lambda: solver.step(1), solver.loss), solver


def torchs(batch: int, device: str, weights: dict, graph: bool = False) -> Contender:
    """PyTorch, from the weights given; with `graph`, its steps as one CUDA graph."""
    import torch
    from torch import nn

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    layers = (nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5), nn.Linear(800, 500), nn.Linear(500, 10))
    conv1, conv2, ip1, ip2 = layers
    pool = nn.MaxPool2d(2)
    net = nn.Sequential(conv1, pool, conv2, pool, nn.Flatten(), ip1, nn.ReLU(), ip2).to(device)
    groups = [
        {"params": [layer.weight for layer in layers]},
        {"params": [layer.bias for layer in layers], "lr": 2 * SOLVER["base_lr"]},
    ]
    sgd = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=0.0005, fused=True)
    images, labels = drawn(batch)
    x = torch.from_numpy(images).to(device)
    label = torch.from_numpy(labels.astype("int64")).to(device)
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
        loss = nn.functional.cross_entropy(net(x), label)
        loss.backward()
        sgd.step()

    def last_loss() -> float:
        return float(loss.detach())

    start()
    if not graph:
        return Contender(step, last_loss)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    side.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    start()
    return Contender(recorded.replay, last_loss)


def compare(batch: int, device: str, rounds: int, block_ms: float) -> dict[str, object]:
    """Iterations a second side by side, after both have shown the same losses."""
    mine, solver = ours(batch, device)
    weights = solver.net.weights()
    contenders = {"minicaffe": mine, "torch": torchs(batch, device, weights)}
    if solver.device.is_cuda:
        contenders["torch graph"] = torchs(batch, device, weights, graph=True)
    losses = {name: [] for name in contenders}
    for name, one in contenders.items():
        for _ in range(STEPS):
            one.step()
            losses[name].append(one.loss())
    apart = max(
        abs(a - b)
        for found in losses.values()
        for a, b in zip(losses["minicaffe"], found, strict=True)
    )
    if not apart <= TOLERANCE:
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
        "losses_apart": apart,
        "plan": {name: layers[name].plan.names for name in ("conv1", "conv2")},
    }


def memory(contender: str, batch: int, device: str) -> dict[str, float]:
    """Peak memory of this process, MiB, with one contender alone: imports, and all of 20 steps."""
    if contender == "torch":
        import torch  # noqa: F401
    else:
        import minicaffe.solver  # noqa: F401
    imports = peak_memory()
    one = torchs(batch, device, {}) if contender == "torch" else ours(batch, device)[0]
    for _ in range(20):
        one.step()
    found = {"imports": imports, "peak": peak_memory(), "loss": one.loss()}
    if device.startswith("cuda"):
        found["device_pool"] = device_pool(contender)
    return found


def device_pool(contender: str) -> float:
    """The device memory that a contender's allocator holds, MiB."""
    if contender == "torch":
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
