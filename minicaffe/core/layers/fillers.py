"""Caffe's fillers, which set the first values of parameters, drawn on the host from (seed, layer, index)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.random import uniform
from minicaffe.core.ops.sums import rows
from minicaffe.errors import ShapeError

XAVIER = Filler(type="xavier")  # how weights start unless the model says otherwise
ZERO = Filler(type="constant")  # and biases
ONE = Filler(type="constant", value=1.0)  # and scales
PIECE = 2**18  # entries that are drawn at a time


def fill_parts(
    filler: Filler, shape: Shape, random: np.random.Generator
) -> Iterator[tuple[Any, np.ndarray]]:
    """The numbers of `fill` as (rows, numbers): a few rows at a time if entries are drawn independently.

    >>> [(rows, part.shape) for rows, part in fill_parts(XAVIER, (3, 2**17), np.random.default_rng(0))]
    [(slice(0, 2, None), (2, 131072)), (slice(2, 3, None), (1, 131072))]
    """
    draw = None if filler.sparse >= 0 else _drawn(filler, shape, random)
    if draw is None or math.prod(shape) <= PIECE:
        yield ..., fill(filler, shape, random)
        return
    rows = max(1, PIECE // math.prod(shape[1:]))
    for first in range(0, shape[0], rows):
        here = slice(first, min(first + rows, shape[0]))
        yield here, draw((here.stop - first, *shape[1:]))


def fill(filler: Filler, shape: Shape, random: np.random.Generator) -> np.ndarray:
    """A float64 array of `shape`. fan_in = size / shape[0], fan_out = size / shape[1].

    constant: value. uniform: U(min, max). gaussian: N(mean, std^2), with `sparse` an entry is kept with
    probability sparse / shape[0]. xavier: U(-a, a), a = sqrt(3 / n). msra: N(0, 2 / n). n = fan_in, fan_out or
    their average, by variance_norm. positive_unitball: U(0, 1), each output divided by its sum. bilinear: see
    `bilinear`. Source: Caffe's filler.hpp; Glorot and Bengio 2010 (xavier); He et al. 2015 (msra).

    >>> fill(Filler(type="constant", value=3.0), (2,), np.random.default_rng(0))
    array([3., 3.])
    """
    if not shape:  # a single number, as a blob of one entry
        return fill(filler, (1,), random).reshape(())
    if draw := _drawn(filler, shape, random):
        values = draw(shape)
        if filler.type == "gaussian" and filler.sparse >= 0:
            values *= random.random(shape) < filler.sparse / shape[0]
        return values
    match filler.type:
        case "constant":
            return np.full(shape, filler.value)
        case "positive_unitball":
            values = random.random(shape)
            sums = values.reshape(shape[0], -1).sum(axis=1)
            return values / sums.reshape(-1, *[1] * (len(shape) - 1))
        case _:
            return bilinear(shape)


def _drawn(filler: Filler, shape: Shape, random: np.random.Generator) -> Callable[..., Any] | None:
    """A function that draws independent entries for a parameter of a shape; None for another filler."""
    n = fan(filler, shape)
    match filler.type:
        case "uniform":
            return functools.partial(random.uniform, filler.min, filler.max)
        case "gaussian":
            return functools.partial(random.normal, filler.mean, filler.std)
        case "xavier":
            return functools.partial(random.uniform, -math.sqrt(3 / n), math.sqrt(3 / n))
        case "msra":
            return functools.partial(random.normal, 0, math.sqrt(2 / n))
    return None


def fan(filler: Filler, shape: Shape) -> float:
    """The divisor of a variance: fan_in, fan_out or their average, at least 1."""
    size = math.prod(shape)
    fan_in = size / max(shape[0], 1) if shape else 1
    fan_out = size / max(shape[1], 1) if len(shape) > 1 else size
    n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}
    return max(n[filler.variance_norm], 1)


def refill(filler: Filler, shape: Shape, xp: Any, noise: Any, seed: int, *names: str | int) -> Any:
    """A random filler's numbers drawn on the device: a function of (seed, names), without an allocation.

    They have the distribution of `fill`, but are other numbers. `xp` is the device's numpy or cupy, `noise` a
    flat float32 pair of the shape's size, scratch; returns its first half, in the shape. A normal
    number is made of two uniform ones: sqrt(-2 log(1 - u)) cos(2 pi v) (G. Box, M. Muller, 1958).

    >>> refill(Filler(type="uniform", min=3, max=3), (2,), np, np.empty((2, 2), np.float32), 1, "d")
    array([3., 3.], dtype=float32)
    """
    x, spare = noise
    width, outputs = math.sqrt(3 / fan(filler, shape)), shape[0] if shape else 1
    uniform(x, seed, *names)
    if filler.type in ("gaussian", "msra"):
        std = filler.std if filler.type == "gaussian" else math.sqrt(2 / fan(filler, shape))
        uniform(spare, seed, *names, "angle")
        xp.multiply(spare, 2 * math.pi, out=spare)
        xp.cos(spare, out=spare)
        xp.log(xp.subtract(1, x, out=x), out=x)
        xp.sqrt(xp.multiply(x, -2, out=x), out=x)
        xp.multiply(x, spare, out=x)
        _spread(xp, x, std, filler.mean)
        if filler.sparse >= 0:
            uniform(spare, seed, *names, "sparse")
            xp.less(spare, filler.sparse / outputs, out=spare)
            xp.multiply(x, spare, out=x)
    elif filler.type == "positive_unitball":
        matrix = x.reshape(outputs, -1)
        xp.divide(matrix, rows(matrix, spare[: len(matrix)], None).reshape(-1, 1), out=matrix)
    elif filler.type == "xavier":
        _spread(xp, x, 2 * width, -width)
    else:
        _spread(xp, x, filler.max - filler.min, filler.min)
    return x.reshape(shape)


def _spread(xp: Any, x: Any, scale: float, shift: float) -> None:
    xp.multiply(x, scale, out=x)
    xp.add(x, shift, out=x)


def bilinear(shape: Shape) -> np.ndarray:
    """Bilinear upsampling: w[y, x] = (1 - |x / f - c|)(1 - |y / f - c|), f = ceil(k / 2), c = (k - 1) / (2 f).

    Raises ShapeError unless the shape is (n, c, k, k). Source: Caffe's BilinearFiller.

    >>> bilinear((1, 1, 3, 3))[0, 0, 1]
    array([0.5, 1. , 0.5])
    """
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ShapeError(f"the bilinear filler needs a square (n, c, k, k) parameter, got {shape}")
    f = math.ceil(shape[3] / 2)
    line = 1 - np.abs(np.arange(shape[3]) / f - (shape[3] - 1) / (2 * f))
    return np.broadcast_to(np.outer(line, line), shape).copy()
