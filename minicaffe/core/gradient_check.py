"""Is a layer's backward the gradient of its forward? Checked along random directions in float64."""

from typing import Any

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import State
from minicaffe.core.layers import Context, Layer
from minicaffe.core.layers.context import Numerics
from minicaffe.core.layers.fillers import fill
from minicaffe.errors import MinicaffeError


class GradientError(MinicaffeError):
    """A layer's backward is not the gradient of its forward."""


def gradcheck(
    layer: Layer,
    *bottoms: Any,
    phase: Any = "TRAIN",
    seed: int = 0,
    directions: int = 5,
    step: float = 1e-6,
    tolerance: float = 1e-6,
    device: str | backend.Device = "cpu",
) -> float:
    """The largest relative error of a layer's directional derivatives.

    `bottoms` are shapes, filled with random numbers at least 0.05 away from 0 (where ReLU and its like
    have a kink), or arrays; parameters that do not learn stay as they are filled. With f(x) = sum of r top(x),
    r random, and u a random direction in all bottoms and parameters, <backward(r), u> is compared with
    (f(x + h u) - f(x - h u)) / 2h, h = `step`, relative to the larger of the two and 1e-3 (1 + |f|). Raises
    GradientError above `tolerance`, naming the bottom or parameter that is wrong.

    >>> from minicaffe.core.layers.inner_product import InnerProduct
    >>> gradcheck(InnerProduct(num_output=3), (2, 5)) < 1e-8
    True
    """
    check = _Check(layer, bottoms, phase, seed, device)
    worst = 0.0
    names = [f"bottom {i}" for i in check.free]
    names += [f"parameter {i}" for i, param in enumerate(layer.params) if param.learns]
    for _ in range(directions):
        for chosen, name in enumerate(names):
            error = check.error(chosen, step)
            if not error <= tolerance:
                raise GradientError(
                    f"layer {type(layer).__name__}: the gradient of {name} is wrong: "
                    f"relative error {error:.1e} along a random direction, expected below {tolerance:.0e}"
                )
            worst = max(worst, error)
    return worst


class _Check:
    def __init__(
        self, layer: Layer, bottoms: Any, phase: Any, seed: int, device: str | backend.Device
    ):
        self.layer, self.random = layer, np.random.default_rng(seed)
        self.device = device if isinstance(device, backend.Device) else backend.device(device)
        numerics = Numerics(dtype=np.dtype("float64"))
        layer.context = Context(self.device, numerics, State(phase=phase), seed)
        arrays = [self.normal(b) if isinstance(b, tuple) else np.array(b, float) for b in bottoms]
        self.bottoms = [self.device.asarray(array) for array in arrays]
        self.free = [i for i in range(len(arrays)) if i not in layer.traits.label_bottoms]
        layer.needs_gradient = [i in self.free for i in range(len(arrays))]
        shapes = layer.top_shapes(*[array.shape for array in arrays])
        layer.top = tuple(f"top{i}" for i in range(len(shapes)))
        layer.out = [layer.empty(shape) for shape in shapes]
        layer.grad = [
            layer.empty(array.shape) if i in self.free else None for i, array in enumerate(arrays)
        ]
        for param in layer.params:
            values = fill(param.filler, param.shape, self.random)
            values = values + 0.1 * self.normal(param.shape) if param.learns else values
            self.device.copy_from_host(param.data, values)
        layer.allocate()
        self.learning = [param for param in layer.params if param.learns]
        self.weights = [self.normal(shape) for shape in shapes]

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Random numbers, none within 0.05 of 0."""
        x = self.random.normal(size=shape)
        return x + np.copysign(0.05, x)

    def error(self, chosen: int, step: float) -> float:
        """The relative error along one random direction of one bottom or parameter."""
        points = [self.bottoms[i] for i in self.free] + [param.data for param in self.learning]
        point = points[chosen]
        where = self.device.to_host(point).copy()
        direction = self.normal(where.shape)
        self.value()
        numbers = float(np.sum(self.gradient(chosen) * direction))
        values = []
        for sign in (1, -1):
            self.device.copy_from_host(point, where + sign * step * direction)
            values.append(self.value())
        self.device.copy_from_host(point, where)
        slope = (values[0] - values[1]) / (2 * step)
        floor = 1e-3 * (1 + max(map(abs, values)))  # below it the differences are rounding
        return abs(slope - numbers) / max(floor, abs(slope), abs(numbers))

    def value(self) -> float:
        pairs = zip(_listed(self.layer.forward(*self.bottoms)), self.weights, strict=True)
        return float(sum(np.sum(self.device.to_host(top) * weight) for top, weight in pairs))

    def gradient(self, chosen: int) -> np.ndarray:
        """What backward says of one bottom or parameter, at the point of the last forward."""
        for param in self.layer.params:
            param.diff.fill(1)  # a layer must add to what is there
        bottoms = _listed(self.layer.backward(*[self.device.asarray(w) for w in self.weights]))
        diffs = [bottoms[i] for i in self.free] + [param.diff - 1 for param in self.learning]
        if diffs[chosen] is None:
            problem = f"backward returns no gradient for bottom {self.free[chosen]}"
            raise GradientError(f"layer {type(self.layer).__name__}: {problem}")
        return np.array(self.device.to_host(diffs[chosen]))


def _listed(arrays: Any) -> list[Any]:
    return list(arrays) if isinstance(arrays, (tuple, list)) else [arrays]
