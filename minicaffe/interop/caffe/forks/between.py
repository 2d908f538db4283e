"""Points of images, read between their pixels: bilinear interpolation, and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.interop.caffe.forks.whole import Whole


class Between:
    """Points (y, x), each (m, p), of maps (m, c, h, w): what lies there between the four pixels around.

    A point is outside, and 0, unless 0 <= y < h and 0 <= x < w; behind the last row or column that counts.

    >>> at = Between(np, np.array([[0.5, 3]]), np.array([[1.0, 0]]), 2, 2)
    >>> at.read(np.arange(4.0).reshape(1, 1, 2, 2))
    array([[[2., 0.]]])
    """

    def __init__(self, xp: Any, y: Any, x: Any, h: int, w: int):
        self.xp, self.size = xp, (h, w)
        self.inside = (y >= 0) & (x >= 0) & (y < h) & (x < w)
        ends = []
        for at, size in ((y, h), (x, w)):
            at = xp.minimum(xp.where(self.inside, at, 0), size - 1)
            low = xp.floor(at)
            first = low.astype(np.int64)
            ends.append((first, xp.minimum(first + 1, size - 1), at - low))
        (top, bottom, self.fy), (left, right, self.fx) = ends
        self.places = [row * w + column for row in (top, bottom) for column in (left, right)]

    def weights(self) -> list[Any]:
        """Of the pixels above left, above right, below left and below right."""
        rows, columns = (1 - self.fy, self.fy), (1 - self.fx, self.fx)
        return [row * column * self.inside for row in rows for column in columns]

    def indices(self, c: int) -> list[Any]:
        """The places of the four pixels (m, c, p) among all entries of the maps."""
        m = len(self.fy)
        planes = self.xp.arange(m * c).reshape(m, c, 1) * (self.size[0] * self.size[1])
        return [planes + place[:, None] for place in self.places]

    def read(self, maps: Any) -> Any:
        """What lies at the points (m, c, p)."""
        flat = maps.reshape(-1)
        self.pixels = [flat.take(index) for index in self.indices(maps.shape[1])]
        weighted = zip(self.weights(), self.pixels, strict=True)
        return sum(weight[:, None] * pixel for weight, pixel in weighted)

    def of_points(self, dy: Any) -> tuple[Any, Any]:
        """The gradients of y and x, (m, p), from that of what was read last."""
        a, b, c, d = self.pixels
        fy, fx = self.fy[:, None], self.fx[:, None]
        down = (c - a) * (1 - fx) + (d - b) * fx
        across = (b - a) * (1 - fy) + (d - c) * fy
        return (dy * down).sum(axis=1) * self.inside, (dy * across).sum(axis=1) * self.inside

    def of_maps(self, layer: Whole, dy: Any) -> Any:
        """The gradient of the maps (m, c, h, w)."""
        m, c, _ = dy.shape
        values = [dy * weight[:, None] for weight in self.weights()]
        total = layer.summed(self.indices(c), values, m * c * self.size[0] * self.size[1])
        return total.reshape(m, c, *self.size)
