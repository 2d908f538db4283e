"""Layers of two blobs: an image read where another says, a patch compared with those around, products."""

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.window import Windowed
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Between, Whole, add


@register
class FlowWarp(Whole):
    """y[i, j] = x[i + v, j + u], read between pixels: an image drawn back along a flow (u, v).

    (n, c, h, w), flow (n, 2, h, w) -> (n, c, h, w). A place outside 0 <= i + v < h, 0 <= j + u < w is 0, or
    NaN with fill_value NOT_A_NUMBER, and gives no gradient. Both bottoms have a gradient; on CUDA the image's
    is summed on the host. Source: FlowWarp of FlowNet 2's Caffe; E. Ilg et al., FlowNet 2.0, 2017.

    Example: (2, 3, 5, 6), (2, 2, 5, 6) -> {type: FlowWarp} -> (2, 3, 5, 6)
    """

    fill_value: Annotated[Literal["ZERO", "NOT_A_NUMBER"], "what lies outside"] = "ZERO"

    def setup(self, x: Shape, flow: Shape) -> Shape:
        if len(x) != 4 or flow != (x[0], 2, *x[2:]):
            raise ShapeError(f"needs x (n, c, h, w) and a flow (n, 2, h, w), got {x} and {flow}")
        self.x_shape = x
        return x

    def forward(self, x: Any, flow: Any) -> Any:
        xp, (n, _, h, w), flow = self.xp, self.x_shape, self.wide(flow)
        rows = xp.arange(h, dtype=self.sum_dtype).reshape(h, 1) + flow[:, 1]
        columns = xp.arange(w, dtype=self.sum_dtype) + flow[:, 0]
        self.at = Between(xp, rows.reshape(n, -1), columns.reshape(n, -1), h, w)
        y = self.at.read(self.wide(x))
        if self.fill_value == "NOT_A_NUMBER":
            y = xp.where(self.at.inside[:, None], y, np.nan)
        return y.reshape(self.x_shape)

    def backward(self, dy: Any) -> Any:
        n, c, h, w = self.x_shape
        dy, grads = self.wide(dy).reshape(n, c, -1), [None, None]
        if self.needs_gradient[0]:
            grads[0] = self.at.of_maps(self, dy)
        if self.needs_gradient[1]:
            down, across = self.at.of_points(dy)
            grads[1] = self.xp.stack([across, down], axis=1).reshape(n, 2, h, w)
        return grads


