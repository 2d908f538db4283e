"""One net of the zoo on CUDA in every contender, one after the other: zoo.py starts this.

Each is timed alone and dropped, for memory's sake; its blocks end when the device is done. A line of JSON
tells of each: its ms, and what it found (a loss, or the sum of the outputs), or why it failed. Data lie on
the device, and outputs stay there. Without TF32 in its name a contender has TF32 switched off.
"""

import dataclasses
import gc
import itertools
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np
from measure import digits, spread
from zoo_names import DECAY, MOMENTUM, RATE
from zoo_nets import begin, inputs_of, spec_of
from zoo_turns import size

WARM_UP = 6  # steps, of which two are traced and two replays compared
SHOWN = 240  # characters of what an error says
PRECISIONS = {"": {}, ", TF32": {"precision": "tf32"}, ", float16": {"dtype": "float16"}}
RULES = {"by rule": {"deterministic": True}, "auto": {}}
# A step, what waits for it, and the arrays that it found: a loss, or outputs
Contender = tuple[Callable[[], object], Callable[[], object], Callable[[], list]]


def contenders(compiled: bool) -> dict[str, tuple[Callable[..., Contender], dict]]:
    """Who computes a net, and by what settings: ours and PyTorch, or what PyTorch has to compile."""
    found: dict = {}
    if not compiled:
        for (rule, how), (precision, what) in itertools.product(RULES.items(), PRECISIONS.items()):
            found[f"minicaffe, {rule}{precision}"] = ours, how | what
    modes = ("compile",) if compiled else ("eager", "channels_last")
    for tf32, mode, graph in itertools.product((False, True), modes, (True, False)):
        words = ["torch", *["TF32"] * tf32, *[mode] * (mode != "eager"), *["graph"] * graph]
        found[", ".join(words)] = torchs, {"tf32": tf32, "mode": mode, "graph": graph}
    return found


def ours(name: str, way: str, batch: int, device: str, **settings: object) -> Contender:
    """A net of ours: a training step, or a forward pass."""
    from minicaffe import Net, Solver
    from minicaffe.core.config.solver import SolverSpec

    spec = spec_of(name, way, batch)
    if way == "infer":
        net = Net(spec, "TEST", device=device, keep=(), **settings)
        begin(net)
        outputs = net.forward(**inputs_of(net))  # always the same arrays
        finish = net.device.synchronize
        return net.forward, finish, lambda: [net.device.to_host(y) for y in outputs.values()]
    rule = SolverSpec(base_lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, max_iter=10**9)
    spec = dataclasses.replace(spec, solver=rule)
    solver = Solver(spec, device=device, keep=None, **settings)
    begin(solver.net)
    for key, array in inputs_of(solver.net).items():
        solver.device.copy_from_host(solver.net.blobs[key].data, array)
    loss = lambda: [np.float64(solver.loss())]  # noqa: E731
    return lambda: solver.step(1), solver.device.synchronize, loss


def torchs(
    name: str, way: str, batch: int, device: str, tf32: bool, mode: str, graph: bool
) -> Contender:
    """The same in PyTorch, from the same weights."""
    import torch
    from zoo_peers import in_mode, recorded
    from zoo_torch import Module

    from minicaffe import Net

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    phase = "TRAIN" if way == "train" else "TEST"
    net = Net(spec_of(name, way, batch), phase, device="cpu", deterministic=True)
    begin(net)
    plain = Module(net).to(device)
    module, inputs = in_mode(plain, inputs_of(net), mode, device)
    found: list = []  # without what autograd keeps, which belongs to a stream

    def infer() -> None:
        with torch.inference_mode():
            found[:] = module(*inputs)

    if way == "train":
        groups = plain.groups(RATE, DECAY)
        sgd = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, fused=True)

    def train() -> None:
        sgd.zero_grad()
        loss = module(*inputs)
        loss.backward()
        sgd.step()
        found[:] = [loss.detach()]

    step = train if way == "train" else infer
    replay = recorded(step, found.clear) if graph else step
    kept = step, plain, inputs  # what a graph reads
    finish = torch.cuda.synchronize if device.startswith("cuda") else int
    return lambda: kept and replay(), finish, lambda: [y.float().cpu().numpy() for y in found]


def measured(contender: Contender, rounds: int, block_ms: float) -> dict[str, object]:
    """The ms of a step, by blocks of about `block_ms`; and the sum of what it finds, which must be finite."""
    step, finish, found = contender

    def block(steps: int) -> float:
        finish()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        finish()
        return (time.perf_counter() - start) / steps * 1e3

    block(WARM_UP)
    steps = max(1, round(block_ms / block(1)))
    ms = [block(steps) for _ in range(rounds)]
    total = size([array.astype(np.float64) for array in found()])
    if not math.isfinite(total):
        raise ArithmeticError(f"it found {total}")
    return {"ms": spread(ms), "found": digits(total)}


def main(settings: dict) -> None:
    from check_gpu_layers import is_lost, one_line

    from minicaffe.backends import device as backend

    device = backend.device(settings["device"])
    told = [settings[key] for key in ("name", "way", "batch", "device")]
    for who, (make, given) in contenders(settings["compiled"]).items():
        try:
            answer = measured(make(*told, **given), settings["rounds"], settings["block_ms"])
        except Exception as error:  # of PyTorch, CuPy or ours: the others are measured
            answer = {"failed": one_line(error)[:SHOWN]}
        print(json.dumps({who: answer}), flush=True)
        if "failed" in answer and is_lost(device):
            sys.exit("the CUDA context is lost")
        gc.collect()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
