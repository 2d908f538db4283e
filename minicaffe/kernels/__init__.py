"""The CUDA kernels' source, in the .cu files beside this; and who hears of their launches."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any, NamedTuple

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


@functools.cache
def parameters(file: str, kernel: str) -> dict[str, int]:
    """The names of a kernel's parameters before the first macro, each with its place.

    >>> parameters("average.cu", "average")
    {'total': 0, 'mean': 1, 'x': 2, 'share': 3, 'skip': 4}
    """
    code = (resources.files("minicaffe.kernels") / file).read_text(encoding="utf-8")
    (declared,) = re.findall(rf"__global__\s+void\s+{kernel}\(([^()]*)", code)
    names = re.findall(r"(\w+)\s*(?:,|$)", declared)
    return {name: place for place, name in enumerate(names)}


class Asked(NamedTuple):
    """Work that CUDA is asked for: a kernel, or a function of CuPy's, its arguments, and how it is done."""

    name: str
    types: str
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    do: Callable[[tuple[Any, ...]], object]


@contextlib.contextmanager
def heard(by: Any) -> Iterator[Any]:
    """Within it `by` hears what this thread asks of CUDA: by.launched(asked), by.host(why).

    The former says whether it is to be done now. Gives `by`.
    """
    before, _here.by = hearing(), by
    try:
        yield by
    finally:
        _here.by = before


def hearing() -> Any:
    """Who hears what this thread asks of CUDA; None if nobody does."""
    return getattr(_here, "by", None)


def ask(
    name: str,
    types: str,
    grid: tuple[int, ...],
    args: tuple[Any, ...],
    do: Callable[[tuple[Any, ...]], object],
) -> None:
    """Have some work done; or not, if somebody hears it who says no."""
    made = Asked(name, types, grid, args, do)
    if (by := hearing()) is None or by.launched(made):
        made.do(made.args)


def tell(why: str) -> None:
    """Say that CUDA is asked for what no graph can hold, if somebody hears it."""
    if (by := hearing()) is not None:
        by.host(why)
