"""What is done to the tree of a model before it is understood: blocks written out, single keys replaced."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

from minicaffe.core.config import tree
from minicaffe.core.config.declare import LayerSpec, NetSpec, SolverSpec, unused
from minicaffe.core.config.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Mark, Node, shown
from minicaffe.core.config.types import Key, keys_of, values
from minicaffe.errors import SpecError, did_you_mean

WORD = re.compile(r"<([A-Za-z_]\w*)>", re.ASCII)
LAYERS = Key("layers", tuple[Node, ...], dataclasses.MISSING, "the layers that it stands for")
DEFAULTS = Key("defaults", Node, None, "arguments that a use need not give")


def expanded(root: Node) -> Node:
    """The tree of a model in which every `{block: NAME, ...}` among the layers is that block's layers.

    `blocks` beside `layers` maps names to `{layers: [...], defaults: {...}}`. Where a text in these layers
    is `<word>`, it becomes the argument `word`, of whatever type; in a longer text the argument's own text
    or number is put in. Blocks may use others, not themselves. Raises SpecError.

    >>> from minicaffe.core.config.tree import parse
    >>> root = expanded(parse('''
    ... blocks:
    ...   pair: {layers: [{name: conv<n>, num_output: <wide>}, {name: relu<n>}]}
    ... layers: [{block: pair, n: 1, wide: 8}, {block: pair, n: 2, wide: 16}]
    ... '''))
    >>> [layer.value["name"].value for layer in root.value["layers"].value]
    ['conv1', 'relu1', 'conv2', 'relu2']
    """
    if not isinstance(root.value, dict):
        return root
    writer = _Writer(root.value.get("blocks"))
    nodes = {key: node for key, node in writer.net(root).value.items() if key != "blocks"}
    tests = nodes.get("test_nets")
    if tests is not None and isinstance(tests.value, list):
        nodes["test_nets"] = Node([writer.net(net) for net in tests.value], tests.mark)
    for name, block in writer.blocks.items():
        if not block.used:
            raise SpecError(f"{block.mark}: block {shown(name)} is never used")
    return Node(nodes, root.mark, {key: root.keys[key] for key in nodes})


@dataclasses.dataclass
class _Block:
    mark: Mark
    layers: tuple[Node, ...]
    defaults: Mapping[str, Node]
    words: Mapping[str, Mark]  # the arguments, and where each is asked for first
    used: bool = False


def _blocks(node: Node) -> dict[str, _Block]:
    if not isinstance(node.value, dict):
        raise SpecError(f"{node.mark}: blocks: expected a mapping, got {shown(node.value)}")
    blocks = {}
    for name, one in node.value.items():
        what = f"block {shown(name)}"
        keys = values(one, {key.name: key for key in (LAYERS, DEFAULTS)}, what)
        if not keys["layers"]:
            raise SpecError(f"{one.value['layers'].mark}: {what}: expected at least one layer")
        words: dict[str, Mark] = {}
        for layer in keys["layers"]:
            _words(layer, words)
        defaults = keys.get("defaults") or Node({}, one.mark)
        if not isinstance(defaults.value, dict):
            got = shown(defaults.value)
            raise SpecError(f"{defaults.mark}: {what}: defaults: expected a mapping, got {got}")
        _check_known(defaults, words, f"{what}: defaults")
        blocks[name] = _Block(node.keys[name], keys["layers"], defaults.value, words)
    return blocks


def _words(node: Node, places: dict[str, Mark]) -> None:
    """Note each `<word>` in the texts of a node, and where it stands first."""
    if isinstance(node.value, str):
        for word in WORD.findall(node.value):
            places.setdefault(word, node.mark)
    elif isinstance(node.value, (dict, list)):
        for inside in node.value.values() if isinstance(node.value, dict) else node.value:
            _words(inside, places)


def _check_known(arguments: Node, words: Mapping[str, Mark], what: str) -> None:
    """Raise SpecError for an argument that no text of a block asks for."""
    for word in arguments.value:
        if word not in words and word != "block":
            hint = did_you_mean(word, words) or f"; no text in the block holds {shown(f'<{word}>')}"
            raise SpecError(f"{arguments.keys[word]}: {what}: unknown argument {shown(word)}{hint}")


class _Writer:
    """Writes out uses of blocks, and counts what that makes: blocks in blocks may grow without end."""

    def __init__(self, blocks: Node | None):
        self.blocks = {} if blocks is None else _blocks(blocks)
        self.count = self.letters = 0

    def net(self, node: Node) -> Node:
        """A net whose layers are written out."""
        if not isinstance(node.value, dict) or "layers" not in node.value:
            return node
        layers = self.written(node.value["layers"])
        return Node({**node.value, "layers": layers}, node.mark, node.keys)

    def written(self, layers: Node, within: tuple[str, ...] = ()) -> Node:
        """A list of layers, those of blocks in place of the blocks' uses."""
        if not isinstance(layers.value, list):
            return layers
        nodes: list[Node] = []
        for node in layers.value:
            is_use = isinstance(node.value, dict) and "block" in node.value
            nodes += self.layers_of(node, within) if is_use else [node]
        return Node(nodes, layers.mark)

    def layers_of(self, use: Node, within: tuple[str, ...]) -> list[Node]:
        """The layers that one use of a block stands for."""
        mark, name = use.value["block"].mark, use.value["block"].value
        if not isinstance(name, str):
            raise SpecError(f"{mark}: block: expected text, got {shown(name)}")
        if name not in self.blocks:
            hint = did_you_mean(name, self.blocks)
            hint = hint if self.blocks else "; the model has no `blocks` beside its layers"
            raise SpecError(f"{mark}: there is no block {shown(name)}{hint}")
        what, block = f"block {shown(name)}", self.blocks[name]
        if name in within:
            names = " > ".join(map(shown, (*within, name)))
            raise SpecError(f"{mark}: {what} is used by itself: {names}")
        if len(within) >= MAX_DEPTH:
            raise SpecError(f"{mark}: {what}: blocks are nested too deeply")
        _check_known(use, block.words, what)
        for word, place in block.words.items():
            if word not in use.value and word not in block.defaults:
                problem = f"{what}: missing argument {word!r}, for the <{word}> at {place.within}"
                raise SpecError(f"{use.mark}: {problem}")
        block.used = True

        def here(mark: Mark) -> Mark:
            return dataclasses.replace(mark, used=use.mark)

        defaults = {key: self.copy(node, here) for key, node in block.defaults.items()}
        layers = [self.copy(layer, here, {**defaults, **use.value}) for layer in block.layers]
        return self.written(Node(layers, use.mark), (*within, name)).value

    def copy(
        self,
        node: Node,
        place: Callable[[Mark], Mark],
        arguments: Mapping[str, Node] | None = None,
        depth: int = 0,
    ) -> Node:
        """A node with its marks placed anew and, if they are given, arguments in place of their words."""
        mark, value = place(node.mark), node.value
        self.count += 1
        if self.count > MAX_NODES:
            raise SpecError(f"{mark}: more than {MAX_NODES} values when blocks are written out")
        if depth > MAX_DEPTH:
            raise SpecError(f"{mark}: nested too deeply when blocks are written out")
        if isinstance(value, dict):
            items = {}
            for key, one in value.items():
                whole = WORD.fullmatch(one.value) if isinstance(one.value, str) else None
                if arguments and whole and arguments[whole[1]].value is None:
                    continue  # as if it were not there
                items[key] = self.copy(one, place, arguments, depth + 1)
            return Node(items, mark, {key: place(node.keys[key]) for key in items})
        if isinstance(value, list):
            return Node([self.copy(one, place, arguments, depth + 1) for one in value], mark)
        if arguments is None or not isinstance(value, str):
            return Node(value, mark)
        if whole := WORD.fullmatch(value):
            at, argument = node.mark, arguments[whole[1]]
            return self.copy(argument, lambda use: dataclasses.replace(at, used=use), None, depth)
        text = WORD.sub(lambda word: self.text(arguments[word[1]], word[1], mark), value)
        return Node(text, mark)

    def text(self, node: Node, word: str, at: Mark) -> str:
        """An argument as it is put into a longer text."""
        value = node.value
        if type(value) not in (str, int, float) or (type(value) is int and abs(value) >= 10**40):
            got = shown(value)
            raise SpecError(f"{at}: <{word}> in a text: expected text or a number, got {got}")
        self.letters += len(str(value))
        if self.letters > MAX_BYTES:
            raise SpecError(f"{at}: more than {MAX_BYTES >> 20} MiB of text in written out blocks")
        return str(value)


