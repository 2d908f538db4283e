"""Nets of one layer of a fork."""

import numpy as np

from minicaffe import Net


def build(kind, keys, shapes, device="cpu", dtype="float64", tops=("it",), phase="TEST", more=()):
    """A net of one layer `it`, whose bottoms are b0, b1, ..., and perhaps more layers behind it."""
    names = [f"b{i}" for i in range(len(shapes))]
    dims = [{"dim": list(shape)} for shape in shapes]
    data = {"name": "data", "type": "Input", "top": names, "shape": dims}
    it = {"name": "it", "type": kind, "bottom": names, "top": list(tops), **keys}
    layers = [*([data] if shapes else []), it, *more]
    return Net({"force_backward": True, "layers": layers}, phase, device=device, dtype=dtype)


def run(net, *arrays):
    """The tops, on the host."""
    found = net.forward(**{f"b{i}": array for i, array in enumerate(arrays)})
    return [np.array(net.device.to_host(array)) for array in found.values()]
