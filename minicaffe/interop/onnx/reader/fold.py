"""BatchNorm, Scale, Bias and Power of a draft multiplied into the product before them (export/folding.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from minicaffe.interop.chips.naming import living
from minicaffe.interop.onnx.draft import Blob, Draft, Layer
from minicaffe.tools.folding import WEIGHTED, by_outputs, factor_and_term, multiplied


@np.errstate(all="ignore")  # of numbers that are not finite the comparison tells
def fold(draft: Draft, outputs: Mapping[str, Blob]) -> int:
    """Fold what can be, until nothing more can; returns how many layers are gone.

    A layer is folded whose bottom nothing else reads.
    """
    count = 0
    while _fold_one(living(draft, outputs), outputs):
        count += 1
    return count


def _fold_one(layers: Sequence[Layer], outputs: Mapping[str, Blob]) -> bool:
    """Fold the first layer that can be; returns False if there is none."""
    readers = Counter(blob for layer in layers for blob in layer.bottoms)
    readers.update(outputs.values())
    for layer in layers:
        made = layer.bottoms[0].layer if len(layer.bottoms) == 1 else None
        if made is None or made.type not in WEIGHTED or readers[layer.bottoms[0]] > 1:
            continue
        rank = len(layer.bottoms[0].shape)
        numbers = factor_and_term(layer.type, layer.keys.get, layer.arrays, rank)
        if numbers is None or not _fits(made, *numbers):
            continue
        old = made.arrays[1] if len(made.arrays) > 1 else None
        group = made.keys.get("group", 1)
        weight, bias = multiplied(made.type, made.arrays[0], old, *numbers, group)
        made.arrays = [weight]
        if bias.any() or "bias_term" not in made.keys:
            made.arrays.append(bias)
            made.keys.pop("bias_term", None)
        made.tops[0], made.origin = layer.tops[0], layer.origin
        made.tops[0].layer = made
        return True
    return False


def _fits(made: Layer, factor: np.ndarray, term: np.ndarray) -> bool:
    """True if numbers of channels are those of a layer's outputs."""
    count, rank = made.keys["num_output"], len(made.tops[0].shape)
    if any(bias.shape != (count,) for bias in made.arrays[1:]):
        return False  # of a damaged model: it is refused when the net is made
    sizes = {factor.size, term.size}
    return sizes <= {1} or (sizes <= {1, count} and by_outputs(made.type, 1, rank))
