"""What `train` and `test` say of their data first: where they came from, which part they are, its classes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from minicaffe.backends import device as backend
from minicaffe.core.layers import Layer
from minicaffe.core.net import Net, sources
from minicaffe.tools.data.reader.held_out import Part
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
