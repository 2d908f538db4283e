"""A net or solver in Caffe's text format as the specs of a model file of ours."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.model import model
from minicaffe.core.config.settings import replaced
from minicaffe.core.config.tree import Comment, Mark, Node, load
from minicaffe.core.config.types import keys_of
from minicaffe.errors import SpecError
from minicaffe.interop.caffe import solver as solver_text
from minicaffe.interop.caffe.layer import FREE, flat, own_blocks, phases
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.caffe.text import Message
from minicaffe.interop.caffe.text import parse as parse_text
from minicaffe.interop.caffe.typed import typed
from minicaffe.interop.caffe.unknown_keys import refuse, refuse_types
from minicaffe.interop.caffe.upgrade import upgraded_net

SUFFIXES = (".prototxt", ".pbtxt", ".prototxt.txt")
YAML = (".yaml", ".yml", ".json")
MESSAGE = re.compile(r"\s*(#.*\n\s*)*[a-z_0-9]+\s*[:{]")  # how a message begins
LAYERS = re.compile(
    r"^layers:(?!\s*\{)", re.MULTILINE
)  # what each model in YAML has, and no message


def named_prototxt(path: str | Path) -> bool:
    """Whether a name is that of a file in Caffe's text format."""
    return str(path).lower().endswith(SUFFIXES)


def is_prototxt(path: str | Path) -> bool:
    """Whether a file is in Caffe's text format: by its name, or if that says nothing, by what it holds."""
    if named_prototxt(path) or str(path).lower().endswith(YAML):
        return named_prototxt(path)
    try:
        with open(path, "rb") as file:
            text = file.read(1 << 16).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return False
    return "\0" not in text and bool(MESSAGE.match(text)) and not LAYERS.search(text)


@dataclass
class Text:
    """What the files of a model say: the tree of a YAML file, and the comments of each file."""

    root: Node
    comments: dict[str, list[Comment]] = field(default_factory=dict)


def read_prototxt(
    path: str | Path,
    layer_types: Mapping[str, type],
    settings: Sequence[str] = (),
    solver_type: str | None = None,
    lenient: bool = False,
) -> NetSpec:
    """The model in a net's or a solver's prototxt, its keys replaced by `settings`. Raises SpecError.

    `solver_type` is the solver's, whatever the text says. With `lenient`, keys that are not known are left
    out, with a warning of each.
    """
    root = read_text(path, layer_types, solver_type, lenient).root
    for setting in settings:
        root = replaced(root, setting, layer_types)
    refuse_types(root, layer_types)
    return model(root, layer_types, Path(path))


is_one, read = is_prototxt, read_prototxt  # as a ModelFormat has them


def parse_prototxt(text: str, layer_types: Mapping[str, type], file: str | None = None) -> NetSpec:
    """The model in a net's or a solver's text, which errors call `file`. Raises SpecError."""
    root = text_of(text, file or "<text>", layer_types).root
    refuse_types(root, layer_types)
    return model(root, layer_types)


def read_text(
    path: str | Path,
    layer_types: Mapping[str, type],
    solver_type: str | None = None,
    lenient: bool = False,
) -> Text:
    """What a prototxt and the nets that it names say. Raises SpecError."""
    file, text = load(path, "prototxt", own=True)
    return text_of(text, file, layer_types, Path(path).parent, solver_type, lenient)


def text_of(
    text: str,
    file: str,
    layer_types: Mapping[str, type],
    folder: Path | None = None,
    solver_type: str | None = None,
    lenient: bool = False,
) -> Text:
    """What a text and the nets that it names, looked for from `folder` too, say. Raises SpecError.

    Layers of unknown types are kept; with `lenient`, unknown keys are left out.
    """
    message, comments = parse_text(text, file)
    found = Text(Node(None, message.mark), {file: comments})
    if not message.fields:
        raise SpecError(f"{message.mark}: is empty; expected a net's or a solver's text")
    if {one.name for one in message.fields} == {"item"}:
        raise SpecError(
            f"{message.mark}: is a label map, the names of classes; expected a net or a solver"
        )
    unknown: list[tuple[Mark, str]] = []

    def net_in(path: str, mark: Mark) -> Node:
        """The net in a file that a solver names."""
        places = [Path(path)]
        if folder is not None:
            places += [folder / path, folder / Path(path).name]
        there = next((place for place in places if os.path.isfile(place)), None)
        if there is None:
            tried = ", ".join(dict.fromkeys(str(place) for place in places))
            raise SpecError(f"{mark}: there is no file {path!r}; looked for {tried}")
        own, inside = load(there, "prototxt", own=True)
        net, found.comments[own] = parse_text(inside, own)
        return net_of(typed(net, "NetParameter", unknown=unknown))

    def net_of(net: Node) -> Node:
        return net_tree(net, layer_types, unknown)

    root = None
    try:
        if _is_solver(message):
            solver = typed(message, "SolverParameter", unknown=unknown)
            root = solver_text.root(solver, net_in, net_of, solver_type)
        else:
            root = net_of(typed(message, "NetParameter", unknown=unknown))
    finally:  # of a mistake, too, an unknown key may be the cause: it is told first
        refuse(unknown, lenient, root, layer_types)
    found.root = root
    return found


def _is_solver(message: Message) -> bool:
    """Whether a text is a solver's, by the fields it has."""
    given = {one.name for one in message.fields}
    net, solver = (set(schema().messages[kind]) for kind in ("NetParameter", "SolverParameter"))
    if {"layer", "layers"} & given:
        return False
    return len(given & solver) > len(given & net)


def net_tree(
    net: Node, layer_types: Mapping[str, type], unknown: list[tuple[Mark, str]] | None = None
) -> Node:
    """A NetParameter as the tree of a model file; `unknown` as `typed` has it. Raises SpecError."""
    net = upgraded_net(net, layer_types)
    fields, keys = dict(net.value), dict(net.keys)
    free = fields.pop(FREE, Node({}, net.mark))
    for key in free.value:
        if key not in keys_of(NetSpec) or key in fields:
            raise SpecError(f"{free.keys[key]}: {FREE}: {key} does not belong here")
    layers = fields.pop("layer", None)
    if layers is None or not layers.value:
        raise SpecError(f"{net.mark}: the net has no layer")
    phases(layers.value, fields.get("state"))
    taken: dict[str, None] = {}
    for layer in layers.value:
        taken |= dict.fromkeys(top.value for top in layer.value.get("top", NONE).value)
    flats: list[Node] = []
    for layer in own_blocks(layers.value, layer_types):
        flats.append(flat(layer, layer_types, taken, unknown))
        taken |= dict.fromkeys(top.value for top in flats[-1].value["top"].value)
    flats = _told_apart(flats)
    root = {**fields, **free.value, "layers": Node(flats, layers.mark)}
    return Node(root, net.mark, {**keys, **free.keys, "layers": layers.mark})


def _told_apart(layers: list[Node]) -> list[Node]:
    """Layers of which two that are always there bear different names: Caffe does not ask for it."""
    seen: dict[str, int] = {}
    found = []
    for layer in layers:
        name = layer.value.get("name", NONE)
        if isinstance(name.value, str) and not {"include", "exclude"} & set(layer.value):
            seen[name.value] = number = seen.get(name.value, 0) + 1
            if number > 1:
                other = Node(f"{name.value}_{number}", name.mark)
                layer = Node({**layer.value, "name": other}, layer.mark, layer.keys)
        found.append(layer)
    return found


NONE = Node([], Mark(""))
