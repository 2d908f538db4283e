"""What Python holds as a tree: each value knows the path of keys to it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

from minicaffe.core.config.tree import MAX_DEPTH, MAX_VALUES, Mark, Node, shown
from minicaffe.errors import SpecError


def tree(value: Any, file: str = "<mapping>") -> Node:
    """The tree of mappings, lists, texts and numbers, NumPy's too. Raises SpecError for all else.

    >>> found = tree({"layers": [{"name": "x"}]})
    >>> str(found.value["layers"].value[0].keys["name"])
    '<mapping>:layers[0].name'
    """
    count = itertools.count(1)

    def build(value: Any, path: str, depth: int) -> Node:
        mark = Mark(file, path=path)
        if next(count) > MAX_VALUES:
            raise SpecError(f"{mark}: more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise SpecError(f"{mark}: nested too deeply")
        if isinstance(value, Mapping):
            nodes = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise SpecError(f"{mark}: expected a key that is a word, got {shown(key)}")
                word = key if key.isprintable() else shown(key)
                nodes[str(key)] = build(item, f"{path}.{word}" if path else word, depth + 1)
            return Node(nodes, mark, {key: node.mark for key, node in nodes.items()})
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, (list, tuple)):
            items = enumerate(value)
            return Node([build(item, f"{path}[{i}]", depth + 1) for i, item in items], mark)
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if value is not None and type(value) not in (bool, int, float, str):
            raise SpecError(
                f"{mark}: expected text, a number, a list or a mapping, got {shown(value)}"
            )
        return Node(value, mark)

    return build(value, "", 0)
