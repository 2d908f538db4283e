"""Arrays with a gradient: blobs between layers, and parameters of layers; and a version of what passes assume.

Each change of that makes another version; the guards of replays compare it.
"""

from __future__ import annotations

import importlib
import itertools
import math
import operator
import weakref
from typing import Any, ClassVar

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device, device_of
from minicaffe.backends.dispatch import on_its_device
from minicaffe.core.config.declare import Filler
from minicaffe.core.ops import arrays
from minicaffe.core.ops.gemm import gemm
from minicaffe.errors import DataError, DeviceError, SpecError, reason

Shape = tuple[int, ...]
FLOATS = ("float32", "float64", "float16", "bfloat16")
_numbers = itertools.count(1)


def float_type(given: Any) -> np.dtype:
    """The floating-point type of a name or NumPy type. Raises SpecError, and DeviceError for bfloat16.

    >>> float_type("float16")
    dtype('float16')
    """
    try:
        if str(given) == "bfloat16":
            given = importlib.import_module("ml_dtypes").bfloat16
        dtype = np.dtype(given)
    except ImportError:
        raise DeviceError(
            "dtype bfloat16 needs the package ml_dtypes: pip install ml_dtypes"
        ) from None
    except TypeError:
        dtype = None
    if dtype is None or given is None or dtype.name not in FLOATS:
        raise SpecError(f"dtype: expected {', '.join(FLOATS[:-1])} or {FLOATS[-1]}, got {given!r}")
    return dtype


def check_type(dtype: np.dtype, device: Device) -> None:
    """Raise DeviceError if a device cannot add and multiply numbers of a type."""
    if dtype.itemsize != 2:
        return
    if not device.is_cuda:
        raise DeviceError(f"dtype {dtype.name} needs CUDA; on {device} choose float32")
    try:
        one = device.xp.ones((1, 1), dtype)
        gemm(one, one, device.xp.add(one, one))
    except Exception as error:  # CuPy before 14 and GPUs before 2020 have no bfloat16
        version = device.xp.__version__
        problem = f"CuPy {version} cannot compute on {device.name}: {reason(error)[:200]}"
        raise DeviceError(f"dtype {dtype.name}: {problem}") from None


def numbers(array: Any, what: str, shape: object) -> Any:
    """Returns real numbers as an array, of the host if they lie on no device, whose shape is not checked.

    Raises DataError, which says `what` the array is for, for other types and for rows of several lengths.
    """
    try:
        if type(array) is not np.ndarray and not device_of(array).is_cuda:
            array = np.asarray(array)
        real = array.dtype.kind in "fiub" or np.can_cast(array.dtype, np.float64, "same_kind")
        got = None if real else array.dtype
    except (TypeError, ValueError) as error:
        got = reason(error)
    if got is not None:
        raise DataError(f"{what}: expected real numbers of shape {shape}, got {got}")
    return array


def same_type(array: Any, copy: Any) -> Any:
    """The array, or its copy in the buffer `copy` if that has another type."""
    return array if copy is None or array.dtype == copy.dtype else arrays.copy(array, copy)


class Versioned:
    """The base of what passes assume: setting a field of the dataclass, or one of `_assumed`, is a change.

    `version` is one for all objects, so that a guard compares one number. No two changes have the same, also
    of several threads.

    >>> class Scale(Versioned):
    ...     _assumed = frozenset({"factor"})
    >>> scale, before = Scale(), Versioned.version
    >>> scale.other = 1
    >>> Versioned.version == before
    True
    >>> scale.factor = 2
    >>> Versioned.version == before
    False
    """

    version: ClassVar[int] = 0
    _assumed: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        self._changed(name)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._changed(name)

    def _changed(self, name: str) -> None:
        if name in self._assumed or name in getattr(self, "__dataclass_fields__", ()):
            another()


def another() -> None:
    """Make another version: something that passes assume has just been changed."""
    Versioned.version = next(_numbers)


def assumed(name: str) -> Any:
    """A property that is held in the attribute `name`; setting it makes another version."""

    def change(self: Any, value: Any) -> None:
        setattr(self, name, value)
        another()

    return property(operator.attrgetter(name), change)


