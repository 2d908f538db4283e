"""BatchNorm, Scale, Bias and Power multiplied into the convolution or product before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from minicaffe.interop.chips.naming import living
from minicaffe.interop.onnx.reader.draft import Blob, Draft, Layer
from minicaffe.tools.folding import WEIGHTED, multiplied


@np.errstate(all="ignore")  # of numbers that are not finite the comparison tells
def fold(draft: Draft, outputs: Mapping[str, Blob]) -> int:
    """Fold what can be, until nothing more can; returns how many layers are gone.

    y = a (W x + b) + c becomes y = (a W) x + (a b + c), computed in float64. A layer is folded whose bottom
    nothing else reads.
    """
    count = 0
    while True:
        layers = living(draft, outputs)
        readers = Counter(blob for layer in layers for blob in layer.bottoms)
        readers.update(outputs.values())
        for layer in layers:
            numbers = _numbers(layer)
            made = layer.bottoms[0].layer if layer.bottoms else None
            if numbers is None or made is None or made.type not in WEIGHTED:
                continue
            if readers[layer.bottoms[0]] > 1 or not _fits(made, *numbers):
                continue
            _into(made, *numbers)
            made.tops[0] = layer.tops[0]
            made.tops[0].layer = made
            made.origin = layer.origin
            count += 1
            break
        else:
            return count


def _numbers(layer: Layer) -> tuple[np.ndarray, np.ndarray] | None:
    """(factor, term), one a channel or one for all, of a layer that multiplies and adds; else None."""
    arrays = [array.astype(np.float64) for array in layer.arrays]
    if layer.type == "Power" and layer.keys.get("power", 1.0) == 1.0:
        one = np.float64(layer.keys.get("scale", 1.0)), np.float64(layer.keys.get("shift", 0.0))
        return np.asarray(one[0]), np.asarray(one[1])
    if len(layer.bottoms) != 1 or layer.keys.get("axis", 1) != 1:
        return None
    if layer.type == "BatchNorm":
        mean, variance, total = arrays[:3]
        factor = 1 / np.sqrt(variance / total + layer.keys.get("eps", 1e-5))
        return factor, -mean / total * factor
    if layer.type == "Scale" and arrays[0].ndim == 1:
        return arrays[0], arrays[1] if len(arrays) > 1 else np.zeros(1)
    if layer.type == "Bias" and arrays[0].ndim == 1:
        return np.ones(1), arrays[0]
    return None


def _fits(made: Layer, factor: np.ndarray, term: np.ndarray) -> bool:
    """Whether numbers of channels are those of a layer's outputs."""
    count = made.keys["num_output"]
    if any(bias.shape != (count,) for bias in made.arrays[1:]):
        return False  # of a damaged model: it is refused when the net is made
    alone = made.type == "InnerProduct" and len(made.tops[0].shape) != 2
    if alone and max(factor.size, term.size) > 1:
        return False  # its outputs are the last axis, the numbers are of axis 1
    return factor.size in (1, count) and term.size in (1, count)


def _into(made: Layer, factor: np.ndarray, term: np.ndarray) -> None:
    old = made.arrays[1] if len(made.arrays) > 1 else None
    weight, bias = multiplied(
        made.type, made.arrays[0], old, factor, term, made.keys.get("group", 1)
    )
    made.arrays = [weight]
    if bias.any() or "bias_term" not in made.keys:
        made.arrays.append(bias)
        made.keys.pop("bias_term", None)
