"""PriorBoxClustered of Intel's training toolbox for Caffe (OpenVINO)."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import arrays
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.ssd import PriorBox


@register
class PriorBoxClustered(Layer):
    """A PriorBox whose boxes have the widths and heights that are given. Bottoms: the map, the image.

    (n, c, h, w), (n, c, H, W) -> (1, 2, 4 k h w) for k boxes a place, as PriorBox has them. No gradient.
    Source: PriorBoxClustered of OpenVINO's training_toolbox_caffe.

    Example: (1, 8, 3, 4), (1, 3, 30, 40) ->
    {type: PriorBoxClustered, width: [9, 20], height: [12, 7]} -> (1, 2, 96)
    """

    width: Annotated[tuple[float, ...], "widths of the boxes, in pixels"]
    height: Annotated[tuple[float, ...], "their heights"]
    clip: Annotated[bool, "cut the boxes to the image"] = False
    variance: Annotated[tuple[float, ...], "one number, or one per side; default: 0.1"] = ()
    img_size: Annotated[int | None, "side of the image; default: the bottom's", AtLeast(1)] = None
    img_h: Annotated[int | None, "height of the image", AtLeast(1)] = None
    img_w: Annotated[int | None, "width of the image", AtLeast(1)] = None
    step: Annotated[float | None, "pixels between places; default: image over map"] = None
    step_h: Annotated[float | None, "pixels between rows"] = None
    step_w: Annotated[float | None, "pixels between columns"] = None
    offset: Annotated[float, "of the boxes' centre from a place's corner, in steps"] = 0.5

    traits = PriorBox.traits

    def setup(self, x: Shape, image: Shape) -> Shape:
        for key in ("width", "height"):
            given = getattr(self, key)
            if len(given) != len(self.width) or not given or min(given) <= 0:
                raise ShapeError(
                    f"{key}: expected {len(self.width) or 1} numbers above 0, got {given}"
                )
        self.made = PriorBox(
            min_size=(1.0,), clip=self.clip, variance=self.variance, offset=self.offset
        )
        for key in ("img_size", "img_h", "img_w", "step", "step_h", "step_w"):
            setattr(self.made, key, getattr(self, key))
        self.made.context = self.context
        self.made.setup(x, image)
        self.made.boxes = np.stack([self.width, self.height], axis=1)
        return (1, 2, math.prod(x[2:]) * len(self.width) * 4)

    def allocate(self) -> None:
        self.made.allocate()

    def forward(self, x: Any, image: Any) -> Any:
        return arrays.copy(self.made.priors, self.out[0])

    def backward(self, dy: Any) -> Any:
        return None, None
