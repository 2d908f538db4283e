"""Single keys of a model replaced before it is understood: `--set solver.base_lr=0.02`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from minicaffe.core.config import tree
from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.config.solver import SolverSpec, unused
from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.core.config.types import keys_of
from minicaffe.errors import SpecError, did_you_mean

Step = str | int
CHOICES = ("solver.type", "solver.lr_policy")  # that make other keys useless
STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def replaced(root: Node, setting: str, layer_types: Mapping[str, type]) -> Node:
    """The tree of a model in which one value is another: `setting` is PATH=VALUE.

    PATH names keys from the outermost inwards, entries of a list by number from 0, layers by name as
    well; of two layers that bear it, in two phases, both change. VALUE is YAML. A mapping that is not
    there is made; a word that stands for a mapping, as in `weight_filler: msra`, becomes one. What is
    put in knows its place as `--set PATH`. Another type of solver or lr_policy takes out the keys of the
    file's that it does not use. Raises SpecError.

    >>> net = tree.parse("layers: [{name: ip, type: InnerProduct}]")
    >>> net = replaced(net, "layers.ip.num_output=5", {})
    >>> net.value["layers"].value[0].value["num_output"].value
    5
    """
    path, equals, text = setting.partition("=")
    if not equals:
        raise SpecError(
            f"--set {shown(setting)}: expected PATH=VALUE, such as solver.base_lr=0.02 or"
            " layers.conv1.num_output=50"
        )
    mark = Mark(f"--set {path if path.isprintable() else shown(path)}")
    put = _Put(dataclasses.replace(tree.parse(text, str(mark)), mark=mark), layer_types)
    before = root
    for steps in _addressed(root, path, mark):
        root = put.into(root, steps, NetSpec)
    return _without_idle(before, root) if path in CHOICES else root


def _without_idle(before: Node, root: Node) -> Node:
    """A model without the keys of the solver's that had a use before, and are not set either."""
    then, solver = (tree.value.get("solver") for tree in (before, root))
    if then is None or not isinstance(then.value, dict):
        return root
    idle = [key for key in unused(solver.value) if key not in unused(then.value)]
    idle = [key for key in idle if not solver.value[key].mark.file.startswith("--set ")]
    kept = {key: node for key, node in solver.value.items() if key not in idle}
    own = Node(kept, solver.mark, {key: solver.keys[key] for key in kept})
    return dataclasses.replace(root, value={**root.value, "solver": own})


def _addressed(root: Node, path: str, mark: Mark) -> list[list[Step]]:
    """The steps from the root to each value that a path means."""
    layers = root.value.get("layers") if isinstance(root.value, dict) else None
    prefix, _, rest = path.partition("layers.")
    if prefix or not rest or layers is None or not isinstance(layers.value, list):
        steps = _steps(f".{path}", mark)
        _check_first(steps, layers, mark)
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


def _check_first(steps: list[Step], layers: Node | None, mark: Mark) -> None:
    """Raise SpecError for a path whose first key is none of a model's, but its solver's or a layer's."""
    key = steps[0] if steps else ""
    if key in {*keys_of(NetSpec), "layers", "solver", "test_nets", "blocks"}:
        return
    paths = [f"solver.{name}" for name in keys_of(SolverSpec)]
    for layer in layers.value if layers is not None and isinstance(layers.value, list) else []:
        if name := _text(layer, "name"):
            paths += [f"layers.{name}", *(f"layers.{name}.{inside}" for inside in layer.value)]
    meant = next((path for path in paths if path.rpartition(".")[2] == key), None)
    if meant is not None:
        raise SpecError(f"{mark}: a model has no key {shown(key)}; did you mean {meant!r}?")


def _steps(path: str, mark: Mark) -> list[Step]:
    steps = [key or int(number) for key, number in STEP.findall(path)]
    if not re.fullmatch(f"({STEP.pattern})*", path) or len(steps) > tree.MAX_DEPTH:
        raise SpecError(f"{mark}: expected keys with dots between them, entries of a list as [0]")
    return steps


def _text(node: Node, key: str) -> str:
    """The text under a key of a mapping; "" where there is none."""
    found = node.value.get(key) if isinstance(node.value, dict) else None
    return found.value if found is not None and isinstance(found.value, str) else ""


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
        keys = {
            **node.keys,
            first: node.keys.get(first, self.value.mark) if rest else self.value.mark,
        }
        return Node({**node.value, first: inside}, node.mark, keys)

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
                found = keys_of(cls)[key].type  # type: ignore[arg-type]
                while get_origin(found) is not None:
                    found = get_args(found)[0]
                return found
        return None
