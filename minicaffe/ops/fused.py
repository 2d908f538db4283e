"""A ReLU in place as the end of the kernel before it: in a graph, where nobody reads what lies between.

    y = weight x + bias                     y = max(0, weight x + bias)
    y = max(0, y)                    ->

    dx = gradient of a pooling of dy        dx = gradient of a pooling of dy, where y > 0
    dx = dx where y > 0              ->

The bits are the same. What was launched is told by `record`; the last kernel of some work is given one
argument more, and the ReLU's own is not launched. What CuPy does behind that kernel must be told as well, as
ops.arrays does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from minicaffe.kernels import heard, hearing, parameters

FILE = "elementwise.cu"
RELU = "elementwise", "x", "y"  # a kernel, what it reads, what it writes
RELU_GRADIENT = "elementwise_gradient", "dy", "dx"
ENDS = {  # what can end in a ReLU: where from, and what it writes
    "implicit": ("implicit.cu", "out"),
    "scale": ("channels.cu", "y"),
}
MASKED = {  # what can end in a ReLU's gradient
    "implicit": ("implicit.cu", "out"),
    "max_pool_gradient": ("pool.cu", "dx"),
    "ave_pool_gradient": ("pool.cu", "dx"),
    "dropout_gradient": ("random.cu", "dx"),
}


def ends_in(first: Sequence[Any], then: Sequence[Any]) -> bool:
    """Whether some launches, as a recording has them, can end in others: in a ReLU, or its gradient."""
    if not first or len(then) != 1:
        return False
    (name, _, _, args), (kernel, types, _, given) = first[-1], then[0]
    for (called, reads, writes), able in ((RELU, ENDS), (RELU_GRADIENT, MASKED)):
        if kernel == called and types.endswith(", ReLU") and name in able:
            at, (file, out) = parameters(FILE, kernel), able[name]
            x, y, written = given[at[reads]], given[at[writes]], args[parameters(file, name)[out]]
            same = x[0] == written[0] and math.prod(x[1]) == math.prod(written[1])
            return bool(x == y and same)
    return False


def both(first: Callable[[], Any], count: int, then: Callable[[], Any]) -> None:
    """Do some work of `count` launches so that the last ends in what `then` would launch."""
    with heard(_Catching()) as caught:
        then()
    with heard(_Ending(caught.kernel, caught.args, count)):
        first()


class _Within:
    """Hears of launches alone: of all else who heard before."""

    def __init__(self) -> None:
        self.outer = hearing()

    def host(self, why: str) -> None:
        """What no graph can hold."""
        if self.outer is not None:
            self.outer.host(why)


class _Catching(_Within):
    """Hears what would be launched, which is not."""

    def launched(self, kernel: str, types: str, grid: Any, args: Any) -> None:
        """Keep it."""
        self.kernel, self.args = kernel, args


class _Ending(_Within):
    """Has the last of `count` launches end in a ReLU, or its gradient."""

    def __init__(self, kernel: str, given: Any, count: int):
        super().__init__()
        self.kernel, self.given, self.count = kernel, given, count

    def launched(self, kernel: str, types: str, grid: Any, args: Any) -> Any:
        """Give the last one argument more."""
        self.count -= 1
        if self.count:
            return args
        if self.kernel == RELU[0]:
            at, value = parameters(ENDS[kernel][0], kernel)["relu"], type(self.given[0])(1)
        else:
            at = parameters(MASKED[kernel][0], kernel)["mask"]
            value = self.given[parameters(FILE, self.kernel)["x"]]
        return *args[:at], value, *args[at + 1 :]
