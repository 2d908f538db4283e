"""Which layer reads which blob: names resolved, shapes inferred, parameters shared.

Nothing here computes. A blob written in place is a new value of the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from minicaffe import flow
from minicaffe.errors import (
    LayerError,
    MinicaffeError,
    ShapeError,
    SpecError,
    did_you_mean,
    raised_at,
)
from minicaffe.layers import REGISTRY, Blob, Context, Layer, Param
from minicaffe.layers.base import bottom_counts
from minicaffe.layers.blob import Shape
from minicaffe.spec.declare import LayerSpec, NetSpec, Phase

MAX_AXES = 32  # as in Caffe; NumPy has a limit of its own, 64


@dataclass(eq=False)
class Value:
    """What a layer writes: a blob's name at one stage of its life."""

    name: str
    shape: Shape
    producer: Step
    dtype: Any = None
    consumers: list[Step] = field(default_factory=list)
    loss_weight: float = 0.0
    wants_gradient: bool = False  # something below it learns
    gets_gradient: bool = False  # something above it is a loss
    reuses: Value | None = None  # the value whose memory it takes over
    blob: Blob = None  # type: ignore[assignment]


@dataclass(eq=False)
class Step:
    """A layer in its place: the values it reads and writes."""

    spec: LayerSpec
    layer: Layer
    bottoms: list[Value]
    tops: list[Value] = field(default_factory=list)
    runs_backward: bool = False

    @property
    def place(self) -> str:
        """Where and what, for error messages."""
        return self.spec.place()

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Put the layer's place before the message of an error raised inside, own layers' included."""
        try:
            yield
        except MinicaffeError as error:
            raise error.at(self.place) from None
        except Exception as error:
            if type(self.layer).__module__.startswith("minicaffe."):
                raise
            raise LayerError(f"{self.place}: {raised_at(error)}") from error


def build(spec: NetSpec, context: Context) -> list[Step]:
    """The steps of a net in one phase, the gradient's way marked. Raises SpecError, ShapeError."""
    specs = [layer for layer in spec.layers if layer.in_phase(context.phase)]
    if not specs:
        first = spec.layers[0]
        raise SpecError(f"{first.mark}: no layer takes part in the phase {context.phase}")
    steps: list[Step] = []
    blobs: dict[str, Value] = {}
    seen: dict[str, LayerSpec] = {}
    for layer_spec in specs:
        if layer_spec.name in seen:
            first, where = seen[layer_spec.name], layer_spec.place("name")
            where = layer_spec.place() if where == first.place("name") else where  # a merged name
            raise SpecError(f"{where}: the name is taken by the layer at {first.mark.within}")
        seen[layer_spec.name] = layer_spec
        bottoms = [blobs[name] for name in _bottoms(layer_spec, steps, blobs, spec, context.phase)]
        step = Step(layer_spec, _layer(layer_spec, context), bottoms)
        for value in bottoms:
            value.consumers.append(step)
        step.layer.bottom = tuple(value.name for value in bottoms)
        step.layer.top = layer_spec.tops
        steps.append(step)
        _check_tops(step, blobs)
        for name in step.layer.top:
            blobs[name] = Value(name, (), step)
            step.tops.append(blobs[name])
    infer_shapes(steps)
    _bind_params(steps)
    flow.mark(steps, spec.force_backward)
    flow.mark_types(steps, context)
    return steps


def infer_shapes(steps: Sequence[Step]) -> None:
    """The shape pass: every layer's setup, with integers only."""
    for step in steps:
        with step.named():
            shapes = step.layer.top_shapes(*[value.shape for value in step.bottoms])
        if len(shapes) != len(step.tops):
            where = step.spec.place("top")
            raise SpecError(f"{where}: top: expected {len(shapes)} name(s), got {len(step.tops)}")
        for value, shape in zip(step.tops, shapes, strict=True):
            if len(shape) > MAX_AXES:
                raise ShapeError(
                    f"{step.place}: top {value.name!r} would have {len(shape)} axes; "
                    f"a blob has at most {MAX_AXES}"
                )
            value.shape = shape


