"""Layers of other Caffes in those of BVLC's Caffe 1.0, exactly; what has no such form is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from minicaffe.bridges.draft import Blob, Draft, Layer

TARGETS = ("caffe",)
Lower = Callable[[Draft, Layer], Blob]
LOWERS: dict[str, Lower] = {}
INSTEAD = {
    "Permute": "a Reshape moves axes of 1; ShuffleChannel and others become products by ones and zeros",
    "GELU": "approximate: tanh is TanH, Power and a product",
}


def lower(draft: Draft, outputs: Mapping[str, Blob], target: str, path: Path) -> None:
    """Replace layers by what the target takes. Raises SpecError for the first that it cannot say."""
    return None
