"""What convolutions round: no engine that a plan may select rounds more than 12 times as much as PyTorch.

In the highest precision 4 times.
Its stand-in is a sum in order, as PyTorch's own are: of y and dx 16 channels at a time, of dweight all places.
"""

import itertools

import numpy as np
import pytest

from minicaffe.backends.cpu import available
from minicaffe.backends.device import device
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune
from minicaffe.core.ops.conv.autotune import DIRECTIONS
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

LIMITS = {"high": 12, "highest": 4}  # times what the reference rounds
SAME = Window((3, 3), pad=(1, 1))
NETS = {
    "ResNet-50, 64": ConvGeometry(1, 64, (14, 14), 64, SAME),
    "ResNet-50, 128": ConvGeometry(1, 128, (12, 12), 128, SAME),
    "ResNet-50, 256": ConvGeometry(2, 64, (8, 8), 256, SAME),
    "ResNet-50, 512": ConvGeometry(4, 512, (7, 7), 64, SAME),
    "ResNet-50, conv1": ConvGeometry(1, 3, (48, 48), 32, Window((7, 7), (2, 2), (3, 3))),
    "ResNet-50, 1x1": ConvGeometry(2, 512, (7, 7), 128, Window((1, 1))),
    "VGG-16, conv1_1": ConvGeometry(1, 3, (40, 40), 64, SAME),
    "LeNet, conv1": ConvGeometry(2, 1, (28, 28), 20, Window((5, 5))),
    "LeNet, conv2": ConvGeometry(8, 20, (12, 12), 50, Window((5, 5))),
    "AlexNet, conv1": ConvGeometry(1, 3, (67, 67), 48, Window((11, 11), (4, 4))),
    "AlexNet, conv2": ConvGeometry(1, 48, (13, 13), 64, Window((5, 5), pad=(2, 2))),
    "GoogLeNet, 5x5": ConvGeometry(4, 48, (7, 7), 128, Window((5, 5), pad=(2, 2))),
    "dilated": ConvGeometry(1, 128, (14, 14), 64, Window((3, 3), (), (2, 2), (2, 2))),
    "depthwise": ConvGeometry(2, 8, (20, 20), 8, SAME, 8),
}

# Pixels are what a first convolution reads; of others they are tried with --long.
CASES = [
    pytest.param(
        name,
        pixels,
        id=f"{name}, {'pixels' if pixels else 'relu'}",
        marks=[pytest.mark.long] if pixels and g.c > 3 else [],
    )
    for name, g in NETS.items()
    for pixels in (False, True)
]


