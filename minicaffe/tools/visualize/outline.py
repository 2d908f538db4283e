"""The layers of a net whose shapes are not all known: enough to draw it."""

from __future__ import annotations

from collections.abc import Sequence

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.config.state import State
from minicaffe.core.layers import REGISTRY, Layer
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.unknown import Unknown
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import SpecError, did_you_mean

NO_SHAPE: Shape = (-1,)  # of a value of which nothing tells it


class Sketch(Step):
    """A layer of a net of which no shapes are known: its `layer` is not set up."""


def outline(spec: NetSpec, state: State, known: Sequence[Step]) -> list[Step]:
    """The steps of a net of a state: those that are `known`, and the others without shapes and parameters.

    Raises SpecError for a bottom that no layer above writes.
    """
    built = {step.spec.name: step for step in known}
    steps: list[Step] = []
    blobs: dict[str, Value] = {}
    for layer in spec.layers:
        if not layer.included(state):
            continue
        step = built.pop(layer.name, None) if layer.type in REGISTRY else None
        step = step or _sketch(layer, steps, blobs)
        steps.append(step)
        blobs |= {value.name: value for value in step.tops}
    return steps


def _sketch(spec: LayerSpec, above: Sequence[Step], blobs: dict[str, Value]) -> Sketch:
    """A layer that reads what stands above it."""
    layer: Layer = REGISTRY[spec.type](**spec.options) if spec.type in REGISTRY else Unknown()
    names = spec.bottom
    if names is None:
        reads = spec.type not in REGISTRY or bottom_counts(REGISTRY[spec.type])[1] > 0
        names = tuple(value.name for value in above[-1].tops[:1]) if reads and above else ()
    for i, name in enumerate(names):
        if name not in blobs:
            hint = did_you_mean(name, blobs)
            raise SpecError(f"{spec.place('bottom', i)}: unknown bottom {name!r}{hint}")
        blobs[name].readers += 1
    tops = [Value(name, NO_SHAPE, layer) for name in spec.tops]
    return Sketch(spec, layer, [blobs[name] for name in names], tops)
