"""The operations of a step as data: what is called, on which arrays, read or written, with which numbers.

kind, name     as the record has them: kernel, product, fill, copy, upload
template       the template arguments of a kernel
arrays         {name: {use, at, shape, dtype}}: use is r, w or rw (uses.py), at is the address
numbers        {name: integer}, by the names that the kernel's source or cuBLAS gives them
grid, block    of a kernel of ours
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cupy
import numpy as np

from dry_run import kernels
from dry_run.products import BYTES, Blas
from dry_run.record import Operation, lies, record
from dry_run.uses import uses
from minicaffe.backends.cuda import cublas
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.inputs import BlobShape

REAL = {2: np.float16, 4: np.float32, 8: np.float64}
Array = dict[str, Any]


@dataclass(frozen=True)
class Call(Operation):
    """An operation, with what its arguments are called."""

    told: Mapping[str, Any] = field(default_factory=dict, compare=False)


class Kernel(kernels.Kernel):
    """A kernel that tells its arguments' names."""

    def __init__(self, code: str, expression: str):
        super().__init__(code, expression)
        self.template = expression.partition("<")[2][:-1]
        _, parameters = kernels.declarations(code)[self.name]
        self.names = [parameter.split("*")[-1].split()[-1] for parameter in parameters]
        self.uses = uses(kernels.expanded(code))[self.name]

    def __call__(self, grid: Any, block: Any, args: Any) -> None:
        super().__call__(grid, block, args)
        named = dict(zip(self.names, args, strict=True))
        for struct in [one for one in args if isinstance(one, np.ndarray)]:
            named |= {name: struct[name][0] for name in struct.dtype.names}
        numbers = {k: int(v) for k, v in named.items() if isinstance(v, np.integer)}
        read_too = numbers.get("add", 1)  # else the result is not added to what is there
        arrays = {
            name: lying(array, self.uses[name] if read_too else self.uses[name][-1])
            for name, array in named.items()
            if isinstance(array, cupy.ndarray)
        }
        shape = {"grid": list(grid), "block": list(block)}
        tell({"template": self.template, "arrays": arrays, "numbers": numbers, **shape})


class NamedBlas(Blas):
    """cuBLAS that tells its arguments' names; matrices as (count, columns, rows), or (1, ..) where shared."""

    @classmethod
    def gemmStridedBatchedEx(cls, *given: Any) -> None:  # noqa: N802
        super().gemmStridedBatchedEx(*given)
        names = list(inspect.signature(Blas.gemmStridedBatchedEx).parameters)
        n = dict(zip(names, given, strict=True))
        scalar = (ctypes.c_double if n["computeType"] == 70 else ctypes.c_float).from_address
        parts = {
            "A": (n["A"], n["Atype"], n["k"], n["m"], n["strideA"], "r"),
            "B": (n["B"], n["Btype"], n["n"], n["k"], n["strideB"], "r"),
            "C": (n["C"], n["Ctype"], n["n"], n["m"], n["strideC"], "w"),
        }
        arrays = {}
        for name, (at, kind, columns, rows, apart, use) in parts.items():
            use = "rw" if name == "C" and scalar(n["beta"]).value else use
            count = n["batchCount"] if apart else 1
            dtype = np.dtype(REAL[BYTES[kind]]).name
            shape = [count, columns, rows]
            arrays[name] = {"use": use, "at": at, "shape": shape, "dtype": dtype}
        numbers = {key: n[key] for key in ("m", "n", "k", "batchCount", "computeType")}
        tell({"arrays": arrays, "numbers": numbers})


def tell(told: Mapping[str, Any]) -> None:
    """Have the last operation tell more."""
    last = record.operations[-1]
    record.operations[-1] = Call(last.kind, last.name, last.given, told)


def lying(array: Any, use: str) -> Array:
    """An array, by where it lies; an axis that is only repeated counts once."""
    _, at, shape, strides, dtype = lies(array)
    return _told(at, shape, strides, dtype, use)


def _told(at: int, shape: Any, strides: Any, dtype: str, use: str) -> Array:
    pairs = zip(shape, strides, strict=True)
    own = [n if step or n == 0 else 1 for n, step in pairs]
    return {"use": use, "at": at, "shape": own, "dtype": dtype}


def listed(operations: list[Operation]) -> list[dict[str, Any]]:
    """Operations as JSON has them, those queued on the device and the uploads; of a graph all that it holds."""
    found = []
    for op in operations:
        told = op.told if isinstance(op, Call) else _others(op)
        one = {"kind": op.kind, "name": op.name, **told}
        found += listed(list(op.given)) if op.kind == "graph" else [one]
    return found


def _others(op: Operation) -> dict[str, Any]:
    """What CuPy's own functions, fills and copies are given: the last array of a function is its result."""
    found = [value for value in op.given if isinstance(value, tuple) and value[0] == "array"]
    numbers = [value for value in op.given if type(value) is int]
    size = {"size": numbers[-1]} if op.name in ("memcpy", "memset") else {}
    result = 0 if op.kind == "copy" else len(found) - 1
    arrays = {
        str(i): _told(*array[1:], "w" if i == result else "r") for i, array in enumerate(found)
    }
    return {"arrays": arrays, "numbers": size}


def with_batch(spec: NetSpec, batch: int) -> NetSpec:
    """A net whose sources give so many samples."""
    layers = []
    for layer in spec.layers:
        given = dict(layer.options)
        if "batch_size" in given:
            given["batch_size"] = batch
        if layer.type == "Input":
            given["shape"] = tuple(BlobShape(dim=(batch, *one.dim[1:])) for one in given["shape"])
        layers.append(replace(layer, options=given))
    return replace(spec, layers=tuple(layers))


def install() -> None:
    """Have kernels and products tell the names of their arguments."""
    kernels.Kernel = Kernel
    cupy.cuda.cublas, cublas.library = NamedBlas, NamedBlas.functions
