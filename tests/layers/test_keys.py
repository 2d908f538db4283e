"""No key of a layer is ignored: given another value, some row gives other numbers, other shapes or an error."""

from __future__ import annotations

import typing
from types import NoneType

import numpy as np
import pytest
from layers.rows import ROWS

from minicaffe import MinicaffeError, Net, parse
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import Filler
from minicaffe.spec.types import Key, keys_of

WITHOUT_EFFECT = {  # they say how, not what, is computed
    ("Convolution", "engine"),
    ("Convolution", "force_nd_im2col"),
    ("Deconvolution", "engine"),
    ("Deconvolution", "force_nd_im2col"),
    ("Eltwise", "stable_prod_grad"),
    ("Im2col", "force_nd_im2col"),
    ("Python", "share_in_parallel"),
}
REFUSED = {  # in the rows any other value is refused: it wants other keys, bottoms or files
    ("InfogainLoss", "normalize"),
    ("InfogainLoss", "source"),
    ("LSTM", "debug_info"),
    ("LSTM", "expose_hidden"),
    ("Pooling", "global_pooling"),
    ("Python", "layer"),
    ("Python", "module"),
    ("RNN", "debug_info"),
    ("RNN", "expose_hidden"),
}
IMAGE, PLANE = (2, 3, 5, 5), [(2, 3, 4)]
SIZE = {"upsample_h": 4, "upsample_w": 4}
GAIN = np.arange(9.0).reshape(3, 3) + 1
MORE = {  # what the rows do not hold: (keys, the key's other value, bottoms)
    ("Concat", "axis"): ({"axis": 1}, 2, PLANE * 2),
    ("Eltwise", "coeff"): ({}, [2, 0.5], PLANE * 2),
    ("Embed", "input_dim"): ({"num_output": 2, "input_dim": 4}, 5, [np.array([0, 1])]),
    ("InfogainLoss", "axis"): ({"axis": 1}, 2, [(2, 3, 3), np.ones((2, 3)), GAIN]),
    ("Pooling", "kernel_h"): ({"kernel_h": 2, "kernel_w": 2}, 3, [IMAGE]),
    ("Pooling", "kernel_w"): ({"kernel_h": 2, "kernel_w": 2}, 3, [IMAGE]),
    ("Pooling", "stride_h"): ({"kernel_size": 2, "stride_h": 1, "stride_w": 1}, 2, [IMAGE]),
    ("Pooling", "stride_w"): ({"kernel_size": 2, "stride_h": 1, "stride_w": 1}, 2, [IMAGE]),
    ("Reshape", "shape"): ({"shape": {"dim": [2, 12]}}, {"dim": [3, 8]}, PLANE),
    ("Upsample", "pad_out_h"): ({"scale": 2}, True, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("Upsample", "upsample_h"): (SIZE, 5, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("Upsample", "upsample_w"): (SIZE, 5, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("SoftmaxWithLoss", "axis"): ({"axis": 1}, 2, [(2, 3, 3), np.ones((2, 3))]),
}
KEYS = [
    (name, key)
    for name in ROWS
    for key in keys_of(REGISTRY[name]).values()
    if (name, key.name) not in WITHOUT_EFFECT
]


def others(key: Key) -> list[object]:
    """Values for a key that are not its default."""
    kinds = [one for one in typing.get_args(key.type) or (key.type,) if one is not NoneType]
    words = [one for one in (key.type, *kinds) if typing.get_origin(one) is typing.Literal]
    if words:
        found = list(typing.get_args(words[0]))
    elif typing.get_origin(key.type) is tuple:
        found = [] if kinds[0] not in (int, float, bool) else [kinds[0](n) for n in (1, 2, 3)]
    elif bool in kinds:
        found = [True, False]
    elif int in kinds:
        found = [1, 2, 3, 0, -1]
    elif float in kinds:
        found = [0.25, 2.0, -0.5, 1.5]
    elif Filler in kinds:
        found = [{"type": "constant", "value": 0.7}, {"type": "constant", "value": 0.2}]
    else:
        found = ["no such", "0.5"]
    return [one for one in found if one != key.default]


def outcome(name, keys, bottoms, phase):
    """All numbers of a pass, or the error."""
    tops = list(keys.get("top", ["it"]))
    shapes = [{"dim": list(one if isinstance(one, tuple) else np.shape(one))} for one in bottoms]
    data = {"name": "data", "type": "Input", "top": [f"b{i}" for i in range(len(bottoms))]}
    it = {**keys, "name": "it", "type": name, "bottom": data["top"], "top": tops}
    random = np.random.default_rng(5)
    given = {
        f"b{i}": random.normal(size=one) if isinstance(one, tuple) else np.asarray(one)
        for i, one in enumerate(bottoms)
    }
    try:
        model = {"force_backward": True, "layers": [{**data, "shape": shapes}, it]}
        net = Net(parse(model), phase, device="cpu", dtype="float64")
        layer = net.layers["it"]
        for _ in range(2):  # the second from what the first left behind
            net.forward(**given)
        flows = [i for i in range(len(bottoms)) if i not in layer.label_bottoms]
        if flows or any(param.learns for param in layer.params):
            net.backward(**{top: random.normal(size=net.blobs[top].shape) for top in tops})
        arrays = [net.blobs[top].data for top in tops]
        arrays += [net.blobs[f"b{i}"].diff for i in flows]
        arrays += [one for param in layer.params for one in (param.data, param.diff)]
        return [(array.shape, array.tobytes()) for array in map(np.asarray, arrays)]
    except MinicaffeError as error:
        return str(error)


@pytest.mark.parametrize("name, key", [pytest.param(n, k, id=f"{n}-{k.name}") for n, k in KEYS])
def test_a_key_matters(name, key):
    if (name, key.name) in MORE:
        keys, value, bottoms = MORE[name, key.name]
        usual = outcome(name, keys, bottoms, "TRAIN")
        got = outcome(name, {**keys, key.name: value}, bottoms, "TRAIN")
        assert not isinstance(usual, str), usual
        assert not isinstance(got, str) and got != usual, got
        return
    refused = (name, key.name) in REFUSED
    for keys, bottoms in ROWS[name]:
        for phase in ("TRAIN", "TEST"):
            usual = outcome(name, keys, bottoms, phase)
            for value in others(key):
                if keys.get(key.name) != value:
                    got = outcome(name, {**keys, key.name: value}, bottoms, phase)
                    if isinstance(got, str) == refused and got != usual:
                        return
    raise AssertionError(f"{name}: {key.name}: nothing changed with any of {others(key)}")