Step = str | int
CHOICES = ("solver.type", "solver.lr_policy")  # that make other keys useless
STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def replaced(root: Node, setting: str, layer_types: Mapping[str, type]) -> Node:
    """The tree of a model in which one value is another: `setting` is PATH=VALUE.

    PATH names keys from the outermost inwards, entries of a list by number from 0, layers by name as well; of
    two layers that bear it, in two phases, both change. VALUE is YAML. A mapping that is not there is made; a
    word that stands for a mapping, as in `weight_filler: msra`, becomes one. Another type of solver or
    lr_policy takes out the keys of the file's that it does not use. Raises SpecError.

    >>> net = tree.parse("layers: [{name: ip, type: InnerProduct}]")
    >>> net = replaced(net, "layers.ip.num_output=5", {})
    >>> net.value["layers"].value[0].value["num_output"].value
    5
    """
    path, equals, text = setting.partition("=")
    if not equals:
        problem = "expected PATH=VALUE, such as solver.base_lr=0.02 or layers.conv1.num_output=50"
        raise SpecError(f"--set {shown(setting)}: {problem}")
    mark = Mark(f"--set {path if path.isprintable() else shown(path)}")
    put = _Put(dataclasses.replace(tree.parse(text, str(mark)), mark=mark), layer_types)
    before = root
    for steps in _addressed(root, path, mark):
        root = put.into(root, steps, NetSpec)
    then = before.value.get("solver") if path in CHOICES else None
    if then is None or not isinstance(then.value, dict):
        return root
    solver = root.value["solver"]
    # The keys that had a use before, and are not set either, go
    idle = [key for key in unused(solver.value) if key not in unused(then.value)]
    idle = [key for key in idle if not solver.value[key].mark.file.startswith("--set ")]
    nodes = {key: node for key, node in solver.value.items() if key not in idle}
    own = Node(nodes, solver.mark, {key: solver.keys[key] for key in nodes})
    return dataclasses.replace(root, value={**root.value, "solver": own})


