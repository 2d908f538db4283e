"""Pictures of nets as Caffe draws them, by Graphviz's program `dot`; as DOT itself without it.

Layers are boxes, red for convolutions, orange for pooling, violet for fully connected layers, green for those
in place; blobs are octagons.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import MinicaffeError, SpecError
from minicaffe.storage import checkpoint
from minicaffe.tools.visualize.drawing.svg import digraph, quoted, with_keys

DIRECTIONS = ("LR", "RL", "TB", "BT")
WINDOWED = ("Convolution", "Deconvolution")
COLOURS = dict.fromkeys(WINDOWED, "#FF5050") | {"Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
OTHER, IN_PLACE, BLOB = "#6495ED", "#90EE90", "#E0E0E0"


def get_dot(
    caffe_net: Any,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> str:
    """A NetParameter in DOT, `rankdir` LR (from left to right), RL, TB or BT. Raises SpecError.

    >>> from minicaffe.interop.pycaffe.net_spec import layers as L, to_proto
    >>> print(get_dot(to_proto(L.Input())))
    digraph "Net" {
      rankdir="LR"
      node [style="filled"]
      layer0 [label="Input1\\n(Input)" shape="box" fillcolor="#6495ED"]
      blob0 [label="Input1" shape="octagon" fillcolor="#E0E0E0"]
      layer0 -> blob0
    }
    <BLANKLINE>
    """
    if rankdir not in DIRECTIONS:
        raise SpecError(f"rankdir: expected one of {', '.join(DIRECTIONS)}, got {rankdir!r}")
    if not hasattr(caffe_net, "layer"):
        raise SpecError(f"expected a NetParameter, got {type(caffe_net).__name__}")
    if caffe_net.layers:
        raise SpecError("a net of before 2015, of `layers`: `minicaffe convert` makes it new")
    layers = [layer for layer in caffe_net.layer if phase is None or _included(layer, phase)]
    lines = [f"rankdir={quoted(rankdir)}", 'node [style="filled"]']
    edges, blobs = list[str](), dict[str, str]()
    for i, layer in enumerate(layers):
        in_place = len(layer.bottom) == 1 and layer.bottom == layer.top
        colour = IN_PLACE if in_place else choose_color_by_layertype(layer.type)
        label = get_layer_label(layer, rankdir, display_lrm)
        lines.append(with_keys(f"layer{i}", label=label, shape="box", fillcolor=colour))
        for blob in (*layer.bottom, *layer.top):
            blobs.setdefault(blob, f"blob{len(blobs)}")
        edges += [f"{blobs[blob]} -> layer{i}" for blob in layer.bottom]
        keys = {"label": get_edge_label(layer)} if label_edges and get_edge_label(layer) else {}
        edges += [with_keys(f"layer{i} -> {blobs[blob]}", **keys) for blob in layer.top]
    for blob, node in blobs.items():
        lines.append(with_keys(node, label=blob, shape="octagon", fillcolor=BLOB))
    return digraph(caffe_net.name or "Net", [*lines, *edges])


def get_layer_label(layer: Any, rankdir: str, display_lrm: bool = False) -> str:
    """What stands on a layer: name, type, window; in lines, or in one where the graph runs up or down."""
    kind, words = layer.type, list[str]()
    if kind in WINDOWED:
        words = _window(layer.convolution_param)
    elif kind == "Pooling":
        pool = layer.pooling_param
        kind = f"{pool.PoolMethod.Name(pool.pool)} Pooling"
        words = ["global"] if pool.global_pooling else _window(pool)
    if display_lrm and layer.type in (*WINDOWED, "InnerProduct"):
        weight, bias = [*(one.lr_mult for one in layer.param), 1.0, 1.0][:2]
        words.append(f"lr mult: {weight:.1f}, {bias:.1f}")
    return (" " if rankdir in ("TB", "BT") else "\n").join([layer.name, f"({kind})", *words])


def get_edge_label(layer: Any) -> str:
    """What stands on a layer's way to its tops: the batch of Data, the outputs of layers with weights."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in WINDOWED:
        return str(layer.convolution_param.num_output)
    return str(layer.inner_product_param.num_output) if layer.type == "InnerProduct" else ""


def choose_color_by_layertype(layertype: str) -> str:
    """The colour of a type of layer."""
    return COLOURS.get(layertype, OTHER)


def _included(layer: Any, phase: int) -> bool:
    """Whether a layer takes part in a phase, at some level and in some stages."""
    if layer.include and layer.exclude:
        raise SpecError(f"layer {layer.name!r}: has both include and exclude")
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == phase for rule in layer.include)
    return not any(rule.HasField("phase") and rule.phase == phase for rule in layer.exclude)


def _window(param: Any) -> list[str]:
    """The kernel, stride and pad of a layer with windows: one number, or one for each axis."""
    words = []
    for name, default in (("kernel", 1), ("stride", 1), ("pad", 0)):
        key = "kernel_size" if name == "kernel" else name
        sizes = [int(size) for size in np.ravel(getattr(param, key))]
        if param.HasField(f"{name}_h") or param.HasField(f"{name}_w"):
            sizes = [getattr(param, f"{name}_h"), getattr(param, f"{name}_w")]
        sizes = sizes[:1] if len(set(sizes)) == 1 else sizes or [default]
        words.append(f"{key.replace('_', ' ')}: {'x'.join(map(str, sizes))}")
    return words


TEXT = ("dot", "gv", "raw")  # the endings of DOT itself


def draw_net(
    caffe_net: Any,
    rankdir: str = "LR",
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """The picture of a NetParameter in the format `ext`: dot, gv, or one that the program `dot` draws.

    Of the layers of one `phase`, if it is given; `display_lrm` shows the multipliers of their rates. Raises
    MinicaffeError without the program, and for what cannot be drawn.
    """
    text = get_dot(caffe_net, rankdir, phase=phase, display_lrm=display_lrm).encode()
    if ext in TEXT:
        return text
    if not ext.isalnum():
        raise SpecError(f"expected the format of a picture, such as png or dot, got {ext!r}")
    program = shutil.which("dot")
    if program is None:
        raise MinicaffeError(
            f"a picture as .{ext} needs Graphviz's program `dot`, not found here; .dot and .gv need nothing"
        )
    done = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise MinicaffeError(f"`dot` does not draw this as .{ext}: {said[:200]}")
    return done.stdout


def draw_net_to_file(
    caffe_net: Any,
    filename: str | Path,
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write such a picture to a file; its ending is the format."""
    picture = draw_net(caffe_net, rankdir, Path(filename).suffix[1:].lower(), phase, display_lrm)
    checkpoint.replace(filename, picture)
