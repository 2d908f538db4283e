"""Matrix products inside compiled loops, by the BLAS that NumPy has brought along. Needs Numba.

That BLAS is called by its address: cblas_sgemm and cblas_dgemm of OpenBLAS with integers of 64 bits, as in
NumPy's wheels. Where none such is found (`address` gives None) products are left to NumPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from minicaffe.ops.loops import helper

made: Any = intrinsic
ir: Any = cgutils.ir  # llvmlite's
ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # CBLAS's numbers
NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_")


@functools.cache
def address(dtype: Any) -> int | None:
    """The address of cblas_sgemm or cblas_dgemm; None if it is not found, or counts in other integers.

    >>> address(np.float32) is None or address(np.float32) > 0
    True
    """
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    letter = {"f": "s", "d": "d"}[np.dtype(dtype).char]
    files = [library["filepath"] for library in threadpool_info() if library["user_api"] == "blas"]
    files.sort(key=lambda file: "numpy" not in file)  # NumPy's own before others'
    for file, name in itertools.product(files, NAMES):
        with contextlib.suppress(OSError, AttributeError):
            function = getattr(ctypes.CDLL(file), name.format(letter))
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


@made
def _call(
    context: Any, where: Any, ops: Any, sizes: Any, one: Any, pointers: Any, steps: Any, beta: Any
) -> Any:
    """cblas_?gemm(ROW_MAJOR, *ops, *sizes, one, a, lda, b, ldb, beta, c, ldc)."""
    three = types.UniTuple(types.int64, 3)
    sizes_of = types.int64, types.UniTuple(types.int64, 2), three, one, three, three, one

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        enum, integer, pointer = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
        where, ops, sizes, one, pointers, steps, beta = args
        real, pick = one.type, builder.extract_value
        a, b, c = (builder.inttoptr(pick(pointers, i), pointer) for i in range(3))
        lda, ldb, ldc = (pick(steps, i) for i in range(3))
        given = [enum(ROW_MAJOR), *(builder.trunc(pick(ops, i), enum) for i in range(2))]
        given += [*(pick(sizes, i) for i in range(3)), one, a, lda, b, ldb, beta, c, ldc]
        kinds = (
            [enum] * 3 + [integer] * 3 + [real] + [pointer, integer] * 2 + [real, pointer, integer]
        )
        function = ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        builder.call(builder.inttoptr(where, function), given)
        return target.get_dummy_value()

    return types.void(*sizes_of), generate


@helper
def gemm(blas: int, sizes: Any, a: Any, b: Any, add: bool, c: Any) -> None:
    """c = a b, or c += a b, of matrices (m, k) and (k, n) in flat arrays; sizes are (m, n, k).

    a and b are (array, start, distance of rows, whether it lies there transposed), c the first three.
    """
    (x, x0, ldx, x_turned), (y, y0, ldy, y_turned), (z, z0, ldz) = a, b, c
    one, size = z.dtype.type(1), z.itemsize
    ops = (TRANSPOSED if x_turned else PLAIN, TRANSPOSED if y_turned else PLAIN)
    pointers = (x.ctypes.data + x0 * size, y.ctypes.data + y0 * size, z.ctypes.data + z0 * size)
    _call(blas, ops, sizes, one, pointers, (ldx, ldy, ldz), one if add else one * 0)
