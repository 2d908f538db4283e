"""Layers that only move numbers: Flatten, Reshape, Permute, ShuffleChannel, Crop, Tile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import arrays
from minicaffe.core.ops.take import fold
from minicaffe.errors import ShapeError


@dataclass(frozen=True, kw_only=True)
class NewShape:
    """The new axes of a Reshape."""

    dim: Annotated[
        tuple[int, ...], "sizes; 0: the bottom's own, -1: what is left", AtLeast(-1)
    ] = ()


class Viewed(Layer):
    """Layers whose top holds the bottom's numbers in the same order, in another shape."""

    traits = Traits(keeps_dtype=True, recordable=True)
    x_shape: Shape
    y_shape: Shape

    def forward(self, x: Any) -> Any:
        return x.reshape(self.y_shape)

    def backward(self, dy: Any) -> Any:
        return dy.reshape(self.x_shape)


@register
class Flatten(Viewed):
    """The axes from `axis` to `end_axis` as one. Source: Caffe's Flatten.

    Example: (2, 3, 4, 5) -> {type: Flatten} -> (2, 60)
    """

    axis: Annotated[int, "the first axis to flatten"] = 1
    end_axis: Annotated[int, "the last axis to flatten"] = -1

    def setup(self, x: Shape) -> Shape:
        first, last = canonical_axis(self.axis, x), canonical_axis(self.end_axis, x)
        if last < first:
            raise ShapeError(f"end_axis {self.end_axis} comes before axis {self.axis}")
        self.x_shape, self.y_shape = x, (*x[:first], math.prod(x[first : last + 1]), *x[last + 1 :])
        return self.y_shape


@register
class Reshape(Viewed):
    """y holds the numbers of x, in the same order, with the sizes of `shape`.

    The axes from `axis` on, `num_axes` of them, are replaced by those of `shape`: a size, 0 for the size of
    the bottom's axis at this position, or -1 (once) for the rest. Source: Caffe's Reshape.

    Example: (2, 3, 4) -> {type: Reshape, shape: {dim: [0, -1, 2]}} -> (2, 6, 2)
    """

    shape: Annotated[NewShape, "{dim: [...]}: the sizes of the new axes"] = NewShape()
    axis: Annotated[int, "the first axis replaced; -1: behind the last"] = 0
    num_axes: Annotated[int, "how many axes are replaced; -1: all that follow", AtLeast(-1)] = -1

    def setup(self, x: Shape) -> Shape:
        first = self.axis + (len(x) + 1 if self.axis < 0 else 0)
        if not 0 <= first <= len(x):
            raise ShapeError(f"axis {self.axis} is out of range for {len(x)} axes")
        last = len(x) if self.num_axes == -1 else first + self.num_axes
        if last > len(x):
            raise ShapeError(f"num_axes {self.num_axes} from axis {first} on: {x} has {len(x)}")
        sizes, kept = list(self.shape.dim), [*range(first), *range(last, len(x))]
        for i, size in enumerate(sizes):
            if size == 0 and first + i >= len(x):
                raise ShapeError(f"shape: dim {i} is 0, but the bottom {x} has no axis {first + i}")
            if size == 0:
                sizes[i] = x[first + i]
                kept.append(first + i)
        y = [*x[:first], *sizes, *x[last:]]
        if sizes.count(-1) > 1:
            raise ShapeError(f"shape: only one dim can be -1, got {list(self.shape.dim)}")
        if -1 in sizes:
            left = math.prod(size for i, size in enumerate(x) if i not in kept)
            known = -math.prod(size for size in self.shape.dim if size)
            if known == 0 or left % known:
                raise ShapeError(
                    f"{math.prod(x)} numbers {x} cannot be divided into {-math.prod(y)}"
                )
            y[first + sizes.index(-1)] = left // known
        if math.prod(y) != math.prod(x):
            raise ShapeError(f"{x} has {math.prod(x)} numbers, {tuple(y)} {math.prod(y)}")
        self.x_shape, self.y_shape = x, tuple(y)
        return self.y_shape


