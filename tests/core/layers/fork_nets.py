"""Nets of one layer of a fork, for tests that compare it with loops."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

from minicaffe import Net
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.interop import caffe
from minicaffe.interop.caffe.prototxt import prototxt


def cases(count):
    """A property test whose cases are the same in each run."""
    return settings(max_examples=count, derandomize=True, database=None)


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


def there_and_back(text):
    """The options of a prototxt's last layer, the same after it has been written and read again."""
    spec = caffe.parse(text, "net.prototxt")
    written = prototxt(spec, REGISTRY)
    assert "minicaffe_param" not in written
    first, again = (
        {
            name: one.options.get(name, key.default)
            for name, key in keys_of(REGISTRY[one.type]).items()
        }
        for one in (spec.layers[-1], caffe.parse(written).layers[-1])
    )
    assert first == again
    return first, written
