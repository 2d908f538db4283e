"""Images at another size: Interp, BilinearInterpolation, Upsample, MaskResize, ImResize, Reorg."""

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, pool
from minicaffe.core.ops.geometry import Sizes, interp_output_size
from minicaffe.core.ops.interp import Axis, interp, interp_gradient
from minicaffe.core.ops.take import fold
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole, hat, labels


class Aligned(Layer):
    """Bilinear interpolation, whose top may have the size of a second bottom."""

    traits = Traits(recordable=True, label_bottoms=(1,))
    first = 0  # row, and column, that the first of the top's is at
    pad_beg = pad_end = 0

    def lay(self, x: Shape, like: Shape | None, out: Sizes, left: Sizes) -> Shape:
        """Returns the top's shape: of the sizes `out`, or like a second bottom; `left` remains of x."""
        self.kept, self.x_shape, out = left, x, like[2:] if like else out
        self.context.reserve(math.prod(x[:2]) * out[0] * (x[3] + max(x[3], out[1])))
        self.y_shape = (*x[:2], *out)
        return self.y_shape

    def check_axes(self, x: Shape, like: Shape | None) -> None:
        for shape in (x, like or x):
            if len(shape) != 4:
                raise ShapeError(f"needs bottoms of 4 axes (n, c, h, w), got {shape}")

    def allocate(self) -> None:
        self.rows, self.columns = (
            Axis.of(self.xp, size, left, out, self.first, self.sum_dtype)
            for size, left, out in zip(self.x_shape[2:], self.kept, self.y_shape[2:], strict=True)
        )

    def forward(self, x: Any, like: Any = None) -> Any:
        return interp(x, self.rows, self.columns, self.out[0], self.context.workspace)

    def backward(self, dy: Any) -> Any:
        interp_gradient(dy, self.rows, self.columns, self.grad[0], self.context.workspace)
        return self.grad


@register
class Interp(Aligned):
    """Bilinear interpolation whose first and last rows and columns are the image's own ("align corners").

    (n, c, h, w) -> (n, c, oh, ow): a top pixel o is at o (h - 1) / (oh - 1) of the image. The size is
    height and width, or follows from shrink_factor s and zoom_factor z: h becomes (h - 1) / s + 1, then
    h + (h - 1) (z - 1); or it is that of a second bottom. Negative pads crop the image first.
    Source: Interp of DeepLab's Caffe; L.-C. Chen et al., DeepLab, 2016.

    Example: (2, 3, 5, 4) -> {type: Interp, zoom_factor: 2} -> (2, 3, 9, 7)
    """

    height: Annotated[int | None, "rows of the top", AtLeast(1)] = None
    width: Annotated[int | None, "columns of the top", AtLeast(1)] = None
    zoom_factor: Annotated[int | None, "steps between neighbouring pixels", AtLeast(1)] = None
    shrink_factor: Annotated[int | None, "only every n-th pixel", AtLeast(1)] = None
    pad_beg: Annotated[int, "minus the rows and columns cut off before, or 0", Below(1)] = 0
    pad_end: Annotated[int, "minus the rows and columns cut off behind, or 0", Below(1)] = 0

    def setup(self, x: Shape, like: Shape | None = None) -> Shape:
        self.check_axes(x, like)
        sizes, factors = (self.height, self.width), (self.zoom_factor, self.shrink_factor)
        ways = [any(k is not None for k in keys) for keys in (sizes, factors)] + [like is not None]
        if sum(ways) != 1 or (ways[0] and None in sizes):
            raise ShapeError(
                "give one of: both height and width; zoom_factor, shrink_factor or both; a second bottom"
            )
        left = tuple(size + self.pad_beg + self.pad_end for size in x[2:])
        if min(left) < 1:
            raise ShapeError(
                f"pad_beg {self.pad_beg} and pad_end {self.pad_end} leave nothing of {x}"
            )
        shrink, zoom = self.shrink_factor or 1, self.zoom_factor or 1
        out = tuple(interp_output_size(n, shrink, zoom) for n in left)
        self.first = -self.pad_beg
        return self.lay(x, like, (self.height or 1, self.width or 1) if ways[0] else out, left)


@register
class BilinearInterpolation(Aligned):
    """Bilinear interpolation whose first and last rows and columns are the image's own ("align corners").

    (n, c, h, w) -> (n, c, f h, f w), f = interpolation_factor, or the size of a second bottom: a top pixel o
    is at o (h - 1) / (oh - 1) of the image. Source: BilinearInterpolation of Z. Yan's caffe-public.

    Example: (2, 3, 5, 4) -> {type: BilinearInterpolation, interpolation_factor: 2} -> (2, 3, 10, 8)
    """

    interpolation_factor: Annotated[int | None, "times the rows and columns", AtLeast(1)] = None

    def setup(self, x: Shape, like: Shape | None = None) -> Shape:
        self.check_axes(x, like)
        if (self.interpolation_factor is None) == (like is None):
            raise ShapeError("give one of: interpolation_factor; a second bottom")
        factor = self.interpolation_factor or 1
        return self.lay(x, like, (factor * x[2], factor * x[3]), x[2:])


