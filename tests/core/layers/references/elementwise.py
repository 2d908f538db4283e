"""Activations that Caffe does not have, number by number."""
# ruff: noqa: N802

import math

import numpy as np


def GELU(layer, x):
    inner = (math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)) for v in x.flat)
    if layer.approximate == "none":
        inner = (math.erf(v / math.sqrt(2)) for v in x.flat)
    return x * (1 + np.reshape(list(inner), x.shape)) / 2


def HardSwish(layer, x):
    return np.reshape([v * min(max(v + 3, 0), 6) / 6 for v in x.flat], x.shape)


def ReLU6(layer, x):
    return np.reshape([min(max(v, 0), 6) for v in x.flat], x.shape)
