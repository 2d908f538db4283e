"""The CUDA kernels, in the .cu files beside this: compiled when a type first needs them, and launched."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any

import numpy as np

from minicaffe.errors import ShapeError

THREADS = 256  # of a CUDA block, in every launch
GRID = 65535  # blocks at the most; a thread then takes more than one element
CTYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double"}
HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
OPTIONS = ("-std=c++17",)  # of NVRTC; CuPy adds -ftz=true and the GPU's architecture
_here = threading.local()


@functools.cache
def kernels(file: str, template: str, device: int) -> dict[str, Any]:
    """Every kernel of minicaffe/kernels/`file`, by name, for one list of template arguments; compiled once."""
    import cupy

    code, names = source(file, template)
    expressions = [f"{name}<{template}>" for name in names]
    module = cupy.RawModule(code=code, options=OPTIONS, name_expressions=expressions)
    return dict(zip(names, map(module.get_function, expressions), strict=True))


def source(file: str, template: str) -> tuple[str, list[str]]:
    """What is compiled of minicaffe/kernels/`file` for a list of template arguments, and its kernels' names.

    >>> source("im2col.cu", "float")[1][0]
    'im2col'
    """
    folder = resources.files("minicaffe.kernels")
    code = "".join((folder / part).read_text(encoding="utf-8") for part in ("types.cu", file))
    headers = [header for ctype, header in HEADERS.items() if ctype in template]
    code = "".join(f"#include <{header}>\n" for header in headers) + code
    return code, re.findall(r"__global__\s+void\s+(\w+)", code)


def launch(file: str, name: str, total: int, out: Any, *args: Any, of: Any = ()) -> None:
    """Run kernel `name` for the type of `out`, and structs `of`, over `total` elements; an int is an int32."""
    if total + GRID * THREADS >= 2**31:
        raise ShapeError(f"{name}: {total} elements are more than a kernel's 32-bit index reaches")
    blocks = min((total + THREADS - 1) // THREADS, GRID)
    launch_blocks(file, name, (blocks,), (out, *of), total, *args)


def launch_blocks(
    file: str, name: str, grid: tuple[int, ...], types: tuple[Any, ...], *args: Any
) -> None:
    """Run a grid of blocks of a kernel for `types`: arrays of such a type, numbers, names of structs."""
    for arg in args:
        if type(arg) is int and arg >= 2**31:
            raise ShapeError(
                f"{name}: {arg} elements are more than a kernel's 32-bit index reaches"
            )
    if 0 in grid:
        return
    template = ", ".join(CTYPES[t.dtype.name] if hasattr(t, "dtype") else str(t) for t in types)
    typed = [np.int32(arg) if type(arg) is int else arg for arg in args]
    kernel = kernels(file, template, types[0].device.id)[name]
    if (by := getattr(_here, "by", None)) is not None:
        by.launched(name, template, grid, tuple(typed))
    kernel(grid, (THREADS,), tuple(typed))


@contextlib.contextmanager
def heard(by: Any) -> Iterator[None]:
    """Within it `by` hears what this thread has CUDA do: by.launched(kernel, types, ...), by.host(why)."""
    before, _here.by = getattr(_here, "by", None), by
    try:
        yield
    finally:
        _here.by = before


class Refusing:
    """Hears what is asked for in a capture."""

    def launched(self, *kernel: object) -> None:
        """A kernel is welcome."""

    def host(self, why: str) -> None:
        """What no graph can hold is not. Raises RuntimeError."""
        raise RuntimeError(f"in a capture {why}")


def tell(why: str) -> None:
    """Say that CUDA is asked for what no graph can hold, if somebody hears it."""
    if (by := getattr(_here, "by", None)) is not None:
        by.host(why)
