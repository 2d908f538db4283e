"""Matrix products inside compiled loops, by the BLAS that NumPy has brought along. Needs Numba.

That BLAS is called by its address: cblas_sgemm and cblas_dgemm of OpenBLAS with integers of 64 bits, as in
NumPy's wheels. Where none such is found (`address` returns None) products are left to NumPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from typing import Any

import numpy as np
from numba.core import types

from minicaffe.backends.cpu.vector_ir import INT, LONG, ir, made

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
def gemm(typing: Any, blas: Any, sizes: Any, a: Any, b: Any, add: Any, c: Any) -> Any:
    """c = a b, or c += a b, of matrices (m, k) and (k, n) in flat arrays; sizes are (m, n, k).

    a and b are (array, start, distance of rows, whether it lies there transposed), c the first three. Called
    is cblas_?gemm(ROW_MAJOR, ops of a and b, *sizes, 1, a, lda, b, ldb, add, c, ldc).
    """

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        pick, (where, sizes, *matrices, add, c_) = builder.extract_value, args
        parts = [[pick(one, i) for i in range(3)] for one in (*matrices, c_)]
        pointer, places = ir.IntType(8).as_pointer(), []
        for kind, (array, start, _) in zip((a, b, c), parts, strict=True):
            data = target.make_array(kind[0])(target, builder, array).data
            places.append(builder.bitcast(builder.gep(data, [start]), pointer))
        (_, _, lda), (_, _, ldb), (_, _, ldc) = parts
        turned, plain = INT(TRANSPOSED), INT(PLAIN)
        ops = [builder.select(pick(one, 3), turned, plain) for one in matrices]
        real = target.get_data_type(c[0].dtype)
        one, beta = real(1), builder.uitofp(add, real)
        given = [INT(ROW_MAJOR), *ops, *(pick(sizes, i) for i in range(3)), one]
        given += [places[0], lda, places[1], ldb, beta, places[2], ldc]
        kinds = [INT] * 3 + [LONG] * 3 + [real] + [pointer, LONG] * 2
        function = ir.FunctionType(ir.VoidType(), [*kinds, real, pointer, LONG]).as_pointer()
        builder.call(builder.inttoptr(where, function), given)
        return target.get_dummy_value()

    return types.void(blas, sizes, a, b, types.boolean, c), generate