def _layer(spec: LayerSpec, context: Context) -> Layer:
    layer: Layer = REGISTRY[spec.type](**spec.options)
    layer.name, layer.context = spec.name, context
    return layer


def _bottoms(
    spec: LayerSpec, steps: list[Step], blobs: dict[str, Value], net: NetSpec, phase: Phase
) -> tuple[str, ...]:
    if spec.bottom is None:
        takes_some = bottom_counts(REGISTRY[spec.type])[1] > 0
        return (steps[-1].layer.top[0],) if takes_some and steps and steps[-1].layer.top else ()
    for i, name in enumerate(spec.bottom):
        if name not in blobs:
            why = _why_unknown(name, spec, blobs, net, phase)
            raise SpecError(f"{spec.place('bottom', i)}: {why}")
    return spec.bottom


def _why_unknown(
    name: str, spec: LayerSpec, blobs: dict[str, Value], net: NetSpec, phase: Phase
) -> str:
    """What is wrong with a bottom that no layer above writes in this phase."""
    writers = [layer for layer in net.layers if name in layer.tops]
    now = [layer for layer in writers if layer.in_phase(phase)]
    if not writers:
        return f"unknown bottom {name!r}{did_you_mean(name, blobs)}"
    if now and now[0] is spec:
        return f"reads its own top {name!r} before anything wrote it"
    by = f"layer {(now or writers)[0].name!r} at {(now or writers)[0].mark.within}"
    if not now:
        return f"bottom {name!r} is written by {by}, which takes no part in the phase {phase}"
    return f"bottom {name!r} is written below, by {by}; a layer reads only what stands above it"


def _check_tops(step: Step, blobs: dict[str, Value]) -> None:
    names = step.layer.top
    for i, name in enumerate(names):
        in_place = name in step.layer.bottom
        if name in names[:i] or (name in blobs and not in_place):
            by = (step if name in names[:i] else blobs[name].producer).spec
            raise SpecError(
                f"{step.spec.place('top', i)}: top {name!r} is already written by layer "
                f"{by.name!r} at {by.mark.within}; to work in place, name it as a bottom too"
            )


def _bind_params(steps: list[Step]) -> None:
    """Give parameters their multipliers; those of one name become one, owned by the first."""
    owners: dict[str, tuple[Param, LayerSpec]] = {}
    settled: dict[tuple[str, str], float] = {}  # (name, key) -> the multiplier given first
    for step in steps:
        spec, params = step.spec, step.layer.params
        if len(spec.param) > len(params):
            where, count = spec.place("param", len(params)), len(spec.param)
            raise SpecError(f"{where}: param: {count} entries for {len(params)} parameter(s)")
        for i, (param, given) in enumerate(zip(params, spec.param, strict=False)):
            own = {key: getattr(given, key) for key in ("lr_mult", "decay_mult")}
            own = {key: value for key, value in own.items() if value is not None}
            for key, value in own.items():
                setattr(param, key, value)
            if given.name is None:
                continue
            where = f"{spec.place('param', i)}: param {given.name!r}"
            owner, first = owners.setdefault(given.name, (param, spec))
            other = f"{first} at {first.mark.within}"
            if owner.shape != param.shape:
                raise ShapeError(f"{where} has shape {param.shape} here, {owner.shape} in {other}")
            for key, value in own.items():
                if settled.setdefault((given.name, key), value) != value:
                    raise SpecError(f"{where} has another {key} than in {other}")
                setattr(owner, key, value)
            param.owner = owner
    for step in steps:
        for param in step.layer.params:
            param.lr_mult, param.decay_mult = param.owner.lr_mult, param.owner.decay_mult


def outputs(steps: Sequence[Step]) -> dict[str, Any]:
    """The values that no layer reads, by name."""
    return {value.name: value for step in steps for value in step.tops if not value.consumers}
