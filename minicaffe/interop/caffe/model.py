"""A net or solver in Caffe's text format as the specs of a model file of ours."""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from minicaffe.core.config.declare import MEANS, NetSpec, SolverSpec, unused
from minicaffe.core.config.model import model
from minicaffe.core.config.settings import replaced
from minicaffe.core.config.tree import Comment, Mark, Node, load
from minicaffe.core.config.types import keys_of
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.layer import FREE, flat, own_blocks, phases, warn
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.caffe.text import parse as parse_text
from minicaffe.interop.caffe.typed import typed
from minicaffe.interop.caffe.unknown import LayerTypes, Problems, refuse, refuse_types
from minicaffe.interop.caffe.upgrade import upgraded_net

SUFFIXES = (".prototxt", ".pbtxt", ".prototxt.txt")
YAML = (".yaml", ".yml", ".json")
KINDS = ("NetParameter", "SolverParameter")
MESSAGE = re.compile(r"\s*(#.*\n\s*)*[a-z_0-9]+\s*[:{]")  # how a message begins
LAYERS = re.compile(r"^layers:(?!\s*\{)", re.MULTILINE)  # each model in YAML, and no message


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
    layer_types: LayerTypes,
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


def parse_prototxt(text: str, layer_types: LayerTypes, file: str | None = None) -> NetSpec:
    """The model in a net's or a solver's text, which errors call `file`. Raises SpecError."""
    root = text_of(text, file or "<text>", layer_types).root
    refuse_types(root, layer_types)
    return model(root, layer_types)


def read_text(
    path: str | Path, layer_types: LayerTypes, solver_type: str | None = None, lenient: bool = False
) -> Text:
    """What a prototxt and the nets that it names say. Raises SpecError."""
    file, text = load(path, "prototxt", own=True)
    return text_of(text, file, layer_types, Path(path).parent, solver_type, lenient)


def text_of(
    text: str,
    file: str,
    layer_types: LayerTypes,
    folder: Path | None = None,
    solver_type: str | None = None,
    lenient: bool = False,
) -> Text:
    """What a text and the nets it names (from `folder` too) say, unknown types kept. Raises SpecError."""
    message, own_comments = parse_text(text, file)
    comments, names = {file: own_comments}, {one.name for one in message.fields}
    if not names:
        raise SpecError(f"{message.mark}: is empty; expected a net's or a solver's text")
    if names == {"item"}:
        problem = "is a label map, the names of classes; expected a net or a solver"
        raise SpecError(f"{message.mark}: {problem}")
    unknown: Problems = []

    def net_in(path: str, mark: Mark) -> Node:
        """The net in a file that a solver names."""
        places = [Path(path)]
        if folder is not None:
            places += [folder / path, folder / Path(path).name]
        place = next((place for place in places if os.path.isfile(place)), None)
        if place is None:
            tried = ", ".join(dict.fromkeys(str(place) for place in places))
            raise SpecError(f"{mark}: there is no file {path!r}; looked for {tried}")
        own, inside = load(place, "prototxt", own=True)
        net, comments[own] = parse_text(inside, own)
        return net_of(typed(net, "NetParameter", unknown=unknown))

    net_of = partial(net_tree, layer_types=layer_types, unknown=unknown)
    root = None
    try:
        of_net, of_solver = (len(names & schema().messages[kind].keys()) for kind in KINDS)
        if not {"layer", "layers"} & names and of_solver > of_net:
            solver = typed(message, "SolverParameter", unknown=unknown)
            root = solver_root(solver, net_in, net_of, solver_type)
        else:
            root = net_of(typed(message, "NetParameter", unknown=unknown))
    finally:  # of a mistake, too, an unknown key may be the cause: it is told first
        refuse(unknown, lenient, root, layer_types)
    return Text(root, comments)


def net_tree(net: Node, layer_types: LayerTypes, unknown: Problems) -> Node:
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
    flats, named = list[Node](), Counter[str]()
    for layer in own_blocks(layers.value, layer_types):
        layer = flat(layer, layer_types, taken, unknown)
        taken |= dict.fromkeys(top.value for top in layer.value["top"].value)
        name = layer.value.get("name", NONE)
        # Two layers that are always there bear different names: Caffe does not ask for it
        if isinstance(name.value, str) and not {"include", "exclude"} & set(layer.value):
            named[name.value] += 1
            if (number := named[name.value]) > 1:
                layer.value["name"] = Node(f"{name.value}_{number}", name.mark)
        flats.append(layer)
    root = {**fields, **free.value, "layers": Node(flats, layers.mark)}
    return Node(root, net.mark, {**keys, **free.keys, "layers": layers.mark})


NONE = Node([], Mark(""))
TRAINED = ("net", "net_param", "train_net", "train_net_param")
TESTS = ("test_net_param", "test_net")
TYPES = {kind.upper(): kind for kind in ("Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")}
# Keys of SSD's solver, which are of the layer DetectionEvaluate here.
EVALUATED = ("eval_type", "ap_version", "show_per_class_result")
NO_EFFECT = {"snapshot_diff": "snapshots hold no gradients", "layer_wise_reduce": ""}


