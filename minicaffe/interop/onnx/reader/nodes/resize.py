"""Resize and Upsample: images of another size.

The nearest pixel by whole factors is an Upsample, whose pixels become blocks, and bilinear interpolation by
whole factors a Deconvolution. Whatever else is linear in the
image and goes along its rows and its columns apart: a product with a matrix for each of the two, a Convolution
by 1 x 1 whose channels are the rows, and an InnerProduct along the columns. So all modes are exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node
from minicaffe.interop.onnx.reader.nodes.linear import inner_product
from minicaffe.interop.onnx.reader.nodes.window import convolution, deconvolution, window_keys
from minicaffe.interop.onnx.reader.table import RefusedError, reads

HALVES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
LARGEST = 2**24  # entries of a matrix of a resize


@reads("Resize", "Upsample")
def resize(draft: Draft, node: Node) -> Blob:
    """Upsample, Interp, Deconvolution, or two products with the matrices of the mode."""
    x, shape = draft.blob(node.inputs[0]), node.shape
    if len(x.shape) != 4 or shape[:2] != x.shape[:2]:
        if shape == x.shape:
            return x
        raise RefusedError(f"from {x.shape} to {shape} it resizes other axes than an image's two")
    how = _how(node)
    if shape == x.shape:
        return x
    factors = [
        b // a if b % a == 0 and scale == b / a else 0
        for a, b, scale in zip(x.shape[2:], shape[2:], how["scales"], strict=True)
    ]
    matrices = [
        matrix(a, b, how, scale)
        for a, b, scale in zip(x.shape[2:], shape[2:], how["scales"], strict=True)
    ]
    if all(factors) and _are_blocks(matrices, factors):
        keys = (
            {"scale": factors[0]}
            if factors[0] == factors[1]
            else {"scale_h": factors[0], "scale_w": factors[1]}
        )
        return draft.layer("Upsample", x, shape=shape, **keys)
    if how["mode"] == "linear" and how["coordinates"] == "align_corners":
        return draft.layer("Interp", x, shape=shape, height=shape[2], width=shape[3])
    if (
        how["mode"] == "linear"
        and how["coordinates"] in HALVES
        and all(factors)
        and not how["outside"]
    ):
        return bilinear(draft, x, factors)
    return separable(draft, x, *matrices)


def bilinear(draft: Draft, x: Blob, factors: list[int]) -> Blob:
    """x larger by whole factors f, a top pixel o at (o + 1/2) / f - 1/2: its border doubled, a Deconvolution.

    Channel by channel, with a stride f and a triangle for a kernel, of 2 f - f % 2 entries; what the doubled
    border adds around is cut off by the pad.
    """
    n, c, h, w = x.shape
    x = draft.take(x, 2, [0, *range(h), h - 1])
    x = draft.take(x, 3, [0, *range(w), w - 1])
    kernel = [2 * f - f % 2 for f in factors]
    sides = [1 - abs(np.arange(k) - (k - 1) / 2) / f for k, f in zip(kernel, factors, strict=True)]
    weight = np.broadcast_to(sides[0][:, None] * sides[1], (c, 1, *kernel))
    pad = [(k - f) // 2 + f for k, f in zip(kernel, factors, strict=True)]
    keys = window_keys(kernel_size=kernel, stride=factors, pad=pad)
    return deconvolution(draft, x, weight, None, (n, c, h * factors[0], w * factors[1]), c, **keys)


def _how(node: Node) -> dict[str, Any]:
    """The mode, the rule of coordinates, and the scales. Raises RefusedError for what is not read."""
    mode = node.get("mode", "nearest")
    old = node.kind == "Upsample" or node.opset < 11
    rule = "asymmetric" if old else node.get("coordinate_transformation_mode", "half_pixel")
    if rule == "tf_crop_and_resize":
        raise RefusedError("it crops and resizes by regions")
    scales = node.const(1 if old else 2)
    source = node.inputs[0]
    sizes = source.shape if source is not None and source.shape is not None else ()
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        scales = None
    if scales is None or not scales.size:
        ratios = [b / a for a, b in zip(sizes, node.shape, strict=True)]
    else:
        axes = [axis % 4 for axis in node.get("axes", range(4))]
        known = dict(zip(axes, (float(one) for one in scales), strict=True))
        ratios = [known.get(axis, 1.0) for axis in range(4)]
    return {
        "mode": mode,
        "coordinates": rule,
        "scales": ratios[2:],
        "nearest": "floor" if old else node.get("nearest_mode", "round_prefer_floor"),
        "cubic": node.get("cubic_coeff_a", -0.75),
        "outside": bool(node.get("exclude_outside", 0)),
        "antialias": bool(node.get("antialias", 0)),
    }


def matrix(size: int, wanted: int, how: dict[str, Any], scale: float) -> np.ndarray:
    """The matrix (wanted, size) that resizes an axis, as ONNX's Resize defines it."""
    if size * max(size, wanted) > LARGEST:
        raise RefusedError(f"from {size} to {wanted} its matrix would be too large")
    kind = (
        np.float32 if how["mode"] == "nearest" else np.float64
    )  # as runtimes: where two are as near
    places, scale = np.arange(wanted, dtype=kind), kind(scale)
    rule = how["coordinates"]
    if rule == "half_pixel":
        x = (places + kind(0.5)) / scale - kind(0.5)
    elif rule == "half_pixel_symmetric":
        offset = kind(size / 2) * (1 - kind(wanted) / (scale * size))
        x = offset + (places + kind(0.5)) / scale - kind(0.5)
    elif rule == "pytorch_half_pixel":
        x = (places + 0.5) / scale - 0.5 if wanted > 1 else np.zeros(1)
    elif rule == "align_corners":
        if abs(scale * size - wanted) > 1e-3:
            raise RefusedError(
                "with align_corners its scales make no whole sizes, where runtimes differ"
            )
        x = places * ((size - 1) / (wanted - 1)) if wanted > 1 else np.zeros(1)
    elif rule == "asymmetric":
        x = places / scale
    else:
        raise RefusedError(f"its rule of coordinates {rule!r} is not read")
    if how["mode"] == "nearest":
        rounding: dict[str, Any] = {
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        nearest = np.clip(rounding[how["nearest"]](x), 0, size - 1).astype(int)
        return np.eye(size)[nearest]
    if how["antialias"] and scale < 1:
        raise RefusedError(
            "it smooths what it makes smaller (antialias), where runtimes differ at the borders"
        )
    reach = 2 if how["mode"] == "cubic" else 1
    weights = np.zeros((wanted, size))
    for row, place in enumerate(x):
        low = math.floor(place - reach) + 1
        taps = np.arange(low, math.ceil(place + reach))
        share = _kernel(how["mode"], taps - place, how["cubic"])
        if how["outside"]:
            share = np.where((taps >= 0) & (taps < size), share, 0)
            share = share / share.sum()
        np.add.at(weights[row], np.clip(taps, 0, size - 1), share)
    return weights


def _kernel(mode: str, t: np.ndarray, a: float) -> np.ndarray:
    """The share of a pixel at a distance: a triangle, or R. Keys's cubic, 1981."""
    t = np.abs(t)
    if mode == "linear":
        return np.maximum(1 - t, 0)
    if mode != "cubic":
        raise RefusedError(f"its mode {mode!r} is not read")
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _are_blocks(matrices: list[np.ndarray], factors: list[int]) -> bool:
    """Whether each pixel becomes a block of equal ones."""
    return all(
        np.array_equal(one, np.repeat(np.eye(one.shape[1]), factor, axis=0))
        for one, factor in zip(matrices, factors, strict=True)
    )


def separable(draft: Draft, x: Blob, rows: np.ndarray, columns: np.ndarray) -> Blob:
    """rows x columns', for the image of each channel."""
    n, c, h, w = x.shape
    if not np.array_equal(rows, np.eye(h)):
        flat = draft.reshape(x, (n * c, h, w, 1))
        weight = rows.reshape(*rows.shape, 1, 1)
        y = convolution(draft, flat, weight, None, (n * c, len(rows), w, 1), kernel_size=1)
        x = draft.reshape(y, (n, c, len(rows), w))
    if not np.array_equal(columns, np.eye(w)):
        x = inner_product(draft, x, columns, None, (*x.shape[:3], len(columns)))
    return x