@register
class Upsample(Layer):
    """Moves each pixel to the place that a Pooling's mask, the second bottom, names; other pixels are 0.

    (n, c, h, w), mask (n, c, h, w) -> (n, c, upsample_h, upsample_w), or h and w times `scale`, less 1 with
    pad_out. If several pixels have one place, the last is written, and each has that place's gradient, as in
    Caffe; -1 in the mask is no place. Without a mask each pixel becomes scale_h x scale_w equal pixels.
    Raises DataError for a place outside; on CUDA, without waiting, the first pixel becomes NaN.
    Source: Upsample of SegNet's Caffe; V. Badrinarayanan et al., SegNet, 2015; without a mask, YOLO's.

    Example: (2, 3, 4, 4), (2, 3, 4, 4) -> {type: Upsample, scale: 2} -> (2, 3, 8, 8)
    """

    scale: Annotated[int, "times the rows and columns", AtLeast(1)] = 2
    scale_h: Annotated[int | None, "times the rows; default: scale", AtLeast(1)] = None
    scale_w: Annotated[int | None, "times the columns; default: scale", AtLeast(1)] = None
    upsample_h: Annotated[int | None, "rows of the top, instead of scale", AtLeast(1)] = None
    upsample_w: Annotated[int | None, "columns of the top, instead of scale", AtLeast(1)] = None
    pad_out_h: Annotated[bool, "one row less than scale says"] = False
    pad_out_w: Annotated[bool, "one column less than scale says"] = False

    traits = Traits(recordable=True, **labels(1))

    def setup(self, x: Shape, mask: Shape | None = None) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if mask not in (None, x):
            raise ShapeError(f"needs a mask of the first bottom's shape {x}, got {mask}")
        scales, sizes = (self.scale_h, self.scale_w), (self.upsample_h, self.upsample_w)
        for names, pair in (("scale_h and scale_w", scales), ("upsample_h and upsample_w", sizes)):
            if (pair[0] is None) != (pair[1] is None):
                raise ShapeError(f"give both {names}")
        pads = (self.pad_out_h, self.pad_out_w)
        if mask is None and (sizes != (None, None) or any(pads)):
            raise ShapeError(
                "without a mask there is scale, and no upsample_h, pad_out_h or the like"
            )
        if sizes != (None, None) and (scales != (None, None) or any(pads)):
            remedy = "there is no scale, no pad_out_h or pad_out_w"
            raise ShapeError(f"upsample_h and upsample_w are the size; {remedy}")
        self.scales = tuple(self.scale if one is None else one for one in scales)
        out = [n * scale - pad for n, scale, pad in zip(x[2:], self.scales, pads, strict=True)]
        self.x_shape, self.y_shape = x, (*x[:2], *(sizes if None not in sizes else out))
        if min(self.y_shape[2:]) < 1:
            raise ShapeError(f"pad_out_h and pad_out_w leave nothing of {x}")
        self.masked = mask is not None
        self.context.reserve(math.prod(x) * self.scales[1])
        return self.y_shape

    def allocate(self) -> None:
        self.copy = None
        if self.masked:
            self.place = self.empty(self.x_shape, np.int64)
            self.winner = self.empty(self.y_shape, np.int32)
            if self.dtype != self.sum_dtype:
                self.copy = self.empty(self.x_shape, self.sum_dtype)

    def forward(self, x: Any, mask: Any = None) -> Any:
        n, c, h, w = self.x_shape
        if mask is None:
            sh, sw = self.scales
            arrays.copy(x.reshape(n * c, h, 1, w, 1), self.out[0].reshape(n * c, h, sh, w, sw))
            return self.out
        self.mask = mask = same_type(mask, self.copy)
        pool.places(mask, self.y_shape[2:], self.place, self.refused)
        pool.unpool(x, self.place, self.out[0], self.winner)
        return self.out

    def backward(self, dy: Any) -> Any:
        n, c, h, w = self.x_shape
        dx = self.grad[0]
        if self.masked:
            pool.unpool_gradient(dy, self.place, dx)
            return dx, None
        sh, sw = self.scales
        lines = self.context.workspace[: dx.size * sw].reshape(n * c * h, w * sw)
        fold(dy.reshape(n * c * h, sh, w * sw), lines)
        fold(lines.reshape(dx.size, sw, 1), dx.reshape(dx.size, 1))
        return self.grad

    def check(self) -> None:
        if self.masked:
            pool.check_mask(self.context.device.to_host(self.mask), self.y_shape[2:])