def inputs(g, pixels):
    """x after a ReLU or of pixels, the weight, and dy; float32."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, g.x_shape) if pixels else np.maximum(rng.normal(size=g.x_shape), 0)
    weight, dy = (rng.normal(size=shape) for shape in (g.weight_shape, g.y_shape))
    return x.astype(np.float32), weight.astype(np.float32), dy.astype(np.float32)


def in_order(x, weight, dy, g, block):
    """y, dx and dweight in the type of x, each a sum in order, of y and dx `block` channels at a time."""
    x = np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in g.window.pad)])
    exact = x.dtype == np.float64  # in whatever order
    y, dx, dweight = np.zeros(g.y_shape, x.dtype), np.zeros_like(x), np.zeros_like(weight)
    kernel, c, f = list(np.ndindex(*g.window.kernel)), g.c // g.group, g.f // g.group

    def pixels(element):
        axes = zip(element, g.out, g.window.stride, g.window.dilation, strict=True)
        return tuple(slice(k * d, k * d + s * (o - 1) + 1, s) for k, o, s, d in axes)

    for i in range(g.group):
        channels, filters = slice(i * c, i * c + c), slice(i * f, i * f + f)
        images, target = x[:, channels], dx[:, channels]
        for start in range(0, c, block):
            part = np.zeros_like(y[:, filters])
            for k in range(start, min(c, start + block)):
                for element in kernel:
                    w = weight[(filters, k, *element)].reshape(-1, 1, 1)
                    part += w * images[(slice(None), slice(k, k + 1), *pixels(element))]
            y[:, filters] += part
        for start in range(0, f, block):
            part = np.zeros_like(target)
            for k in range(i * f + start, i * f + min(f, start + block)):
                for element in kernel:
                    at = (slice(None), slice(None), *pixels(element))
                    part[at] += (
                        weight[(k, slice(None), *element)].reshape(-1, 1, 1) * dy[:, k : k + 1]
                    )
            target += part
        windows = [images[(slice(None), slice(None), *pixels(element))] for element in kernel]
        seen = np.stack(windows, 2).reshape(g.n, c * len(kernel), -1)
        of, gradients = np.zeros((f, seen.shape[1]), x.dtype), dy[:, filters].reshape(g.n, f, -1)
        if exact:
            of += np.einsum("sfp,skp->fk", gradients, seen, optimize=True)
        for s, p in np.ndindex(g.n, 0 if exact else seen.shape[2]):
            of += gradients[s, :, p, None] * seen[s, :, p]
        dweight[filters] = of.reshape(dweight[filters].shape)
    inner = tuple(slice(p, p + size) for p, size in zip(g.window.pad, g.image, strict=True))
    return y, dx[(slice(None), slice(None), *inner)], dweight


def errors(results, exact):
    """Root mean squares of the differences, over those of the exact results."""
    return [
        np.sqrt(((a - b) ** 2).mean() / (b**2).mean()) for a, b in zip(results, exact, strict=True)
    ]


def computed(case, name, x, weight, dy):
    """y, dx and dweight of an engine."""
    g, op, size = case.g, conv.ENGINES[name], case.workspace(name)
    y, dx, dweight = (
        np.zeros(shape, np.float32) for shape in (g.y_shape, g.x_shape, g.weight_shape)
    )
    with case.room(size)[1]():
        work = np.empty(size, np.float32)
        op.forward(x, weight, None, g, y, work)
        op.input_gradient(dy, weight, g, dx, work)
        op.weight_gradient(x, dy, g, dweight, work)
    return y, dx, dweight


def rounds_more(g, pixels, reference, monkeypatch):
    """What a plan may select, measured or by rule, and rounds over 12 or 4 times what `reference` does."""
    monkeypatch.setattr(autotune._Arrays, "time", lambda self, name, direction: 1.0)
    arrays = inputs(g, pixels)
    exact = in_order(*(array.astype(np.float64) for array in arrays), g, g.c + g.f)
    most = errors(reference(*arrays), exact)
    worse, selected, each = [], set(), {}
    for (precision, times), infers in itertools.product(LIMITS.items(), (False, True)):
        kind = np.dtype("f4"), device("cpu").of_precision(precision), conv.CAP, None, infers
        case = Case(g, *kind)
        found = autotune.measure(case)
        for name in dict.fromkeys((*case.candidates, case.by_rule)):
            if name not in each:
                each[name] = errors(computed(case, name, *arrays), exact)
            for way, error, limit in zip(DIRECTIONS, each[name], most, strict=True):
                if name == case.by_rule or (way in found and name in found[way].ms):
                    selected.add(name)
                    worse += [(name, way, error / limit)] if error > times * limit else []
    assert case.by_rule in selected
    return worse


@pytest.mark.parametrize(("name", "pixels"), CASES)
def test_no_plan_rounds_many_times_more_than_a_sum_in_order(name, pixels, monkeypatch):
    g = NETS[name]
    assert not rounds_more(g, pixels, lambda *arrays: in_order(*arrays, g, 16), monkeypatch)


@pytest.mark.parametrize(("name", "pixels"), CASES)
def test_no_plan_rounds_many_times_more_than_pytorch(name, pixels, monkeypatch):
    torch, g = pytest.importorskip("torch"), NETS[name]

    def reference(x, weight, dy):
        x, weight = (torch.tensor(array, requires_grad=True) for array in (x, weight))
        window = g.window.stride, g.window.pad, g.window.dilation
        y = torch.nn.functional.conv2d(x, weight, None, *window, g.group)
        y.backward(torch.tensor(dy))
        return [array.detach().numpy() for array in (y, x.grad, weight.grad)]

    assert not rounds_more(g, pixels, reference, monkeypatch)


def test_a_tile_that_rounds_too_much_is_not_selected(monkeypatch):
    """F(4x4, 3x3) of three channels: nothing hides what its transforms round."""
    monkeypatch.setattr(autotune._Arrays, "time", lambda self, name, direction: 1.0)
    exact = device("cpu").of_precision("highest")
    found = autotune.measure(Case(NETS["VGG-16, conv1_1"], np.dtype("f4"), exact, conv.CAP))
    assert "winograd" in found["forward"].error and "winograd" not in found["forward"].ms
    assert not available() or "winograd" in found["weight_gradient"].ms


def test_the_highest_precision_has_no_tile_of_many_points(monkeypatch):
    """F(4x4, 5x5) has 64 points, and rounds some 7 times as much as PyTorch."""
    monkeypatch.setattr(autotune._Arrays, "time", lambda self, name, direction: 1.0)
    for precision in LIMITS:
        exact = device("cpu").of_precision(precision)
        case = Case(NETS["LeNet, conv2"], np.dtype("f4"), exact, conv.CAP)
        assert ("winograd" in autotune.measure(case)["forward"].ms) == (precision == "high")
