"""Element-wise functions: CuPy's choice of types and its rule of overlap, asked of CuPy itself."""

from typing import Any

import cupy
import numpy as np
from cupy._core._dtype import _raise_if_invalid_cast
from cupy._core._memory_range import may_share_bounds
from cupy._core._scalar import CScalar

from dry_run.memory import current
from dry_run.record import record

OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power",
    "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or",
}  # fmt: skip
COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip
ALONE = {"neg": "negative", "abs": "absolute", "invert": "invert"}
real_getitem = cupy.ndarray.__mro__[1].__getitem__


def is_here(*arrays: Any) -> None:
    """CuPy launches on the current device, wherever an array is."""
    for array in arrays:
        assert array.device.id == current[-1], f"an array of {array.device} on device {current[-1]}"


class Ufunc:
    """A ufunc of CuPy that checks and writes down; positional and named parameters are CuPy's."""

    def __init__(self, real: Any):
        self.real, self.nin, self.__name__ = real, real.nin, real.name

    def __call__(
        self,
        *args: Any,
        out: Any = None,
        dtype: Any = None,
        casting: str = "same_kind",
        _where: Any = None,
    ) -> Any:
        real, inputs, given = self.real, args[: self.nin], args[self.nin :]
        assert len(inputs) == self.nin and len(given) <= 1, f"{real.name} of {len(args)} arguments"
        if given:
            assert out is None
            (out,) = given
        if isinstance(out, tuple):
            (out,) = out
        for value in inputs:
            assert isinstance(value, (cupy.ndarray, np.generic, int, float, bool)), type(value)
        masks = [] if _where is None else [_where]
        arrays = [value for value in (*inputs, *masks) if isinstance(value, cupy.ndarray)]
        is_here(*arrays)
        kinds = [v if isinstance(v, cupy.ndarray) else CScalar(v) for v in inputs]
        op = real._ops.guess_routine(real.name, {}, kinds, dtype, real._out_ops)
        shape = np.broadcast_shapes(*(a.shape for a in arrays), *[] if out is None else [out.shape])
        if out is None:
            out = cupy.empty(shape, op.out_types[0])
        else:
            assert isinstance(out, cupy.ndarray), type(out)
            is_here(out)
            assert out.shape == shape, f"{real.name}: out of shape {out.shape} for {shape}"
            _raise_if_invalid_cast(np.dtype(op.out_types[0]), out.dtype, casting, "output operand")
        for array in arrays:
            if array is not out and may_share_bounds(array, out):
                record.note("hidden copy", real.name, array, out)
        if out.size:
            record.note("kernel", real.name, *inputs, *masks, out)
        return out


def fill(self: Any, value: Any) -> None:
    """ndarray.fill: zeros are set byte by byte where that can be."""
    is_here(self)
    number = np.asarray(value, self.dtype)[()]
    if number == 0 and self.flags.c_contiguous:
        self.data.memset_async(0, self.nbytes)
    elif self.size:
        record.note("kernel", "fill", number, self)


def setitem(self: Any, key: Any, value: Any) -> None:
    """ndarray.__setitem__, as `elementwise_copy` has it."""
    target = real_getitem(self, key)
    if not isinstance(value, cupy.ndarray):
        assert np.ndim(value) == 0, f"a host array of {np.shape(value)} set into a device array"
        fill(target, value)
        return
    assert np.broadcast_shapes(target.shape, value.shape) == target.shape
    if (target.shape, target.strides) == (value.shape, value.strides):
        if target.data.ptr == value.data.ptr:
            return
        if target.flags.c_contiguous and target.dtype == value.dtype:
            target.data.copy_from_async(value.data, value.nbytes)
            return
    cupy._core.elementwise_copy(value, target)


def astype(
    self: Any,
    dtype: Any,
    order: str = "K",
    casting: Any = None,
    subok: Any = None,
    copy: bool = True,
) -> Any:
    """ndarray.astype."""
    if not copy and self.dtype == np.dtype(dtype):
        return self
    made = cupy.empty(self.shape, dtype)
    cupy.copyto(made, self, casting="unsafe")
    return made


def install() -> None:
    """Take the place of every ufunc, and of the operators that use them."""
    found = {}
    for module in (cupy, cupy._core):
        for name, real in list(vars(module).items()):
            if type(real).__name__ == "ufunc" and type(real).__module__.startswith("cupy"):
                found[id(real)] = found.get(id(real)) or Ufunc(real)
                setattr(module, name, found[id(real)])
    kind = cupy.ndarray
    for short, name in OPERATORS.items():
        function = getattr(cupy, name)
        setattr(kind, f"__{short}__", lambda a, b, f=function: f(a, b))
        setattr(kind, f"__r{short}__", lambda a, b, f=function: f(b, a))
        setattr(kind, f"__i{short}__", lambda a, b, f=function: f(a, b, out=a))
    for short, name in COMPARISONS.items():
        function = getattr(cupy, name)
        setattr(kind, f"__{short}__", lambda a, b, f=function: f(a, b))
    for short, name in ALONE.items():
        function = getattr(cupy, name)
        setattr(kind, f"__{short}__", lambda a, f=function: f(a))
    kind.fill, kind.__setitem__, kind.astype = fill, setitem, astype
    kind.copy = lambda self, order="C": astype(self, self.dtype)
