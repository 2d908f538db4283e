"""dot and matmul, with the temporary arrays that CuPy takes for them."""

import numpy as np

from ._array import allocate, count, ndarray, store, unwrap, wrap
from ._functions import overlap


def dot(a, b, out=None):
    result = np.dot(unwrap(a), unwrap(b))
    if out is None:
        return wrap(result)
    if out.dtype != result.dtype:
        raise ValueError("Not supported dtype combination.")
    if not out.flags.c_contiguous:
        raise ValueError("Output array must be C-contiguous")
    _count_temporaries(a, b, out)
    return store(out, result)


def matmul(a, b, out=None):
    result = np.matmul(unwrap(a), unwrap(b))
    if out is None:
        return wrap(result)
    if out.dtype != result.dtype or not out.flags.c_contiguous:
        count("allocations")
    _count_temporaries(a, b, out)
    return store(out, result)


def _count_temporaries(a, b, out):
    """CuPy copies an operand that cuBLAS cannot read; of a batch, any that is not C-contiguous."""
    if overlap(a, out) or overlap(b, out):
        count("allocations")
    batched = max(a.ndim, b.ndim) > 2
    if out.size == 1 and not batched:  # an inner product: multiplied, then summed
        count("allocations")
    for operand in (a, b):
        flags = operand.flags
        if not (flags.c_contiguous or (flags.f_contiguous and not batched)):
            count("allocations")
    if batched and a.shape[:-2] != b.shape[:-2]:  # broadcast: three arrays of pointers
        allocate(3)


ndarray.dot = dot
