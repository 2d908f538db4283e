"""The CUDA kernels: their sources, kernels/*.cu, how they are compiled, and how they are launched."""

import functools
import re
from importlib import resources
from typing import Any

import numpy as np

from minicaffe.backends.cuda.emit import EMITTED
from minicaffe.backends.device import TOO_MANY
from minicaffe.backends.launch_listener import Asked, ask
from minicaffe.errors import ShapeError

CTYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double"}
HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
FOLDER = resources.files("minicaffe.backends.cuda.kernels")
NAMES = re.compile(r"__global__\s+void\s+(\w+)")
OPTIONS = ("-std=c++17",)  # of NVRTC; CuPy adds -ftz=true and the GPU's architecture
THREADS = 256  # of a block, where nothing else is said
SECTOR = 8  # neighbours that are read at once: 32 bytes of float32
BLOCKS = 256  # that are enough to keep a device busy
EACH = 16  # entries at the least that a thread is worth starting for
GRID = 65535  # blocks at the most; a thread then takes more than one element
SHARED = 220 << 10  # bytes of shared memory at the most, where a launch says how many


def source(file: str, template: str) -> tuple[str, list[str]]:
    """What is compiled of kernels/`file` for a list of template arguments, and its kernels' names.

    >>> source("im2col.cu", "float")[1][0]
    'im2col'
    """

    def text(part: str) -> str:
        if part in EMITTED:
            return EMITTED[part]()
        whole = (FOLDER / part).read_text(encoding="utf-8")
        return re.sub(r'#include "(.*)"\n', lambda include: text(include[1]), whole)

    code = text("types.cu") + text(file)
    headers = [header for ctype, header in HEADERS.items() if ctype in template]
    code = "".join(f"#include <{header}>\n" for header in headers) + code
    return code, NAMES.findall(code)


@functools.cache
def files() -> dict[str, str]:
    """The file of kernels/ that each kernel is in, by its name."""
    sources = [path for path in FOLDER.iterdir() if path.name.endswith(".cu")]
    return {name: path.name for path in sources for name in NAMES.findall(path.read_text("utf-8"))}


@functools.cache
def parameters(kernel: str) -> dict[str, int]:
    """The names of a kernel's parameters before the first macro, each with its place.

    >>> parameters("average")
    {'total': 0, 'mean': 1, 'x': 2, 'share': 3, 'skip': 4}
    """
    code = (FOLDER / files()[kernel]).read_text(encoding="utf-8")
    (declared,) = re.findall(rf"__global__\s+void\s+{kernel}\(([^()]*)", code)
    return {name: place for place, name in enumerate(re.findall(r"(\w+)\s*(?:,|$)", declared))}


@functools.cache
def kernels(file: str, template: str, device: int) -> dict[str, Any]:
    """Every kernel of kernels/`file`, by name, for one list of template arguments; compiled once."""
    import cupy

    code, names = source(file, template)
    expressions = [f"{name}<{template}>" for name in names]
    module = cupy.RawModule(code=code, options=OPTIONS, name_expressions=expressions)
    functions = dict(zip(names, map(module.get_function, expressions), strict=True))
    for function in functions.values() if "extern __shared__" in code else ():
        function.max_dynamic_shared_size_bytes = SHARED
    return functions


def launch(name: str, total: int, out: Any, *args: Any, of: Any = ()) -> None:
    """`launch_typed` for the type of `out`, and structs `of`."""
    launch_typed(name, total, (out, *of), *args)


def launch_typed(name: str, total: int, types: tuple[Any, ...], *args: Any) -> None:
    """Run kernel `name`, made for the types of some arrays, over `total` entries; an int is an int32."""
    if total + GRID * THREADS >= 2**31:
        raise ShapeError(f"{name}: {total} {TOO_MANY}")
    launch_blocks(name, (min(-(-total // THREADS), GRID),), types, total, *args)


def launch_blocks(
    name: str, grid: Any, types: tuple[Any, ...], *args: Any, threads: int = 0, shared: int = 0
) -> None:
    """Run blocks of a kernel, with `shared` bytes more, for `types`: arrays, numbers, or names, of such."""
    if (most := max((arg for arg in args if type(arg) is int), default=0)) >= 2**31:
        raise ShapeError(f"{name}: {most} {TOO_MANY}")
    if 0 in grid:
        return
    template = ", ".join(CTYPES[t.dtype.name] if hasattr(t, "dtype") else str(t) for t in types)
    typed = tuple(np.int32(arg) if type(arg) is int else arg for arg in args)

    def do(asked: Asked) -> None:
        assert asked.instance is not None
        by = kernels(*asked.instance)[name]
        by(asked.grid, (threads or THREADS,), asked.args, shared_mem=shared)

    ask(name, template, grid, typed, do, (files()[name], template, types[0].device.id))


def fill(x: Any, value: float) -> None:
    """x = value, everywhere."""
    ask("fill", "", (), (x, value), lambda asked: asked.args[0].fill(asked.args[1]))


def in_sum_type(work: Any, like: Any) -> Any:
    """Flat work on CUDA in the type that sums of `like` are taken in; none where there is no work."""
    if work is None:
        return like.reshape(-1)[:0]
    dtype = np.dtype(np.float64 if like.dtype == np.float64 else np.float32)
    work = work[-work.data.ptr % dtype.itemsize // work.itemsize :]  # it may begin between two
    return work[: work.size - work.size % max(1, dtype.itemsize // work.itemsize)].view(dtype)
