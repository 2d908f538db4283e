"""DummyData whose numbers are always the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.layers.dummy import FIXED
from minicaffe.core.layers.fillers import fill
from minicaffe.core.net.step import Step
from minicaffe.core.ops.random import random_stream
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes


@writes("DummyData")
def dummy_data(graph: Graph, step: Step) -> list[str]:
    """Constants. Numbers that are drawn anew for each pass are refused."""
    layer: Any = step.layer
    found = []
    for i, (filler, value) in enumerate(zip(layer.fillers, step.tops, strict=True)):
        if filler.type not in FIXED:
            raise SpecError(
                f"data_filler {filler.type}: draws anew for each pass; expected constant"
            )
        stream = random_stream(layer.context.seed, layer.name, i)
        values = fill(filler, value.shape, stream).astype(np.float32)
        found.append(graph.const(values, f"{step.spec.name}/{value.name}"))
    return found