@register
class Permute(Layer):
    """y's axis i is x's axis order[i]; axes that `order` leaves out follow in their own order.

    Source: Permute of SSD's Caffe (W. Liu et al. 2016).

    Example: (2, 3, 4, 5) -> {type: Permute, order: [0, 2, 3, 1]} -> (2, 4, 5, 3)
    """

    order: Annotated[tuple[int, ...], "the axes in their new order", AtLeast(0)] = ()

    traits = Traits(keeps_dtype=True, recordable=True)

    def setup(self, x: Shape) -> Shape:
        for axis in self.order:
            if axis >= len(x) or self.order.count(axis) > 1:
                raise ShapeError(
                    f"order: expected different axes below {len(x)}, got {list(self.order)}"
                )
        self.axes = (*self.order, *(i for i in range(len(x)) if i not in self.order))
        self.traits = replace(self.traits, mixes_samples=self.axes[:1] not in ((), (0,)))
        return tuple(x[i] for i in self.axes)

    def forward(self, x: Any) -> Any:
        arrays.copy(x.transpose(self.axes), self.out[0])
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        arrays.copy(dy, self.grad[0].transpose(self.axes))
        return self.grad[0]


@register
class ShuffleChannel(Layer):
    """The channels, in `group` groups, interleaved: channel j of group i becomes channel j group + i.

    (n, c, ...) -> the same. Source: ShuffleNet's Caffe; X. Zhang et al., ShuffleNet, 2018.

    Example: (2, 6, 4, 4) -> {type: ShuffleChannel, group: 3} -> (2, 6, 4, 4)
    """

    group: Annotated[int, "groups that the channels come in", AtLeast(1)] = 1

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        if len(x) < 2 or x[1] % self.group:
            raise ShapeError(f"group {self.group} does not divide the channels (axis 1) of {x}")
        n, each = x[0], x[1] // self.group
        self.before, self.after = (n, self.group, each, *x[2:]), (n, each, self.group, *x[2:])
        return x

    def forward(self, x: Any) -> Any:
        arrays.copy(x.reshape(self.before).swapaxes(1, 2), self.out[0].reshape(self.after))
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        arrays.copy(dy.reshape(self.after).swapaxes(1, 2), self.grad[0].reshape(self.before))
        return self.grad[0]


@register
class Crop(Layer):
    """The part of the first bottom, from `offset` on, that has the second's size on each axis from `axis`.

    Only the shape of the second bottom is used. Source: Caffe's Crop; J. Long et al., FCN, 2015.

    Example: (2, 3, 6, 7), (1, 1, 4, 5) -> {type: Crop, axis: 2, offset: [1, 2]} -> (2, 3, 4, 5)
    """

    axis: Annotated[int, "the first axis that is cropped"] = 2
    offset: Annotated[
        tuple[int, ...],
        "where the part begins: one number, or one for each cropped axis",
        AtLeast(0),
    ] = ()

    traits = Traits(recordable=True, label_bottoms=(1,))

    def setup(self, x: Shape, like: Shape) -> Shape:
        axis, count = canonical_axis(self.axis, x), len(x)
        if len(like) != count:
            raise ShapeError(f"needs two bottoms of as many axes, got {x} and {like}")
        if len(self.offset) not in (0, 1, count - axis):
            raise ShapeError(
                f"offset: expected 1 or {count - axis}, got {len(self.offset)} numbers"
            )
        offsets = self.offset if len(self.offset) > 1 else (self.offset or (0,)) * (count - axis)
        parts = list(zip(offsets, like[axis:], strict=True))
        for i, (start, size) in enumerate(parts, axis):
            if start + size > x[i]:
                raise ShapeError(
                    f"axis {i}: {size} from {start} on are more than the {x[i]} of {x}"
                )
        self.part = (slice(None),) * axis + tuple(slice(at, at + size) for at, size in parts)
        return (*x[:axis], *like[axis:])

    def forward(self, x: Any, like: Any) -> Any:
        arrays.copy(x[self.part], self.out[0])
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        arrays.fill(self.grad[0], 0)
        arrays.copy(dy, self.grad[0][self.part])
        return self.grad[0], None


@register
class Tile(Layer):
    """x, repeated `tiles` times along `axis`. Source: Caffe's Tile.

    Example: (2, 3, 4) -> {type: Tile, tiles: 2} -> (2, 6, 4)
    """

    axis: Annotated[int, "the axis that grows"] = 1
    tiles: Annotated[int, "how many times", AtLeast(1)]

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        axis = canonical_axis(self.axis, x)
        self.outer, self.inner = math.prod(x[:axis]), math.prod(x[axis:])
        return (*x[:axis], x[axis] * self.tiles, *x[axis + 1 :])

    def forward(self, x: Any) -> Any:
        tiled = self.out[0].reshape(self.outer, self.tiles, self.inner)
        arrays.copy(x.reshape(self.outer, 1, self.inner), tiled)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dx = self.grad[0].reshape(self.outer, self.inner)
        fold(dy.reshape(self.outer, self.tiles, self.inner), dx)
        return self.grad[0]
