"""Names resolved, shapes inferred, parameters shared; a blob written in place is a new value of its name."""

from collections.abc import Sequence

from minicaffe.core.config.declare import LayerSpec, NetSpec, State
from minicaffe.core.layers import REGISTRY, Context, Layer, Param
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.net import flow, sources
from minicaffe.core.net.step import Graph, Step, Value
from minicaffe.errors import ShapeError, SpecError, did_you_mean

MAX_AXES = 32  # as in Caffe; NumPy has a limit of its own, 64


def build(spec: NetSpec, context: Context) -> Graph:
    """Build a net in one phase, with its gradient flow. Raises SpecError, ShapeError."""
    specs = [layer for layer in spec.layers if layer.included(context.state)]
    if not specs:
        first = spec.layers[0]
        raise SpecError(f"{first.mark}: no layer takes part in the {context.state}")
    steps: list[Step] = []
    both = sources.in_both(spec)
    blobs: dict[str, Value] = {}
    seen: dict[str, LayerSpec] = {}
    writers: dict[str, LayerSpec] = {}
    for layer_spec in specs:
        if layer_spec.name in seen:
            first, where = seen[layer_spec.name], layer_spec.place("name")
            where = layer_spec.place() if where == first.place("name") else where  # a merged name
            raise SpecError(f"{where}: the name is taken by the layer at {first.mark.within}")
        seen[layer_spec.name] = layer_spec
        if layer_spec.type not in REGISTRY:  # another process that made the spec had imported it
            where = layer_spec.place("type")
            raise SpecError(f"{where}: unknown type; import the file that registers it")
        bottoms = [blobs[name] for name in _bottoms(layer_spec, steps, blobs, spec, context.state)]
        layer: Layer = REGISTRY[layer_spec.type](**layer_spec.options)
        layer.name, layer.context = layer_spec.name, context
        layer.runs_backward = not context.forward_only  # known before the shapes
        layer.in_both = both.get(sources.source(layer_spec))
        for value in bottoms:
            value.readers += 1
        layer.bottom, layer.top = tuple(value.name for value in bottoms), layer_spec.tops
        step = Step(layer_spec, layer, bottoms)
        steps.append(step)
        for i, name in enumerate(layer.top):
            if (name in writers and name not in layer.bottom) or name in layer.top[:i]:
                by = layer_spec if name in layer.top[:i] else writers[name]
                raise SpecError(
                    f"{layer_spec.place('top', i)}: top {name!r} is already written by layer "
                    f"{by.name!r} at {by.mark.within}; to work in place, name it as a bottom too"
                )
        for name in layer.top:
            blobs[name], writers[name] = Value(name, (), step.layer), layer_spec
            step.tops.append(blobs[name])
    infer_shapes(steps)
    _bind_params(steps)
    flow.mark(steps, spec.force_backward, context.forward_only)
    flow.mark_types(steps, context)
    return Graph(spec, spec.layers[0].mark.file, steps, context, spec.force_backward)


def infer_shapes(steps: Sequence[Step]) -> None:
    """The shape pass: every layer's setup, with integers only."""
    for step in steps:
        with step:
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


def _bottoms(
    spec: LayerSpec, steps: list[Step], blobs: dict[str, Value], net: NetSpec, state: State
) -> tuple[str, ...]:
    if spec.bottom is None:
        takes_some = bottom_counts(REGISTRY[spec.type])[1] > 0
        return (steps[-1].layer.top[0],) if takes_some and steps and steps[-1].layer.top else ()
    for i, name in enumerate(spec.bottom):
        if name in blobs:
            continue
        writers = [layer for layer in net.layers if name in layer.tops]
        now = [layer for layer in writers if layer.included(state)]
        first = next(iter(now or writers), None)
        if first is None:
            why = f"unknown bottom {name!r}{did_you_mean(name, blobs)}"
        elif first is spec:
            why = f"reads its own top {name!r} before anything wrote it"
        else:
            by = f"layer {first.name!r} at {first.mark.within}"
            why = f"bottom {name!r} is written below, by {by}; a layer reads only what stands above it"
            if not now:
                why = f"bottom {name!r} is written by {by}, which takes no part in the {state}"
        raise SpecError(f"{spec.place('bottom', i)}: {why}")
    return spec.bottom


def _bind_params(steps: list[Step]) -> None:
    """Set the multipliers of parameters; those of one name are shared, owned by the first."""
    owners: dict[str, tuple[Param, LayerSpec]] = {}
    settled: dict[tuple[str, str], float] = {}  # (name, key) -> the first multiplier
    for step in steps:
        spec, params = step.spec, step.layer.params
        if len(spec.param) > len(params):
            where, count = spec.place("param", len(params)), len(spec.param)
            raise SpecError(f"{where}: param: {count} entries for {len(params)} parameter(s)")
        for i, (param, keys) in enumerate(zip(params, spec.param, strict=False)):
            own = {key: getattr(keys, key) for key in ("lr_mult", "decay_mult")}
            own = {key: value for key, value in own.items() if value is not None}
            for key, value in own.items():
                setattr(param, key, value)
            if keys.name is None:
                continue
            where = f"{spec.place('param', i)}: param {keys.name!r}"
            owner, first = owners.setdefault(keys.name, (param, spec))
            other = f"{first} at {first.mark.within}"
            what = "size" if keys.share_mode == "PERMISSIVE" else "shape"
            if getattr(owner, what) != getattr(param, what):
                raise ShapeError(f"{where} has shape {param.shape} here, {owner.shape} in {other}")
            for key, value in own.items():
                if settled.setdefault((keys.name, key), value) != value:
                    raise SpecError(f"{where} has another {key} than in {other}")
                setattr(owner, key, value)
            param.owner = owner
    for step in steps:
        for param in step.layer.params:
            param.lr_mult, param.decay_mult = param.owner.lr_mult, param.owner.decay_mult
