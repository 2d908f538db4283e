"""Maps at the picture's size, as OpenPose's Caffe scales them: ImResize."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole


@register
class ImResize(Whole):
    """Maps of several scales of a picture, cut to what they hold of it, scaled by cubics, and averaged.

    (n, c, h, w) -> (1, c, target_spatial_height, target_spatial_width), or h and w times `factor`, rounded
    down. Map i has a border of h / 2 (1 - start_scale + i scale_gap) rows, h / 2 and the whole rounded down,
    and as many columns of w; what lies within is scaled: a top pixel o is at (o + 1/2) size / target - 1/2,
    between four pixels in a row and in a column, those of the edge where there are none.
    The authors' layer, whose kernel for CUDA this is, has no gradient.
    Source: ImResize of Z. Cao's caffe_rtpose; Z. Cao et al., Realtime Multi-Person 2D Pose Estimation, 2017.

    Example: (1, 3, 4, 5) -> {type: ImResize, factor: 8} -> (1, 3, 32, 40)
    """

    target_spatial_width: Annotated[int, "columns of the top, without factor", AtLeast(1)] = 368
    target_spatial_height: Annotated[int, "rows of the top, without factor", AtLeast(1)] = 368
    factor: Annotated[float, "times the rows and columns; 0: the target's", AtLeast(0)] = 0.0
    start_scale: Annotated[float, "of the first map's picture, of the largest"] = 1.0
    scale_gap: Annotated[float, "from one map's scale to the next, smaller one"] = 0.1

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4 or not x[0]:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        h, w = self.target_spatial_height, self.target_spatial_width
        if self.factor:
            h, w = (int(size * self.factor) for size in x[2:])
        self.borders = [[self.border(size, i) for size in x[2:]] for i in range(x[0])]
        for borders in self.borders:
            if min(borders) < 0 or any(2 * b >= n for b, n in zip(borders, x[2:], strict=True)):
                raise ShapeError(
                    f"start_scale {self.start_scale} and scale_gap {self.scale_gap} cut borders of {borders}"
                    f" off maps of {x[2:]}"
                )
        if min(h, w) < 1:
            raise ShapeError(f"factor {self.factor} leaves nothing of {x}")
        self.x_shape = x
        return (1, x[1], h, w)

    def border(self, size: int, i: int) -> int:
        """The rows, or columns, that map i has outside its picture."""
        return int(np.floor(np.float32(size // 2 * (1 - self.start_scale + i * self.scale_gap))))

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """What rows (n, 1, oh, h), and columns (n, 1, w, ow), are multiplied by."""
        (_, _, h, w), (oh, ow) = self.x_shape, self.out[0].shape[2:]
        rows = [cubic(h, border, oh) for border, _ in self.borders]
        columns = [cubic(w, border, ow).T for _, border in self.borders]
        return np.stack(rows)[:, None], np.stack(columns)[:, None]

    def allocate(self) -> None:
        asarray, dtype = self.context.device.asarray, self.sum_dtype
        self.rows, self.columns = (
            [asarray(one[0].astype(dtype)) for one in matrices] for matrices in self.matrices()
        )

    def forward(self, x: Any) -> Any:
        xp, (n, c, h, w), (oh, ow) = self.xp, self.x_shape, self.out[0].shape[2:]
        y = xp.zeros((c, oh, ow), self.sum_dtype)
        for image, rows, columns in zip(self.wide(x), self.rows, self.columns, strict=True):
            across = xp.matmul(image.reshape(c * h, w), columns).reshape(c, h, ow)
            for channel in range(c):
                y[channel] += xp.matmul(rows, across[channel])
        return self.put(y / n, self.out[0])

    def backward(self, dy: Any) -> Any:
        xp, (n, c) = self.xp, self.x_shape[:2]
        dy, dx = self.wide(dy)[0] / n, xp.zeros(self.x_shape, self.sum_dtype)
        for image, rows, columns in zip(dx, self.rows, self.columns, strict=True):
            for channel in range(c):
                image[channel] += xp.matmul(xp.matmul(rows.T, dy[channel]), columns.T)
        return self.put(dx, self.grad[0])


def cubic(size: int, border: int, wanted: int) -> np.ndarray:
    """The matrix (wanted, size) that scales what lies within the borders to another size.

    The cubic through four pixels whose slopes at the middle two are those between their neighbours.

    >>> cubic(4, 1, 4)[1].round(3)
    array([0.   , 0.797, 0.203, 0.   ])
    """
    within, matrix = size - 2 * border, np.zeros((wanted, size))
    for out in range(wanted):
        at = (out + 0.5) * within / wanted - 0.5
        first = max(int(at + 1e-5), 0)
        x = at - first
        taps = [max(first - 1, 0), first, min(first + 1, within - 1), min(first + 2, within - 1)]
        values = (
            -0.5 * x + x**2 - 0.5 * x**3,
            1 - 2.5 * x**2 + 1.5 * x**3,
            0.5 * x + 2 * x**2 - 1.5 * x**3,
            -0.5 * x**2 + 0.5 * x**3,
        )
        for tap, value in zip(taps, values, strict=True):
            matrix[out, border + tap] += value
    return matrix
