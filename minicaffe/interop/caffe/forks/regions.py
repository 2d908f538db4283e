"""Regions (image, x0, y0, x1, y1), as the layers that pool them take them."""

from __future__ import annotations

import math

from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError


def check_regions(x: Shape, rois: Shape) -> None:
    """Raise ShapeError if the bottoms are not maps (n, c, h, w) and regions (r, 5).

    >>> check_regions((2, 8, 6, 6), (3, 5))
    """
    if len(x) != 4:
        raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
    if not rois or math.prod(rois[1:]) != 5:
        raise ShapeError(f"needs regions (r, 5) as its second bottom, got {rois}")
