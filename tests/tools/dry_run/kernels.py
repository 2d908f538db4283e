"""Raw kernels: what a launch gives against what the source declares."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import subprocess
from typing import Any

import cupy
import numpy as np

from dry_run.elementwise import is_here
from dry_run.record import record
from minicaffe.backends.cuda import launch

ARRAYS = {
    "float": "float32", "double": "float64", "__half": "float16", "__nv_bfloat16": "bfloat16",
    "int": "int32", "unsigned char": "uint8", "long long": "int64", "bool": "bool",
    "unsigned long long": "uint64",
}  # fmt: skip
NUMBERS = {
    "int": np.int32, "float": np.float32, "double": np.float64, "unsigned long long": np.uint64,
}  # fmt: skip
# Files of kernels, and the template arguments they were compiled for
asked: set[tuple[str, str]] = set()
LIMITS = (2**31 - 1, 65535, 65535)  # of a grid
DECLARED = r"template <([^>]*)>[^;{}]*?__global__\s+void\s+(\w+)\s*\(([^)]*)\)"


@functools.cache
def expanded(code: str) -> str:
    """A source without what it includes, macros expanded by a C preprocessor."""
    plain = re.sub(r"#include.*", "", code)
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-E", "-P", "-x", "c++", "-"]
    return subprocess.run(command, input=plain, capture_output=True, text=True, check=True).stdout


@functools.cache
def declarations(code: str) -> dict[str, tuple[list[str], list[str]]]:
    """Of each kernel its template's parameters and its own."""
    split = {}
    for template, name, parameters in re.findall(DECLARED, expanded(code)):
        # T, or T = its default
        kinds = [" ".join(part.split()[1:]) for part in template.split(",")]
        split[name] = kinds, [" ".join(part.split()) for part in parameters.split(",")]
    return split


class RawModule:
    """cupy.RawModule."""

    def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: list[str]):
        self.code, self.names = code, name_expressions

    def get_function(self, name: str) -> Kernel:
        assert name in self.names
        return Kernel(self.code, name)


class Kernel:
    """One kernel for one list of template arguments."""

    def __init__(self, code: str, expression: str):
        self.name, arguments = re.fullmatch(r"(\w+)<(.*)>", expression).groups()
        kinds, parameters = declarations(code)[self.name]
        chosen = arguments.split(", ")
        assert len(chosen) <= len(kinds) and all(" = " in kind for kind in kinds[len(chosen) :])
        meant = dict(zip((kind.partition(" ")[0] for kind in kinds), chosen, strict=False))
        self.parameters = [_meant(parameter, meant) for parameter in parameters]
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        for size, limit in zip(grid, LIMITS, strict=False):
            assert type(size) is int and 0 < size <= limit, f"{self.name}: a grid of {grid}"
        assert len(grid) <= 3 and math.prod(block) <= 1024
        assert len(args) == len(self.parameters), f"{self.name} takes {len(self.parameters)}"
        for arg, parameter in zip(args, self.parameters, strict=True):
            self._check(arg, *parameter)
        read = [a for a, (_, is_array, const) in zip(args, self.parameters, strict=True) if const]
        for arg, (_, is_array, const) in zip(args, self.parameters, strict=True):
            if is_array and not const and arg is not None:
                assert not any(_overlap(arg, other) for other in read), f"{self.name}: an overlap"
        record.note("kernel", self.name, *args, grid, block)

    def _check(self, arg: Any, kind: str, is_array: bool, const: bool) -> None:
        if not is_array and kind not in NUMBERS:  # a struct by value: of one entry, CuPy says
            assert isinstance(arg, np.ndarray) and arg.size == 1 and arg.dtype.names, kind
        elif not is_array:
            assert type(arg) is NUMBERS[kind], f"{self.name}: {type(arg)} for a {kind}"
        elif arg is not None:
            assert isinstance(arg, cupy.ndarray), f"{self.name}: {type(arg)} for a {kind}*"
            assert arg.dtype.name == ARRAYS[kind], f"{self.name}: {arg.dtype} for a {kind}*"
            assert arg.data.ptr % arg.dtype.itemsize == 0, (
                f"{self.name}: {arg.data.ptr} for a {kind}*"
            )
            assert arg.flags.c_contiguous, f"{self.name}: strides {arg.strides} of {arg.shape}"
            is_here(arg)


def _meant(parameter: str, template: dict[str, str]) -> tuple[str, bool, bool]:
    """A parameter's type, whether it is a pointer, and whether to what is only read, restrict."""
    kind, pointer, _ = (
        parameter.rpartition("*") if "*" in parameter else (*parameter.rpartition(" ")[:1], "", "")
    )
    kind = re.sub(r"typename Sum<(\w+)>::type", lambda found: _sum(template[found[1]]), kind)
    words = [word for word in kind.split() if word not in ("const", "typename")]
    kind = " ".join(template.get(word, word) for word in words)
    return kind, bool(pointer), "const" in parameter.split() and "__restrict__" in parameter


def _sum(kind: str) -> str:
    """types.cu: the type that sums are taken in."""
    return "double" if kind == "double" else "float"


def _overlap(one: Any, other: Any) -> bool:
    if other is None:
        return False
    first, second = one.data.ptr, other.data.ptr
    return first < second + other.nbytes and second < first + one.nbytes


def install() -> None:
    """Take NVRTC's place, and write down what it is asked for."""
    cupy.RawModule = RawModule
    real = launch.kernels

    def kernels(file: str, template: str, device: int) -> Any:
        asked.add((file, template))
        return real(file, template, device)

    launch.kernels = kernels