def solver_root(
    solver: Node,
    net_in: Callable[[str, Mark], Node],
    net_of: Callable[[Node], Node],
    kind: str | None = None,
) -> Node:
    """The tree: the net to train, `test_nets`, and `solver`, of the type `kind` if it is given.

    `net_in` returns the tree of the net in a file, `net_of` that of a NetParameter. Raises SpecError.
    """
    sources = [key for key in TRAINED if key in solver.value]
    if len(sources) != 1:
        where, got = solver.keys[sources[-1]] if sources else solver.mark, " and ".join(sources)
        problem = f"solver: expected one of {', '.join(TRAINED)}, got {got or 'none'}"
        raise SpecError(f"{where}: {problem}")
    (source,) = sources

    def nets(key: str) -> list[Node]:
        node = solver.value.get(key, NONE)
        items = node.value if isinstance(node.value, list) else [node]
        return [net_of(n) if key.endswith("_param") else net_in(n.value, n.mark) for n in items]

    (train,) = nets(source)
    tests = [net for key in TESTS for net in nets(key)]
    count = len(solver.value["test_iter"].value) if "test_iter" in solver.value else 0
    if count < len(tests) or (count > len(tests) and source.startswith("train")):
        key = next((key for key in ("test_iter", *TESTS) if key in solver.value), source)
        raise SpecError(
            f"{solver.keys[key]}: solver: expected a test_iter for each test net:"
            f" there are {len(tests)} nets and {count} test_iter"
        )
    if source == "train_net" and "test_net_param" not in solver.value:
        train_file = solver.value["train_net"].value
        others = solver.value.get("test_net", NONE).value
        if all(one.value == train_file for one in others):  # one net with the layers of both phases
            tests = []
    own = dict(solver.value)
    solver = Node(own, solver.mark, solver.keys)
    _evaluated([train, *tests], {key: own.pop(key) for key in EVALUATED if key in own}, solver)
    values = {**train.value, "solver": _solver(solver, kind)}
    keys = {**train.keys, "solver": solver.mark}
    if tests:
        values["test_nets"] = Node(tests, tests[0].mark)
        keys["test_nets"] = next(solver.keys[key] for key in TESTS if key in solver.value)
    return Node(values, train.mark, keys)


def _evaluated(nets: list[Node], evaluation: dict[str, Node], solver: Node) -> None:
    """Give the keys of SSD's solver to the DetectionEvaluate layers of its nets."""
    layers = [
        layer
        for net in nets
        for layer in net.value["layers"].value
        if layer.value.get("type", NONE).value == "DetectionEvaluate"
    ]
    fields = schema().messages["SolverParameter"]
    for key, node in evaluation.items():
        if node.value == fields[key].default:
            continue
        if not layers:
            warn(solver.keys[key], f"solver: {key} has no effect: no net has a DetectionEvaluate")
        for layer in layers if key != "eval_type" else []:
            layer.value.setdefault(key, node)
            layer.keys.setdefault(key, solver.keys[key])


def _solver(solver: Node, kind: str | None) -> Node:
    """The solver's own keys, less those that have no effect here."""
    fields = schema().messages["SolverParameter"]
    values, keys, known = dict(solver.value), dict(solver.keys), keys_of(SolverSpec)
    for key in (*TRAINED, *TESTS):
        values.pop(key, None)
    free = values.pop(FREE, Node({}, solver.mark))
    old = values.pop("solver_type", None)
    if old is not None and "type" in values:
        raise SpecError(f"{keys['solver_type']}: solver: give either type or solver_type, not both")
    if kind is not None:
        values["type"], keys["type"] = Node(kind, solver.mark), solver.mark
    elif old is not None:
        values["type"] = Node(TYPES.get(old.value, old.value), old.mark)
        keys["type"] = keys["solver_type"]
    mode, number = values.pop("solver_mode", None), values.pop("device_id", None)
    if mode is not None and mode.value == "CPU":  # GPU, Caffe's default, is CUDA where it works
        values["device"], keys["device"] = Node("cpu", mode.mark), keys["solver_mode"]
    elif number is not None and number.value > 0:
        values["device"] = Node(f"cuda:{number.value}", number.mark)
        keys["device"] = keys["device_id"]
    seed = values.get("random_seed")
    if seed is not None and seed.value == -1:  # the clock, in Caffe; here as if it were not given
        del values["random_seed"]
    for key in [key for key in values if key not in known and key in NO_EFFECT]:
        if values[key].value != fields[key].default and NO_EFFECT[key]:
            warn(keys[key], f"solver: {key} has no effect: {NO_EFFECT[key]}")
        del values[key]
    if "test_interval" in values and "test_iter" not in values:
        warn(keys["test_interval"], "solver: test_interval has no effect: there is no test_iter")
        del values["test_interval"]
    kind = values["type"].value if "type" in values else SolverSpec.type
    for key, why in unused(values).items():
        if values[key].value != (fields[key].default or 0):
            warn(keys[key], f"solver: {key} has no effect: it {why}")
        del values[key]
    if kind in MEANS and "momentum" not in values:
        values["momentum"], keys["momentum"] = Node(0.0, solver.mark), solver.mark
    if "snapshot_format" not in values:  # as in Caffe; ours is another
        values["snapshot_format"] = Node("BINARYPROTO", solver.mark)
        keys["snapshot_format"] = solver.mark
    for key in free.value:
        if key in solver.value:
            raise SpecError(f"{free.keys[key]}: solver: {FREE}: {key} is given twice")
    values |= free.value
    keys |= free.keys
    return Node(values, solver.mark, {key: keys[key] for key in values})
