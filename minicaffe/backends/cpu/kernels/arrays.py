"""Functions of two numbers over all entries of arrays with steps of their own."""

from __future__ import annotations

import functools
from typing import Any

from minicaffe.backends.cpu import at, compiled, helper

FUNCTIONS = {
    "copy": lambda a, b: b,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": lambda a, b: a if a >= b or a != a else b,
}


@helper
def place(row, sizes, steps):
    """Where row `row`, counted along all axes but the last, begins."""
    start = 0
    for k in range(len(sizes) - 1):
        axis = len(sizes) - 2 - k
        start += row % sizes[axis] * steps[axis]
        row = row // sizes[axis]
    return start


@compiled
def rectified_sum(a, b, y, first, last):
    """y = a + b, and 0 where that is less, of arrays that lie apart."""
    zero = y.dtype.type(0)
    for i in range(first, last):
        value = a[at(i)] + b[at(i)]
        y[at(i)] = zero if value <= zero else value


@functools.cache
def function(name: str) -> Any:
    """y = f(a, b) for entries first..last of a walk of `sizes`, in which each array has its own steps."""
    f = helper(FUNCTIONS[name])

    def loop(a, of_a, b, of_b, sizes, y, of_y, first, last):
        inner, done = sizes[-1], first
        sa, sb, sy = of_a[-1], of_b[-1], of_y[-1]
        in_place = a.ctypes.data == y.ctypes.data and sa == sy
        while done < last:
            row, begin = done // inner, done % inner
            count = min(inner - begin, last - done)
            k = place(row, sizes, of_a) + begin * sa
            m = place(row, sizes, of_b) + begin * sb
            o = place(row, sizes, of_y) + begin * sy
            if sy == 1 and sb == 1 and in_place:
                for i in range(count):  # as one array: of two that overlap not one vector is made
                    y[at(o + i)] = f(y[at(o + i)], b[at(m + i)])
            elif sy == 1 and sb == 1 and sa == 1:
                for i in range(count):
                    y[at(o + i)] = f(a[at(k + i)], b[at(m + i)])
            elif sy == 1 and sb == 0 and in_place:
                value = b[at(m)]
                for i in range(count):
                    y[at(o + i)] = f(y[at(o + i)], value)
            elif sy == 1 and sb == 0 and sa == 1:
                value = b[at(m)]
                for i in range(count):
                    y[at(o + i)] = f(a[at(k + i)], value)
            else:
                for i in range(count):
                    y[at(o + i * sy)] = f(a[at(k + i * sa)], b[at(m + i * sb)])
            done += count

    loop.__name__ = name  # under which it is kept
    return compiled(loop)
