"""Setting one number and watching another without holding the GIL. Needs Numba.

Both go through atomic instructions: a compiler would take a plain load out of the loop.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from minicaffe.ops.loops import compiled

made: Any = intrinsic


@made
def _load(context: Any, array: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = target.make_array(signature.args[0])(target, builder, args[0]).data
        return builder.load_atomic(at, ordering="acquire", align=8)

    return types.int64(array), generate


@made
def _store(context: Any, array: Any, value: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = target.make_array(signature.args[0])(target, builder, args[0]).data
        builder.store_atomic(args[1], at, ordering="release", align=8)
        return target.get_dummy_value()

    return types.void(array, types.int64), generate


@compiled
def spin(mine: Any, count: int, theirs: Any, wanted: int, looks: int) -> bool:
    """Set mine[0] = count, then look up to `looks` times; whether theirs[0] was seen as wanted.

    >>> import numpy as np
    >>> spin(np.zeros(1, np.int64), 3, np.ones(1, np.int64), 1, 10)
    True
    """
    _store(mine, count)
    for _ in range(looks):  # noqa: SIM110  (Numba compiles no `any`)
        if _load(theirs) == wanted:
            return True
    return False
