"""Pooling: the maximum, the mean or a random pixel of each window; and SPP, a pyramid of poolings."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.backends.dispatch import on_the_host
from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.context import Context
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.window import Windowed
from minicaffe.core.ops import arrays, pool
from minicaffe.core.ops.geometry import Sizes, Window, pool_output_size
from minicaffe.core.ops.random import uniform
from minicaffe.errors import ShapeError

Kind = Literal["MAX", "AVE", "STOCHASTIC"]


class Pool:
    """One pooling of a bottom: window, buffers, forward, backward; `names` tell its random numbers apart."""

    def __init__(
        self,
        context: Context,
        kind: str,
        x: Shape,
        window: Window,
        ceil: bool = True,
        names: tuple[str | int, ...] = (),
    ):
        if kind == "STOCHASTIC" and any(window.pad):
            raise ShapeError("pool STOCHASTIC takes no pad")
        axes = zip(x[2:], window.kernel, window.stride, window.pad, strict=True)
        oh, ow = (pool_output_size(*axis, ceil, any(window.pad)) for axis in axes)
        self.context, self.kind, self.window, self.names = context, kind, window, names
        drawn = kind == "STOCHASTIC"
        self.seen = window if drawn else window.seen(x[2:], (oh, ow))  # `which` counts in it
        self.draws = drawn and context.phase == "TRAIN"
        self.x_shape, self.y_shape = x, (*x[:2], oh, ow)
        wide = max(1, 4 // context.dtype.itemsize)  # 16 bits: `which` and `flags` too
        start = 2 * wide * math.prod(self.y_shape)
        room = 0 if context.device.is_cuda else pool.workspace(self.seen, x[2:], (oh, ow))
        self.loops = slice(start, start + room)  # where the workspace of compiled loops begins
        context.reserve(self.loops.stop)
        self.kept = 0  # entries at the workspace's end that belong to another

    def allocate(self, backward: bool) -> None:
        """Allocate what forward keeps for backward, or for a mask."""
        empty, shape = self.context.device.xp.empty, self.y_shape
        self.which = None
        if (self.kind == "MAX" and backward) or self.draws:
            self.which, self.flags = empty(shape, np.int32), empty(shape, np.bool_)
            self.which.fill(-1)  # no winner before the first forward pass
        if self.draws:
            self.noise, self.more_flags = empty(shape, np.float32), empty(shape, np.bool_)
        elif self.kind == "STOCHASTIC":
            self.total = empty(shape, self.context.sum_dtype)

    def work(self, i: int) -> Any:
        """The i-th array of the top's shape in the workspace."""
        size = math.prod(self.y_shape)
        return self.context.workspace[i * size : (i + 1) * size].reshape(self.y_shape)

    @property
    def room(self) -> Any:
        """All of the workspace that may be used; NumPy's threads have their pieces where other layers do."""
        work = self.context.workspace
        return work[: work.size - self.kept]

    def forward(self, x: Any, y: Any) -> Any:
        loops = self.context.workspace[self.loops]
        if self.draws:
            on_the_host("pixels are drawn")
            first = self.context.share.before(self.noise.size)
            uniform(self.noise, self.context.seed, *self.names, self.context.passes, first=first)
            work = self.work(0), self.work(1), self.flags, self.more_flags
            return pool.draw_pool(x, self.window, self.noise, y, self.which, work)
        if self.kind == "STOCHASTIC":
            self.x, self.y = x, y
            return pool.expected_pool(x, self.window, y, self.total)
        if self.kind == "AVE":
            return pool.ave_pool(x, self.window, y, loops)
        if self.which is not None:
            return pool.max_pool(x, self.seen, y, self.which, self.flags, self.room)
        which = self.context.scratch(self.y_shape, np.int32)
        flags = self.context.scratch(self.y_shape, np.bool_, which.nbytes)
        return pool.max_pool(x, self.seen, y, which, flags, loops, keep=False)

    def backward(self, dy: Any, dx: Any) -> Any:
        share = self.work(0)
        if self.kind == "AVE":
            loops = self.context.workspace[self.loops]
            return pool.ave_pool_gradient(dy, self.window, dx, share, loops)
        if self.kind == "MAX" or self.draws:
            return pool.max_pool_gradient(dy, self.which, self.seen, dx, self.flags, self.room)
        return pool.expected_pool_gradient(dy, self.x, self.y, self.total, self.window, dx, share)


