"""Every rule about sizes, in one place: forward, backward, summary, docs and tests call these."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from minicaffe.errors import ShapeError, did_you_mean

Sizes = tuple[int, ...]
Element = tuple[Sizes, tuple[slice, ...], tuple[slice, ...]]
AXES = 3  # the most spatial axes; the compiled loops and the CUDA kernels know nothing else
# The axes of the matrices of each layout, K and P being those of the kernel and of the places.
LAYOUTS = {"caffe": "n cK P", "columns": "cK nP", "rows": "nP cK"}
NAMED = tuple(LAYOUTS)  # those of minicaffe.im2col
LAYOUTS |= {"patches": "cnP K", "points": "K cPn"}
Layout = Literal["caffe", "columns", "rows", "patches", "points"]


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


def deconv_output_size(
    size: int, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1
) -> int:
    """Outputs of a deconvolution along one axis: stride (size - 1) + dilation (kernel - 1) + 1 - 2 pad.

    The smallest image from which the same window makes `size` outputs.
    Source: Caffe's DeconvolutionLayer::compute_output_shape. Raises ShapeError if nothing is left.

    >>> deconv_output_size(14, 4, stride=2, pad=1), conv_output_size(28, 4, stride=2, pad=1)
    (28, 14)
    """
    count = stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad
    if count < 1:
        raise ShapeError(f"pad {pad} leaves nothing of the {count + 2 * pad} outputs along an axis")
    return count


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
    on both axes if either is padded. Default: if this one is. Rounded up, a window may be larger than an
    image that it begins in. Source: Caffe's PoolingLayer::Reshape. Raises ShapeError if there is no window.

    >>> pool_output_size(24, 2, 2), pool_output_size(5, 2, 2), pool_output_size(5, 2, 2, ceil=False)
    (12, 3, 2)
    >>> pool_output_size(1, 2, 2)
    1
    """
    if pad >= kernel:
        raise ShapeError(f"pad {pad} must be smaller than the window of {kernel}")
    steps = size + 2 * pad - kernel
    count = (-(-steps // stride) if ceil else steps // stride) + 1
    if count < 1:
        raise ShapeError(f"a window of {kernel} does not fit an image of {size} padded by {pad}")
    if (pad if clip is None else clip) and (count - 1) * stride >= size + pad:
        count -= 1
    return count


def interp_output_size(size: int, shrink: int = 1, zoom: int = 1) -> int:
    """Outputs of an interpolation along one axis: every shrink-th pixel, then zoom steps for each one.

    Source: DeepLab's InterpLayer::Reshape.

    >>> interp_output_size(5, zoom=2), interp_output_size(9, shrink=2)
    (9, 5)
    """
    return (size - 1) // shrink * zoom + 1


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

    Output o reads input i = o stride + offset. The slices (of outputs, of inputs) for which 0 <= i < size.

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
    """A window sliding over an image of 1, 2 or 3 axes: one size an axis, rows before columns.

    >>> Window((3, 3), pad=(1, 1)).outputs((5, 7))
    (5, 7)
    """

    kernel: Sizes
    stride: Sizes = ()
    pad: Sizes = ()
    dilation: Sizes = ()

    def __post_init__(self) -> None:
        for name, default in (("stride", 1), ("pad", 0), ("dilation", 1)):
            if not getattr(self, name):
                object.__setattr__(self, name, (default,) * len(self.kernel))

    def outputs(self, image: Sizes) -> Sizes:
        """Windows along each axis, by `conv_output_size`. Raises ShapeError."""
        sizes = self.kernel, self.stride, self.pad, self.dilation
        return tuple(map(conv_output_size, image, *sizes))

    def images(self, out: Sizes) -> Sizes:
        """The smallest image with so many windows, by `deconv_output_size`. Raises ShapeError."""
        sizes = self.kernel, self.stride, self.pad, self.dilation
        return tuple(map(deconv_output_size, out, *sizes))

    def covers(self, image: Sizes, out: Sizes) -> bool:
        """Whether so many windows lie side by side and are all of the image: each pixel is in one."""
        plain = self.kernel == self.stride and not any(self.pad) and set(self.dilation) <= {1}
        return plain and image == self.images(out)

    @functools.cache  # noqa: B019  (of equal windows one is kept)
    def elements(self, image: Sizes, out: Sizes) -> tuple[Element, ...]:
        """For each kernel element: its index, the outputs that see the image through it, what they see."""
        axes = []
        sizes = image, out, self.kernel, self.stride, self.pad, self.dilation
        for size, count, kernel, stride, pad, dilation in zip(*sizes, strict=True):
            # Only those through which any output sees the image, however far the kernel reaches beyond it
            first = max(0, -(((count - 1) * stride - pad) // dilation))
            seen = range(first, min(kernel, (pad + size - 1) // dilation + 1))
            axes.append([(k, *valid_range(size, count, k * dilation - pad, stride)) for k in seen])
        return tuple(tuple(zip(*along, strict=True)) for along in itertools.product(*axes))

    def seen(self, image: Sizes, pooled: Sizes) -> Window:
        """The window without those elements of its kernel that meet no pixel, whatever the output.

        >>> Window((101,), pad=(50,)).seen((3,), (3,))
        Window(kernel=(5,), stride=(1,), pad=(2,), dilation=(1,))
        """
        kernel, pad = [], []
        axes = zip(image, pooled, self.kernel, self.stride, self.pad, strict=True)
        for size, count, k, s, p in axes:
            pad.append(min(p, (count - 1) * s))
            kernel.append(min(k - p + pad[-1], size + pad[-1]))
        return Window(tuple(kernel), self.stride, tuple(pad), self.dilation)

    @functools.cache  # noqa: B019  (of equal windows one is kept)
    def divisors(self, image: Sizes, pooled: Sizes, dtype: Any) -> tuple[Any, Any]:
        """What average pooling divides by: the heights of windows (oh, 1), and their widths (1, ow)."""
        sizes = map(window_sizes, image, pooled, self.kernel, self.stride, self.pad)
        rows, columns = (np.maximum(of_axis, 1).astype(dtype) for of_axis in sizes)
        return rows[:, None], columns[None]

    def lifted(self) -> tuple[Sizes, ...]:
        """Kernel, stride, pad and dilation along three axes: those that lack are of size 1."""
        parts = (self.kernel, self.stride, self.pad, self.dilation)
        return tuple(lift(part, fill) for part, fill in zip(parts, (1, 1, 0, 1), strict=True))

    @functools.cached_property
    def is_point(self) -> bool:
        """Whether the windows are the pixels themselves."""
        return not any(self.pad) and all(size == 1 for size in self.kernel + self.stride)


def lift(sizes: Sizes, fill: int = 1) -> Sizes:
    """Sizes along three axes, the missing ones in front.

    >>> lift((5, 7))
    (1, 5, 7)
    """
    return (fill,) * (AXES - len(sizes)) + tuple(sizes)


@dataclass(frozen=True)
class ConvGeometry:
    """All the integers of a convolution: x (n, c, *image) -> y (n, f, *out), 1 to 3 spatial axes."""

    n: int
    c: int
    image: Sizes
    f: int
    window: Window
    group: int = 1

    @functools.cached_property
    def out(self) -> Sizes:
        """Outputs along each axis."""
        return self.window.outputs(self.image)

    @functools.cached_property
    def places(self) -> int:
        """Outputs of one sample and filter."""
        return math.prod(self.out)

    @functools.cached_property
    def is_product(self) -> bool:
        """True if an image is one place, so that the convolution is one product, (n, c) times (c, f)."""
        return self.group == 1 and self.window.is_point and self.places == 1

    @functools.cached_property
    def is_depthwise(self) -> bool:
        """True if each channel has one filter of its own, for images of at most two axes."""
        return len(self.image) <= 2 and self.c == self.f == self.group

    @functools.cached_property
    def x_shape(self) -> Sizes:
        """Shape of the input: (n, c, *image)."""
        return (self.n, self.c, *self.image)

    @functools.cached_property
    def y_shape(self) -> Sizes:
        """Shape of the output: (n, f, *out)."""
        return (self.n, self.f, *self.out)

    @functools.cached_property
    def weight_shape(self) -> Sizes:
        """Shape of the weight: (f, c / group, *kernel)."""
        return (self.f, self.c // self.group, *self.window.kernel)

    @functools.cached_property
    def rows(self) -> int:
        """Rows of a column matrix, all groups together: c times the kernel's size."""
        return self.c * math.prod(self.window.kernel)

    @functools.cached_property
    def column_elements(self) -> int:
        """Entries of one sample's column matrix (rows, places)."""
        return self.rows * self.places

    @functools.cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of a forward pass: n f places (c / group) kernel."""
        return self.n * self.places * math.prod(self.weight_shape)


class Numbers(NamedTuple):
    """What loops and kernels take."""

    places: Sizes
    sizes: Sizes  # a kernel's integers
    shapes: tuple[Any, ...]  # a loop's, along three axes
    steps: Sizes  # in the columns, from a sample, channel, kernel element and place to the next


def column_shape(x_shape: Sizes, window: Window, layout: str = "caffe") -> Sizes:
    """The shape of the column matrices of x (n, c, *image): r = c * kernel rows, p = prod(out) places.

    caffe: (n, r, p), a matrix a sample. columns: (r, n p), a column a window. rows: (n p, r), a row
    a window. patches: (c n p, kernel), a row a window and channel, channel by channel. The CPU's own, for
    images that are `side_by_side`: points: (kernel, c p n), a row a kernel element.
    Raises ShapeError for an unknown layout or a window that does not fit.

    >>> column_shape((2, 3, 5, 5), Window((3, 3)), "rows")
    (18, 27)
    """
    matrix = LAYOUTS[known_layout(layout, LAYOUTS)]
    n, c, *image = x_shape
    k, p = math.prod(window.kernel), math.prod(window.outputs(tuple(image)))
    sizes = {"n": n, "c": c, "K": k, "P": p}
    return tuple(math.prod(sizes[axis] for axis in axes) for axes in matrix.split())


def known_layout(layout: str, known: Container[str] = NAMED) -> str:
    """A layout by its name. Raises ShapeError for one that is not known."""
    if layout not in known:
        hint = did_you_mean(layout, NAMED)
        raise ShapeError(f"layout {layout!r} is not one of {', '.join(NAMED)}{hint}")
    return layout


@functools.lru_cache(maxsize=4096)
def axes_of(
    x_shape: Sizes, window: Window, places: Sizes | None, layout: str
) -> tuple[Sizes, Sizes]:
    """The sizes of all axes as columns of a layout have them, and their order in (n, c, *kernel, *places)."""
    n, c, *image = x_shape
    places = places or window.outputs(tuple(image))
    sizes = {"n": (n,), "c": (c,), "K": window.kernel, "P": places}
    laid = [(axis, i) for axis in LAYOUTS[layout].replace(" ", "") for i in range(len(sizes[axis]))]
    order = [laid.index((axis, i)) for axis in sizes for i in range(len(sizes[axis]))]
    return tuple(sizes[axis][i] for axis, i in laid), tuple(order)


@functools.lru_cache(maxsize=4096)
def numbers_of(shape: Sizes, window: Window, places: Sizes | None, layout: str) -> Numbers:
    """What loops and kernels take of images of a shape (n, c, *image)."""
    n, c, *image = shape
    places = places or window.outputs(tuple(image))
    kernel, stride, pad, dilation = window.lifted()
    sizes = (n, c, *lift(tuple(image)), *kernel, *pad, *stride, *dilation, *lift(places))
    k, p = math.prod(kernel), math.prod(places)
    behind = "".join(LAYOUTS[layout].split())
    counts = {"n": n, "c": c, "K": k, "P": p}
    steps = tuple(math.prod(counts[a] for a in behind[behind.index(one) + 1 :]) for one in counts)
    shapes = (c, lift(tuple(image)), window.lifted(), lift(places))
    return Numbers(places, (*sizes, list(LAYOUTS).index(layout)), shapes, steps)