@register
class MaskResize(Whole):
    """Maps of another size, linearly between pixels: (n, c, h, w) -> (n, c, output_height, output_width).

    Entry (i, j) is read at (i h / output_height, j w / output_width), so first pixels meet; over half a pixel
    behind the last one it is 0. The gradient is the derivative; MNC's of a larger mask leaves entries out.
    Source: MaskResize of MNC's Caffe; J. Dai et al., Instance-aware Semantic Segmentation via Multi-task
    Network Cascades, 2016.

    Example: (2, 1, 21, 21) -> {type: MaskResize, output_height: 14, output_width: 14} -> (2, 1, 14, 14)
    """

    output_height: Annotated[int, "rows of the top", AtLeast(1)]
    output_width: Annotated[int, "columns of the top", AtLeast(1)]

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.area = x[2:]
        return (*x[:2], self.output_height, self.output_width)

    def weights(self) -> list[np.ndarray]:
        """The weights of rows (output_height, h) and columns (output_width, w)."""
        sizes = zip((self.output_height, self.output_width), self.area, strict=True)
        return [hat(np.arange(out) * (size / out), size)[0] for out, size in sizes]

    def allocate(self) -> None:
        self.rows, self.columns = map(self.from_host, self.weights())

    def forward(self, x: Any) -> Any:
        return self.matmul(self.matmul(self.rows, self.wide(x)), self.columns.T)

    def backward(self, dy: Any) -> Any:
        return self.matmul(self.matmul(self.rows.T, self.wide(dy)), self.columns)


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
        scales = 1 - self.start_scale + np.arange(x[0]) * self.scale_gap
        outside = np.float32(scales[:, None] * [size // 2 for size in x[2:]])
        self.borders = np.floor(outside).astype(int).tolist()  # rows and columns, map by map
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

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """What rows (n, 1, oh, h), and columns (n, 1, w, ow), are multiplied by."""
        (_, _, h, w), (oh, ow) = self.x_shape, self.out[0].shape[2:]
        rows = [cubic(h, border, oh) for border, _ in self.borders]
        columns = [cubic(w, border, ow).T for _, border in self.borders]
        return np.stack(rows)[:, None], np.stack(columns)[:, None]

    def allocate(self) -> None:
        self.rows, self.columns = ([self.from_host(m[0]) for m in some] for some in self.matrices())

    def forward(self, x: Any) -> Any:
        xp, (n, c, h, w), (oh, ow) = self.xp, self.x_shape, self.out[0].shape[2:]
        y = xp.zeros((c, oh, ow), self.sum_dtype)
        for image, rows, columns in zip(self.wide(x), self.rows, self.columns, strict=True):
            across = self.matmul(image.reshape(c * h, w), columns).reshape(c, h, ow)
            for channel in range(c):
                y[channel] += self.matmul(rows, across[channel])
        return self.put(y / n, self.out[0])

    def backward(self, dy: Any) -> Any:
        xp, (n, c) = self.xp, self.x_shape[:2]
        dy, dx = self.wide(dy)[0] / n, xp.zeros(self.x_shape, self.sum_dtype)
        for image, rows, columns in zip(dx, self.rows, self.columns, strict=True):
            for channel in range(c):
                image[channel] += self.matmul(self.matmul(rows.T, dy[channel]), columns.T)
        return self.put(dx, self.grad[0])


def cubic(size: int, border: int, wanted: int) -> np.ndarray:
    """The matrix (wanted, size) that scales what lies within the borders to another size: Catmull-Rom."""
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


@register
class Reorg(Layer):
    """Darknet's passthrough: places become channels; with `reverse` channels become places.

    (n, c, h, w) -> (n, c s^2, h / s, w / s), s = stride; with reverse (n, c / s^2, h s, w s), where channel
    (i s + j) c' + k, c' = c / s^2, goes to row s y + i and column s x + j of channel k. Without it the
    numbers are Darknet's: the bottom's memory is read as (c', h, s, w, s) and written as (s, s, c', h, w), so
    c must be a multiple of s^2 here too. Source: Reorg of the Caffes of YOLO v2; J. Redmon, A. Farhadi,
    YOLO9000, 2017.

    Example: (1, 8, 4, 6) -> {type: Reorg, stride: 2} -> (1, 32, 2, 3)
    """

    stride: Annotated[int, "places of a side that become channels", AtLeast(1)]
    reverse: Annotated[bool, "channels become places"] = False

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        s = self.stride
        if len(x) != 4 or x[1] % s**2:
            raise ShapeError(f"needs (n, c, h, w) with c a multiple of {s**2}, got {x}")
        n, c, h, w = x
        self.parts = (n, c // s**2, h, s, w, s)
        self.order = (0, 3, 5, 1, 2, 4)  # n, s, s, c', h, w
        if self.reverse:
            return (n, c // s**2, h * s, w * s)
        if h % s or w % s:
            raise ShapeError(f"needs h and w that are multiples of stride {s}, got {x}")
        return (n, c * s**2, h // s, w // s)

    def forward(self, x: Any) -> Any:
        return self.moved(x, self.out[0], self.reverse)

    def backward(self, dy: Any) -> Any:
        return self.moved(dy, self.grad[0], not self.reverse)

    def moved(self, x: Any, out: Any, reverse: bool) -> Any:
        """To places, if `reverse`, else from there."""
        spatial, apart = (out, x) if reverse else (x, out)
        places = spatial.reshape(self.parts).transpose(self.order)
        channels = apart.reshape(places.shape)
        arrays.copy(channels if reverse else places, places if reverse else channels)
        return out
