"""Matrix products inside compiled loops, by the BLAS that NumPy has brought along. Needs Numba.

That BLAS is called by its address: cblas_sgemm and cblas_dgemm of OpenBLAS with integers of 64 bits, as in
NumPy's wheels. Where none such is found (`address` returns None) products are left to NumPy.
"""

import ctypes
import functools
from typing import Any

import numpy as np

from minicaffe.backends.cpu import threads
from minicaffe.backends.cpu.vector_ir import INT, emitted, ir

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # CBLAS's numbers
NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_")


@functools.cache
def address(dtype: Any) -> int | None:
    """The address of cblas_sgemm or cblas_dgemm; None if it is not found, or counts in other integers.

    >>> address(np.float32) is None or address(np.float32) > 0
    True
    """
    letter = {"f": "s", "d": "d"}[np.dtype(dtype).char]
    product = next(filter(None, (threads.of_blas(name.format(letter)) for name in NAMES)), None)
    return product and ctypes.cast(product, ctypes.c_void_p).value


@emitted("c")
def gemm(on: Any, blas: Any, sizes: Any, a: Any, b: Any, add: Any, c: Any) -> None:
    """c = a b, or c += a b, of matrices (m, k) and (k, n) in flat arrays; sizes are (m, n, k).

    a and b are (array, start, distance of rows, whether it lies there transposed), c the first three. Called
    is cblas_?gemm(ROW_MAJOR, ops of a and b, *sizes, 1, a, lda, b, ldb, add, c, ldc).
    """
    builder, pointer = on.builder, ir.IntType(8).as_pointer()
    (x, lda), (y, ldb), (z, ldc) = (
        (builder.bitcast(on.at(array, start), pointer), apart)
        for array, start, apart, *_ in (a, b, c)
    )
    ops = [builder.select(turned, INT(TRANSPOSED), INT(PLAIN)) for *_, turned in (a, b)]
    one, beta = on.real(1), builder.uitofp(add, on.real)
    args = INT(ROW_MAJOR), *ops, *sizes, one, x, lda, y, ldb, beta, z, ldc
    function = ir.FunctionType(ir.VoidType(), [arg.type for arg in args]).as_pointer()
    builder.call(builder.inttoptr(blas, function), args)
