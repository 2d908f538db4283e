"""What a test gives: the means of a net's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.errors import ShapeError, SpecError
from minicaffe.layers.fed import Fed
from minicaffe.net import Net, sources
from minicaffe.parallel import ALONE, Communicator
from minicaffe.parallel.together import together
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.solver import SolverSpec


def test_nets(
    model: NetSpec, solver: SolverSpec, keep: Sequence[str] | None, **settings: Any
) -> list[Net]:
    """The nets that a solver tests with: the model's `test_nets`, then the model itself in the phase TEST.

    There are as many as test_iter has numbers; test_state says what each is built for. Each keeps those
    of the blobs `keep` that its model has.
    """
    nets = []
    for i in range(len(solver.test_iter)):
        own = i < len(model.test_nets)
        state = solver.test_state[i] if solver.test_state else None
        more: dict[str, Any] = {"level": state.level, "stages": state.stage} if state else {}
        spec = model.test_nets[i] if own else model
        names = {name for layer in spec.layers for name in layer.tops}
        settings["keep"] = None if keep is None else [name for name in keep if name in names]
        nets.append(Net(spec, "TEST", **settings, **more))
    return nets


def tested_on(nets: Sequence[Net]) -> tuple[str, ...]:
    """What comes behind the names of each test net's scores: " on the training pictures", or nothing."""
    told = []
    for net in nets:
        units = dict.fromkeys(filter(None, map(sources.trained_on, net.layers.values())))
        told.append(f" on the training {' and '.join(units)}" if units else "")
    return tuple(told)


def test_scores(
    nets: Sequence[Net],
    batches: Sequence[int],
    with_loss: bool,
    communicator: Communicator = ALONE,
) -> dict[str, Any]:
    """The mean outputs of each net; of several nets led by their number, `0/accuracy`.

    With `with_loss` the weighted sum of the losses as well, as `total loss`. Several ranks have a part of the
    batches each.
    """
    scores: dict[str, Any] = {}
    for i, (net, count) in enumerate(zip(nets, batches, strict=True)):
        found = mean_outputs(net, count, with_loss, communicator)
        if not all(np.all(np.isfinite(score)) for score in found.values()):
            together(communicator, net.check)
        lead = f"{i}/" if len(nets) > 1 else ""
        scores |= {f"{lead}{name}": score for name, score in found.items()}
    return scores


def mean_outputs(
    net: Net, batches: int, with_loss: bool = False, communicator: Communicator = ALONE
) -> dict[str, Any]:
    """The mean of each output of a net over so many batches, from the beginning of its data.

    Of several ranks each computes a part of the batches, one behind the other; all have the same means.
    """
    if not batches:
        raise SpecError("expected at least 1 batch to take the mean of")
    rank, size = communicator.rank, communicator.size
    mine = range(batches * rank // size, batches * (rank + 1) // size)
    sums = together(communicator, lambda: _sums(net, mine, with_loss))
    total: dict[str, np.ndarray] = {}
    for part in communicator.allgather_obj(sums):
        for name, value in part.items():
            _check_shapes(name, total.get(name, value), value)
            total[name] = total[name] + value if name in total else value
    means = {name: value / batches for name, value in total.items()}
    return {name: float(mean) if mean.ndim == 0 else mean for name, mean in means.items()}


def _sums(net: Net, batches: range, with_loss: bool) -> dict[str, np.ndarray]:
    """The sum of each output of a net over some batches."""
    xp, sums = net.device.xp, {}
    net.context.passes = batches.start
    with net.device.current():
        loss = xp.empty((), net.context.sum_dtype)
        for _ in batches:
            outputs = net.forward()
            if with_loss:
                outputs["total loss"] = net.loss_into(loss)
            for name, value in outputs.items():
                if name not in sums:
                    sums[name] = xp.zeros(value.shape, np.float64)
                _check_shapes(name, sums[name], value)
                xp.add(sums[name], value, out=sums[name])
    for layer in net.layers.values():
        if isinstance(layer, Fed):
            layer.tell_damage()
    return {name: net.device.to_host(total) for name, total in sums.items()}


def _check_shapes(name: str, one: Any, other: Any) -> None:
    """Raise ShapeError unless two batches gave an output in one shape."""
    if one.shape != other.shape:
        raise ShapeError(
            f"output {name!r} has shape {one.shape} of one batch, {other.shape} of another: there is no mean "
            "of it"
        )
