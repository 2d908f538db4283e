"""Where the time of a net goes: the ms of each kind of layer, in minicaffe and in PyTorch."""

import statistics
import time
from collections.abc import Mapping

from minicaffe.core.net.run import backward, forward

JOINED = {"BatchNorm": "BatchNorm, Scale", "Scale": "BatchNorm, Scale"}


def kind(step) -> str:
    """What a layer counts as.

    Convolutions are told apart by how they are grouped, and by whether they see more than one pixel.
    """
    if step.spec.type != "Convolution":
        return JOINED.get(step.spec.type, step.spec.type)
    g = step.layer.geometry
    if g.group > 1:
        return "depthwise convolution" if g.group == g.x_shape[1] else "grouped convolution"
    return "1x1 convolution" if max(g.window.kernel) == 1 else "convolution"


def ours(net, passes: int) -> dict[str, dict[str, float]]:
    """The ms of each kind forward and, in TRAIN, backward; and its multiply-adds."""
    times = {(step.spec.name, way): [] for step in net.steps for way in ("forward", "backward")}
    for _ in range(passes):
        for step in net.steps:
            start = time.perf_counter()
            forward(step, net.graph, net.memory)
            times[step.spec.name, "forward"].append(time.perf_counter() - start)
        net.context.passes += 1
        written: set[int] = set()
        for step in reversed(net.steps if net.phase == "TRAIN" else []):
            start = time.perf_counter()
            backward(step, net.device, written, net.memory.scratch, net.loss_scale)
            times[step.spec.name, "backward"].append(time.perf_counter() - start)
    found: dict[str, dict[str, float]] = {}
    for step in net.steps:
        row = found.setdefault(kind(step), {"forward": 0.0, "backward": 0.0, "multiply_adds": 0})
        row["multiply_adds"] += step.layer.multiply_adds
        for way in ("forward", "backward"):
            row[way] += 1e3 * statistics.median(times[step.spec.name, way] or [0.0])
    return found


def theirs(module, net, inputs, passes: int) -> dict[str, float]:
    """The ms of each kind forward in PyTorch, eager."""
    import torch

    kinds = {step.spec.name: kind(step) for step in net.steps}
    times: dict[str, list[float]] = {name: [] for name in module.names}
    with torch.inference_mode():
        for _ in range(passes):
            module.run(inputs, times)
    found: dict[str, float] = {}
    for name, seconds in times.items():
        found[kinds[name]] = found.get(kinds[name], 0.0) + 1e3 * statistics.median(seconds)
    return found


def rounded(rows: Mapping[str, Mapping[str, float]], digits) -> dict:
    """The rows without what takes no time, slowest first."""
    kept = {name: row for name, row in rows.items() if any(row.values())}
    order = sorted(kept, key=lambda name: -kept[name]["forward"] - kept[name]["backward"])
    return {name: {key: digits(value) for key, value in kept[name].items()} for name in order}
