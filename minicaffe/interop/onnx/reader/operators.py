"""The table of operators: what each becomes, or why there is nothing for it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from minicaffe.interop.onnx.patterns import RECOGNISERS, Recogniser
from minicaffe.interop.onnx.table import READERS, UNREAD


def rows() -> list[tuple[str, str]]:
    """Each operator and what it becomes, those that end what one layer says, and those that are refused.

    >>> dict(rows())["Relu"]
    'ReLU.'
    """
    read = [(kind, _first_line(reader)) for kind, reader in sorted(READERS.items())]
    ends: dict[Recogniser, list[str]] = {}
    for kind, recognisers in sorted(RECOGNISERS.items()):
        for one in recognisers:
            ends.setdefault(one, []).append(kind)
    read += sorted(
        (f"several, then {' or '.join(kinds)}", _first_line(one)) for one, kinds in ends.items()
    )
    return read + [(kind, f"refused: {why}") for kind, why in sorted(UNREAD.items())]


def _first_line(reader: object) -> str:
    """What a reader's docstring says; `python -OO` drops it, then it is read where it stands."""
    text = inspect.getdoc(reader)
    if text is None:
        source = Path(inspect.getsourcefile(inspect.unwrap(reader)) or "")  # type: ignore[arg-type]
        name = getattr(reader, "__name__", "")
        tree = ast.parse(source.read_text(encoding="utf-8"))
        nodes = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        text = ast.get_docstring(nodes[0]) if nodes else ""
    return (text or "").partition("\n")[0]


def listed() -> list[str]:
    """The table as lines of text."""
    table = rows()
    width = max(len(kind) for kind, _ in table)
    return [f"{kind:<{width}}  {what}" for kind, what in table]
