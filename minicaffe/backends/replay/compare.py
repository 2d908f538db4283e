"""Compares replayed iterations with ordinary ones: whether a CUDA graph computes the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minicaffe.backends.replay.replay import Call
from minicaffe.core.net import Net
from minicaffe.core.solver.average import Average
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import Update


def compared(iteration: Any, replay: Callable[[], None], as_it_is: Callable[[], None]) -> str:
    """Replay an iteration, restore all arrays, and run it without replay; returns why they differ, or "".

    All arrays that an iteration changes are compared to the bit: parameters, history, statistics,
    loss, flags. Copies are kept on the host. An iteration that calls Python that cannot run twice,
    such as reading a file, is replayed and not compared.
    """
    nodes = [node for part in iteration.recordings.values() for node in part]
    if not all(node.sets or node.twice for node in nodes if isinstance(node, Call)):
        replay()
        return ""
    parts = iteration.net, iteration.rule, iteration.watch, iteration.average
    arrays, device = left_behind(*parts), iteration.device
    before = {name: device.to_host(array) for name, array in arrays.items()}
    try:
        replay()
        replayed = {name: device.to_host(array) for name, array in arrays.items()}
    finally:
        for name, array in arrays.items():
            device.copy_from_host(array, before[name])
    as_it_is()
    for name, array in arrays.items():
        if device.to_host(array).tobytes() != replayed[name].tobytes():
            return f"a replay gave another {name} than an iteration as it is"
    return ""


def left_behind(
    net: Net, rule: Update | Mixed, watch: Watch, average: Average | None
) -> dict[str, Any]:
    """All arrays that an iteration changes permanently, by name."""
    arrays: dict[str, Any] = {"watch": watch.block, "loss": watch.loss}
    for step in net.steps:
        for i, param in enumerate(step.layer.params):
            arrays[f"parameter {i} of {step.spec.name}"] = param.data
        for i, array in enumerate(step.layer.running):
            arrays[f"statistic {i} of {step.spec.name}"] = array
    for i, array in enumerate(rule.history):
        arrays[f"history {i}"] = array
    if isinstance(rule, Mixed):
        for i, master in enumerate(rule.masters):
            arrays[f"float32 parameter {i}"] = master.data
    for i, mean in enumerate(average.means if average is not None else ()):
        arrays[f"averaged parameter {i}"] = mean
    return arrays
