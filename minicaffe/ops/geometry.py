"""Every rule about sizes, in one place: forward, backward, summary, docs and tests call these."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from minicaffe.errors import ShapeError

Pair = tuple[int, int]
Element = tuple[int, int, tuple[slice, slice], tuple[slice, slice]]


def conv_output_size(
    size: int, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1
) -> int:
    """Outputs of a convolution along one axis: floor((size + 2 pad - dilation (kernel - 1) - 1) / stride) + 1.

    Source: Caffe's ConvolutionLayer::compute_output_shape. Raises ShapeError if no window fits.

    >>> conv_output_size(28, 5), conv_output_size(7, 3, stride=2, pad=1, dilation=2)
    (24, 3)
    """
    extent = dilation * (kernel - 1) + 1
    if size + 2 * pad < extent:
        raise ShapeError(
            f"a kernel of extent {extent} does not fit an image of {size} padded by {pad}"
        )
    return (size + 2 * pad - extent) // stride + 1


def pool_output_size(
    size: int,
    kernel: int,
    stride: int = 1,
    pad: int = 0,
    ceil: bool = True,
    clip: bool | None = None,
) -> int:
    """Outputs of a pooling along one axis: ceil((size + 2 pad - kernel) / stride) + 1.

    With `clip` a last window that starts in the padding beyond the image is dropped; Caffe does so
    on both axes if either is padded. Default: if this one is.
    Source: Caffe's PoolingLayer::Reshape. Raises ShapeError if no window fits.

    >>> pool_output_size(24, 2, 2), pool_output_size(5, 2, 2), pool_output_size(5, 2, 2, ceil=False)
    (12, 3, 2)
    """
    if size + 2 * pad < kernel:
        raise ShapeError(f"a window of {kernel} does not fit an image of {size} padded by {pad}")
    if pad >= kernel:
        raise ShapeError(f"pad {pad} must be smaller than the window of {kernel}")
    steps = size + 2 * pad - kernel
    count = (-(-steps // stride) if ceil else steps // stride) + 1
    if (pad if clip is None else clip) and (count - 1) * stride >= size + pad:
        count -= 1
    return count


def window_sizes(size: int, count: int, kernel: int, stride: int, pad: int) -> list[int]:
    """The lengths that average pooling divides by: each window clipped to the padded image.

    Source: Caffe's PoolingLayer::Forward_cpu (pool_size). A window past the image has 0 or less.

    >>> window_sizes(5, 3, 2, 2, 0)
    [2, 2, 1]
    """
    starts = [i * stride - pad for i in range(count)]
    return [min(start + kernel, size + pad) - start for start in starts]


def valid_range(size: int, count: int, offset: int, stride: int) -> tuple[slice, slice]:
    """Where a kernel element falls inside the image.

    Output o reads input i = o stride + offset. Gives the slices (of outputs, of inputs) for which
    0 <= i < size; both have the same length.

    >>> valid_range(4, 4, -1, 1)
    (slice(1, 4, None), slice(0, 3, 1))
    """
    first = max(0, -(offset // stride))
    last = min(count, (size - 1 - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


@dataclass(frozen=True)
class Window:
    """A window sliding over an image: sizes along (height, width)."""

    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    dilation: Pair = (1, 1)

    def elements(self, image: Pair, out: Pair) -> tuple[Element, ...]:
        """For each kernel element (i, j): the outputs that see the image through it, and what they see."""
        return _elements(self, image, out)


@functools.cache
def _elements(window: Window, image: Pair, out: Pair) -> tuple[Element, ...]:
    rows, columns = (
        [
            (k, *valid_range(image[axis], out[axis], k * dilation - pad, stride))
            for k in _kernel_elements(image[axis], out[axis], kernel, stride, pad, dilation)
        ]
        for axis, (kernel, stride, pad, dilation) in enumerate(
            zip(window.kernel, window.stride, window.pad, window.dilation, strict=True)
        )
    )
    return tuple((i, j, (oy, ox), (iy, ix)) for i, oy, iy in rows for j, ox, ix in columns)


def _kernel_elements(
    size: int, count: int, kernel: int, stride: int, pad: int, dilation: int
) -> range:
    """Those through which any output sees the image, however far the kernel reaches beyond it."""
    first = max(0, -(((count - 1) * stride - pad) // dilation))
    return range(first, min(kernel, (pad + size - 1) // dilation + 1))


@dataclass(frozen=True)
class ConvGeometry:
    """All the integers of a 2-D convolution: x (n, c, h, w) -> y (n, f, oh, ow)."""

    n: int
    c: int
    h: int
    w: int
    f: int
    window: Window
    group: int = 1

    @property
    def oh(self) -> int:
        """Output rows."""
        win = self.window
        return conv_output_size(self.h, win.kernel[0], win.stride[0], win.pad[0], win.dilation[0])

    @property
    def ow(self) -> int:
        """Output columns."""
        win = self.window
        return conv_output_size(self.w, win.kernel[1], win.stride[1], win.pad[1], win.dilation[1])

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Shape of the weight: (f, c / group, kh, kw)."""
        return (self.f, self.c // self.group, *self.window.kernel)

    @property
    def column_shape(self) -> tuple[int, int]:
        """Shape of one sample's column matrix: (c kh kw, oh ow)."""
        return (self.c * math.prod(self.window.kernel), self.oh * self.ow)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of a forward pass: n f oh ow (c / group) kh kw."""
        return self.n * self.oh * self.ow * math.prod(self.weight_shape)
