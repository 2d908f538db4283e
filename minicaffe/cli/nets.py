"""Commands that show a net, summary and draw, also where its data are missing or types of layers unknown."""

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from minicaffe.cli.options import Model, Phased, is_source
from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.core.config import tree
from minicaffe.core.config.declare import TRAIN, LayerSpec, NetSpec, Phase, State
from minicaffe.core.config.model import model
from minicaffe.core.config.settings import expanded, replaced
from minicaffe.core.config.tree import Comment, Node
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.core.net.model import holds_weights, located
from minicaffe.core.net.step import Step
from minicaffe.core.net.summary import summary
from minicaffe.core.net.yaml_text import comments_of
from minicaffe.errors import DataError, MinicaffeError, SpecError, did_you_mean, note
from minicaffe.interop.caffe import model as prototxt
from minicaffe.interop.caffe.unknown import FORK_OF, with_unknown
from minicaffe.storage import checkpoint
from minicaffe.tools.inference import as_input, picture_said
from minicaffe.tools.visualize import drawing
from minicaffe.tools.visualize import notebook as picture
from minicaffe.tools.visualize.drawing.layout import DIRECTIONS


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.partition("=")
    if not name or not re.fullmatch(r"[1-9]\d{,8}(,[1-9]\d{,8})*", sizes):
        raise argparse.ArgumentTypeError(
            f"expected BLOB=N,C,H,W, such as data=8,3,224,224, got {text!r}"
        )
    return name, tuple(map(int, sizes.split(",")))


class Shaped(CommandOptions):
    """--shape."""

    shapes: Annotated[
        Sequence[tuple[str, tuple[int, ...]]],
        Arg("--shape"),
        _shape,
        "BLOB=N,C,H,W",
        "the shape of a blob that a layer of data writes, if the data are not here",
    ] = ()


def steps_of(args: CommandOptions, spec: NetSpec) -> list[Step]:
    """All layers of the model's net, with their shapes as far as these are known; a line says what is not."""
    spec, phase, state = _asked(args, spec)
    layers, unknown = _known(spec, state)
    steps: list[Step] = []
    if unknown:
        named = ", ".join(f"{layer.name} ({layer.type})" for layer in unknown)
        text = f"without shapes, since the types are not known: {named}, and what reads their tops"
        note(f"{text}; --import FILE registers them")
    if not unknown or any(layer.included(state) for layer in layers):
        try:
            steps = built(dataclasses.replace(spec, layers=tuple(layers)), phase).steps
        except DataError as error:
            note(f"{error}: drawn without shapes; --shape BLOB=N,C,H,W gives them")
    return picture.outline(spec, state, steps)


def _asked(args: CommandOptions, spec: NetSpec) -> tuple[NetSpec, Phase | None, State]:
    """The model with the shapes of --shape, and the phase and state that it is shown in."""
    spec = with_shapes(spec, dict(args.shapes))
    phase = args.phase_of(spec)
    return spec, phase, State(phase=phase).over(spec.state).over(TRAIN)


def built(
    spec: NetSpec,
    phase: Phase | None,
    keep: Sequence[str] | None = None,
    shapes_only: bool = True,
    dtype: str | None = None,
) -> Net:
    """Returns a net; data that are not here have the shapes that the model says. Raises DataError."""
    layers = [as_input(one, shapes) if (shapes := _shapes(one)) else one for one in spec.layers]
    for shown in (spec, dataclasses.replace(spec, layers=tuple(layers))):
        try:
            net = Net(shown, phase, device="cpu", dtype=dtype, shapes_only=shapes_only, keep=keep)
        except DataError as error:
            missing = error
        else:
            if shown is not spec:
                note(f"{missing}: shown with the shapes that the model gives")
            return net
    raise missing