class Blob:
    """An array `data` and the loss's gradient with respect to it, `diff` (Caffe's Blob).

    `diff` is allocated, as zeros, when it is first read: a blob that needs no gradient has none.
    """

    def __init__(self, shape: Shape, device: Device, dtype: Any):
        self.shape, self.device, self.dtype = shape, device, dtype
        self._data: Any = None
        self._diff: Any = None

    def __repr__(self) -> str:
        text = f"{type(self).__name__}{self.shape} {self.dtype} on {self.device.name}"
        with self.device.current():
            return f"{text}, data {_range(self._data)}, diff {_range(self._diff)}"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def data(self) -> Any:
        """The values, an array of the net's device."""
        if self._data is None:
            self.lie_in(self._zeros())
        return self._data

    @data.setter
    @on_its_device
    def data(self, values: Any) -> None:
        if values is not self._data:
            self.device.xp.copyto(self.data, values)

    @property
    def diff(self) -> Any:
        """The gradient, an array of the net's device."""
        if self._diff is None:
            self.lie_in(self._zeros(), "diff")
        return self._diff

    @diff.setter
    @on_its_device
    def diff(self, values: Any) -> None:
        if values is not self._diff:
            self.device.xp.copyto(self.diff, values)

    @on_its_device
    def _zeros(self) -> Any:
        return aligned.zeros(self.device.xp, self.shape, self.dtype)

    def lie_in(self, array: Any, which: str = "data") -> None:
        """Use an array of its shape as the `data`, or the `diff`."""
        setattr(self, f"_{which}", array)
        another()

    def share(self, other: Blob, diff: bool = True) -> None:
        """Be the same memory as another blob of the same size; without `diff`, of its own gradient."""
        self._data = getattr(other, "values", other.data).reshape(self.shape)
        if diff:
            self._diff = other.diff.reshape(self.shape)
        another()


class Memory:
    """What is known of a parameter's memory: how often it was given to somebody, who may write there."""

    def __init__(self) -> None:
        self._changes, self.others = 0, False  # whether it is a part of memory that others write
        self._lent: list[weakref.ref[Any]] = []  # the views that somebody holds

    def lend(self, array: Any) -> Any:
        """A view of an array that lies there, which all its own views keep alive."""
        self._changes += 1
        self._lent = [ref for ref in self._lent if ref() is not None]
        held = (ref() for ref in self._lent)
        lent = next((one for one in held if one is not None and one.base.array is array), None)
        if lent is None:
            lent = np.asarray(_Lent(array))
            self._lent.append(weakref.ref(lent))
        return lent

    @property
    def changes(self) -> int:
        """Another number if it may have been written since this was last asked."""
        self._changes += self.others or any(ref() is not None for ref in self._lent)
        return self._changes


class _Lent:
    """An array for NumPy to make a view of, whose views do not become those of what is beneath."""

    def __init__(self, array: Any):
        self.array, self.__array_interface__ = array, array.__array_interface__


def _range(array: Any) -> str:
    """The range of an array's values, in short."""
    if array is None:
        return "not taken"
    if not array.size:
        return "empty"
    return f"{float(array.min()):.4g} to {float(array.max()):.4g}"


class Param(Blob):
    """A learnable blob: `diff` is accumulated by the layers that use it."""

    lr_mult, decay_mult = assumed("_lr_mult"), assumed("_decay_mult")
    values = Blob.data  # the same array as `data`, for those who do not write to it

    def __init__(self, shape: Shape, device: Device, dtype: Any, filler: Filler):
        super().__init__(shape, device, dtype)
        self.filler = filler
        self.master: Any = None  # the master weights in float32, for a net of float16 or bfloat16
        self.lr_mult, self.decay_mult = 1.0, 1.0
        self._owner: Param | None = None  # None, not self: a dropped net is freed at once
        self.stale = False  # its diff counts as zero, whatever the memory holds
        self.memory = Memory()

    def lie_in(self, array: Any, which: str = "data") -> None:
        self.memory.others |= which == "data" and self._data is not None
        super().lie_in(array, which)

    @Blob.data.getter  # type: ignore[attr-defined]
    def data(self) -> Any:
        return self.values if self.device.is_cuda else self.memory.lend(self.values)

    @property
    def owner(self) -> Param:
        """The parameter whose memory this one uses: itself, unless layers share it."""
        return self if self._owner is None else self._owner

    @owner.setter
    def owner(self, param: Param) -> None:
        self._owner = None if param is self else param
        another()

    @property
    def diff(self) -> Any:
        if self.owner.stale:
            self.owner.stale = False
            arrays.fill(super().diff, 0)
        return super().diff

    @diff.setter
    @on_its_device
    def diff(self, values: Any) -> None:
        self.owner.stale = False
        if values is not self._diff:
            self.device.xp.copyto(super().diff, values)

    def sums(self) -> tuple[Any, bool]:
        """Returns `diff`, and whether a gradient is to be written there and not added, since it is stale."""
        stale, self.owner.stale = self.owner.stale, False
        return super().diff, stale

    @property
    def learns(self) -> bool:
        """Whether its gradient is needed."""
        return self.lr_mult != 0

    def share(self, other: Blob, diff: bool = True) -> None:
        super().share(other, diff)
        self.memory = getattr(other, "memory", self.memory)
        self.master = getattr(other, "master", None)

    def load(self, values: np.ndarray, rows: Any = ...) -> None:
        """Fill with host values of its shape, or some of its rows."""
        target = self.data if self.master is None else self.master
        self.device.copy_from_host(target[rows], values)
        if self.master is not None:
            self.device.xp.copyto(self.data, self.master)

    def to_host(self) -> np.ndarray:
        """A copy of its values as a host array; float16 and bfloat16 as float32."""
        values = self.device.to_host(self.data if self.master is None else self.master)
        return np.array(values, np.float32 if values.itemsize == 2 else values.dtype)
