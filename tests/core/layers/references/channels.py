"""Layers with a number for each channel."""
# ruff: noqa: N802

import numpy as np
from core.layers.references.draws import drawn


def Axpy(layer, scale, x, y):
    scales = scale.reshape(x.shape[:2])
    rows = zip(scales.flat, x.reshape(scales.size, -1), strict=True)
    return np.reshape([a * v for a, row in rows for v in row], x.shape) + y


def along(layer, x, own):
    """The numbers `own` of some axes for each entry of x."""
    axis = layer.axis % x.ndim
    return np.reshape([own[at[axis : axis + own.ndim]] for at in np.ndindex(x.shape)], x.shape)


def Scale(layer, x, *scale):
    own, *bias = (*scale, *layer.params)
    return x * along(layer, x, own) + (along(layer, x, bias[0]) if bias else 0)


def Bias(layer, x, *bias):
    return x + along(layer, x, (*bias, *layer.params)[0])


@drawn("Scale", axes=(1, 4), learned=[False, True], bias_term=[False, True])
@drawn("Bias", axes=(1, 4), learned=[False, True])
def placed_case(random, axes, learned, **keys):
    """A run of x's axes, which begins at an axis that is counted from either end."""
    shape, axis = tuple(random.integers(1, 5, size=axes)), int(random.integers(axes))
    count = int(random.integers(axes - axis + 1))
    keys |= {"axis": axis - axes * int(random.integers(2)), "num_axes": count}
    own = [random.normal(size=shape[axis : axis + count])]
    return keys, [random.normal(size=shape), *own * (not learned)]
