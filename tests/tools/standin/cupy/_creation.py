"""Arrays made and copied, with the parameters of CuPy."""

import numpy as np

from ._array import ndarray, queue, unwrap, wrap


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def full(shape, fill_value, dtype=None, order="C"):
    if dtype is None:
        dtype = np.result_type(unwrap(fill_value))
    array = empty(shape, dtype, order)
    array._host.fill(unwrap(fill_value))
    return array


def zeros(shape, dtype=float, order="C"):
    return full(shape, 0, dtype, order)


def ones(shape, dtype=float, order="C"):
    return full(shape, 1, dtype, order)


def empty_like(prototype, dtype=None):
    return empty(prototype.shape, dtype or prototype.dtype)


def zeros_like(a, dtype=None):
    return zeros(a.shape, dtype or a.dtype)


def ones_like(a, dtype=None):
    return ones(a.shape, dtype or a.dtype)


def full_like(a, fill_value, dtype=None):
    return full(a.shape, fill_value, dtype or a.dtype)


def arange(start, stop=None, step=1, dtype=None):
    start, stop = (0, start) if stop is None else (start, stop)
    return wrap(np.arange(start, stop, step, dtype))


def array(obj, dtype=None, copy=True, order="K"):
    if isinstance(obj, ndarray):
        return obj.astype(dtype or obj.dtype, order=order, copy=copy)
    return wrap(np.array(obj, dtype, order=order))


def asarray(a, dtype=None, order=None):
    return array(a, dtype, False, order or "K")


def ascontiguousarray(a, dtype=None):
    return array(a, dtype, False, "C")


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    return np.asarray(a, order=order)


def copyto(dst, src, casting="same_kind", where=None):
    if not isinstance(dst, ndarray):
        raise TypeError(f"Unsupported type {type(dst)}")
    mask, target, source = True if where is None else unwrap(where), unwrap(dst), unwrap(src)
    queue(lambda: np.copyto(target, source, casting=casting, where=mask))
