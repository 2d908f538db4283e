"""How the places of one blob lie in another, and the Crop that lays the one upon the other.

A map is (axis, scale, shift): what lies at x in the one, on the axes behind `axis`, lies at scale * x + shift
in the other. Scale and shift are a number or an array of one for each axis, `axis` is None for the identity.

>>> from minicaffe.interop.pycaffe.net_spec import NetSpec, layers as L
>>> n = NetSpec()
>>> n.data = L.Input(shape=dict(dim=[1, 3, 32, 32]))
>>> n.conv = L.Convolution(n.data, num_output=4, kernel_size=4, stride=2, pad=3)
>>> n.up = L.Deconvolution(n.conv, convolution_param=dict(num_output=4, kernel_size=4, stride=2))
>>> n.score = crop(n.up, n.data)
>>> n.score.fn.params
{'crop_param': {'axis': 2, 'offset': [3]}}
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.errors import SpecError
from minicaffe.interop.pycaffe.net_spec import Function, Top, layers

_PASS_THROUGH = """
AbsVal BatchNorm Bias BNLL Clip Dropout ELU Eltwise Exp GELU HardSwish Log LRN MVN Normalize Power PReLU ReLU
ReLU6 Scale Sigmoid Split Swish TanH Threshold
"""
PASS_THROUGH = frozenset(_PASS_THROUGH.split())
Map = tuple[int | None, Any, Any]
IDENTITY: Map = (None, 1, 0)


class UndefinedMapException(SpecError):  # noqa: N818 - Caffe's name
    """A layer has no map of places, as InnerProduct has none."""


class AxisMismatchException(SpecError):  # noqa: N818 - Caffe's name
    """Two maps in a row begin at different axes."""


class CropError(SpecError, AssertionError):
    """One blob cannot be laid upon the other; also an AssertionError, as in Caffe."""


class UnconnectedError(SpecError, RuntimeError):
    """No blob is below both; also a RuntimeError, as in Caffe."""


def conv_params(fn: Function) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(axis, stride, dilated kernel, pad) of a layer with windows. Raises CropError if keys do not tell."""
    home = "pooling_param" if fn.type_name == "Pooling" else "convolution_param"
    params = fn.params.get(home, fn.params)
    single = sorted({f"{k}_{s}" for k in ("kernel", "stride", "pad") for s in "hw"} & set(params))
    if single:
        problem = f"{single[0]} has no map here: give kernel_size, stride, pad"
        raise CropError(f"{fn.type_name}: {problem}")
    if "kernel_size" not in params:
        raise CropError(f"{fn.type_name}: kernel_size must be given for a map")

    def each(key: str, default: int = 0) -> np.ndarray:
        return np.array(params.get(key, default), ndmin=1)

    kernel = (each("kernel_size") - 1) * each("dilation", 1) + 1
    return params.get("axis", 1), each("stride", 1), kernel, each("pad")


def crop_params(fn: Function) -> tuple[int, np.ndarray]:
    """(axis, offset) of a Crop."""
    params = fn.params.get("crop_param", fn.params)
    return params.get("axis", 2), np.array(params.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> Map:
    """The map from a layer's bottom to its top. Raises UndefinedMapException for a layer that has none.

    A window's place is its middle: convolution  (1 / s, (p - (k - 1) / 2) / s),
    deconvolution  (s, (k - 1) / 2 - p),  crop  (1, -offset).
    """
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (kernel - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, stride, (kernel - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH:
        return IDENTITY
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    raise UndefinedMapException(f"{fn.type_name} has no map of places")


def compose(base_map: Map, next_map: Map) -> Map:
    """The map that is `base_map` after `next_map`. Raises AxisMismatchException."""
    (axis, scale, shift), (next_axis, next_scale, next_shift) = base_map, next_map
    if None not in (axis, next_axis) and axis != next_axis:
        raise AxisMismatchException(f"one map begins at axis {axis}, the next at {next_axis}")
    return next_axis if axis is None else axis, scale * next_scale, scale * next_shift + shift


def inverse(coord_map: Map) -> Map:
    """The map of the other direction."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map from one blob to another, by the nearest blob below both. Raises UnconnectedError."""
    below = dict(_below(top_from))
    for top, way in _below(top_to):
        if top in below:
            return compose(way, inverse(below[top]))
    raise UnconnectedError("no map between the tops: are they connected by spatial layers?")


def crop(top_from: Top, top_to: Top) -> Top:
    """A Crop of `top_from` to what `top_to` covers. Raises CropError where it covers no whole pixels of it."""
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    for wrong, problem in (
        (scale != 1, f"scale mismatch on crop (a = {scale})"),
        (shift > 0, f"cannot crop negative offset (b = {shift})"),
        (np.round(shift) != shift, f"cannot crop noninteger offset (b = {shift})"),
    ):
        if np.any(wrong):
            raise CropError(problem)
    offset = [-int(one) for one in np.ravel(shift)]
    first = 2 if axis is None else axis + 1
    return layers.Crop(top_from, top_to, crop_param={"axis": first, "offset": offset})


def _below(top: Top) -> Iterator[tuple[Top, Map]]:
    """A blob and all blobs below it that have a map to it, the nearest first, with the map."""
    seen, waiting = {top}, deque([(top, IDENTITY)])
    while waiting:
        top, way = waiting.popleft()
        yield top, way
        try:
            own = coord_map(top.fn)
        except UndefinedMapException:
            continue
        inputs = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
        for bottom in inputs:  # the second bottom of a Crop only has its size
            if bottom not in seen:
                seen.add(bottom)
                waiting.append((bottom, compose(way, own)))
