"""Rows of test_launch.py's table: the units of recurrent nets."""

import numpy as np
from ops.cases import blank, numbers, put
from ops.launch_rows import summed, table

from minicaffe.ops import recurrent

ROWS, row = table()
CONT = [1, 0, 1, 1]  # the second of four streams begins anew


@row
def lstm_unit(device, dtype):
    """A step with what comes from the one before; and a first one, into the memory that it reads."""
    x, r, alone = (put(device, a) for a in numbers(1, (4, 20), (4, 20), (4, 20), dtype=dtype))
    c_prev = put(device, numbers(2, (4, 5), dtype=summed(dtype))[0])
    acts, cont = blank(device, (4, 20), dtype), put(device, CONT, dtype)
    cs = [blank(device, (4, 5), summed(dtype)) for _ in range(2)]
    hs = [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.lstm_unit(x, r, cont, c_prev, acts, cs[0], hs[0])
        recurrent.lstm_unit(alone, None, cont, c_prev, alone, cs[1], hs[1])

    return run, [acts, alone, *cs, *hs]


@row
def lstm_unit_gradient(device, dtype):
    acts, dh, r = numbers(1, (4, 20), (4, 5), (4, 5), dtype=dtype)
    acts[:, :15] = np.abs(acts[:, :15])  # i, f and o are between 0 and 1
    c_prev, c, dc = (put(device, a) for a in numbers(2, *[(4, 5)] * 3, dtype=summed(dtype)))
    cont, after = put(device, CONT, dtype), put(device, CONT[::-1], dtype)
    given = put(device, acts), c_prev, c, cont, put(device, dh), put(device, r), after
    dx = blank(device, (4, 20), dtype)
    return lambda: recurrent.lstm_unit_gradient(*given, dc, dx), [dc, dx]


@row
def tanh_unit(device, dtype):
    x, r = (put(device, a) for a in numbers(1, (4, 5), (4, 5), dtype=dtype))
    cont, hs = put(device, CONT, dtype), [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.tanh_unit(x, r, cont, hs[0])
        recurrent.tanh_unit(x, None, cont, hs[1])

    return run, hs


@row
def tanh_unit_gradient(device, dtype):
    h, dh, r = (put(device, a) for a in numbers(1, *[(4, 5)] * 3, dtype=dtype))
    after, dxs = put(device, CONT, dtype), [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.tanh_unit_gradient(h, dh, r, after, dxs[0])
        recurrent.tanh_unit_gradient(h, dh, None, after, dxs[1])

    return run, dxs
