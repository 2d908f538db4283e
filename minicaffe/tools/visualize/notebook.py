"""A net as a picture: which boxes and arrows there are, and what is written on them."""

import contextlib
import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec, State
from minicaffe.core.config.tree import Node
from minicaffe.core.layers import REGISTRY, Layer
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import Unknown
from minicaffe.core.layers.window import Windowed
from minicaffe.core.net.step import Graph, Step, Value
from minicaffe.core.net.summary import HEAD, rows, sums
from minicaffe.errors import ShapeError, SpecError, did_you_mean
from minicaffe.tools.training.log_table import html_table
from minicaffe.tools.visualize import drawing

NO_SHAPE: Shape = (-1,)  # of a value of which nothing tells it
# Of the types of layers, but for losses and what reads data
FAMILIES = {
    "convolution": "Convolution Deconvolution DeformableConvolution Im2col",
    "pooling": "Pooling SPP ROIPooling PSROIPooling ROIAlign ROIWarping Interp BilinearInterpolation Upsample",
    "product": "InnerProduct LSTM Lstm RNN LSTMUnit Embed",
    "normalization": "BatchNorm Scale Bias LRN MVN LayerNorm GroupNorm Normalize",
    "activation": "Softmax ReLU PReLU ELU Sigmoid TanH Swish Dropout SiLU",
}
FAMILY = {kind: family for family, kinds in FAMILIES.items() for kind in kinds.split()}
# Keys that say nothing of what a layer computes
FILLERS = ("weight_filler", "bias_filler", "filler", "engine")


def svg(graph: Graph, alone: bool = False, direction: str = "TB") -> str:
    """A built net as SVG: to stand in a page or, `alone`, a file of its own. Raises SpecError."""
    return drawing.svg(drawing.layout(boxes(graph), direction), alone)


def page(graph: Graph) -> str:
    """A built net as HTML, for a notebook: the picture, and the table that `summary` prints."""
    total = html.escape("; ".join(sums(graph)))
    table = html_table(HEAD, rows(graph))
    drawn = f'<div style="max-height:48em;overflow:auto">{svg(graph)}</div>'
    return f"<div>{drawn}<details><summary>{total}</summary>{table}</details></div>"


def boxes(graph: Graph) -> drawing.Graph:
    """The boxes and arrows of a built net."""
    return boxes_of(graph.name, graph.steps)


def boxes_of(name: str, steps: Sequence[Step]) -> drawing.Graph:
    """Boxes and arrows of steps; one in place stands in the box before, unless others read that."""
    groups: list[list[Step]] = []
    # The box that holds a value, and which of its tops it is
    homes: dict[Value, tuple[int, int]] = {}
    edges: dict[tuple[int, int, int], drawing.Edge] = {}
    for step in steps:
        names = [value.name for value in (*step.bottoms, *step.tops)]
        alone = len(step.bottoms) == len(step.tops) == 1 and step.bottoms[0].readers == 1
        if alone and names[0] == names[1]:
            home, port = homes[step.bottoms[0]]
            groups[home].append(step)
            homes[step.tops[0]] = home, port
            continue
        for value in step.bottoms:
            source, port = homes[value]
            edge = drawing.Edge(source, len(groups), shape(value.shape), port)
            edges[source, edge.target, port] = edge
        homes |= {value: (len(groups), port) for port, value in enumerate(step.tops)}
        groups.append([step])
    owners = {id(param): step for step in reversed(steps) for param in step.layer.params}
    return drawing.Graph(name, [_node(group, owners) for group in groups], list(edges.values()))


def _node(group: list[Step], owners: Mapping[int, Step]) -> drawing.Node:
    step, *folded = group
    kind = step.spec.type
    family = FAMILY.get(kind, "other")
    family = "loss" if step.layer.traits.is_loss or kind == "Accuracy" else family
    family = "data" if not step.bottoms and family == "other" else family
    lines = [step.spec.name, " ".join(filter(None, (_kind(step), _keys(step.layer))))]
    if folded:
        lines.append(" ".join(f"+ {_kind(other)}" for other in folded))
    counts = [param for one in group for param in one.layer.params]
    others = dict.fromkeys(owners[id(p.owner)].spec.name for p in counts if p.owner is not p)
    if counts:
        own = sum(param.size for param in counts if param.owner is param)
        lines.append(f"parameters of {', '.join(others)}" if others else f"{short(own)} parameters")
    tops = [value.shape for value in group[-1].tops if not value.readers]
    if ends := [sizes for sizes in tops if sizes not in ((), NO_SHAPE)]:
        lines.append(f"gives {', '.join(map(shape, ends))}")
    title = "\n".join(line for one in group for line in _described(one, owners))
    return drawing.Node(tuple(lines), family, title, tuple(one.spec.name for one in folded))


