"""cupy.cuda.cublas: products of matrices at addresses, counted down the columns, with cuBLAS's checks."""

import ctypes

import numpy as np

from ._array import at_address, count, place

HANDLE, VERSION = 0xB1A5, 130000
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
CUBLAS_GEMM_DEFAULT = -1
_NAMES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}  # cupy.cuda.runtime.CUDA_R_...
_COMPUTE = {
    CUBLAS_COMPUTE_32F: (np.float32, ctypes.c_float),
    CUBLAS_COMPUTE_64F: (np.float64, ctypes.c_double),
    CUBLAS_COMPUTE_32F_FAST_TF32: (np.float32, ctypes.c_float),
}
_TYPES = {  # (of a and b, of the result) that cuBLAS takes
    CUBLAS_COMPUTE_32F: {(0, 0), (2, 2), (2, 0), (14, 14), (14, 0)},
    CUBLAS_COMPUTE_64F: {(1, 1)},
    CUBLAS_COMPUTE_32F_FAST_TF32: {(0, 0)},
}


class CUBLASError(RuntimeError):
    """CuPy's own error for a status of cuBLAS; of the library's, what it was for."""

    last = ""

    def __init__(self, status):
        super().__init__(f"CUBLAS_STATUS_INVALID_VALUE: {self.last}" if status == 7 else status)


def getVersion(handle):  # noqa: N802
    return VERSION


def gemmEx(  # noqa: N802
    handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc,
    computeType, algo,
):  # fmt: skip
    gemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta,
        C, Ctype, ldc, 0, 1, computeType, algo,
    )  # fmt: skip


def gemmStridedBatchedEx(  # noqa: N802
    handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta,
    C, Ctype, ldc, strideC, batchCount, computeType, algo,
):  # fmt: skip
    given = locals()
    for name, value in given.items():
        if type(value) is not int:
            raise TypeError(f"{name} must be an int, not {type(value)}")
    action = product(**given)
    if place.capture is not None:  # CuPy's own rule, in cublas.pyx
        raise NotImplementedError(
            "calling cuBLAS API during stream capture is currently unsupported"
        )
    count("operations")
    action()


def product(
    handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta,
    C, Ctype, ldc, strideC, batchCount, computeType, algo,
):  # fmt: skip
    """What does C[i] = alpha op(A[i]) op(B[i]) + beta C[i]; op is as-is (0) or transposed (1)."""
    _check(handle == HANDLE, "a handle that is none")
    _check({transa, transb} <= {CUBLAS_OP_N, CUBLAS_OP_T}, f"operations {transa} and {transb}")
    _check(min(m, n, k, batchCount) > 0, f"an empty product: {batchCount} of {m} {n} {k}")
    _check(algo == CUBLAS_GEMM_DEFAULT, f"algorithm {algo}")
    _check(Atype == Btype, f"types {Atype} and {Btype}")
    _check((Atype, Ctype) in _TYPES[computeType], f"types {Atype} and {Ctype}")
    apart = strideC >= ldc * (n - 1) + m  # one behind the other, or column by column in turns
    in_turns = strideC >= m and ldc >= strideC * (batchCount - 1) + m
    _check(batchCount == 1 or apart or in_turns, "matrices of C that overlap")
    compute, scalar = _COMPUTE[computeType]
    left = _matrices(
        A, Atype, (m, k) if transa == CUBLAS_OP_N else (k, m), lda, strideA, batchCount
    )
    right = _matrices(
        B, Btype, (k, n) if transb == CUBLAS_OP_N else (n, k), ldb, strideB, batchCount
    )
    out = _matrices(C, Ctype, (m, n), ldc, strideC, batchCount)
    _check(not any(np.may_share_memory(x, out) for x in (left, right)), "C among A or B")
    left = left.swapaxes(1, 2) if transa else left
    right = right.swapaxes(1, 2) if transb else right
    one, old = (scalar.from_address(at).value for at in (alpha, beta))

    def action():
        with np.errstate(all="ignore"):
            given = left.astype(compute), right.astype(compute)
            if computeType == CUBLAS_COMPUTE_32F_FAST_TF32:
                given = map(_tf32, given)
            result = compute(one) * np.matmul(*given)
            if old:  # like cuBLAS, which does not read C otherwise
                result += compute(old) * out.astype(compute)
            out[...] = result

    return action


def _tf32(array):
    """Rounded to 10 bits of mantissa; what is not finite as it is."""
    rounded = ((array.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    return np.where(np.isfinite(array), rounded, array)


def _matrices(pointer, kind, shape, ld, apart, count):
    _check(ld >= shape[0], f"a leading dimension of {ld} for {shape[0]} rows")
    _check(apart >= 0, f"a stride of {apart}")
    shape, strides = (count, *shape), (apart, 1, ld)
    return at_address(pointer, shape, _dtype(kind), strides)


def _dtype(kind):
    if _NAMES[kind] == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NAMES[kind])


def _check(holds, what):
    if not holds:
        raise CUBLASError(f"CUBLAS_STATUS_INVALID_VALUE: {what}")
