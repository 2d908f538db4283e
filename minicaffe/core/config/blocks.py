"""Blocks: layers written once and used many times, written out before a model is understood."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from minicaffe.core.config.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Mark, Node, shown
from minicaffe.core.config.types import Key, values
from minicaffe.errors import SpecError, did_you_mean

WORD = re.compile(r"<([A-Za-z_]\w*)>", re.ASCII)
LAYERS = Key(
    "layers", tuple[Node, ...], dataclasses.MISSING, "the layers that the block stands for"
)
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
    found = {key: node for key, node in root.value.items() if key != "blocks"}
    if "layers" in found:
        found["layers"] = writer.written(found["layers"])
    tests = found.get("test_nets")
    if tests is not None and isinstance(tests.value, list):
        found["test_nets"] = Node([writer.net(net) for net in tests.value], tests.mark)
    for name, block in writer.blocks.items():
        if not block.used:
            raise SpecError(f"{block.mark}: block {shown(name)} is never used")
    return Node(found, root.mark, {key: root.keys[key] for key in found})


@dataclasses.dataclass
class _Block:
    mark: Mark
    layers: tuple[Node, ...]
    defaults: Mapping[str, Node]
    words: Mapping[str, Mark]  # the arguments, and where each is asked for first
    used: bool = False


def _blocks(node: Node) -> dict[str, _Block]:
    """The blocks that a model declares, by name."""
    if not isinstance(node.value, dict):
        raise SpecError(f"{node.mark}: blocks: expected a mapping, got {shown(node.value)}")
    found = {}
    for name, one in node.value.items():
        what = f"block {shown(name)}"
        given = values(one, {key.name: key for key in (LAYERS, DEFAULTS)}, what)
        if not given["layers"]:
            raise SpecError(f"{one.value['layers'].mark}: {what}: expected at least one layer")
        words: dict[str, Mark] = {}
        for layer in given["layers"]:
            _words(layer, words)
        defaults = given.get("defaults") or Node({}, one.mark)
        if not isinstance(defaults.value, dict):
            got = shown(defaults.value)
            raise SpecError(f"{defaults.mark}: {what}: defaults: expected a mapping, got {got}")
        _check_known(defaults, words, f"{what}: defaults")
        found[name] = _Block(node.keys[name], given["layers"], defaults.value, words)
    return found


def _words(node: Node, found: dict[str, Mark]) -> None:
    """Note each `<word>` in the texts of a node, and where it stands first."""
    if isinstance(node.value, str):
        for word in WORD.findall(node.value):
            found.setdefault(word, node.mark)
    elif isinstance(node.value, (dict, list)):
        for inside in node.value.values() if isinstance(node.value, dict) else node.value:
            _words(inside, found)


def _check_known(given: Node, words: Mapping[str, Mark], what: str) -> None:
    """Raise SpecError for an argument that no text of a block asks for."""
    for word in given.value:
        if word not in words and word != "block":
            hint = did_you_mean(word, words) or f"; no text in the block holds {shown(f'<{word}>')}"
            raise SpecError(f"{given.keys[word]}: {what}: unknown argument {shown(word)}{hint}")


def _is_nothing(node: Node, given: Mapping[str, Node] | None) -> bool:
    """Whether a value is a `<word>` whose argument is null: its key is then as if it were not there."""
    whole = WORD.fullmatch(node.value) if given and isinstance(node.value, str) else None
    return bool(given and whole and given[whole[1]].value is None)


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
        found: list[Node] = []
        for node in layers.value:
            is_use = isinstance(node.value, dict) and "block" in node.value
            found += self.layers_of(node, within) if is_use else [node]
        return Node(found, layers.mark)

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
            raise SpecError(
                f"{mark}: {what} is used by itself: {' > '.join(map(shown, (*within, name)))}"
            )
        if len(within) >= MAX_DEPTH:
            raise SpecError(f"{mark}: {what}: blocks are nested too deeply")
        _check_known(use, block.words, what)
        for word, place in block.words.items():
            if word not in use.value and word not in block.defaults:
                raise SpecError(
                    f"{use.mark}: {what}: missing argument {word!r}, for the <{word}> at {place.within}"
                )
        block.used = True

        def here(mark: Mark) -> Mark:
            return dataclasses.replace(mark, used=use.mark)

        given = {key: self.copy(node, here) for key, node in block.defaults.items()}
        layers = [self.copy(layer, here, {**given, **use.value}) for layer in block.layers]
        return self.written(Node(layers, use.mark), (*within, name)).value

    def copy(
        self,
        node: Node,
        place: Callable[[Mark], Mark],
        given: Mapping[str, Node] | None = None,
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
            items = {
                key: self.copy(one, place, given, depth + 1)
                for key, one in value.items()
                if not _is_nothing(one, given)
            }
            return Node(items, mark, {key: place(node.keys[key]) for key in items})
        if isinstance(value, list):
            return Node([self.copy(one, place, given, depth + 1) for one in value], mark)
        if given is None or not isinstance(value, str):
            return Node(value, mark)
        if whole := WORD.fullmatch(value):
            at = node.mark
            return self.copy(
                given[whole[1]], lambda other: dataclasses.replace(at, used=other), None, depth
            )
        return Node(WORD.sub(lambda word: self.text(given[word[1]], word[1], mark), value), mark)

    def text(self, node: Node, word: str, mark: Mark) -> str:
        """An argument as it is put into a longer text."""
        value = node.value
        if type(value) not in (str, int, float) or (type(value) is int and abs(value) >= 10**40):
            got = shown(value)
            raise SpecError(f"{mark}: <{word}> in a text: expected text or a number, got {got}")
        self.letters += len(str(value))
        if self.letters > MAX_BYTES:
            raise SpecError(
                f"{mark}: more than {MAX_BYTES >> 20} MiB of text in written out blocks"
            )
        return str(value)
