"""The functions of CuPy that the project may use: NumPy's, with CuPy's parameters and limits."""

import numpy as np

from ._array import _tuple, count, ndarray, place, queue, store, unwrap, wrap

UFUNCS = """
    abs absolute add subtract multiply divide true_divide floor_divide remainder power
    negative reciprocal square sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arctan
    sinh cosh tanh arcsinh sign floor ceil trunc rint copysign maximum minimum fmax fmin hypot
    greater greater_equal less less_equal equal not_equal isfinite isinf isnan signbit
    logical_and logical_or logical_not bitwise_and bitwise_or bitwise_xor invert
"""

# parameters that may be given by position, those that must be named, and the functions
TABLE = [
    ("a axis out keepdims", "", "all amax amin any max min"),
    ("a axis", "out keepdims", "argmax argmin"),
    ("a axis dtype out keepdims", "", "mean prod sum"),
    ("a axis dtype out ddof keepdims", "", "std var"),
    ("a axis dtype out", "", "cumsum"),
    ("a a_min a_max out", "", "clip"),
    ("a axis", "", "expand_dims squeeze"),
    ("a axis1 axis2", "", "swapaxes"),
    ("a source destination", "", "moveaxis"),
    ("a axes", "", "transpose"),
    ("a newshape order", "", "reshape"),
    ("a order", "", "ravel"),
    ("array shape", "", "broadcast_to"),
    ("tup axis out", "dtype casting", "concatenate stack"),
    ("a b axes", "", "tensordot"),
]
METHODS = """
    all any max min argmax argmin mean prod sum std var cumsum clip squeeze swapaxes ravel take
"""
FORWARDED = "copy fill flatten repeat reshape round transpose view"
VIEWS = ("reshape", "transpose", "view")


CUB = ("sum", "prod", "mean", "max", "amax", "min", "amin")
CUB_TYPES = {"summed": "lLqQefdFD", "others": "bBhHiIlLqQefdFD"}


def cub_takes(host, axis, dtype, name):
    """Whether CuPy lets CUB reduce an array, which makes the result apart and takes work for it.

    It does so by default, for axes behind which memory holds no other.
    """
    auto = name in ("sum", "prod", "mean") and dtype is None
    if host.dtype.char not in CUB_TYPES["summed" if auto else "others"]:
        return False
    if dtype is not None and np.dtype(dtype) != host.dtype:
        return False
    axes = tuple(range(host.ndim)) if axis is None else _tuple(axis)
    axes = sorted(one % host.ndim for one in axes)
    if len(axes) == host.ndim:
        return True
    together = axes == list(range(axes[0], axes[-1] + 1))
    first, last = axes[0] == 0, axes[-1] == host.ndim - 1
    return together and ((host.flags.c_contiguous and last) or (host.flags.f_contiguous and first))


def overlap(array, out):
    return isinstance(array, ndarray) and np.may_share_memory(array._host, out._host)


class ufunc:  # noqa: N801
    """An element-wise function; like CuPy's it knows out, dtype and casting, and no `where`."""

    def __init__(self, host):
        self.host, self.nin, self.nout, self.__name__ = host, host.nin, host.nout, host.__name__

    def __call__(self, *args, out=None, dtype=None, casting="same_kind"):
        inputs, given = args[: self.nin], args[self.nin :]
        if given:
            if out is not None or len(given) > 1:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            (out,) = given
        if isinstance(out, tuple):
            (out,) = out
        for array in inputs:
            if not isinstance(array, (ndarray, np.generic, bool, int, float, complex)):
                raise TypeError(f"Unsupported type {type(array)}")
        if out is not None and not isinstance(out, ndarray):
            raise TypeError(f"out must be a cupy.ndarray, not {type(out)}")
        hosts = [unwrap(array) for array in inputs]
        if out is not None:  # CuPy copies an input that `out` overlaps but is not the same object
            for array in inputs:
                if array is not out and overlap(array, out):
                    count("allocations")
        made = []

        def action():
            with np.errstate(all="ignore"):
                made[:] = [self.host(*hosts, out=unwrap(out), dtype=dtype, casting=casting)]

        if out is None:
            count("allocations") if place.capture is not None else queue(action)
            return wrap(made[0])
        queue(action)
        return out


def _function(name, positional, named):
    host, order = getattr(np, name), positional.split()
    known = {*order, *named.split()}

    def call(*args, **kwargs):
        if len(args) > len(order) or not known.issuperset(kwargs):
            raise TypeError(f"cupy.{name} takes ({positional}) and by name ({named})")
        given = dict(zip(order, args, strict=False)) | kwargs
        first, out = given.pop(order[0]), given.pop("out", None)
        if not isinstance(first, (ndarray, tuple, list)):
            raise TypeError(f"cupy.{name}: Unsupported type {type(first)}")
        if name in CUB and cub_takes(first._host, given.get("axis"), given.get("dtype"), name):
            # Beside the result, which is made in any case
            for _ in range(2 if out is not None else 1):
                count("allocations")
        given = {_NUMPY.get(key, key): unwrap(value) for key, value in given.items()}
        source = unwrap(first)

        def result():
            with np.errstate(all="ignore"):
                return host(source, **given)

        if out is None:
            count("operations")
            return wrap(result())
        queue(lambda: store(out, result()))
        return out

    call.__name__ = name
    return call


_NUMPY = {"newshape": "shape"}
FUNCTIONS = {name: row[:2] for row in TABLE for name in row[2].split()}
ALL = {name: ufunc(getattr(np, name)) for name in UFUNCS.split()}
ALL |= {name: _function(name, *parameters) for name, parameters in FUNCTIONS.items()}


def where(condition, x=None, y=None):
    if x is None and y is None:
        count("synchronizations")
        return wrap(np.nonzero(unwrap(condition)))
    return wrap(np.where(unwrap(condition), unwrap(x), unwrap(y)))


def take(a, indices, axis=None, out=None):
    if isinstance(indices, np.ndarray):
        indices = wrap(indices)
    result = np.take(unwrap(a), unwrap(indices), axis)
    if out is not None and out.dtype != result.dtype:
        raise TypeError("Output dtype mismatch")
    return wrap(result) if out is None else store(out, result)


def _astype(self, dtype, order="K", casting=None, subok=None, copy=True):
    result = self._host.astype(dtype, order=order, copy=copy)
    return self if result is self._host else wrap(result)


def _forward(name):
    def method(self, *args, **kwargs):
        host = self._host if name in VIEWS else unwrap(self)
        if name == "fill":
            given = unwrap(args)
            queue(lambda: host.fill(*given))
            return None
        if name not in VIEWS:
            count("operations")
        return wrap(getattr(host, name)(*unwrap(args), **kwargs))

    return method


ALL |= {"where": where, "take": take}
ndarray.astype = _astype
for _name in METHODS.split():
    setattr(ndarray, _name, ALL[_name])
for _name in FORWARDED.split():
    setattr(ndarray, _name, _forward(_name))
