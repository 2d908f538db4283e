"""Device memory and cupy.ndarray: a NumPy array in a guarded buffer, out of the host's reach."""

import ctypes
import sys
import weakref
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

GUARD = 4096  # bytes before and after every buffer
ALIGNED = 512  # every buffer begins at a multiple of so many bytes, as from CuPy's pool
CANARY = np.full(GUARD // 4, 0xFFFA5A5A, np.uint32).view(np.uint8)  # NaN as float32 and float64
POISON = 0xFF  # memory nobody has written: NaN, or -1

memory = SimpleNamespace(used=0)
place = SimpleNamespace(
    device=0, late=[], capture=None, capturing=None, streams=[], before=lambda: None
)  # the current device; uploads yet to be done; the graph, and its stream; streams that were entered; a check
REFUSED = ("synchronizations", "allocations", "uploads")  # while work is captured into one
_buffers = weakref.WeakValueDictionary()  # by the address of their first byte


def count(counter):
    """Add one to a counter of the package; who waits finds all uploads done."""
    if counter in REFUSED and place.capture is not None:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {counter} in a capture")
    package = vars(sys.modules[__package__])
    package[counter] += 1
    if counter == "synchronizations":
        while place.late:
            ctypes.memmove(*place.late.pop(0))


def queue(action):
    """An operation: done now, or noted in the graph that is being captured, for each of its launches."""
    place.before()
    if place.capture is None:
        count("operations")
        action()
    elif place.streams[-1] is place.capturing:
        place.capture.append(action)
    else:
        raise RuntimeError("cudaErrorStreamCaptureImplicit: another stream is used in a capture")


class Buffer(np.ndarray):
    """The bytes of one device allocation, with a guard zone at either end."""

    device = 0

    def intact(self):
        """Whether both guard zones are as they were made."""
        return np.array_equal(self[:GUARD], CANARY) and np.array_equal(self[-GUARD:], CANARY)


def allocate(shape, dtype=float, order="C"):
    """A NumPy array of poisoned memory in a buffer of its own."""
    count("allocations")
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc" and dtype.name != "bfloat16":
        raise ValueError(f"Unsupported dtype {dtype}")
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    whole = bytearray(size + 2 * GUARD + ALIGNED)
    start = -np.frombuffer(whole, np.uint8).ctypes.data % ALIGNED
    buffer = Buffer(size + 2 * GUARD, np.uint8, whole, start)
    buffer[GUARD:-GUARD] = POISON
    buffer[:GUARD] = buffer[-GUARD:] = CANARY
    buffer.device = place.device
    memory.used += size
    weakref.finalize(buffer, _release, size)
    _buffers[buffer.ctypes.data] = buffer
    return np.ndarray(shape, dtype, buffer=buffer, offset=GUARD, order=order)


def _release(size):
    memory.used -= size


def buffer_of(host):
    """The buffer a NumPy array is a view of, or None."""
    while host is not None and not isinstance(host, Buffer):
        host = getattr(host, "base", None)
    return host


def at_address(pointer, shape, dtype, strides):
    """Device memory as a NumPy array of what lies at an address; strides in elements."""
    dtype = np.dtype(dtype)
    size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    start = max((start for start in _buffers if start <= pointer), default=0)
    offset = pointer - start
    if not start or not GUARD <= offset <= len(_buffers[start]) - GUARD - size * dtype.itemsize:
        raise MemoryError(f"{shape} of {dtype} at {pointer:#x} do not lie in one allocation")
    steps = [step * dtype.itemsize for step in strides]
    return here(np.ndarray(shape, dtype, _buffers[start], offset, steps))


def here(host):
    """A NumPy array that is in the memory of the current device. Raises ValueError for one that is not."""
    device = buffer_of(host).device
    if device != place.device:
        raise ValueError(
            "Array device must be same as the current device: "
            f"array device = {device} while current = {place.device}"
        )
    return host


def wrap(result):
    """NumPy's answer as device arrays: a view of device memory, or moved to a new buffer."""
    if isinstance(result, (tuple, list)):
        return type(result)(wrap(item) for item in result)
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    if buffer_of(result) is None:
        host = np.asarray(result)
        order = "F" if host.flags.f_contiguous and not host.flags.c_contiguous else "C"
        result = allocate(host.shape, host.dtype, order)
        result[...] = host
    array = ndarray.__new__(ndarray)
    array._host = result
    return array


def unwrap(value):
    """The NumPy array behind a device array; numbers pass, a host array is refused."""
    if isinstance(value, ndarray):
        return here(value._host)
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(item) for item in value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {np.ndarray}: a host array where CuPy wants its own")
    return value


def store(out, result):
    """Write NumPy's answer into the device array `out`, as an operation with out= does."""
    if not isinstance(out, ndarray):
        raise TypeError(f"out must be a cupy.ndarray, not {type(out)}")
    if out.shape != np.shape(result):
        raise ValueError(f"out has shape {out.shape}; the result has {np.shape(result)}")
    np.copyto(here(out._host), result, casting="same_kind")
    return out


def _index(key):
    """A key for NumPy that gives an array, never a scalar; host arrays may be indices."""
    keys = [part._host if isinstance(part, ndarray) else part for part in _tuple(key)]
    return tuple(keys) if any(part is Ellipsis for part in keys) else (*keys, Ellipsis)


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)


def _masks(key):
    return any(getattr(part, "dtype", None) == np.bool_ for part in _tuple(key))


class Pointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, ptr):
        self.ptr = ptr

    def copy_from_host_async(self, mem, size, stream=None):
        from .cuda import pinned

        count("uploads")
        if not any(
            block.ptr <= mem <= block.ptr + block.nbytes - size for block in pinned.values()
        ):
            count("synchronizations")  # from memory that the system may move: the driver may wait
        place.late.append((self.ptr, mem, size))
        if not sys.modules[__package__].late_copies:
            ctypes.memmove(*place.late.pop())


class ndarray(NDArrayOperatorsMixin):  # noqa: N801
    """cupy.ndarray."""

    __hash__ = None

    def __init__(self, shape, dtype=float, *, order="C"):
        self._host = allocate(shape, dtype, order)

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: wrap(self._host.T))
    data = property(lambda self: Pointer(self._host.ctypes.data))

    @property
    def device(self):
        from . import cuda

        return cuda.Device(buffer_of(self._host).device)

    def get(self, stream=None, order="C", out=None, blocking=True):
        count("synchronizations")
        if out is None:
            return np.array(self._host, order=order)
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
            raise TypeError(f"out must be a numpy.ndarray of {self.dtype}")
        if out.shape != self.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, not {out.shape}")
        out[...] = self._host
        return out

    def set(self, arr, stream=None):
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        count("uploads")
        count("synchronizations")  # from memory that the system may move: the driver may wait
        self._host[...] = arr

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __repr__(self):
        return repr(self.get())

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        if _masks(key):
            count("synchronizations")  # the size of the result is known on the device alone
        return wrap(self._host[_index(key)])  # of any device: a view

    def __setitem__(self, key, value):
        if isinstance(value, ndarray) and value.ndim and _masks(key):
            raise NotImplementedError("an array assigned through a mask")
        if isinstance(value, (list, tuple)):
            raise TypeError(f"Unsupported type {type(value)}")
        target, index, given = here(self._host), _index(key), unwrap(value)
        queue(lambda: target.__setitem__(index, given))

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        function = getattr(sys.modules[__package__], ufunc.__name__, None)
        if function is None or method != "__call__":
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return function(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        function = getattr(sys.modules[__package__], func.__name__, None)
        return NotImplemented if function is None else function(*args, **kwargs)
