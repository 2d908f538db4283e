"""The sections of a page that look into a run's net: each a function of a Study."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.core.net.memory import Sharing
from minicaffe.errors import MinicaffeError
from minicaffe.tools.report.pictures import boxes, confusion, features, filters, mistakes
from minicaffe.tools.report.study import LeftOutError, Study
from minicaffe.tools.report.try_ import hand
from minicaffe.tools.visualize import notebook as picture
from minicaffe.tools.visualize.timing import Times, measure, medians

WORK = {False: 2e10, True: 2e12}  # multiply-adds of a pass, above which a CPU, a GPU is not timed


def graph(study: Study) -> dict[str, Any]:
    """The net that is trained as a drawing, layers as boxes and blobs as arrows with their shapes."""
    return {"svg": picture.svg(study.shapes("TRAIN").graph, direction="LR")}


def layers(study: Study) -> dict[str, Any]:
    """A row a layer of the net that is trained; memory as `minicaffe summary` plans it."""
    net = study.shapes("TRAIN")
    graph, itemsize = net.graph, net.context.dtype.itemsize
    times, why = _times(study)
    rows = []
    for step in graph.steps:
        own = [value for value in step.tops if value.reuses is None]
        params = sum(param.size for param in step.layer.params if param.owner is param)
        data = sum(math.prod(value.shape) * value.dtype.itemsize for value in own)
        diffs = data if step.layer.runs_backward and any(v.gets_gradient for v in step.tops) else 0
        rows.append(
            {
                "name": step.spec.name,
                "type": step.spec.type,
                "tops": [[value.name, list(value.shape)] for value in step.tops],
                "in_place": bool(step.tops) and not own,
                "params": params,
                "work": step.layer.multiply_adds,
                "blobs": data + diffs,
                "columns": step.layer.column_elements * itemsize,
                "ms": times.get(step.spec.name),
            }
        )
    shared, learnable = Sharing(graph, (), "diff"), sum(param.size for param in graph.learnable)
    notes = [
        why,
        "Memory is as minicaffe summary plans it: data and gradient of what a layer writes (in place: of "
        "the layer whose memory it is), and the columns of a convolution in a buffer that all share.",
    ]
    sums = {
        "parameters": learnable * itemsize,
        "blobs": shared.before,
        "shared": shared.after,
        "columns": net.context.workspace_size * itemsize,
    }
    return {"rows": rows, "bytes": sums, "notes": [note for note in notes if note]}


def _times(study: Study) -> tuple[dict[str, tuple[float, float]], str]:
    """Median ms of every layer, forward and backward; and what they are of, or why there are none."""
    where = study.device.name
    if not study.limits.timing:
        return {}, "Not timed while the net trains; minicaffe report does that afterwards."
    work = sum(step.layer.multiply_adds for step in study.shapes("TRAIN").steps)
    if work > WORK[study.device.is_cuda]:
        why = f"{work:.2g} multiply-adds a pass take long on {where}; see minicaffe time."
        return {}, f"Not timed: {why}"
    try:
        net = study.train_net()
        if net.graph.forced or net.losses:
            times, count = _measured(net, study.limits.seconds / 4)
        else:
            raise LeftOutError("no layer is a loss")
    except MinicaffeError as error:
        return {}, f"Not timed: {error}"
    size = net.steps[0].tops[0].shape[:1]
    batch = f", batch {size[0]}" if size else ""
    taken = f"Medians of {count} passes on {where}{batch}, as minicaffe time takes them."
    return medians(times), taken


def _measured(net: Any, seconds: float) -> tuple[Times, int]:
    """Passes for so many seconds, 20 at the most, after one to get warm."""
    measure(net, 1)
    until, count = time.perf_counter() + seconds, 0
    whole: Times = {step.spec.name: ([], []) for step in net.steps}
    while count < 20 and (not count or time.perf_counter() < until):
        for name, both in measure(net, 1).items():
            for total, new in zip(whole[name], both, strict=True):
                total += new
        count += 1
    return whole, count


# Of each section its id and title, and a function: `function(study)` returns what its script,
# report.sections[id], draws; JSON can hold it. A MinicaffeError is shown as the reason why it is not there.
SECTIONS: list[tuple[str, str, Callable[[Study], dict[str, Any]]]] = [
    ("try", "Try it by hand", hand),
    ("boxes", "Boxes found", boxes),
    ("confusion", "Confusion matrix", confusion),
    ("mistakes", "Worst mistakes", mistakes),
    ("net", "Net", graph),
    ("layers", "Layers", layers),
    ("filters", "First filters", filters),
    ("features", "Feature maps", features),
]


def all_of(study: Study) -> list[dict[str, Any]]:
    """Every section, or the line why it is left out."""
    parts = []
    nets = study.spec, *study.spec.test_nets
    detects = any(layer.type == "DetectionOutput" for net in nets for layer in net.layers)
    for name, title, function in SECTIONS:
        if name == "boxes" and not detects:
            continue
        head = {"id": name, "title": title}
        try:
            with np.errstate(all="ignore"):  # weights may have diverged
                parts.append({**head, "data": function(study)})
        except MinicaffeError as error:
            parts.append({**head, "left_out": str(error)})
    return parts


def none_of(why: str) -> list[dict[str, Any]]:
    """All sections left out for one reason."""
    shown = [(name, title) for name, title, _ in SECTIONS if name != "boxes"]
    return [{"id": name, "title": title, "left_out": why} for name, title in shown]


def left_out(parts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The titles of what is left out, by the reason."""
    titles: dict[str, list[str]] = {}
    for one in parts:
        if "left_out" in one:
            titles.setdefault(one["left_out"], []).append(one["title"])
    return titles
