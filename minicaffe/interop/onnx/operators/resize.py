"""Resize and Upsample: images of another size.

The nearest pixel by whole factors is an Upsample, whose pixels become blocks, and bilinear interpolation by
whole factors a Deconvolution. Whatever else is linear in the
image and goes along its rows and its columns apart: a product with a matrix for each of the two, a Convolution
by 1 x 1 whose channels are the rows, and an InnerProduct along the columns. So all modes are exact.
"""

import math
from typing import Any

import numpy as np

from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Layer, Node
from minicaffe.interop.onnx.operators.weighted import inner_product, matrix_times, window_keys
from minicaffe.interop.onnx.table import RefusedError, draws, lowers, reads, writes
from minicaffe.interop.onnx.writer.model import END, Graph, Written

HALVES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
LARGEST = 2**24  # entries of a matrix of a resize


@reads("Resize", "Upsample")
def read_resize(draft: Draft, node: Node, x: Blob) -> Blob:
    """Upsample, Interp, Deconvolution, or two products with the matrices of the mode."""
    shape = node.shape
    if len(x.shape) != 4 or shape[:2] != x.shape[:2]:
        if shape == x.shape:
            return x
        raise RefusedError(f"from {x.shape} to {shape} it resizes other axes than an image's two")
    how = _how(node, x)
    if shape == x.shape:
        return x
    sides = list(zip(x.shape[2:], shape[2:], how["scales"], strict=True))
    factors = [b // a if b % a == 0 and scale == b / a else 0 for a, b, scale in sides]
    matrices = [matrix(a, b, how, scale) for a, b, scale in sides]
    blocks = [np.repeat(np.eye(a), k, axis=0) for (a, *_), k in zip(sides, factors, strict=True)]
    if all(factors) and all(map(np.array_equal, matrices, blocks)):
        keys = dict(zip(("scale_h", "scale_w"), factors, strict=True))
        keys = keys if factors[0] != factors[1] else {"scale": factors[0]}
        return draft.layer("Upsample", x, shape=shape, **keys)
    linear, rule = how["mode"] == "linear", how["coordinates"]
    if linear and rule == "align_corners":
        return draft.layer("Interp", x, shape=shape, height=shape[2], width=shape[3])
    if linear and rule in HALVES and all(factors) and not how["outside"]:
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
    return draft.weighted(
        "Deconvolution", x, weight, (n, c, h * factors[0], w * factors[1]), group=c, **keys
    )


def _how(node: Node, x: Blob) -> dict[str, Any]:
    """The mode, the rule of coordinates, and the scales. Raises RefusedError for what is not read."""
    old = node.kind == "Upsample" or node.opset < 11
    rule = "asymmetric" if old else node.get("coordinate_transformation_mode", "half_pixel")
    if rule == "tf_crop_and_resize":
        raise RefusedError("it crops and resizes by regions")
    scales = node.const(1 if old else 2)
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        scales = None
    if scales is None or not scales.size:
        ratios = [b / a for a, b in zip(x.shape, node.shape, strict=True)]
    else:
        axes = [axis % 4 for axis in node.get("axes", range(4))]
        known = dict(zip(axes, (float(one) for one in scales), strict=True))
        ratios = [known.get(axis, 1.0) for axis in range(4)]
    return {
        "mode": node.get("mode", "nearest"),
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
    # of the nearest as runtimes have it, where two are as near
    kind = np.float32 if how["mode"] == "nearest" else np.float64
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
        return np.eye(size)[np.clip(rounding[how["nearest"]](x), 0, size - 1).astype(int)]
    if how["antialias"] and scale < 1:
        raise RefusedError(
            "it smooths what it makes smaller (antialias), where runtimes differ at the borders"
        )
    reach = 2 if how["mode"] == "cubic" else 1
    weights = np.zeros((wanted, size))
    for row, place in enumerate(x):
        taps = np.arange(math.floor(place - reach) + 1, math.ceil(place + reach))
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


def separable(draft: Draft, x: Blob, rows: np.ndarray, columns: np.ndarray) -> Blob:
    """rows x columns', for the image of each channel."""
    h, w = x.shape[2:]
    if not np.array_equal(rows, np.eye(h)):
        x = matrix_times(draft, rows, x)
    if not np.array_equal(columns, np.eye(w)):
        x = inner_product(draft, x, columns, (*x.shape[:3], len(columns)))
    return x


@writes("Interp", "BilinearInterpolation")
def write_interp(graph: Graph, step: Written, x: str, like: str | None = None) -> str:
    """Resize with aligned corners, the layers' rule; what negative pads cut off is cut off before."""
    layer, top = step.layer, step.tops[0]
    if layer.pad_beg or layer.pad_end:
        x = graph.op("Slice", x, [-layer.pad_beg] * 2, [layer.pad_end or END] * 2, [2, 3])
    if not graph.varies(top):
        size = graph.const(top.shape)
    else:
        before = graph.op("Shape", x, end=2)
        if not graph.varies(top, 2, 3):
            image = graph.const(top.shape[2:])
        elif like is not None:
            image = graph.op("Shape", like, start=2)
        elif step.spec.type == "BilinearInterpolation":
            image = graph.op("Mul", graph.op("Shape", x, start=2), layer.interpolation_factor)
        else:
            steps = graph.op("Sub", graph.op("Shape", x, start=2), 1)
            steps = graph.op("Div", steps, layer.shrink_factor or 1)
            image = graph.op("Add", graph.op("Mul", steps, layer.zoom_factor or 1), 1)
        size = graph.op("Concat", before, image, axis=0)
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return graph.op("Resize", x, None, None, size, **how)


@writes("Upsample")
def write_upsample(graph: Graph, step: Written, x: str, mask: str | None = None) -> str:
    """Resize to the nearest pixel; with a mask, pixels are scattered over their plane and a place behind it.

    -1 in a mask means that place, which is cut off. Where pixels are sent to one place the standard leaves
    open which is there; onnxruntime on the CPU takes the last, as Caffe does.
    """
    if mask is None:
        how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        scales = np.array((1, 1, *step.layer.scales), np.float32)
        return graph.op("Resize", x, None, scales, nearest_mode="floor", **how)
    shapes, lead = graph.shapes(step.bottoms[0]), graph.op("Shape", x, end=2)
    image = _scaled(graph, step, x)
    flat = [(*shape[:2], math.prod(shape[2:])) for shape in shapes]
    values, places = (graph.reshape(part, shapes, flat) for part in (x, mask))
    places = graph.op("Cast", places, to=7)
    pixels = graph.op("ReduceProd", image, axes=[0])
    plane = graph.op("Concat", lead, graph.op("Add", pixels, [1]), axis=0)
    y = graph.op("ScatterElements", graph.op("Expand", 0.0, plane), places, values, axis=2)
    y = graph.op("Slice", y, [0], [-1], [2])
    return graph.op("Reshape", y, graph.op("Concat", lead, image, axis=0))


def _scaled(graph: Graph, step: Written, x: str) -> str:
    """Rows and columns of the top: those of x times the scales, less what pad_out takes off."""
    if not graph.varies(step.tops[0], 2, 3):
        return graph.const(step.tops[0].shape[2:])
    size = graph.op("Mul", graph.op("Shape", x, start=2), list(step.layer.scales))
    return graph.op("Sub", size, [int(step.layer.pad_out_h), int(step.layer.pad_out_w)])


@draws("Upsample", 1)
def drawn_mask(random: Any, step: Written, shape: tuple[int, ...]) -> Any:
    """Places of the top, none of a plane twice if there are enough."""
    n, c, h, w = shape
    pixels = math.prod(step.layer.y_shape[2:])
    planes = [random.permutation(max(pixels, h * w))[: h * w] % pixels for _ in range(n * c)]
    return np.reshape(planes, shape)


@writes("ImResize")
def write_im_resize(graph: Graph, step: Written, x: str) -> str:
    """The mean over the maps of their products with constant matrices."""
    if graph.varies(step.bottoms[0]):
        raise SpecError("its matrices fit one number and one size of maps")
    rows, columns = step.layer.matrices()
    y = graph.op("MatMul", graph.op("MatMul", graph.const(rows), x), graph.const(columns))
    return graph.op("ReduceMean", y, axes=[0], keepdims=1)


@writes("MaskResize")
def write_mask_resize(graph: Graph, step: Written, x: str) -> str:
    """Two products, with the weights of rows and of columns."""
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError("with a dynamic height or width its weights would not be known")
    rows, columns = (graph.const(one.astype(np.float32)) for one in step.layer.weights())
    y = graph.op("MatMul", rows, x)
    return graph.op("MatMul", y, graph.op("Transpose", columns, perm=(1, 0)))


@lowers("Interp")
def lower_interp(draft: Draft, layer: Layer) -> Blob:
    """Two products with the matrices of its weights: a Convolution and an InnerProduct."""
    x, shape = layer.bottoms[0], layer.tops[0].shape
    how = {"mode": "linear", "coordinates": "align_corners", "cubic": 0.0, "outside": False}
    how["antialias"] = False
    matrices = [matrix(a, b, how, b / a) for a, b in zip(x.shape[2:], shape[2:], strict=True)]
    return separable(draft, x, *matrices)
