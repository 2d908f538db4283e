"""The device: which array library, transfers, timers. Chosen here only."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.errors import DeviceError, ShapeError, SpecError, mib

TOO_MANY = "elements are more than a kernel's 32-bit index reaches"
FLOATS = "float16", "bfloat16", "float32", "float64"  # types that kernels are made for
PRECISIONS = "high", "highest", "tf32"
NO_TF32 = "float32 is exact: precision tf32 needs CUDA and an A100 or later"


class Device:
    """Where arrays live: `xp` is numpy or cupy, `name` is cpu, cuda:0, ... and `reason` tells why.

    This is the CPU; a GPU is a `CudaDevice` (backends/cuda/device.py). `precision` is that of float32: on the
    CPU convolutions may round 12 times what PyTorch's do, with `highest` 4 times. With `tf32` CUDA multiplies
    on tensor cores, which round what they multiply to 10 bits of mantissa and sum in float32; with `high` by
    three such products for one, where those are faster than multiply-adds, and as exact in long sums.
    """

    is_cuda, has_tf32, number = False, False, 0

    def __init__(self, reason: str, *, name: str = "cpu", xp: Any = np):
        self.reason, self.name, self.xp = reason, name, xp
        self.precision = PRECISIONS[0]

    @property
    def tf32(self) -> bool:
        """Whether float32 is multiplied as TF32."""
        return self.precision == "tf32"

    def __repr__(self) -> str:
        return f"{self.name} ({self.reason}{'; float32 by TF32' * self.tf32})"

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Within it CUDA does what this thread asks on this device, in its stream or one entered before."""
        return contextlib.nullcontext()

    def of_precision(self, precision: str) -> Device:
        """The same for float32 of a precision; what has no TF32 says so. Raises SpecError.

        >>> device("cpu").of_precision("tf32")
        cpu (asked for; float32 is exact: precision tf32 needs CUDA and an A100 or later)
        """
        if precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise SpecError(f"precision: expected one of {known}, got {precision!r}")
        wanted = precision == "tf32"
        if precision == self.precision or (wanted and NO_TF32 in self.reason):
            return self
        other = copy.copy(self)
        other.precision = precision
        if wanted and not self.has_tf32:
            other.reason, other.precision = f"{self.reason}; {NO_TF32}", PRECISIONS[0]
        return other

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        """A host array as an array of this device."""
        with self.current():
            return self.xp.asarray(array, dtype=dtype)

    def to_host(self, array: Any) -> np.ndarray:
        """An array of this device as a NumPy array; waits for the device."""
        return array

    def copy_from_host(self, target: Any, source: Any) -> None:
        """Fill a device array with a host array of the same shape, which is then free for other use."""
        with np.errstate(over="ignore"):
            np.copyto(target, source, casting="same_kind")

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""

    def memory(self) -> int:
        """Bytes of memory this device has in all; 0 where the system does not tell, as Windows."""
        sysconf = getattr(os, "sysconf", lambda name: 0)
        return sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES")

    def check_fits(self, size: int, what: str) -> None:
        """Raise ShapeError if `size` bytes cannot be had, before any of them is taken."""
        if 0 < self.memory() < size:
            raise ShapeError(f"{what} needs {mib(size)}; {self.name} has {mib(self.memory())}")

    def timer(self) -> Callable[[], float]:
        """Start a stopwatch; calling it returns the ms since, by device events on CUDA."""
        start = time.perf_counter()
        return lambda: (time.perf_counter() - start) * 1e3


def device(name: str | None = None) -> Device:
    """The device called `cpu`, `cuda`, `cuda:1`; without a name CUDA if it works, else the CPU.

    >>> device("cpu")
    cpu (asked for)
    """
    if name == "cpu":
        return Device("asked for")
    if name is None:
        try:
            return _cuda(0, "CUDA works")
        except DeviceError as error:
            return Device(str(error))
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not (number.isascii() and number.isdigit())):
        raise DeviceError(f"unknown device {name!r}; expected cpu, cuda or cuda:N")
    try:
        return _cuda(int(number or 0), "asked for")
    except DeviceError as error:
        raise error.at(f"device {name}") from None


def _cuda(number: int, reason: str) -> Device:
    try:
        return gpus().opened(number, reason)
    except ImportError as error:
        raise DeviceError(f"the backend for CUDA cannot be imported: {error}") from None


def gpus() -> Any:
    """The module of GPUs, which lies above this one. Raises ImportError."""
    return importlib.import_module("minicaffe.backends.cuda.device")


def on_cuda(array: Any) -> bool:
    """Whether an array lives on a CUDA device."""
    if array is None or isinstance(array, np.ndarray):
        return False
    return type(array).__module__.partition(".")[0] == "cupy"


def device_of(array: Any) -> Device:
    """Where an array is; what is none yet will be on the CPU."""
    why = "where the array is"
    return gpus().CudaDevice(why, array.device.id) if on_cuda(array) else Device(why)


def where(array: Any) -> tuple[Any, ...]:
    """An array's address, shape, distances and type: two arrays with one of these are one.

    >>> x = np.zeros(2)
    >>> where(x) == where(x[:]), where(x) == where(x.copy())
    (True, False)
    """
    address = array.data.ptr if on_cuda(array) else array.__array_interface__["data"][0]
    return address, array.shape, array.strides, array.dtype
