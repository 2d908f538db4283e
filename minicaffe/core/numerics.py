"""How a net computes its numbers: their type and precision, and the engines of its convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minicaffe.core.ops.conv import CAP, check_name


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """How a net computes its numbers: an argument of Net, Solver and Classifier, as one or field by field.

    `dtype`, by default the model's, is float32, float64, on CUDA float16 or bfloat16; `precision` likewise
    highest, on CUDA tf32 (docs/concepts.md). `engine` is the engine of convolutions whose own `engine` is
    auto, with at most `workspace_cap` bytes of workspace; with `deterministic`, auto follows a fixed rule and
    measures nothing. Raises SpecError for an unknown engine.

    >>> from minicaffe import Net
    >>> Net("lenet", "TEST", device="cpu", shapes_only=True, numerics=Numerics(dtype="float64")).context.dtype
    dtype('float64')
    >>> Net("lenet", "TEST", device="cpu", shapes_only=True, dtype="float64").context.dtype
    dtype('float64')
    """

    dtype: Any = None
    precision: str | None = None
    engine: str = "auto"
    workspace_cap: int = CAP
    deterministic: bool = False

    def __post_init__(self) -> None:
        check_name(self.engine)
