"""Rows of test_launch.py's table: the units of recurrent nets."""

import numpy as np
from core.ops.cases import blank, numbers, put
from core.ops.launch_rows import drawn, summed, table

from minicaffe.core.ops import recurrent

ROWS, row = table()
CONT = [1, 0, 1, 1]  # the second of four streams begins anew


@row
def lstm_unit(device, dtype):
    """A step after another; and a lone one, into the memory that it reads, of cells of the same type."""
    x, r, alone = drawn(device, dtype, (4, 20), (4, 20), (4, 20))
    types = summed(dtype), dtype
    before = [drawn(device, kind, (4, 5), seed=2)[0] for kind in types]
    acts, cont = blank(device, (4, 20), dtype), put(device, CONT, dtype)
    cs = [blank(device, (4, 5), kind) for kind in types]
    hs = [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.lstm_unit(x, r, cont, before[0], acts, cs[0], hs[0])
        recurrent.lstm_unit(alone, None, cont, before[1], alone, cs[1], hs[1])

    return run, [acts, alone, *cs, *hs]


@row
def lstm_unit_gradient(device, dtype):
    """Of cells of the type that sums are taken in, and of the same type."""
    acts, dh, *rs = numbers(1, (4, 20), *[(4, 5)] * 3, dtype=dtype)
    acts[:, :15] = np.abs(acts[:, :15])  # i, f and o are between 0 and 1
    acts, dh, *rs = (put(device, a) for a in (acts, dh, *rs))
    cells = [drawn(device, kind, *[(4, 5)] * 3, seed=2) for kind in (summed(dtype), dtype)]
    cont, after = put(device, CONT, dtype), put(device, CONT[::-1], dtype)
    dxs = [blank(device, (4, 20), dtype) for _ in cells]

    def run():
        for (c_prev, c, dc), r, dx in zip(cells, rs, dxs, strict=True):
            recurrent.lstm_unit_gradient(acts, c_prev, c, cont, dh, r, after, dc, dx)

    return run, [*dxs, *(dc for _, _, dc in cells)]


@row
def tanh_unit(device, dtype):
    x, r = drawn(device, dtype, (4, 5), (4, 5))
    cont, hs = put(device, CONT, dtype), [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.tanh_unit(x, r, cont, hs[0])
        recurrent.tanh_unit(x, None, cont, hs[1])

    return run, hs


@row
def tanh_unit_gradient(device, dtype):
    h, dh, r = drawn(device, dtype, *[(4, 5)] * 3)
    after, dxs = put(device, CONT, dtype), [blank(device, (4, 5), dtype) for _ in range(2)]

    def run():
        recurrent.tanh_unit_gradient(h, dh, r, after, dxs[0])
        recurrent.tanh_unit_gradient(h, dh, None, after, dxs[1])

    return run, dxs
