"""Pooling whose window has gaps: DilatedPooling, the Pooling of forks with `dilation` in pooling_param."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.window import Windowed
from minicaffe.core.ops.geometry import Window, pool_output_size
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole


@register
class DilatedPooling(Windowed, Whole):
    """The maximum (MAX) or the mean (AVE) of pixels that are `dilation` apart: a net's strides taken out.

    (n, c, h, w) -> (n, c, oh, ow), oh = ceil((h + 2 pad - dilation (kernel - 1) - 1) / stride) + 1. As in
    Pooling a last window that starts outside the image is dropped if there is a pad; padding is never the
    maximum, in a mean its zeros count, and a window without a pixel is 0. Prototxt has it as a Pooling with
    `dilation` in pooling_param.
    Source: F. Tschopp's Caffe; F. Tschopp, Efficient CNNs for Pixelwise Classification on Heterogeneous
    Hardware Systems, 2015.

    Example: (2, 3, 7, 7) -> {type: DilatedPooling, kernel_size: 2, dilation: 2} -> (2, 3, 5, 5)
    """

    pool: Annotated[Literal["MAX", "AVE"], "what to take of a window"] = "MAX"
    dilation: Annotated[
        tuple[int, ...], "step between a window's pixels: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    round_mode: Annotated[Literal["CEIL", "FLOOR"], "how the output size is rounded"] = "CEIL"

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.window = window = Window(
            self.sizes("kernel_size"),
            self.sizes("stride", 1),
            self.sizes("pad", 0),
            self.sizes("dilation", 1),
        )
        # A window's size with its gaps
        self.spans = [d * (k - 1) + 1 for k, d in zip(window.kernel, window.dilation, strict=True)]
        ceil, clip = self.round_mode == "CEIL", any(window.pad)
        sizes = zip(x[2:], self.spans, window.stride, window.pad, strict=True)
        oh, ow = (pool_output_size(*of_axis, ceil, clip) for of_axis in sizes)
        self.x_shape = x
        return (*x[:2], oh, ow)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each window (oh, ow) the pixels, padding among them; and whether any is of the image."""
        image, out = self.x_shape[2:], self.out[0].shape[2:]
        padded = Window(self.window.kernel, self.window.stride, (0, 0), self.window.dilation)
        large = tuple(n + 2 * p for n, p in zip(image, self.window.pad, strict=True))
        number, seen = np.zeros(out), np.zeros(out, bool)
        for _, outputs, _ in padded.elements(large, out):
            number[outputs] += 1
        for _, outputs, _ in self.window.elements(image, out):
            seen[outputs] = True
        return number, seen

    def allocate(self) -> None:
        number, self.seen = self.counts()
        self.shares = self.from_host(1 / np.maximum(number, 1))
        self.empty_windows = None
        if not self.seen.all():
            self.empty_windows = self.from_host(~self.seen, bool)

    def views(self, x: Any, y: Any) -> list[tuple[Any, Any]]:
        """For each of a window's places: the pixels of x that are there, and the windows of y they are of."""
        elements = self.window.elements(x.shape[2:], y.shape[2:])
        whole = (slice(None), slice(None))
        return [(x[whole + pixels], y[whole + outputs]) for _, outputs, pixels in elements]

    def forward(self, x: Any) -> Any:
        xp, shape = self.xp, self.out[0].shape
        if self.pool == "AVE":
            y = xp.zeros(shape, self.sum_dtype)
            for pixels, means in self.views(self.wide(x), y):
                means += pixels
            return self.put(y * self.shares, self.out[0])
        y = xp.full(shape, -np.inf, x.dtype)
        self.which = xp.full(shape, -1, np.int32)
        for i, ((pixels, largest), (_, winner)) in enumerate(
            zip(self.views(x, y), self.views(x, self.which), strict=True)
        ):
            better = (pixels > largest) | (winner < 0)
            xp.copyto(largest, pixels, where=better)
            xp.copyto(winner, i, where=better)
        if self.empty_windows is not None:
            xp.copyto(y, 0, where=self.empty_windows)
        return self.put(y, self.out[0])

    def backward(self, dy: Any) -> Any:
        xp, dx = self.xp, self.xp.zeros(self.x_shape, self.sum_dtype)
        dy = self.wide(dy)
        if self.pool == "AVE":
            for pixels, means in self.views(dx, dy * self.shares):
                pixels += means
            return self.put(dx, self.grad[0])
        places = zip(self.views(dx, dy), self.views(dx, self.which), strict=True)
        for i, ((pixels, given), (_, winner)) in enumerate(places):
            pixels += xp.where(winner == i, given, 0)
        return self.put(dx, self.grad[0])