def _kind(step: Step) -> str:
    kind = step.spec.type
    return f"{kind} (unknown type)" if isinstance(step.layer, Unknown) else kind


def _keys(layer: Layer) -> str:
    """The keys that say most of what a layer does: 20 of 5x5, stride 2."""
    words = [str(layer.num_output)] if hasattr(layer, "num_output") else []
    window: Any = getattr(getattr(layer, "geometry", layer), "window", None)
    is_global = getattr(layer, "global_pooling", False)
    if isinstance(layer, Windowed) and window is None and not is_global:
        with contextlib.suppress(ShapeError):  # where the keys say none
            window = layer.keyed_window(max(2, len(layer.kernel_size)))
    if isinstance(layer, Windowed) and (is_global or window is not None):
        words = [" of ".join([*words, "global" if is_global else shape(window.kernel)])]
        for key, plain in (("stride", 1), ("pad", 0), ("dilation", 1)):
            sizes = () if is_global else getattr(window, key)
            if sizes and set(sizes) != {plain}:
                words.append(f"{key} {sizes[0] if len(set(sizes)) == 1 else shape(sizes)}")
    group = getattr(layer, "group", 1)
    words += [f"group {group}"] if group != 1 else []
    for key in ("operation", "source"):
        value = getattr(layer, key, None)
        words += [str(value).rpartition("/")[2]] if isinstance(value, str) and value else []
    pool = getattr(layer, "pool", None)
    return ", ".join(words) if pool is None else f"{pool} {', '.join(words)}"


def _described(step: Step, owners: Mapping[int, Step]) -> list[str]:
    """All there is to know of a layer, in lines."""
    layer = step.layer
    lines = [f"{step.spec.name}: {_kind(step)}"]
    own = {key: value for key, value in step.spec.options.items() if key not in FILLERS}
    lines += [f"{key}: {_value(value)}" for key, value in own.items()]
    for word, values in (("bottom", step.bottoms), ("top", step.tops)):
        lines += [f"{word} {value.name} {shape(value.shape)}".rstrip() for value in values]
    if layer.params:
        size = sum(param.size for param in layer.params)
        lines.append(f"{size:,} parameters: {', '.join(shape(p.shape) for p in layer.params)}")
    others = dict.fromkeys(owners[id(p.owner)].spec.name for p in layer.params if p.owner is not p)
    lines += [f"parameters of {name}" for name in others]
    adds = 0 if isinstance(step, Sketch) else layer.multiply_adds
    return [*lines, f"{adds:,} multiply-adds"] if adds else lines


def _value(value: Any) -> str:
    if isinstance(value, Node):  # of a layer of an unknown type
        return _value(value.value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(own)}" for name, own in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_value, value))
    if dataclasses.is_dataclass(value):
        keys = {one.name: one.default for one in dataclasses.fields(value)}
        return _value({k: getattr(value, k) for k in keys if getattr(value, k) != keys[k]})
    said = str(value)
    return said if len(said) <= 100 else f"{said[:99]}…"


def shape(sizes: Shape) -> str:
    """Sizes with crosses between them; nothing if they are not known.

    >>> shape((64, 20, 24, 24)), shape(()), shape(NO_SHAPE)
    ('64x20x24x24', 'scalar', '')
    """
    return "" if sizes == NO_SHAPE else "x".join(map(str, sizes)) or "scalar"


def short(count: int) -> str:
    """A count in few characters.

    >>> short(520), short(25050), short(400500), short(61000000)
    ('520', '25.1 k', '400 k', '61 M')
    """
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {sign}"
    return str(count)


class Sketch(Step):
    """A layer of a net of which no shapes are known: its `layer` is not set up."""


def outline(spec: NetSpec, state: State, known: Sequence[Step]) -> list[Step]:
    """The steps of a net of a state, without shapes but for `known`. Raises SpecError for a bottom of none."""
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