def _addressed(root: Node, path: str, mark: Mark) -> list[list[Step]]:
    """The steps from the root to each value that a path means."""
    layers = root.value.get("layers") if isinstance(root.value, dict) else None
    prefix, _, rest = path.partition("layers.")
    if prefix or not rest or layers is None or not isinstance(layers.value, list):
        steps = _steps(f".{path}", mark)
        key = steps[0] if steps else ""
        if key in {*keys_of(NetSpec), "layers", "solver", "test_nets", "blocks"}:
            return [steps]
        paths = [f"solver.{name}" for name in keys_of(SolverSpec)]
        for layer in layers.value if layers is not None and isinstance(layers.value, list) else []:
            if name := _text(layer, "name"):
                paths += [f"layers.{name}", *(f"layers.{name}.{inside}" for inside in layer.value)]
        near = next((one for one in paths if one.rpartition(".")[2] == key), None)
        if near is not None:  # the key of a solver or a layer
            raise SpecError(f"{mark}: a model has no key {shown(key)}; did you mean {near!r}?")
        return [steps]
    names = [_text(layer, "name") for layer in layers.value]
    meant = [name for name in names if rest == name or rest.startswith((f"{name}.", f"{name}["))]
    if not meant:
        known, (word, *_) = [name for name in names if name], rest.split(".")
        hint = did_you_mean(word, known) or did_you_mean(rest.rpartition(".")[0], known)
        raise SpecError(f"{mark}: there is no layer {shown(word)}{hint}")
    name = max(meant, key=len)  # of `a` and `a.b`, the one whose name is spelt out
    steps = _steps(rest.removeprefix(name), mark)
    return [["layers", i, *steps] for i, other in enumerate(names) if other == name]


def _steps(path: str, mark: Mark) -> list[Step]:
    steps = [key or int(number) for key, number in STEP.findall(path)]
    if not re.fullmatch(f"({STEP.pattern})*", path) or len(steps) > tree.MAX_DEPTH:
        raise SpecError(f"{mark}: expected keys with dots between them, entries of a list as [0]")
    return steps


def _text(node: Node, key: str) -> str:
    """The text under a key of a mapping; "" where there is none."""
    inside = node.value.get(key) if isinstance(node.value, dict) else None
    return inside.value if inside is not None and isinstance(inside.value, str) else ""


@dataclasses.dataclass(frozen=True)
class _Put:
    """Puts a value into trees."""

    value: Node
    layer_types: Mapping[str, type]

    def into(self, node: Node | None, steps: Sequence[Step], kind: Any) -> Node:
        """A node, of a type that is declared as `kind`, with the value where the steps lead."""
        if not steps:
            return self.value
        first, *rest = steps
        if isinstance(first, int):
            return self.into_list(node, first, rest, kind)
        if node is not None and isinstance(node.value, list):
            raise SpecError(
                f"{self.value.mark}: {shown(first)} is looked for in a list of {len(node.value)};"
                f" name the entry too, as [0].{first}"
            )
        if node is not None and isinstance(node.value, str) and hasattr(kind, "word"):
            node = Node({kind.word: node}, node.mark, {kind.word: node.mark})
        if node is None or not isinstance(node.value, dict):
            node = Node({}, self.value.mark)
        inside = self.into(node.value.get(first), rest, self.kind_of(first, node, kind))
        mark = node.keys.get(first, self.value.mark) if rest else self.value.mark
        return Node({**node.value, first: inside}, node.mark, {**node.keys, first: mark})

    def into_list(self, node: Node | None, i: int, rest: Sequence[Step], kind: Any) -> Node:
        """The same for a list, or what stands for a list of one; its end takes one more."""
        node = Node([], self.value.mark) if node is None else node
        items = node.value if isinstance(node.value, list) else [node]
        if i > len(items):
            raise SpecError(f"{self.value.mark}: the list has {len(items)} entries, no [{i}]")
        item = self.into(items[i] if i < len(items) else None, rest, kind)
        mark = node.mark if isinstance(node.value, list) else self.value.mark
        return Node([*items[:i], item, *items[i + 1 :]], mark)

    def kind_of(self, key: str, node: Node, kind: Any) -> Any:
        """The declared type of a mapping's value, of its entries if it is a list; None for none."""
        if kind is NetSpec:
            return {"layers": LayerSpec, "solver": SolverSpec}.get(key)
        own = self.layer_types.get(_text(node, "type")) if kind is LayerSpec else None
        for cls in filter(dataclasses.is_dataclass, (kind, own)):
            if key in keys_of(cls):  # type: ignore[arg-type]
                declared = keys_of(cls)[key].type  # type: ignore[arg-type]
                while get_origin(declared) is not None:
                    declared = get_args(declared)[0]
                return declared
        return None
