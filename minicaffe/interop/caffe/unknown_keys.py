"""What a text has that is not known here, keys and types of layers, told in one line."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping

from minicaffe.core.config.habits import meant
from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.unknown import FORK_OF, layers_of

_log = logging.getLogger("minicaffe")
NEAR = 0.8  # how like another a name is that may be a slip of it
Problem = tuple[Mark, str]


def refuse(
    keys: list[Problem], lenient: bool, root: Node | None, layer_types: Mapping[str, type]
) -> None:
    """Raise SpecError for unknown keys, or warn of each and forget them.

    Beside the keys, the unknown types of the model's tree are told; alone, they are not refused here.
    """
    found = _in_order(keys)
    keys.clear()
    if found and not lenient:
        raise _error(found, [] if root is None else _types(root, layer_types))
    for _, problem in found:
        _log.warning("%s: left out", problem)


def refuse_types(root: Node, layer_types: Mapping[str, type]) -> None:
    """Raise SpecError if a model's tree has layers of unknown types."""
    types = _types(root, layer_types)
    if types:
        raise _error([], types)


def _types(root: Node, layer_types: Mapping[str, type]) -> list[tuple[Mark, str, bool]]:
    """For each unknown type, where it is first, what is to be said, and whether that names a known one."""
    found: dict[str, tuple[Mark, str, bool]] = {}
    for layer in layers_of(root):
        kind = layer.value["type"].value if "type" in layer.value else None
        if not isinstance(kind, str) or kind in layer_types or kind in found:
            continue
        name = layer.value["name"].value if "name" in layer.value else None
        what = f"layer {shown(name)}: " if isinstance(name, str) else ""
        near = "" if kind in FORK_OF else meant(kind, layer_types) or _near(kind, layer_types)
        hint = f"; {FORK_OF[kind]} has it" if kind in FORK_OF else near
        mark = layer.value["type"].mark
        found[kind] = mark, f"{mark}: {what}unknown type {shown(kind)}{hint}", near != ""
    return list(found.values())


def _near(kind: str, layer_types: Mapping[str, type]) -> str:
    """A hint that names the known type of which another is a slip.

    >>> _near("Convolutoin", {"Convolution": object}), _near("Zorg", {"Reorg": object})
    ("; did you mean 'Convolution'?", '')
    """
    lowered = {name.lower(): name for name in layer_types}
    near = difflib.get_close_matches(kind.lower(), lowered, n=1, cutoff=NEAR)
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


def _error(keys: list[Problem], types: list[tuple[Mark, str, bool]]) -> SpecError:
    """The error that tells all, in the order of the text, and what can be done about it."""
    problems = _in_order([*keys, *((mark, problem) for mark, problem, _ in types)])
    first, *rest = [problem for _, problem in problems]
    line = f"{first}; and {len(rest)} more: {'; '.join(rest)}" if rest else first
    if keys:
        them = "the keys" if types else "them" if rest else "it"
        line += f"; --lenient reads on without {them}"
    if not all(near for *_, near in types):
        them = "the types" if keys else "them" if rest else "it"
        line += f"; --import FILE registers {them}; minicaffe layers lists what is known"
    return SpecError(line)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Problems in the order of their text, each once: a file may be read for two nets."""
    files = list(dict.fromkeys(mark.file for mark, _ in problems))
    order = {file: number for number, file in enumerate(files)}
    once = dict.fromkeys(problems)
    return sorted(once, key=lambda one: (order[one[0].file], one[0].line, one[0].column))
