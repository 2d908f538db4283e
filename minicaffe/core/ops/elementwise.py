"""One pass over all entries: y = y(x), and dx = dy y'(x), for each row of formulas.py."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.backends.formulas import FORMULAS, on_blocks

BLOCK = 2048  # entries that NumPy evaluates a formula on at a time, so that they stay in the cache
LIGHT = 8 * BLOCK  # where all that is in between is whether an entry passes, a byte


@op(entries="x out")
def forward(name: str, x: Any, numbers: tuple[float, ...], out: Any) -> Any:
    """out = y(x, *numbers), for the formula `name`. `out` may be x itself.

    >>> forward("Clip", np.array([-7.0, 0.5, 7.0]), (0, 6), np.empty(3))
    array([0. , 0.5, 6. ])
    """
    whole, typed = FORMULAS[name].whole, tuple(map(x.dtype.type, numbers))
    if whole is not None:
        whole(x, *typed, out=out)
        return
    y, x, out = on_blocks(name, "y", x.dtype), x.reshape(-1), out.reshape(-1)
    with np.errstate(all="ignore"):  # infinities and NaNs are none's fault
        for start in range(0, out.size, BLOCK):
            here = slice(start, start + BLOCK)
            out[here] = y(x[here], *typed)


@op(entries="dy x y out")
def gradient(name: str, dy: Any, x: Any, y: Any, numbers: tuple[float, ...], out: Any) -> Any:
    """dx = dy slope(x, y, *numbers), for the formula `name`. `out` may be dy itself.

    >>> y = np.array([0.5])
    >>> gradient("Sigmoid", np.ones(1), y, y, (), np.empty(1))
    array([0.25])
    """
    slope, typed = on_blocks(name, "slope", x.dtype), tuple(map(x.dtype.type, numbers))
    block = BLOCK if FORMULAS[name].whole is None else LIGHT
    dy, x, y, out = (array.reshape(-1) for array in (dy, x, y, out))
    with np.errstate(all="ignore"):
        for start in range(0, out.size, block):
            here = slice(start, start + block)
            np.multiply(dy[here], slope(x[here], y[here], *typed), out=out[here])
