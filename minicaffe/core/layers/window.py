"""The keys of layers that slide a window over an image."""

from dataclasses import dataclass
from typing import Annotated

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.geometry import AXES, Sizes, Window
from minicaffe.errors import ShapeError

USUAL = {"kernel_size": None, "stride": 1, "pad": 0, "dilation": 1}  # what keys are unless given
SPELLINGS = {1: "one number", 2: "one number or [h, w]", 3: "one number or [d, h, w]"}


@dataclass(kw_only=True, eq=False, repr=False)
class Windowed(Layer):
    """Sizes as one number, as one per axis, or, for images of two axes, as _h and _w."""

    kernel_size: Annotated[Sizes, "window size: k or [h, w]", AtLeast(1)] = ()
    kernel_h: Annotated[int | None, "window height", AtLeast(1)] = None
    kernel_w: Annotated[int | None, "window width", AtLeast(1)] = None
    stride: Annotated[Sizes, "step of the window: s or [h, w]; 1 if not given", AtLeast(1)] = ()
    stride_h: Annotated[int | None, "vertical step; 1 if not given", AtLeast(1)] = None
    stride_w: Annotated[int | None, "horizontal step; 1 if not given", AtLeast(1)] = None
    pad: Annotated[Sizes, "zeros around the image: p or [h, w]; 0 if not given", AtLeast(0)] = ()
    pad_h: Annotated[int | None, "zeros above and below; 0 if not given", AtLeast(0)] = None
    pad_w: Annotated[int | None, "zeros left and right; 0 if not given", AtLeast(0)] = None

    def sizes(self, key: str, default: int | None = None, axes: int = 2) -> Sizes:
        """The values of a key along each axis, from any of its spellings."""
        whole: Sizes = getattr(self, key)
        h, w = (f"{key.removesuffix('_size')}_{axis}" for axis in "hw")
        parts = (getattr(self, h, None), getattr(self, w, None))
        if parts != (None, None):
            if axes != 2:
                raise ShapeError(f"{h} and {w} are for images of 2 axes, not of {axes}; give {key}")
            if whole:
                raise ShapeError(f"give either {key} or {h} and {w}, not both")
            if None in parts and default is None:
                raise ShapeError(f"needs both {h} and {w}")
            return tuple(default if part is None else part for part in parts)  # type: ignore[misc]
        if not whole:
            if default is None:
                raise ShapeError(f"missing key {key!r}")
            return (default,) * axes
        if len(whole) not in (1, axes):
            raise ShapeError(f"{key}: expected {SPELLINGS[axes]}, got {len(whole)} numbers")
        return whole if len(whole) == axes else whole * axes

    def keyed_window(self, axes: int) -> Window:
        """The window that the keys declare; without the key dilation it has none. Raises ShapeError."""
        keys = {key: default for key, default in USUAL.items() if hasattr(self, key)}
        return Window(*(self.sizes(key, default, axes) for key, default in keys.items()))


@dataclass(kw_only=True, eq=False, repr=False)
class Unrolled(Windowed):
    """The keys that convolutions add: dilation, and an image of 1 to 3 axes, those after the channels."""

    dilation: Annotated[
        Sizes, "step between kernel elements: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    axis: Annotated[
        int, "the channels' axis; those before it are the batch, after it the image"
    ] = 1
    force_nd_im2col: Annotated[bool, "Caffe's; without effect: one im2col does for all axes"] = (
        False
    )

    def split(self, x: Shape) -> tuple[Shape, int, Sizes, Window]:
        """A bottom's batch axes, channels and image, and the window. Raises ShapeError."""
        axis = self.axis + (len(x) if self.axis < 0 else 0)
        axes = len(x) - axis - 1
        if axis < 0 or not 1 <= axes <= AXES:
            raise ShapeError(
                f"needs a bottom with 1 to {AXES} axes after the channels' axis {self.axis}, got {x}"
            )
        return x[:axis], x[axis], x[axis + 1 :], self.keyed_window(axes)