def with_shapes(spec: NetSpec, shapes: Mapping[str, tuple[int, ...]]) -> NetSpec:
    """A model whose layers of data write blobs of these shapes: Inputs stand for them."""
    layers, left = [], set(shapes)
    for layer in spec.layers:
        named = [top for top in layer.tops if top in shapes]
        if named and is_source(layer):
            shape, usual = shapes[named[0]], list(_shapes(layer).values())
            if named[0] == layer.tops[0]:  # of pictures
                usual = [shape, *[_label(layer, shape)] * (len(layer.tops) - 1)]
            elif not usual or _labels(layer) != "boxes":  # whose rows do not tell how many pictures
                usual = [(*shape[:1], *one[1:]) for one in usual or [shape[:1]] * len(layer.tops)]
            pairs = zip(layer.tops, usual, strict=True)
            layer = as_input(layer, {top: shapes.get(top, plain) for top, plain in pairs})
            left -= set(named)
        layers.append(layer)
    if left:
        raise SpecError(f"--shape {sorted(left)[0]}=...: no layer of data writes such a blob")
    return dataclasses.replace(spec, layers=tuple(layers))


def _shapes(layer: LayerSpec) -> dict[str, tuple[int, ...]]:
    """The shapes of pictures and labels that a layer of data writes, as far as it says them; else none."""
    picture = picture_said(layer) if _labels(layer) and len(layer.tops) < 3 else None
    if picture is None:
        return {}
    pictures = (layer.options.get("batch_size", 1), *picture)
    return dict(zip(layer.tops, (pictures, _label(layer, pictures)), strict=False))


def _labels(layer: LayerSpec) -> str:
    """Returns what the labels of a layer of pictures are, by its traits; "" for another layer."""
    kind = REGISTRY.get(layer.type)
    return kind.traits.label_kind if kind is not None else ""


