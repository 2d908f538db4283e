"""Products by cuBLAS: leading dimensions, types, and whether each matrix lies within one allocation."""

import cupy

from dry_run.memory import room
from dry_run.record import record
from minicaffe.backends.cuda import cublas

HANDLE = 1
BYTES = {0: 4, 1: 8, 2: 2, 14: 2}  # of cupy.cuda.runtime.CUDA_R_...
# Of operands and result
TYPES = {68: {(0, 0), (2, 2), (2, 0), (14, 14), (14, 0)}, 70: {(1, 1)}, 77: {(0, 0)}}


class Blas:
    """cuBLAS's own functions, and of cupy.cuda.cublas what goes with them."""

    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_GEMM_DEFAULT = 68, 70, -1
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
    stream, work = 0, (0, 0)

    @classmethod
    def functions(cls):
        """By cuBLAS's names."""
        return {
            "cublasSetStream_v2": cls.setStream,
            "cublasSetWorkspace_v2": cls.setWorkspace,
            "cublasGemmEx": cls.gemmEx,
            "cublasGemmStridedBatchedEx": cls.gemmStridedBatchedEx,
        }

    @staticmethod
    def setStream(handle, stream):  # noqa: N802
        """It forgets what memory it was given to work in."""
        assert handle == HANDLE and stream == cupy.cuda.get_current_stream().ptr
        Blas.stream, Blas.work = stream, (0, 0)

    @staticmethod
    def setWorkspace(handle, at, size):  # noqa: N802
        assert handle == HANDLE and at % 256 == 0 and size >= 2**22
        start, end = room(at)
        assert start <= at and at + size <= end
        Blas.work = at, at + size

    @classmethod
    def gemmEx(  # noqa: N802
        cls, handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,
        ldc, computeType, algo,
    ):  # fmt: skip
        cls.gemmStridedBatchedEx(
            handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta,
            C, Ctype, ldc, 0, 1, computeType, algo,
        )  # fmt: skip

    @staticmethod
    def gemmStridedBatchedEx(  # noqa: N802
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,
        beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        given = dict(locals())
        for name, value in given.items():
            assert type(value) is int, f"{name} is {type(value)}"
        assert handle == HANDLE and min(m, n, k, batchCount) > 0
        assert Atype == Btype and (Atype, Ctype) in TYPES[computeType]
        left = _span(A, Atype, (k, m) if transa else (m, k), lda, strideA, batchCount)
        right = _span(B, Btype, (n, k) if transb else (k, n), ldb, strideB, batchCount)
        out = _span(C, Ctype, (m, n), ldc, strideC, batchCount)
        assert Blas.stream == cupy.cuda.get_current_stream().ptr and Blas.work[1], "nowhere to work"
        for span in (left, right, Blas.work):
            assert span[1] <= out[0] or out[1] <= span[0], "an operand overlaps the product"
        numbers = [value for name, value in given.items() if name not in ("alpha", "beta")]
        record.note("product", "gemm", *numbers)


def _span(pointer, kind, shape, ld, apart, count):
    """From which address to which `count` matrices lie, counted down their columns."""
    rows, columns = shape
    assert ld >= rows, f"a leading dimension of {ld} for {rows} rows"
    start, end = room(pointer)
    last = pointer + ((count - 1) * apart + (columns - 1) * ld + rows) * BYTES[kind]
    assert start <= pointer and last <= end, (
        f"{count} matrices of {shape} behind {end - pointer} bytes"
    )
    return pointer, last


def install() -> None:
    """Take cuBLAS's place."""
    cupy.cuda.cublas, cupy.cuda.get_cublas_handle = Blas, lambda: HANDLE
    cublas.library = Blas.functions
