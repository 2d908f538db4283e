"""The nets of the zoo in minicaffe, as contenders."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from zoo_names import DECAY, MOMENTUM, RATE
from zoo_nets import begin, inputs_of, spec_of


def shapes_of(name: str, way: str, batch: int | None = None):
    """A net that holds nothing."""
    from minicaffe import Net

    phase = "TRAIN" if way == "train" else "TEST"
    return Net(spec_of(name, way, batch), phase, device="cpu", shapes_only=True)


def ours(name: str, way: str, weights: Path | None = None):
    """A net of ours to infer with."""
    from minicaffe import Net

    net = Net(spec_of(name, way), "TEST", device="cpu", keep=())
    if weights is None:
        begin(net)
    else:
        net.load(weights)
    return net


def warm_batch_norms(name: str, net) -> None:
    """Let a net's BatchNorms know what a batch has: numbers that a net could have learnt."""
    if not any(step.spec.type == "BatchNorm" for step in net.steps):
        return
    from minicaffe import Net

    seen = Net(spec_of(name, "train"), "TRAIN", device="cpu")
    seen.forward(**inputs_of(seen))
    net.load(
        {key: value for key, value in seen.weights().items() if key in net.named_params},
        strict=False,
    )


def trained(name: str, batch: int | None = None, dropout: bool = True):
    """A net of ours to train, and its solver; all learn by SGD with momentum and decay."""
    from minicaffe import Solver
    from minicaffe.core.config.solver import SolverSpec

    spec = spec_of(name, "train", batch)
    spec = spec if dropout else without_dropout(spec)
    rule = SolverSpec(base_lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, max_iter=10**9)
    solver = Solver(dataclasses.replace(spec, solver=rule), device="cpu")
    begin(solver.net)
    return solver.net, solver


def without_dropout(spec):
    """A net whose Dropouts drop nothing."""
    layers = [
        dataclasses.replace(layer, options={**layer.options, "dropout_ratio": 0.0})
        if layer.type == "Dropout"
        else layer
        for layer in spec.layers
    ]
    return dataclasses.replace(spec, layers=tuple(layers))


def ours_step(solver, tell: bool = True) -> Callable[[], object]:
    """A training step of ours; it gives its loss, where that is wanted."""

    def step():
        solver.step(1)
        return solver.loss() if tell else None

    return step


def on_one_thread(call: Callable) -> Callable:
    """A call of ours that uses one core."""
    from minicaffe.backends.cpu.threads import at_most

    def alone():
        with at_most(1):
            return call()

    return alone
