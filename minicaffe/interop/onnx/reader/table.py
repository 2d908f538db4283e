"""Which operators of ONNX are read, and into what: a reader for each, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reader = Callable[..., Any]
READERS: dict[str, Reader] = {}
LOOKS_BACK = set[str]()  # operators whose readers are asked although no blob holds an input
REFUSED: dict[str, str] = {}  # why a model with such an operator cannot become a net


class RefusedError(Exception):
    """A node cannot be said in Caffe's layers; the text says why, and what could be done."""


def reads(*kinds: str, looks_back: bool = False) -> Callable[[Reader], Reader]:
    """Make a function the reader of operators of these kinds.

    It is called with the draft of the net and the node, and returns the blob of the node's output, or a list
    of blobs; it raises RefusedError for attributes that no layer has. One that `looks_back` is also called if
    an input is refused, for it reads what computes that. The first line of its docstring stands in the table
    of operators.
    """

    def register(reader: Reader) -> Reader:
        assert not READERS.keys() & set(kinds), "an operator has one reader"
        READERS.update(dict.fromkeys(kinds, reader))
        LOOKS_BACK.update(kinds if looks_back else ())
        return reader

    return register


def refuses(why: str, *kinds: str) -> None:
    """Have operators of these kinds refused for a reason."""
    REFUSED.update(dict.fromkeys(kinds, why))


refuses(
    "Caffe has no product of two blobs: attention cannot be said in its layers",
    "Attention",
    "Einsum",
)
refuses("a net of Caffe's is the same for all inputs: unroll it before the export", "Loop")
refuses(
    "a blob is a tensor",
    *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
    *("SequenceLength", "SequenceMap", "SplitToSequence", "ConcatFromSequence", "Optional"),
    "OptionalGetElement",
)
refuses(
    "it is a quantised model: export the float32 one, and see `minicaffe calibrate`",
    *(
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "QLinearMatMul",
    ),
    *("ConvInteger", "MatMulInteger"),
)
refuses("a Caffe net has no GRU; an LSTM is read", "GRU")
refuses("its size depends on the numbers, a blob's does not", "NonZero", "Compress", "Unique")
refuses("text is no blob", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer")
refuses(
    "random numbers in inference have no layer",
    *("RandomNormal", "RandomUniform", "Multinomial", "RandomNormalLike", "RandomUniformLike"),
    "Bernoulli",
)
refuses(
    "no layer takes a window's norm: say it as Mul, AveragePool, Mul, Sqrt",
    "LpPool",
    "GlobalLpPool",
)