@register
class Pooling(Windowed):
    """The maximum (MAX), the mean (AVE) or a random pixel (STOCHASTIC) of each window.

    (n, c, h, w) -> (n, c, oh, ow), oh = ceil((h + 2 pad - kernel) / stride) + 1; of (n, c, d, h, w) MAX and
    AVE go along three axes, as forks for video do. A last window that starts
    outside the image is dropped if there is a pad, and 0 otherwise. Padding is never the maximum; in a mean
    its zeros count. A second top of MAX is the mask, always float32: the place y w + x in its image
    of each window's largest pixel, -1 if the window holds none; it has no gradient.
    In TRAIN, STOCHASTIC draws a pixel with a probability that is its share of the window's sum, as a
    function of (seed, layer, forward pass); in TEST it is sum of x^2 / sum of x. It takes no pad; pixels
    must not be negative. Source: Caffe's Pooling; M. Zeiler, R. Fergus, Stochastic Pooling, 2013.

    Example: (2, 3, 4, 4) -> {type: Pooling, kernel_size: 2, stride: 2} -> (2, 3, 2, 2)
    """

    pool: Annotated[Kind, "what to take of a window"] = "MAX"
    global_pooling: Annotated[bool, "one window, the whole image"] = False
    round_mode: Annotated[Literal["CEIL", "FLOOR"], "how the output size is rounded"] = "CEIL"

    traits = Traits(recordable=True, float32_tops=(1,))

    def setup(self, x: Shape) -> Shape | list[Shape]:
        if len(x) not in (4, 5):
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if len(self.top) > 1 and self.pool != "MAX":
            raise ShapeError(f"a second top, the mask, is of pool MAX, not of {self.pool}")
        axes = len(x) - 2
        if axes == 3 and (self.pool == "STOCHASTIC" or len(self.top) > 1):
            raise ShapeError("along three axes pool is MAX or AVE, and there is no mask")
        stride, pad = self.sizes("stride", 1, axes), self.sizes("pad", 0, axes)
        if self.global_pooling:
            if self.kernel_size or self.kernel_h or self.kernel_w:
                raise ShapeError("with global_pooling the window is the image; remove kernel_size")
            if {*stride} != {1} or any(pad):
                raise ShapeError("with global_pooling there is no stride and no pad")
            kernel: Sizes = x[2:]
        else:
            kernel = self.sizes("kernel_size", None, axes)
        self.window = Window(kernel, stride, pad)
        ceil = self.round_mode == "CEIL"
        self.deep: Pool | None = None
        if axes == 3:
            return self.three_axes(x, ceil)
        self.it = Pool(self.context, self.pool, x, self.window, ceil, (self.name,))
        keeps_top = self.pool == "STOCHASTIC" and self.phase == "TEST"  # the gradient reads it
        self.traits = replace(self.traits, keeps_top=keeps_top)
        return [self.it.y_shape] * 2 if len(self.top) > 1 else self.it.y_shape

    def three_axes(self, x: Shape, ceil: bool) -> Shape:
        """The top's shape for (n, c, d, h, w): each image is pooled, and then along d what came of it."""
        (n, c, d, h, w), (k, s, p) = x, (self.window.kernel, self.window.stride, self.window.pad)
        self.it = Pool(self.context, self.pool, (n, c * d, h, w), Window(k[1:], s[1:], p[1:]), ceil)
        oh, ow = self.it.y_shape[2:]
        along = Window((k[0], 1), (s[0], 1), (p[0], 0))
        self.deep = Pool(self.context, self.pool, (n, c, d, oh * ow), along, ceil)
        return (n, c, self.deep.y_shape[2], oh, ow)

    def allocate(self) -> None:
        self.it.allocate(self.runs_backward or len(self.out) > 1)
        if self.deep is not None:
            self.deep.allocate(self.runs_backward)
            self.between = self.empty(self.it.y_shape)
        if len(self.out) > 1:
            w, window = self.it.x_shape[3], self.it.seen
            (sh, sw), (ph, pw) = window.stride, window.pad
            oh, ow = np.indices(self.it.y_shape[2:], np.int32)
            corners = (oh * sh - ph) * w + ow * sw - pw
            self.corners = self.context.device.asarray(corners.astype(np.int32))
            cpu = not self.context.device.is_cuda
            self.place = self.empty(self.it.y_shape, np.int32) if cpu else None

    def forward(self, x: Any) -> Any:
        if self.deep is not None:
            y = self.it.forward(x.reshape(self.it.x_shape), self.between)
            self.deep.forward(y.reshape(self.deep.x_shape), self.out[0].reshape(self.deep.y_shape))
            return self.out
        self.it.forward(x, self.out[0])
        if len(self.out) > 1:
            it, width = self.it, self.it.x_shape[3]
            pool.mask(it.which, it.seen, width, self.corners, self.out[1], self.place, it.flags)
        return self.out

    def backward(self, dy: Any, dmask: Any = None) -> Any:
        if self.deep is not None:
            between = self.between.reshape(self.deep.x_shape)
            self.deep.backward(dy.reshape(self.deep.y_shape), between)
            self.it.backward(self.between, self.grad[0].reshape(self.it.x_shape))
            return self.grad
        return self.it.backward(dy, self.grad[0])


