"""cupy.cublas.gemm, with the checks of CuPy's own and its copies of what cuBLAS cannot read."""

from ._array import count, ndarray
from ._creation import empty
from ._functions import overlap


def gemm(transa, transb, a, b, out=None, alpha=1.0, beta=0.0):
    """out = alpha op(a) op(b) + beta out, op being as-is (N), transposed (T) or adjoint (H)."""
    for array in (a, b) if out is None else (a, b, out):
        if not isinstance(array, ndarray):
            raise TypeError(f"gemm: Unsupported type {type(array)}")
    assert a.ndim == b.ndim == 2
    assert a.dtype == b.dtype
    if a.dtype.char not in "fdFD":
        raise TypeError("invalid dtype")
    left, right = _op(transa, a._host), _op(transb, b._host)
    (m, k), n = left.shape, right.shape[1]
    assert right.shape[0] == k
    if not (m and n and k):
        raise ValueError(f"cuBLAS refuses an empty matrix: m {m}, n {n}, k {k}")
    if out is None:
        out, beta = empty((m, n), a.dtype, "F"), 0.0
    else:
        assert out.ndim == 2
        assert out.shape == (m, n)
        assert out.dtype == a.dtype
        if overlap(a, out) or overlap(b, out):
            raise ValueError("cuBLAS would read `out` as an operand while it writes it")
    for array, trans in ((a, transa), (b, transb), (out, "N")):
        flags = array.flags
        if not flags.f_contiguous and (trans == "H" or not flags.c_contiguous):
            count("allocations")  # CuPy makes a copy in Fortran's order
    scalar = a.dtype.type
    result = scalar(alpha) * (left @ right)
    if beta:  # like cuBLAS, which does not read `out` otherwise
        result += scalar(beta) * out._host
    out._host[...] = result
    return out


def _op(trans, matrix):
    if trans == "N":
        return matrix
    if trans == "T":
        return matrix.T
    if trans == "H":
        return matrix.T.conj()
    raise TypeError(f"invalid trans (actual: {trans})")
