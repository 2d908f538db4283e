"""Layers that move numbers: they view, copy, select or join blobs."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays
from minicaffe.core.ops import take as rows
from minicaffe.core.ops.take import fold
from minicaffe.errors import ShapeError


def _axis(layer: Any, old: str, x: Shape) -> int:
    """The key `axis` of a layer, or `old`, as old nets spell it, as an axis of x; 1 by default."""
    older: int | None = getattr(layer, old)
    if layer.axis is not None and older is not None:
        raise ShapeError(f"give either axis or {old}, which is its old name, not both")
    axis = older if layer.axis is None else layer.axis
    return canonical_axis(1 if axis is None else axis, x)


@register
class Slice(Layer):
    """The bottom cut along `axis` into one piece per top, at `slice_point` or into equal pieces.

    The opposite of Concat. Source: Caffe's Slice.

    Example: (2, 6, 3) -> {type: Slice, slice_point: [1, 3]} -> (2, 1, 3), (2, 2, 3), (2, 3, 3)
    """

    axis: Annotated[int | None, "the axis along which it is cut; 1 if not given"] = None
    slice_point: Annotated[
        tuple[int, ...], "where each piece but the first begins; default: equal pieces", AtLeast(1)
    ] = ()
    slice_dim: Annotated[int | None, "axis, as old nets spell it", AtLeast(0)] = None

    traits = Traits(keeps_dtype=True, recordable=True)

    def setup(self, x: Shape) -> list[Shape]:
        axis = _axis(self, "slice_dim", x)
        tops, size = len(self.top) or len(self.slice_point) + 1, x[axis]
        if not self.slice_point and size % tops:
            raise ShapeError(f"the {size} of axis {axis} cannot be cut into {tops} equal tops")
        points = self.slice_point or tuple(range(size // tops, size, max(size // tops, 1)))
        pieces = list(itertools.pairwise((0, *points, size)))
        if len(points) != tops - 1:
            problem = f"expected {tops - 1}, one less than tops, got {len(points)}"
            raise ShapeError(f"slice_point: {problem}")
        if any(a >= b for a, b in pieces):
            why = f"expected rising numbers below {size}, got {list(points)}"
            raise ShapeError(f"slice_point: {why}")
        self.parts = [(slice(None),) * axis + (slice(a, b),) for a, b in pieces]
        return [(*x[:axis], b - a, *x[axis + 1 :]) for a, b in pieces]

    def forward(self, x: Any) -> Any:
        for y, part in zip(self.out, self.parts, strict=True):
            arrays.copy(x[part], y)
        return self.out

    def backward(self, *dys: Any) -> Any:
        for dy, part in zip(dys, self.parts, strict=True):
            arrays.copy(dy, self.grad[0][part])
        return self.grad


@register
class Split(Layer):
    """Each top is a copy of the bottom. Source: Caffe's Split, which Caffe inserts itself.

    minicaffe needs none: any number of layers may read a blob.

    Example: (2, 3) -> {type: Split} -> (2, 3), (2, 3)
    """

    traits = Traits(keeps_dtype=True, recordable=True)

    def setup(self, x: Shape) -> list[Shape]:
        return [x] * max(len(self.top), 1)

    def forward(self, x: Any) -> Any:
        for y in self.out:
            arrays.copy(x, y)
        return self.out

    def backward(self, dy: Any, *others: Any) -> Any:
        arrays.copy(dy, self.grad[0])
        for other in others:
            arrays.add(other, self.grad[0])
        return self.grad


@register
class Silence(Layer):
    """Reads its bottoms and does nothing, so that they are not outputs. It has no tops.

    Source: Caffe's Silence.

    Example: (2, 3), (4,) -> {type: Silence} ->
    """

    traits = Traits(has_tops=False, recordable=True)

    def setup(self, x: Shape, *more: Shape) -> list[Shape]:
        return []

    def forward(self, *xs: Any) -> Any:
        return []

    def backward(self, *dys: Any) -> Any:
        for dx in self.grad:
            arrays.fill(dx, 0)
        return self.grad


@register
class BatchReindex(Layer):
    """y[i] = x[index[i]]: entries of the first bottom, selected by the second.

    x (n, ...), index (m,) -> (m, ...). Raises DataError for an index outside the n entries; on CUDA,
    without waiting, that entry becomes NaN. Source: Caffe's BatchReindex.

    Example: (4, 3, 2), (6,) -> {type: BatchReindex} -> (6, 3, 2)
    """

    traits = Traits(recordable=True, mixes_samples=True, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, index: Shape) -> Shape:
        if not x or len(index) != 1:
            raise ShapeError(f"needs bottoms (n, ...) and (m,), got {x} and {index}")
        self.n, self.m, self.each = x[0], index[0], math.prod(x[1:])
        return (index[0], *x[1:])

    def allocate(self) -> None:
        self.place = self.empty((self.m,), np.int32)
        self.copy = self.empty((self.m,), self.sum_dtype) if self.dtype.itemsize == 2 else None

    def forward(self, x: Any, index: Any) -> Any:
        self.index = index = same_type(index, self.copy)
        rows.places(index, self.n, self.place, self.refused)
        rows.take(x.reshape(self.n, self.each), self.place, self.out[0].reshape(self.m, self.each))
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dx = self.grad[0].reshape(self.n, self.each)
        rows.put_back(dy.reshape(self.m, self.each), self.place, dx)
        return self.grad[0], None

    def check(self) -> None:
        place, index = map(self.context.device.to_host, (self.place, self.index))
        rows.check(place, self.n, index)


@register
class Filter(Layer):
    """The entries of each bottom but the last for which the last, the selector, is not 0.

    x (n, ...) and so on, selector (n,) or (n, 1, ...) -> (count, ...) each. The count depends on the values
    of the selector, so each pass waits for the device. Source: Caffe's Filter.

    Example: (4, 3), (4,) -> {type: Filter} -> (4, 3)
    """

    traits = Traits(sizes_vary=True)

    def setup(self, x: Shape, other: Shape, *more: Shape) -> list[Shape]:
        *xs, selector = (x, other, *more)
        if not selector or math.prod(selector) != selector[0]:
            raise ShapeError(f"needs a selector (n,) or (n, 1, ...), got {selector}")
        for shape in xs:
            if shape[:1] != selector[:1]:
                raise ShapeError(f"needs {selector[0]} entries, one a selector, got {shape}")
        self.traits = replace(self.traits, label_bottoms=(len(xs),))
        return xs

    def forward(self, *bottoms: Any) -> Any:
        *xs, selector = bottoms
        host = self.context.device.to_host(selector).reshape(-1)
        self.chosen = [int(i) for i in np.flatnonzero(host)]
        for x, y in zip(xs, self.out, strict=True):
            for row, i in enumerate(self.chosen):
                self.xp.copyto(y[row : row + 1], x[i : i + 1])
        return [y[: len(self.chosen)] for y in self.out]

    def backward(self, *dys: Any) -> Any:
        for dy, dx in zip(dys, self.grad, strict=False):  # not the selector's
            if dx is None:
                continue
            dx.fill(0)
            for row, i in enumerate(self.chosen):
                self.xp.copyto(dx[i : i + 1], dy[row : row + 1])
        return self.grad


@register
class Concat(Layer):
    """The bottoms, joined along `axis`. Source: Caffe's Concat.

    Example: (2, 3, 4), (2, 1, 4) -> {type: Concat, axis: 1} -> (2, 4, 4)
    """

    axis: Annotated[int | None, "the axis along which they are joined; 1 if not given"] = None
    concat_dim: Annotated[int | None, "axis, as old nets spell it", AtLeast(0)] = None

    traits = Traits(keeps_dtype=True, recordable=True)

    def setup(self, x: Shape, *more: Shape) -> Shape:
        axis = _axis(self, "concat_dim", x)
        for shape in more:
            if len(shape) != len(x) or (*shape[:axis], x[axis], *shape[axis + 1 :]) != x:
                raise ShapeError(
                    f"needs bottoms that differ along axis {axis} only, got {x} and {shape}"
                )
        ends = list(itertools.accumulate((shape[axis] for shape in (x, *more)), initial=0))
        self.parts = [(slice(None),) * axis + (slice(*two),) for two in itertools.pairwise(ends)]
        self.traits = replace(self.traits, side_by_side=math.prod(x[:axis]) == 1)
        return (*x[:axis], ends[-1], *x[axis + 1 :])

    def forward(self, *xs: Any) -> Any:
        on_cpu = self.traits.side_by_side and not self.context.device.is_cuda
        for x, part in zip(xs, self.parts, strict=True):
            to = self.out[0][part]
            if not (on_cpu and x.ctypes.data == to.ctypes.data):  # the net may have placed them so
                arrays.copy(x, to)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        for dx, part, wanted in zip(self.grad, self.parts, self.needs_gradient, strict=True):
            if wanted:
                arrays.copy(dy[part], dx)
        return self.grad


@register
class Eltwise(Layer):
    """SUM: y = sum of coeff[i] x[i]; PROD: y = product of x[i]; MAX: y = largest x[i]. Equal shapes.

    If values are equal in a MAX, the last bottom has the gradient, as in Caffe. The gradient of a PROD
    is always the product of the other bottoms; without `stable_prod_grad` Caffe
    divides by the bottom. Source: Caffe's Eltwise.

    Example: (2, 3), (2, 3) -> {type: Eltwise, coeff: [1, -1]} -> (2, 3)
    """

    operation: Annotated[Literal["SUM", "PROD", "MAX"], "how the bottoms are combined"] = "SUM"
    coeff: Annotated[tuple[float, ...], "SUM: a factor for each bottom; default 1"] = ()
    stable_prod_grad: Annotated[bool, "Caffe's; without effect: it always is"] = True

    traits = Traits(recordable=True)

    def setup(self, x: Shape, other: Shape, *more: Shape) -> Shape:
        self.count = 2 + len(more)
        for shape in (other, *more):
            if shape != x:
                raise ShapeError(f"needs bottoms of one shape, got {x} and {shape}")
        if self.coeff and (self.operation != "SUM" or len(self.coeff) != self.count):
            raise ShapeError(f"coeff goes with SUM, one number for each of {self.count} bottoms")
        self.factors = self.coeff or (1.0,) * self.count
        plain = self.operation == "SUM" and set(self.factors) == {1.0} and self.count == 2
        self.traits = replace(self.traits, over_a_bottom=plain)
        self.shape = x
        self.context.reserve(math.prod(x))
        return x

    def allocate(self) -> None:
        keeps = (
            self.operation == "MAX" and self.runs_backward
        )  # of each number, the bottom it is from
        self.which = self.empty(self.shape, np.int32) if keeps else None

    def forward(self, *xs: Any) -> Any:
        self.xs, y = xs, self.out[0]
        if self.operation == "SUM":
            return arrays.total(xs, self.factors, y, self.context.scratch(self.shape))
        if self.operation == "PROD":
            return arrays.product(xs[1:], arrays.copy(xs[0], y))
        return arrays.largest(xs, y, self.which, self.context.scratch(self.shape, np.bool_))

    def backward(self, dy: Any) -> Any:
        for i, dx in enumerate(self.grad):
            if not self.needs_gradient[i]:
                continue
            if self.operation == "SUM":
                arrays.scale(dy, self.factors[i], dx)
            elif self.operation == "MAX":
                won = self.context.scratch(self.shape, np.bool_)
                arrays.largest_gradient(dy, self.which, i, dx, won)
            else:
                arrays.product(self.xs, arrays.copy(dy, dx), without=i)
        return self.grad


@dataclass(frozen=True, kw_only=True)
class NewShape:
    """The new axes of a Reshape."""

    dim: Annotated[Shape, "sizes; 0: the bottom's own, -1: what is left", AtLeast(-1)] = ()


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
        sizes, own = list(self.shape.dim), [*range(first), *range(last, len(x))]
        for i, size in enumerate(sizes):
            if size == 0 and first + i >= len(x):
                raise ShapeError(f"shape: dim {i} is 0, but the bottom {x} has no axis {first + i}")
            if size == 0:
                sizes[i] = x[first + i]
                own.append(first + i)
        y = [*x[:first], *sizes, *x[last:]]
        if sizes.count(-1) > 1:
            raise ShapeError(f"shape: only one dim can be -1, got {list(self.shape.dim)}")
        if -1 in sizes:
            left = math.prod(size for i, size in enumerate(x) if i not in own)
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
                problem = f"expected different axes below {len(x)}, got {list(self.order)}"
                raise ShapeError(f"order: {problem}")
        self.axes = (*self.order, *(i for i in range(len(x)) if i not in self.order))
        self.traits = replace(self.traits, mixes_samples=self.axes[:1] not in ((), (0,)))
        return tuple(x[i] for i in self.axes)

    def forward(self, x: Any) -> Any:
        return arrays.copy(x.transpose(self.axes), self.out[0])

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
            problem = f"expected 1 or {count - axis}, got {len(self.offset)} numbers"
            raise ShapeError(f"offset: {problem}")
        offsets = self.offset if len(self.offset) > 1 else (self.offset or (0,)) * (count - axis)
        parts = list(zip(offsets, like[axis:], strict=True))
        for i, (start, size) in enumerate(parts, axis):
            if start + size > x[i]:
                why = f"{size} from {start} on are more than the {x[i]} of {x}"
                raise ShapeError(f"axis {i}: {why}")
        self.part = (slice(None),) * axis + tuple(slice(at, at + size) for at, size in parts)
        return (*x[:axis], *like[axis:])

    def forward(self, x: Any, like: Any) -> Any:
        return arrays.copy(x[self.part], self.out[0])

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