@register
class SPP(Layer):
    """A pyramid of poolings, flattened and concatenated: level l has 2^l x 2^l windows that cover the image.

    (n, c, h, w) -> (n, c (1 + 4 + ... + 4^(pyramid_height - 1))), with one level (n, c, 1, 1), for any h and
    w. Windows are ceil(h / 2^l) high, with zeros of padding where they exceed the image.
    Source: Caffe's SPP; K. He et al., Spatial Pyramid Pooling, 2014.

    Example: (2, 3, 8, 6) -> {type: SPP, pyramid_height: 2} -> (2, 15)
    """

    pyramid_height: Annotated[int, "levels", AtLeast(1), Below(16)]
    pool: Annotated[Kind, "what to take of a window"] = "MAX"

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.levels = []
        for level in range(self.pyramid_height):
            kernel = tuple(-(-size // 2**level) for size in x[2:])
            spare = [k * 2**level - size for k, size in zip(kernel, x[2:], strict=True)]
            window = Window(kernel, kernel, tuple((more + 1) // 2 for more in spare))
            try:
                names = (self.name, level)
                self.levels.append(Pool(self.context, self.pool, x, window, names=names))
            except ShapeError as error:
                raise error.at(f"level {level}, {2**level} windows an axis of {x}") from None
        sizes = [math.prod(level.y_shape[1:]) for level in self.levels]
        self.ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        self.context.reserve(math.prod(x) + max(level.loops.stop for level in self.levels))
        for pool_of_level in self.levels:
            pool_of_level.kept = math.prod(x)  # the gradient of a level, added to the others'
        return self.levels[0].y_shape if len(sizes) == 1 else (x[0], sum(sizes))

    def allocate(self) -> None:
        self.ys = [self.empty(level.y_shape) for level in self.levels]
        self.dy = [self.empty(level.y_shape) for level in self.levels if self.runs_backward]
        for level in self.levels:
            level.allocate(self.runs_backward)

    def part(self, array: Any, i: int) -> Any:
        """The part of the top that is level i, as a matrix."""
        start = self.ends[i - 1] if i else 0
        return array.reshape(array.shape[0], self.ends[-1])[:, start : self.ends[i]]

    def forward(self, x: Any) -> Any:
        for i, (level, y) in enumerate(zip(self.levels, self.ys, strict=True)):
            level.forward(x, y)
            part = self.part(self.out[0], i)
            arrays.copy(y.reshape(part.shape), part)
        return self.out

    def backward(self, dy: Any) -> Any:
        dx = self.grad[0]
        work = self.context.workspace
        more = work[work.size - dx.size :].reshape(dx.shape)
        for i, (level, part) in enumerate(zip(self.levels, self.dy, strict=True)):
            dtop = self.part(dy, i)
            arrays.copy(dtop, part.reshape(dtop.shape))
            level.backward(part, more if i else dx)
            if i:
                arrays.add(more, dx)
        return self.grad