def _label(layer: LayerSpec, pictures: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the labels of pictures (n, c, h, w): a number, a map or, of each, one row of a true box."""
    if _labels(layer) == "boxes":
        return (1, 1, pictures[0], 8)
    return (pictures[0], 1, *pictures[2:]) if _labels(layer) == "map" else pictures[:1]


def read_kept(args: CommandOptions) -> NetSpec:
    """The model asked for, with its layers of unknown types."""
    if holds_weights(args.model) or not os.path.isfile(located(args.model)):
        return args.read_model()
    args.begin()
    path = Path(located(args.model))
    root, _ = tree_of(path, args.lenient)
    types = with_unknown(root, REGISTRY, warn=False)  # `known_part` tells of them
    for setting in args.settings:
        root = replaced(root, setting, types)
    return args.state_of(model(root, types, path))


def tree_of(path: str | Path, lenient: bool) -> tuple[Node, Mapping[str, Sequence[Comment]]]:
    """Returns the tree of a model file, with its blocks written out, and the comments of each text."""
    if prototxt.is_prototxt(path):
        text = prototxt.read_text(path, REGISTRY, lenient=lenient)
        return text.root, text.comments
    file, written = tree.load(path)
    return expanded(tree.parse(written, file)), {file: comments_of(written)}


def known_part(spec: NetSpec, state: State) -> NetSpec:
    """A model less its layers of unknown types, and less those that need what these write, of a state."""
    layers, unknown = _known(spec, state)
    named = ", ".join(map(_named, unknown))
    if unknown and not any(layer.included(state) for layer in layers):
        remedy = f"all depend on {named}; --import FILE registers them"
        raise SpecError(f"{unknown[0].mark}: no layer's shapes are known: {remedy}")
    if unknown:
        rest = sum(layer.included(state) and layer not in layers for layer in spec.layers)
        rest -= len(unknown)
        also = f", nor of layers that read what these write ({rest})" if rest else ""
        text = f"not shown, since the types are not known: {named}{also}"
        note(f"{text}; --import FILE registers them")
    return dataclasses.replace(spec, layers=tuple(layers))


def _named(layer: LayerSpec) -> str:
    """A layer of an unknown type: its name, its type, where that stands, and the fork that has it."""
    fork = f", of {FORK_OF[layer.type]}" if layer.type in FORK_OF else ""
    return f"{layer.name} ({layer.type}{fork}, {layer.nodes['type'].mark})"


def _known(spec: NetSpec, state: State) -> tuple[list[LayerSpec], list[LayerSpec]]:
    """The layers whose shapes do not depend on an unknown type, and those of unknown types in a state."""
    layers, unknown, hidden, above = [], [], set[str](), False  # blobs; is the layer above left out
    for layer in spec.layers:
        is_unknown = layer.type not in REGISTRY
        if not layer.included(state):
            layers += [] if is_unknown else [layer]
            continue
        reads = above if layer.bottom is None else not hidden.isdisjoint(layer.bottom)
        above = is_unknown or reads
        hidden = hidden | set(layer.tops) if above else hidden - set(layer.tops)
        layers += [] if above else [layer]
        unknown += [layer] if is_unknown else []
    return layers, unknown


class Summary(Model, Phased, Shaped):
    """List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

    example:
      minicaffe summary lenet
    """

    def __call__(self) -> None:
        spec, phase, state = _asked(self, read_kept(self))
        try:
            net = built(known_part(spec, state), phase, keep=())
        except DataError as error:
            hint = "; --shape BLOB=N,C,H,W shows the net without its data"
            raise DataError(f"{error}{hint}") from None
        print(summary(net.graph))


ENDINGS = {".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot"}


class Draw(Model, Phased, Shaped):
    """Draw a net: its layers as boxes, in ranks, with keys, parameters and shapes.

    Layers that work in place are in the box of the layer before. SVG and DOT need no extra, PNG needs the
    extra image; one command can write several files. Without an option it writes an SVG named after MODEL. If
    you point at a box of an SVG, it shows all keys and shapes of its layers. Shapes that are not known,
    because data are missing or a layer's type is not registered, are left out. The file name - means stdout.

    example:
      minicaffe draw lenet
      minicaffe draw googlenet --phase TEST -o googlenet.png
      minicaffe draw lenet --direction LR --svg lenet.svg --dot lenet.dot
    """

    svg: Annotated[str | None, "write SVG to FILE"] = None
    png: Annotated[str | None, "write PNG to FILE"] = None
    dot: Annotated[str | None, "write DOT to FILE"] = None
    output: Annotated[
        str | None,
        Arg("-o", "--output"),
        f"write FILE in the format of its ending: {', '.join(ENDINGS)}",
    ] = None
    direction: Annotated[
        str, Arg(choices=DIRECTIONS), "from top to bottom or from left to right; default: TB"
    ] = "TB"

    def __call__(self) -> None:
        files = _files(self)
        spec = read_kept(self)
        steps = steps_of(self, spec)
        graph = picture.boxes_of(spec.name, steps)
        laid = drawing.layout(graph, self.direction)
        writers = {
            "svg": lambda: drawing.svg(laid, alone=True).encode(),
            "png": lambda: drawing.png(laid),
            "dot": lambda: drawing.dot(graph, self.direction).encode(),
        }
        pictures = [(path, writers[kind]()) for path, kind in files]
        for path, data in pictures:
            if path == "-":
                sys.stdout.buffer.write(data)
                continue
            checkpoint.replace(path, data)
            note(f"{path}: {len(steps)} layers in {len(graph.nodes)} boxes")


def _files(args: Draw) -> list[tuple[str, str]]:
    """What is to be written: names and formats. Raises MinicaffeError."""
    kinds = [("svg", args.svg), ("png", args.png), ("dot", args.dot)]
    files = [(path, kind) for kind, path in kinds if path is not None]
    if args.output is not None:
        ending = os.path.splitext(args.output)[1].lower()
        if ending not in ENDINGS:
            hint = did_you_mean(ending, ENDINGS) or "; --svg, --png and --dot take any name"
            problem = f"expected a name that ends in {', '.join(ENDINGS)}{hint}"
            raise MinicaffeError(f"{args.output}: {problem}")
        files.append((args.output, ENDINGS[ending]))
    paths = [path for path, _ in files]
    for path in paths:
        if paths.count(path) > 1:
            raise MinicaffeError(f"{path}: is asked for twice, which would leave one of them")
    return files or [(f"{Path(args.model).stem}.svg", "svg")]
