"""A step of an LSTM and its gradient, for streams first..last: of each i, f, o, g (d,) side by side."""

from __future__ import annotations

import functools
from typing import Any

from minicaffe.cpu import at, compiled
from minicaffe.cpu.kernels import maths


@functools.cache
def lstm_unit(dtype: Any) -> Any:
    """The loop of c = cont f c_prev + i g and h = o tanh(c), of acts + cont r, which becomes i, f, o, g."""
    tanh = maths.words(dtype)["tanh"]

    def lstm_unit(
        acts: Any, r: Any, cont: Any, c_prev: Any, d: int, c: Any, h: Any, first: int, last: int
    ) -> None:
        half = acts.dtype.type(0.5)
        for s in range(first, last):
            start, mine, go = 4 * s * d, s * d, cont[at(s)]
            if r.size:
                for k in range(start, start + 4 * d):
                    acts[at(k)] += go * r[at(k)]
            for k in range(start, start + 3 * d):  # sigmoid, which cannot overflow so
                acts[at(k)] = tanh(acts[at(k)] * half) * half + half
            for k in range(start + 3 * d, start + 4 * d):
                acts[at(k)] = tanh(acts[at(k)])
            for j in range(d):
                i, f, g = start + j, start + d + j, start + 3 * d + j
                kept = go * acts[at(f)] * c_prev[at(mine + j)]
                c[at(mine + j)] = kept + acts[at(i)] * acts[at(g)]
            for j in range(d):
                h[at(mine + j)] = tanh(c[at(mine + j)])
            for j in range(d):
                h[at(mine + j)] *= acts[at(start + 2 * d + j)]

    return compiled(lstm_unit)


@functools.cache
def lstm_unit_gradient(dtype: Any) -> Any:
    """The loop of dx, the gradient of what i, f, o, g are of, and of dc, in place; h's is dh + after r."""
    tanh = maths.words(dtype)["tanh"]

    def lstm_unit_gradient(
        acts: Any,
        c_prev: Any,
        c: Any,
        cont: Any,
        dh: Any,
        r: Any,
        after: Any,
        d: int,
        dc: Any,
        dx: Any,
        first: int,
        last: int,
    ) -> None:
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
                back = dh[at(mine + j)] + then * r[at(mine + j)]
                down = dc[at(mine + j)] + back * o * (one - height * height)
                dx[at(of_i + j)] = down * g * i * (one - i)
                dx[at(of_f + j)] = down * go * c_prev[at(mine + j)] * f * (one - f)
                dx[at(of_o + j)] = back * height * o * (one - o)
                dx[at(of_g + j)] = down * i * (one - g * g)
                dc[at(mine + j)] = down * go * f

    return compiled(lstm_unit_gradient)
