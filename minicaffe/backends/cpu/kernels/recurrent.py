"""Steps of an LSTM and their gradients, for streams first..last: of each i, f, o, g (d,) side by side.

A sweep takes streams through all steps, of a thread its own, so none waits for another between steps. The
weights of h lie in panels, FEW_COLUMNS vectors wide, and what they make of it, `r`, is filled up to such.
"""

import functools
from typing import Any

import numpy as np
from numpy import tanh

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels import maths
from minicaffe.backends.cpu.microkernel import ADD, FEW_COLUMNS, FEW_ROWS, ZERO, few_product
from minicaffe.backends.cpu.vector_ir import lanes, lanes_of, mover, to_lanes

DEEP = 128  # rows of a panel at a time, which stay in the first cache
_copied = mover()


@functools.lru_cache(64)
def panels_of(rows: int, columns: int, dtype: Any) -> tuple[int, int, Any]:
    """A matrix as panels: its vectors, its columns when they are full, and where rows of a panel begin."""
    width = FEW_COLUMNS * lanes(dtype)
    wide = -(-columns // width) * width
    return wide // lanes(dtype), wide, np.arange(rows) * width


@compiled
def panels(weight, rows, columns, turned, places, out, first, last):
    """A matrix (rows, columns), in memory perhaps turned, as panels: a unit is a vector of its columns."""
    lanes = lanes_of(weight)
    for v in range(first, last):
        column, begun = v * lanes, v // FEW_COLUMNS * FEW_COLUMNS
        to = begun * lanes * rows + (v - begun) * lanes
        some = max(0, min(lanes, columns - column))
        if turned:
            to_lanes(weight, column * rows, rows, some, rows, places, 0, out, to)
            continue
        for k in range(rows):
            if some == lanes:
                _copied(weight, k * columns + column, out, to + places[at(k)])
                continue
            for i in range(some):
                out[at(to + places[at(k)] + i)] = weight[at(k * columns + column + i)]
            for i in range(some, lanes):
                out[at(to + places[at(k)] + i)] = 0


@helper
def _times_panels(a, a0, row, rows, count, panels, columns, c, c0):
    """c = a b: rows of a, `row` apart, of `count` numbers each, and of c, `columns` apart."""
    width = FEW_COLUMNS * lanes_of(panels)
    for k in range(0, count, DEEP):
        how, deep = (ADD if k else ZERO, DEEP), min(DEEP, count - k)
        for p in range(0, columns, width):
            b = panels, p * count + k * width
            for r in range(0, rows, FEW_ROWS):
                left = a, a0 + r * row + k, row, min(FEW_ROWS, rows - r), (deep, width)
                few_product(*left, *b, c, c0 + r * columns + p, columns, how, c, 0)


@functools.cache
def lstm(dtype: Any) -> Any:
    """The loop of all steps: of x' part z (t, n, 4 d), which becomes i, f, o, g, of the first h, and of c."""
    unit = helper(lstm_unit(dtype).py_func)

    def lstm(z, cont, start, c, h, weight, sizes, r, first, last):
        steps, n, d, columns = sizes
        rows, of_r = last - first, first * columns
        for t in range(steps):
            here, step = t * n * d, n * d
            of_h = (h, here - step + first * d) if t else (start, first * d)
            _times_panels(*of_h, d, rows, d, weight, columns, r, of_r)
            before = z[4 * here :], r, columns, cont[t * n :], c[here:], d
            unit(*before, c[here + step :], h[here:], first, last)

    return compiled(lstm)


@functools.cache
def lstm_gradient(dtype: Any) -> Any:
    """The loop of all steps' dx, dz (t, n, 4 d), from the last to the first; r and dc begin with zeros."""
    unit = helper(lstm_unit_gradient(dtype).py_func)

    def lstm_gradient(acts, c, cont, dh, dc, dz, weight, sizes, r, first, last):
        steps, n, d, columns = sizes
        of_r, wide = first * columns, 4 * d
        for k in range(of_r, last * columns):
            r[at(k)] = 0
        for k in range(first * d, last * d):
            dc[at(k)] = 0
        for t in range(steps - 1, -1, -1):
            here, after = t * n * d, cont[min(t + 1, steps - 1) * n :]
            step_args = acts[4 * here :], c[here:], c[here + n * d :], cont[t * n :], dh[here:]
            unit(*step_args, r, columns, after, d, dc, dz[4 * here :], first, last)
            if t:
                begun = 4 * here + first * wide
                _times_panels(dz, begun, wide, last - first, wide, weight, columns, r, of_r)

    return compiled(lstm_gradient)


@maths.by_type(compiled)
def lstm_unit(acts, r, row, cont, c_prev, d, c, h, first, last):
    """c = cont f c_prev + i g and h = o tanh(c), of acts + cont r, which becomes i, f, o, g."""
    half = acts.dtype.type(0.5)
    for s in range(first, last):
        start, mine, go = 4 * s * d, s * d, cont[at(s)]
        if r.size:
            for k in range(4 * d):
                acts[at(start + k)] += go * r[at(s * row + k)]
        for k in range(start, start + 3 * d):  # sigmoid, which cannot overflow so
            acts[at(k)] = tanh(acts[at(k)] * half) * half + half
        for k in range(start + 3 * d, start + 4 * d):
            acts[at(k)] = tanh(acts[at(k)])
        for j in range(d):
            i, f, g = start + j, start + d + j, start + 3 * d + j
            c[at(mine + j)] = go * acts[at(f)] * c_prev[at(mine + j)] + acts[at(i)] * acts[at(g)]
        for j in range(d):
            h[at(mine + j)] = tanh(c[at(mine + j)])
        for j in range(d):
            h[at(mine + j)] *= acts[at(start + 2 * d + j)]


@maths.by_type(compiled)
def lstm_unit_gradient(acts, c_prev, c, cont, dh, r, row, after, d, dc, dx, first, last):
    """dx, the gradient of what i, f, o, g are of, and dc, in place; h's is dh + after r."""
    one = dx.dtype.type(1)
    for s in range(first, last):
        mine, go, then = s * d, cont[at(s)], after[at(s)]
        of_i, of_f, of_o, of_g = 4 * mine, 4 * mine + d, 4 * mine + 2 * d, 4 * mine + 3 * d
        for j in range(d):
            dx[at(of_o + j)] = tanh(c[at(mine + j)])
        for j in range(d):
            i, f = acts[at(of_i + j)], acts[at(of_f + j)]
            o, g = acts[at(of_o + j)], acts[at(of_g + j)]
            height = dx[at(of_o + j)]
            back = dh[at(mine + j)] + then * r[at(s * row + j)]
            down = dc[at(mine + j)] + back * o * (one - height * height)
            dx[at(of_i + j)] = down * g * i * (one - i)
            dx[at(of_f + j)] = down * go * c_prev[at(mine + j)] * f * (one - f)
            dx[at(of_o + j)] = back * height * o * (one - o)
            dx[at(of_g + j)] = down * i * (one - g * g)
            dc[at(mine + j)] = down * go * f
