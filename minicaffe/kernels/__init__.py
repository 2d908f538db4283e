"""The CUDA kernels' source, in the .cu files beside this; and who hears of their launches."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any

CTYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double"}
HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
OPTIONS = ("-std=c++17",)  # of NVRTC; CuPy adds -ftz=true and the GPU's architecture
_here = threading.local()


def source(file: str, template: str) -> tuple[str, list[str]]:
    """What is compiled of minicaffe/kernels/`file` for a list of template arguments, and its kernels' names.

    >>> source("im2col.cu", "float")[1][0]
    'im2col'
    """
    folder = resources.files("minicaffe.kernels")

    def text(part: str) -> str:
        whole = (folder / part).read_text(encoding="utf-8")
        return re.sub(r'#include "(.*)"\n', lambda found: text(found[1]), whole)

    code = text("types.cu") + text(file)
    headers = [header for ctype, header in HEADERS.items() if ctype in template]
    code = "".join(f"#include <{header}>\n" for header in headers) + code
    return code, re.findall(r"__global__\s+void\s+(\w+)", code)


@contextlib.contextmanager
def heard(by: Any) -> Iterator[None]:
    """Within it `by` hears what this thread has CUDA do: by.launched(kernel, types, ...), by.host(why)."""
    before, _here.by = getattr(_here, "by", None), by
    try:
        yield
    finally:
        _here.by = before


def told(kernel: str, types: str, grid: tuple[int, ...], args: tuple[Any, ...]) -> None:
    """Say that a kernel is launched, if somebody hears it."""
    if (by := getattr(_here, "by", None)) is not None:
        by.launched(kernel, types, grid, args)


def tell(why: str) -> None:
    """Say that CUDA is asked for what no graph can hold, if somebody hears it."""
    if (by := getattr(_here, "by", None)) is not None:
        by.host(why)
