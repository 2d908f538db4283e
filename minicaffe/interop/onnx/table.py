"""The table of operators: how each layer is said in ONNX, each operator in layers, and why some are not."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

from minicaffe.errors import CheckpointError, SpecError, pip_install

Function = Callable[..., Any]
WRITERS: dict[str, Function] = {}  # by the type of layers
REFUSED: dict[str, str] = {}  # why a net with such a layer cannot be written
DRAWN: dict[tuple[str, int], Function] = {}  # what a bottom must hold for the layer to run
JUMPS: set[str] = set()  # whose tops may leap where a bottom changes by a rounding error
READERS: dict[str, Function] = {}  # by the kind of operators
LOOKS_BACK = set[str]()  # operators whose readers are asked although no blob holds an input
UNREAD: dict[str, str] = {}  # why a model with such an operator cannot become a net
LOWERS: dict[str, Function] = {}  # by the type of layers


class RefusedError(Exception):
    """A node cannot be said in Caffe's layers; the text says why, and what could be done."""


def writes(*types: str, jumps: bool = False) -> Callable[[Function], Function]:
    """Make a function the writer of layers of these types.

    It is called with the graph, the step and the names of the step's bottoms, and returns the name of its
    top, or those of its tops; it raises SpecError for keys that cannot be said. `jumps`: a rounding error in
    a bottom may become a difference of any size in a top. A writer of one's own may stand in for ours.
    """

    def register(writer: Function) -> Function:
        ours = writer.__module__.startswith("minicaffe.")
        assert not (ours and WRITERS.keys() & set(types)), "a type has one writer"
        WRITERS.update(dict.fromkeys(types, writer))
        JUMPS.update(types if jumps else ())
        return writer

    return register


def writer_of(kind: str) -> Function:
    """Returns the writer of a type of layers. Raises SpecError, with the reason, where there is none."""
    if kind not in WRITERS:
        why = REFUSED.get(
            kind, "a layer of one's own needs a writer, see minicaffe.interop.onnx.writer.writes"
        )
        raise SpecError(f"cannot be exported to ONNX: {why}")
    return WRITERS[kind]


def draws(kind: str, bottom: int) -> Callable[[Function], Function]:
    """Register `f(random, step, shape)`: numbers fit for a bottom, counted from the last if below 0."""
    return partial(_put, DRAWN, [(kind, bottom)])


def draws_below(most: Callable[[Any], int], *bottoms: tuple[str, int]) -> None:
    """Have whole numbers from 0 to below `most`, of the step, drawn for bottoms of these types of layers."""
    for kind, bottom in bottoms:
        DRAWN[kind, bottom] = lambda random, step, shape: random.integers(most(step), size=shape)


def says(kind: str, operator: str, **attributes: Callable[[Any], Any]) -> None:
    """Have layers of a type written as one operator, of the bottoms, with attributes of the step."""

    def write(graph: Any, step: Any, *xs: str) -> Any:
        return graph.op(operator, *xs, **{key: of(step) for key, of in attributes.items()})

    writes(kind)(write)


def reads(*kinds: str, looks_back: bool = False) -> Callable[[Function], Function]:
    """Make a function the reader of operators of these kinds.

    It is called with the draft of the net, the node, and blobs of as many first inputs as it has parameters
    behind these; it returns the blob of the node's output, or a list of blobs, and raises RefusedError for
    attributes that no layer has. One that `looks_back` is also called if an input is refused, for it reads
    what computes that. The first line of its docstring stands in the list of operators.
    """

    def register(reader: Function) -> Function:
        assert not READERS.keys() & set(kinds), "an operator has one reader"
        count = len(inspect.signature(reader).parameters) - 2

        @wraps(reader)
        def of_blobs(draft: Any, node: Any) -> Any:
            return reader(draft, node, *(draft.blob(node.input(i)) for i in range(count)))

        READERS.update(dict.fromkeys(kinds, of_blobs if count else reader))
        LOOKS_BACK.update(kinds if looks_back else ())
        return reader

    return register


def read_as(kinds: str, text: str, reader: Function) -> None:
    """Make a short function the reader of operators of these kinds; `text` stands in the list of operators."""
    reader.__doc__ = text
    reads(*kinds.split())(reader)


def lowers(*types: str) -> Callable[[Function], Function]:
    """Make a function of the draft and a layer the plainer form of these types, for other targets."""
    return partial(_put, LOWERS, types)


def _put(table: dict[Any, Function], keys: Iterable[Any], function: Function) -> Function:
    table.update(dict.fromkeys(keys, function))
    return function


def packages() -> tuple[Any, Any]:
    """onnx and onnxruntime. Raises CheckpointError where one is missing."""
    try:
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnxruntime
    except ImportError as error:
        package = (error.name or "onnx").partition(".")[0]
        need = f"needs the package {package}: {pip_install('onnx')}"
        raise CheckpointError(f"an .onnx file {need}") from None
    return onnx, onnxruntime
