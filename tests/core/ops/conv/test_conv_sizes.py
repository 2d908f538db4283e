"""Convolutions of real sizes, whose images are taken in bands and blocks: every engine against the definition."""

import numpy as np
import pytest
from core.ops import cases

from minicaffe.backends.device import device
from minicaffe.core.ops.conv import ENGINES, reference
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

# samples, channels, image, filters, kernel, stride, pad, dilation, groups
SIZES = {
    "odd image, stride 2": (1, 64, (113, 113), 64, 3, 2, 1, 1, 1),
    "a first layer": (1, 3, (227, 227), 64, 7, 2, 3, 1, 1),
    "stride 4": (2, 8, (149, 101), 24, 11, 4, 2, 1, 1),
    "groups": (2, 32, (57, 57), 32, 5, 1, 2, 1, 2),
    "dilated": (1, 32, (65, 120), 16, 3, 1, 2, 2, 1),
    "a batch of small images": (33, 20, (12, 12), 50, 5, 1, 0, 1, 1),
    "three axes": (1, 16, (9, 31, 33), 16, 3, 2, 1, 1, 1),
}
CLOSE = {"winograd": 1e-3}


def drawn(seed):
    """Sizes of a convolution, random ones."""
    rng = np.random.default_rng(seed)
    axes, groups = int(rng.choice([1, 2, 2, 3])), int(rng.choice([1, 1, 2]))
    c, f = (groups * int(n) for n in rng.choice([1, 3, 8, 16, 32, 64], 2))
    image = tuple(int(n) for n in rng.integers(9, 30 if axes == 3 else 230, axes))
    kernel, stride = int(rng.choice([1, 2, 3, 5, 7])), int(rng.choice([1, 2, 3]))
    pad, dilation = int(rng.integers(0, kernel)), int(rng.choice([1, 1, 2]))
    return int(rng.choice([1, 2, 17])), c, image, f, kernel, stride, pad, dilation, groups


def check(sizes):
    """All engines that take it, in all directions."""
    n, c, image, f, *window, groups = sizes
    g = ConvGeometry(n, c, image, f, Window(*((one,) * len(image) for one in window)), groups)
    if min(g.out) < 1 or g.multiply_adds > 10**9:
        return
    rng, case = np.random.default_rng(1), Case(g, np.dtype("f4"), device("cpu"), 2**31)
    shapes = g.x_shape, g.y_shape, g.weight_shape, (f,)
    x, dy, w, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    x64, dy64, w64, b64 = (array.astype(np.float64) for array in (x, dy, w, b))
    wanted = [
        reference.forward(x64, w64, b64, g, np.empty(g.y_shape)),
        reference.input_gradient(dy64, w64, g, np.empty(g.x_shape)),
        reference.weight_gradient(x64, dy64, g, np.zeros(g.weight_shape)),
    ]
    for name, op in ENGINES.items():
        if op.refuses(g) or case.refuses(name):
            continue
        y, dx, work = (
            np.full(shape, np.nan, np.float32) for shape in (*shapes[1::-1], case.workspace(name))
        )
        dw = np.zeros(g.weight_shape, np.float32)
        op.forward(x, w, b, g, y, work)
        op.input_gradient(dy, w, g, dx, work)
        op.weight_gradient(x, dy, g, dw, work)
        for way, got, right in zip(("y", "dx", "dw"), (y, dx, dw), wanted, strict=True):
            error = np.abs(got - right).max() / np.abs(right).max()
            assert error <= CLOSE.get(name, 2e-5), (name, way, g)


@pytest.mark.parametrize("name", SIZES)
def test_against_the_definition(name):
    check(SIZES[name])


def test_random_sizes():
    if not cases.LONG:
        pytest.skip("200 convolutions of random sizes: --long")
    for seed in range(200):
        check(drawn(seed))
