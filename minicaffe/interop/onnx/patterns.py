"""Trees of operators: what several nodes compute that one layer says.

A tree is matched backwards from its last node, and `emit` makes its nodes. It is

- a word: a blob, the same tensor wherever the word stands; `"#e"` one number, `"*w"` a constant's array,
  `"!h"` the states of an RNN, which no layer's top is;
- a number: a constant that holds it;
- a tuple: a node by its kind, and what its first inputs match; `"ReduceMean:mean"` also names the node;
- a list: one of several trees.

>>> softsign = ("Div", "x", ("Add", ("Abs", "x"), 1.0))
>>> emit(softsign, {"x": "blob"}, lambda kind, *operands: f"{kind}({', '.join(map(str, operands))})")
'Div(blob, Add(Abs(blob), 1.0))'"""

import ast
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minicaffe.interop.onnx.draft import Blob, Draft, Node, Tensor
from minicaffe.interop.onnx.table import READERS, UNREAD

Pattern = str | float | tuple[Any, ...] | list[Any]
Recogniser = Callable[[Draft, Node], "Blob | None"]
Words = Mapping[str, Any]
Bound = dict[str, Any]  # what the words of a pattern stand for
RECOGNISERS: dict[str, list[Recogniser]] = {}  # by the kind of the last node
COMMUTE = ("Add", "Mul")
BROADCAST = (*COMMUTE, "Sub", "Div", "Pow")
CLOSE = 1e-6  # of a pattern's number: what float32 makes of it


def recognises(pattern: Pattern) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a function called where a node is the last of a pattern, before it is read alone.

    It is called with the draft, the node and what the pattern's words stand for, blobs, numbers, arrays and
    nodes. It returns the blob of the layer that says the pattern, or None. What the layer leaves unread is
    dropped.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def recogniser(draft: Draft, node: Node) -> Blob | None:
            words = match(pattern, node)
            if words is None:
                return None
            values = {
                word.lstrip("#*!"): value.blob if isinstance(value, Tensor) else value
                for word, value in words.items()
            }
            return function(draft, node, **values)

        forms: list[Any] = pattern if isinstance(pattern, list) else [pattern]
        for kind in dict.fromkeys(form[0].partition(":")[0] for form in forms):
            RECOGNISERS.setdefault(kind, []).append(recogniser)
        return function

    return register


def emit(pattern: Pattern, words: Words, op: Callable[..., Any], choice: int = 0) -> Any:
    """Returns what `op` makes of a pattern's last node, once it has made those before; of several forms one.

    A named node's word is its attributes, or a list of its last inputs.
    """
    results: dict[int, Any] = {}

    def of(one: Any) -> Any:
        while isinstance(one, list):
            one = one[choice]
        if not isinstance(one, tuple):
            return words[one] if isinstance(one, str) else one
        if id(one) not in results:
            kind, _, word = one[0].partition(":")
            operands = [of(operand) for operand in reversed(one[1:])][::-1]
            more = words.get(word, {})
            inputs, attributes = (more, {}) if isinstance(more, list) else ([], more)
            results[id(one)] = op(kind, *operands, *inputs, **attributes)
        return results[id(one)]

    return of(pattern)


def match(pattern: Pattern, node: Node) -> Bound | None:
    """What the words of a pattern stand for, if it ends in this node; None if it does not."""
    return next(_matches(pattern, node.outputs[0], {}), None)


def _matches(pattern: Pattern, tensor: Tensor, bound: Bound) -> Iterator[Bound]:
    if isinstance(pattern, list):
        for one in pattern:
            yield from _matches(one, tensor, bound)
    elif isinstance(pattern, tuple):
        yield from _of_node(pattern, tensor, bound)
    elif isinstance(pattern, str):
        value = _value(pattern, tensor)
        if value is not None and (pattern not in bound or bound[pattern] is value):
            yield bound | {pattern: value}
    else:
        number = one_number(tensor.data)
        if number is not None and abs(number - pattern) <= CLOSE * max(abs(pattern), 1.0):
            yield bound


def _value(word: str, tensor: Tensor) -> Any:
    """What a word stands for: a blob's tensor, a number, an array; None where the tensor is no such."""
    if word.startswith("#"):
        number = one_number(tensor.data)
        return None if number is None else short(number)
    if word.startswith("*"):
        return tensor.data
    if tensor.blob is None:
        return None
    if word.startswith("!"):
        return tensor if tensor.blob.states is not None else None
    return None if tensor.blob.refused else tensor


def _of_node(pattern: tuple[Any, ...], tensor: Tensor, bound: Bound) -> Iterator[Bound]:
    node, (head, *operands) = tensor.node, pattern
    kind, _, word = head.partition(":")
    if node is None or node.kind != kind or tensor is not node.outputs[0]:
        return
    if len(node.known) < len(operands) or bound.get(word, node) is not node:
        return
    ranks = [len(one.shape or ()) for one in node.known if one.data is None]
    if node.kind in BROADCAST and len(node.outputs[0].shape or ()) > max(ranks, default=0):
        return  # constants of more axes than the blobs have add axes to what it computes
    bound = bound | {word: node} if word else bound
    for order in itertools.permutations(operands) if kind in COMMUTE else [operands]:
        yield from _all(order, node.known, bound)


def _all(patterns: Sequence[Pattern], tensors: Sequence[Tensor], bound: Bound) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for one in _matches(patterns[0], tensors[0], bound):
        yield from _all(patterns[1:], tensors[1:], one)


def one_number(array: np.ndarray | None) -> float | None:
    """The number that an array holds, if it is one."""
    return float(array.ravel()[0]) if array is not None and array.size == 1 else None


def short(number: float) -> float:
    """A number of float32 in as few digits as tell it: 0.1, not 0.10000000149."""
    return float(str(np.float32(number)))


def rows() -> list[tuple[str, str]]:
    """Each operator and what it becomes, those that end what one layer says, and those that are refused."""
    read = [(kind, _first_line(reader)) for kind, reader in sorted(READERS.items())]
    ends: dict[Recogniser, list[str]] = {}
    for kind, recognisers in sorted(RECOGNISERS.items()):
        for one in recognisers:
            ends.setdefault(one, []).append(kind)
    read += sorted((f"several, then {' or '.join(k)}", _first_line(one)) for one, k in ends.items())
    return read + [(kind, f"refused: {why}") for kind, why in sorted(UNREAD.items())]


def _first_line(reader: Callable[..., Any]) -> str:
    """What a reader's docstring says; `python -OO` drops it, then it is read where it stands."""
    text = inspect.getdoc(reader)
    if text is None:
        (function,) = ast.parse(inspect.getsource(inspect.unwrap(reader))).body
        text = ast.get_docstring(function)  # type: ignore[arg-type]
    return (text or "").partition("\n")[0]


def listed() -> list[str]:
    """The table as lines of text."""
    table = rows()
    width = max(len(kind) for kind, _ in table)
    return [f"{kind:<{width}}  {what}" for kind, what in table]
