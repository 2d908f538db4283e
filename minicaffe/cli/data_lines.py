"""What `train` and `test` say of their data first: where they came from, which part, or that none are."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.state import Phase, State
from minicaffe.core.layers import Layer
from minicaffe.core.net import Net, sources
from minicaffe.errors import SpecError
from minicaffe.tools.data.reader.base import Part
from minicaffe.tools.inference import is_scored


def _part(layer: Layer) -> str:
    """Which entries of a data set a layer reads, if TRAIN and TEST share it."""
    if isinstance(reader := getattr(layer, "reader", None), Part):
        return f", {reader.which}"
    unit = sources.trained_on(layer)
    return f", the training {unit}" if unit else ""


def data_lines(nets: Sequence[Net | None]) -> list[str]:
    """Where the data of nets came from."""
    lines = []
    for net in nets:
        for layer in net.layers.values() if net is not None else ():
            data = getattr(layer, "dataset", None)
            if data is None:
                continue
            what = f"{getattr(data, 'unit', 'images')} of {data.name}"
            what += f", {data.origin}" if os.path.normpath(data.name) != data.origin else ""
            if data.warning is not None:
                what = f"BUILT-IN DRAWN DIGITS instead of {data.name}"
            images = getattr(data, "images", None)  # where it is in memory
            size = "" if images is None else f" ({backend.mib(images.nbytes)})"
            lines.append(f"{layer.phase} data: {len(data)} {what}{size}{_part(layer)}")
        lines += _classes(net) if net is not None else []
    return list(dict.fromkeys(lines))


def _classes(net: Net) -> list[str]:
    """Where a net scores more classes than its data set names."""
    lines = []
    for step in net.steps:
        if not (is_scored(step.spec) or step.spec.type == "Accuracy") or len(step.bottoms) < 2:
            continue
        scores, label = step.bottoms[:2]
        reader = getattr(label.producer, "reader", None)
        if reader is None or label.producer.top.index(label.name) != 1 or len(scores.shape) < 2:
            continue
        count = len(reader.classes)
        if 0 < count < scores.shape[1]:
            lines.append(
                f"{reader.name} has {count} classes, {scores.name!r} scores for {scores.shape[1]}: the others"
                f" are learnt never to occur; --set layers.{scores.producer.name}.num_output={count}"
            )
    return lines


def check_filled(spec: NetSpec, phase: Phase, built: State) -> None:
    """Raise SpecError if a net of a phase, `built` so beside what the model says, has an Input."""
    state = dataclasses.replace(built, phase=phase).over(spec.state)
    empty = [layer for layer in spec.layers if layer.type == "Input" and layer.included(state)]
    if not empty:
        return
    rules = [rule for layer in spec.layers for rule in (*layer.include, *layer.exclude)]
    hint = ""
    for stage in dict.fromkeys(name for rule in rules for name in (*rule.stage, *rule.not_stage)):
        other = dataclasses.replace(state, stage=(*state.stage, stage))
        if not any(layer.type == "Input" and layer.included(other) for layer in spec.layers):
            hint = f"with --stage {stage} the net reads a data set instead; "
            break
    shapes = empty[0].options.get("shape", ())
    if phase == "TRAIN" and not hint and shapes and len(shapes[0].dim) == 4:
        hint = "with --data SOURCE the net is trained on your own data; "
    blobs = f"net.blobs[{', '.join(map(repr, empty[0].tops[:1]))}].data"
    raise SpecError(
        f"{empty[0].place()}: nothing on the command line fills an Input; {hint}"
        f"in Python, {blobs} is filled before each step"
    )