@register
class DeformableConvolution(Windowed, Whole):
    """A Convolution each of whose kernel's places reads elsewhere: where an offset says, between pixels.

    (n, c, h, w), offsets (n, 2 deformable_group kh kw, oh, ow) -> (n, num_output, oh, ow), sizes as
    Convolution's. For the channels of deformable group g, entry k of the kernel at (i, j) reads the pixel
    where Convolution would, plus (offset 2 (g kh kw + k), offset 2 (g kh kw + k) + 1) at (i, j), rows first;
    0 unless it is inside the image, padding not counted. Parameters: weight (num_output, c / group, kh, kw),
    bias (num_output,). Both bottoms have a gradient; on CUDA the first's is summed on the host.
    Source: DeformableConvolution of unsky's Deformable-ConvNets-caffe; J. Dai et al., Deformable
    Convolutional Networks, 2017.

    Example: (1, 4, 5, 6), (1, 36, 5, 6) -> {type: DeformableConvolution, num_output: 3, kernel_size: 3,
    pad: 1, deformable_group: 2} -> (1, 3, 5, 6)
    """

    num_output: Annotated[int, "number of filters", AtLeast(1)]
    bias_term: Annotated[bool, "add a bias"] = True
    dilation: Annotated[
        tuple[int, ...], "step between kernel elements: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    group: Annotated[int, "groups of channels convolved apart", AtLeast(1)] = 1
    deformable_group: Annotated[int, "groups of channels with offsets of their own", AtLeast(1)] = 1
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    def setup(self, x: Shape, offset: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.window = self.keyed_window(2)
        out = self.window.outputs(x[2:])
        (n, c), parts = x[:2], math.prod(self.window.kernel)
        for key, count, by in (
            ("channels", c, self.group),
            ("num_output", self.num_output, self.group),
            ("channels", c, self.deformable_group),
        ):
            if count % by:
                raise ShapeError(f"{key} {count} cannot be divided into groups of {by}")
        wanted = (n, 2 * self.deformable_group * parts, *out)
        if offset != wanted:
            raise ShapeError(f"needs offsets {wanted}, got {offset}")
        self.x_shape, self.y_shape = x, (n, self.num_output, *out)
        shape = self.num_output, c // self.group, *self.window.kernel
        self.weight = self.param(shape, self.weight_filler)
        self.bias = self.param((self.num_output,), self.bias_filler) if self.bias_term else None
        self.multiply_adds = math.prod(shape) * n * math.prod(out)
        return self.y_shape

    def allocate(self) -> None:
        """Where Convolution would read: rows (kh kw, oh, 1) and columns (kh kw, 1, ow)."""
        g, (kh, kw), (oh, ow) = self.window, self.window.kernel, self.y_shape[2:]
        ends = []
        for axis, size in ((0, oh), (1, ow)):
            elements = np.arange(g.kernel[axis]) * g.dilation[axis] - g.pad[axis]
            ends.append(elements[:, None] + np.arange(size) * g.stride[axis])
        rows = np.repeat(ends[0], kw, axis=0)[:, :, None]
        columns = np.tile(ends[1], (kh, 1))[:, None]
        self.rows, self.columns = self.from_host(rows), self.from_host(columns)

    def read(self, x: Any, offset: Any) -> Any:
        """The columns (n, group, c / group kh kw, oh ow): what the kernel sees at each place."""
        (n, c, h, w), d = self.x_shape, self.deformable_group
        offset = self.wide(offset).reshape(n * d, -1, 2, *self.y_shape[2:])
        y, z = self.rows + offset[:, :, 0], self.columns + offset[:, :, 1]
        self.at = Between(self.xp, y.reshape(n * d, -1), z.reshape(n * d, -1), h, w)
        pixels = self.at.read(self.wide(x).reshape(n * d, c // d, h, w))
        return pixels.reshape(n, self.group, -1, math.prod(self.y_shape[2:]))

    def filters(self) -> Any:
        """The weight (group, num_output / group, c / group kh kw)."""
        return self.wide(self.weight.data).reshape(self.group, self.num_output // self.group, -1)

    def forward(self, x: Any, offset: Any) -> Any:
        self.seen = self.read(x, offset)
        y = self.matmul(self.filters(), self.seen).reshape(self.y_shape)
        return y if self.bias is None else y + self.wide(self.bias.data).reshape(-1, 1, 1)

    def backward(self, dy: Any) -> Any:
        xp, (n, c), d = self.xp, self.x_shape[:2], self.deformable_group
        dy = self.wide(dy).reshape(n, self.group, self.num_output // self.group, -1)
        if self.weight.learns:
            add(self.weight, self.matmul(dy, self.seen.swapaxes(2, 3)).sum(axis=0))
        if self.bias is not None and self.bias.learns:
            add(self.bias, dy.sum(axis=(0, 3)))
        of_seen = self.matmul(self.filters().swapaxes(1, 2), dy).reshape(n * d, c // d, -1)
        grads: list[Any] = [None, None]
        if self.needs_gradient[0]:
            grads[0] = self.at.of_maps(self, of_seen).reshape(self.x_shape)
        if self.needs_gradient[1]:
            both = xp.stack(self.at.of_points(of_seen), axis=1)  # (n d, 2, kh kw oh ow)
            both = both.reshape(n * d, 2, -1, *self.y_shape[2:]).swapaxes(1, 2)
            grads[1] = both.reshape(n, -1, *self.y_shape[2:])
        return grads


@register
class Correlation(Whole):
    """How alike a patch of a is to the patches of b around the same place: a channel a displacement.

    y[k, i, j] = mean over channels and a kernel_size^2 patch of a[i', j'] b[i' + p, j' + o], around i' =
    stride_1 i + max_displacement + kernel_size / 2 of the padded images; SUBTRACT has |a - b|. Displacements
    (p, o), row by row, are multiples of stride_2 up to max_displacement. (n, c, h, w) twice -> (n, d^2, oh,
    ow), d = 2 floor(max_displacement / stride_2) + 1, oh = ceil((h + 2 pad - 2 max_displacement - kernel_size
    + 1) / stride_1). Both have a gradient. Source: Correlation of FlowNet's Caffe; A. Dosovitskiy et al.,
    FlowNet, 2015.

    Example: (1, 3, 6, 8), (1, 3, 6, 8) ->
    {type: Correlation, pad: 2, kernel_size: 1, max_displacement: 2, stride_2: 2} -> (1, 9, 6, 8)
    """

    pad: Annotated[int, "zeros around the images", AtLeast(0)] = 0
    kernel_size: Annotated[int, "side of a patch, an odd number", AtLeast(1)]
    max_displacement: Annotated[int, "the largest displacement", AtLeast(0)]
    stride_1: Annotated[int, "step between patches", AtLeast(1)] = 1
    stride_2: Annotated[int, "step between displacements", AtLeast(1)] = 1
    correlation_type: Annotated[Literal["MULTIPLY", "SUBTRACT"], "a b, or |a - b|"] = "MULTIPLY"

    def setup(self, a: Shape, b: Shape) -> Shape:
        if len(a) != 4 or a != b:
            raise ShapeError(f"needs two bottoms (n, c, h, w) of one shape, got {a} and {b}")
        if self.kernel_size % 2 == 0:
            raise ShapeError(f"kernel_size: expected an odd number, got {self.kernel_size}")
        radius = self.max_displacement // self.stride_2
        steps = [self.stride_2 * k for k in range(-radius, radius + 1)]
        self.moves = [(p, o) for p in steps for o in steps]
        border = 2 * self.max_displacement + self.kernel_size - 1
        left = [size + 2 * self.pad - border for size in a[2:]]
        if min(left) < 1:
            raise ShapeError(
                f"max_displacement {self.max_displacement} and kernel_size {self.kernel_size} do "
                f"not fit into {a} with pad {self.pad}"
            )
        self.area = [-(-size // self.stride_1) for size in left]
        self.x_shape = a
        return (a[0], len(self.moves), *self.area)

    def padded(self, x: Any) -> Any:
        """An image with zeros around, in the type of sums."""
        n, c, h, w = self.x_shape
        wide = self.xp.zeros((n, c, h + 2 * self.pad, w + 2 * self.pad), self.sum_dtype)
        wide[:, :, self.pad : self.pad + h, self.pad : self.pad + w] = x
        return wide

    def part(self, x: Any, move: tuple[int, int]) -> Any:
        """The part of a padded image that all patches together cover, displaced."""
        y, x0 = (self.max_displacement + by for by in move)
        h, w = ((n - 1) * self.stride_1 + self.kernel_size for n in self.area)
        return x[:, :, y : y + h, x0 : x0 + w]

    def windows(self, array: Any) -> list[Any]:
        """Of (n, h, w) the entries of each place of the patches: (n, oh, ow), views."""
        step, (oh, ow) = self.stride_1, self.area
        return [
            array[:, y : y + (oh - 1) * step + 1 : step, x : x + (ow - 1) * step + 1 : step]
            for y in range(self.kernel_size)
            for x in range(self.kernel_size)
        ]

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = self.padded(self.wide(a)), self.padded(self.wide(b))
        count, here = self.x_shape[1] * self.kernel_size**2, self.part(self.a, (0, 0))
        for k, move in enumerate(self.moves):
            displaced = self.part(self.b, move)
            multiplies = self.correlation_type == "MULTIPLY"
            pairs = here * displaced if multiplies else self.xp.abs(here - displaced)
            self.out[0][:, k] = sum(self.windows(pairs.sum(axis=1))) / count
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        da, db = self.xp.zeros_like(self.a), self.xp.zeros_like(self.b)
        here, of_here = self.part(self.a, (0, 0)), self.part(da, (0, 0))
        dy = self.wide(dy) / (self.x_shape[1] * self.kernel_size**2)
        for k, move in enumerate(self.moves):
            displaced, of_displaced = self.part(self.b, move), self.part(db, move)
            spread = self.xp.zeros((len(dy), *here.shape[2:]), self.sum_dtype)
            for window in self.windows(spread):
                window += dy[:, k]
            spread = spread[:, None]
            if self.correlation_type == "MULTIPLY":
                of_here += spread * displaced
                of_displaced += spread * here
            else:
                sign = spread * self.xp.where(here >= displaced, 1, -1)
                of_here += sign
                of_displaced -= sign
        (h, w), pad = self.x_shape[2:], self.pad
        return [dx[:, :, pad : pad + h, pad : pad + w] for dx in (da, db)]


def c_random(count: int) -> list[int]:
    """The first numbers of C's rand() after srand(1), as GNU's library draws them.

    >>> c_random(3)
    [1804289383, 846930886, 1681692777]
    """
    state = [pow(16807, i, 2147483647) for i in range(31)]
    state += state[:3]
    while len(state) < 344 + count:
        state.append((state[-31] + state[-3]) % 2**32)
    return [value >> 1 for value in state[344:]]


@register
class CompactBilinear(Whole):
    """The products of all channels of a with all of b, summed into num_output places by chance.

    y[k] = sum over (i, j) with (h1[i] + h2[j]) mod num_output = k of s1[i] s2[j] a[i] b[j], at each pixel;
    with sum_pool summed over the pixels. Bottoms (n, c1, h, w), (n, c2, h, w) -> (n, num_output, h, w), or
    (n, num_output, 1, 1). The places h1, h2 and the signs s1, s2 are those that GNU's rand() draws after
    srand(1), as in Gao's Caffe, so that its models are read. It is computed by Fourier transforms, on the
    host, in float64, and waits for the device. Both bottoms have a gradient. Source: CompactBilinear of Y.
    Gao's caffe; Y. Gao et al., Compact Bilinear Pooling, 2016.

    Example: (2, 4, 3, 3), (2, 5, 3, 3) -> {type: CompactBilinear, num_output: 8} -> (2, 8, 1, 1)
    """

    num_output: Annotated[int, "places that products are summed into", AtLeast(1)]
    sum_pool: Annotated[bool, "sum over the pixels"] = True

    def setup(self, a: Shape, b: Shape) -> Shape:
        if len(a) != 4 or len(b) != 4 or (a[0], *a[2:]) != (b[0], *b[2:]):
            raise ShapeError(f"needs (n, c1, h, w) and (n, c2, h, w), got {a} and {b}")
        drawn, self.drawn = c_random(2 * (a[1] + b[1])), []
        for c in (a[1], b[1]):
            places, signs, drawn = drawn[:c], drawn[c : 2 * c], drawn[2 * c :]
            self.drawn.append((np.array(places) % self.num_output, np.array(signs) % 2 * 2.0 - 1))
        self.shapes = a, b
        return (a[0], self.num_output, *((1, 1) if self.sum_pool else a[2:]))

    def transformed(self, x: np.ndarray, which: int) -> np.ndarray:
        """The transform (m, pixels) of an image (c, pixels) whose channels are summed by their places."""
        places, signs = self.drawn[which]
        summed = np.zeros((self.num_output, x.shape[1]))
        np.add.at(summed, places, x * signs[:, None])
        return np.fft.rfft(summed, axis=0)

    def back(self, transform: np.ndarray) -> np.ndarray:
        """The numbers (num_output, pixels) of a transform."""
        return np.fft.irfft(transform, self.num_output, axis=0)

    def forward(self, a: Any, b: Any) -> Any:
        host = self.context.device.to_host
        pixels = [host(x).astype(np.float64).reshape(*x.shape[:2], -1) for x in (a, b)]
        self.transforms, products = [], []
        for images in zip(*pixels, strict=True):
            of_a, of_b = (self.transformed(x, which) for which, x in enumerate(images))
            self.transforms.append((of_a, of_b))
            product = of_a * of_b
            product = product.sum(axis=1, keepdims=True) if self.sum_pool else product
            products.append(self.back(product))
        return self.from_host(np.stack(products).reshape(self.out[0].shape))

    def backward(self, dy: Any) -> Any:
        host = self.context.device.to_host(dy).astype(np.float64)
        host = host.reshape(len(host), self.num_output, -1)
        grads = [np.empty((*shape[:2], math.prod(shape[2:]))) for shape in self.shapes]
        for i, of_ab in enumerate(self.transforms):
            of_dy = np.fft.rfft(host[i], axis=0)
            for which, (places, signs) in enumerate(self.drawn):
                spread = self.back(of_dy * of_ab[1 - which].conj())
                grads[which][i] = spread[places] * signs[:, None]
        pairs = zip(grads, self.shapes, strict=True)
        return [self.from_host(grad.reshape(shape)) for grad, shape in pairs]


@register
class MaskPooling(Whole):
    """y = x mask, the mask the same for each channel. Bottoms: x (n, c, h, w), mask (n, 1, h, w).

    Both have a gradient. Source: MaskPooling of MNC's Caffe; J. Dai et al., Instance-aware Semantic
    Segmentation via Multi-task Network Cascades, 2016.

    Example: (2, 3, 4, 5), (2, 1, 4, 5) -> {type: MaskPooling} -> (2, 3, 4, 5)
    """

    def setup(self, x: Shape, mask: Shape) -> Shape:
        if len(x) != 4 or mask != (x[0], 1, *x[2:]):
            raise ShapeError(f"needs x (n, c, h, w) and a mask (n, 1, h, w), got {x} and {mask}")
        return x

    def forward(self, x: Any, mask: Any) -> Any:
        self.x, self.mask = self.wide(x), self.wide(mask)
        return self.x * self.mask

    def backward(self, dy: Any) -> Any:
        dy = self.wide(dy)
        return dy * self.mask, (dy * self.x).sum(axis=1, keepdims=True)
