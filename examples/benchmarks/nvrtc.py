"""NVRTC by ctypes: what it makes of a kernel, on a machine without a GPU.

CuPy compiles only where there is a device. This is given the same source and options, and asks for what the
assembler says of each kernel. Needs the wheels nvidia-cuda-nvrtc and, for headers, nvidia-cuda-runtime; or
those of CUDA 12, whose names end in -cu12. CUDA 13 is taken where both are installed.
"""

import contextlib
import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CUPY = ("-ftz=true", "--device-as-default-execution-space")  # options that CuPy 14.2 adds
LIBRARY = (
    "cu13/lib/libnvrtc.so.13",
    "cuda_nvrtc/lib/libnvrtc.so.12",
)  # of the wheels, the newest first
HEADERS = "cu13/include/cuda_fp16.h", "cuda_runtime/include/cuda_fp16.h"
SAID = re.compile(
    r"Compiling entry function '(?P<symbol>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Built:
    """What the assembler says of a kernel: registers of a thread, bytes of it in memory, of a block shared."""

    registers: int
    stack: int
    spilled: int
    shared: int

    dict = asdict


@functools.cache
def wheel(*names: str) -> Path | None:
    """The first of files or folders of NVIDIA's wheels that is installed; None where none is."""
    package = importlib.util.find_spec("nvidia")
    places = package.submodule_search_locations if package else None
    paths = (Path(place, name) for name in names for place in places or ())
    return next((path for path in paths if path.exists()), None)


def lacking() -> list[str]:
    """The wheels that are needed and not installed."""
    needed = {"nvidia-cuda-nvrtc": LIBRARY, "nvidia-cuda-runtime": HEADERS}
    return [name for name, places in needed.items() if wheel(*places) is None]


@functools.cache
def library() -> ctypes.CDLL | None:
    """NVRTC, if it is installed."""
    path = wheel(*LIBRARY)
    return path and ctypes.CDLL(str(path))


def version() -> str:
    """As `12.9`."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def built(code: str, expressions: list[str], options: tuple[str, ...], sm: int) -> list[Built]:
    """Compile for an architecture, such as 90; raises ValueError with what NVRTC says against it."""
    with _compiled(code, expressions, (*options, "--ptxas-options=-v"), sm) as (program, said):
        by_symbol = {one["symbol"]: _built(one) for one in SAID.finditer(said)}
        return [by_symbol[_symbol(program, name)] for name in expressions]


@contextlib.contextmanager
def _compiled(
    code: str, expressions: list[str], options: tuple[str, ...], sm: int
) -> Iterator[tuple[ctypes.c_void_p, str]]:
    """A program with what the compiler says of it."""
    program, given = ctypes.c_void_p(), [*options, *CUPY, f"-arch=sm_{sm}"]
    if header := wheel(*HEADERS):
        given.append(f"-I{header.parent}")
    _ask("nvrtcCreateProgram", ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None)
    try:
        for name in expressions:
            _ask("nvrtcAddNameExpression", program, name.encode())
        words = (ctypes.c_char_p * len(given))(*(word.encode() for word in given))
        failed = library().nvrtcCompileProgram(program, len(given), words)
        size = ctypes.c_size_t()
        _ask("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        _ask("nvrtcGetProgramLog", program, log)
        said = log.value.decode()
        if failed:
            raise ValueError(f"NVRTC, sm_{sm}, {expressions[0]}: {said}")
        yield program, said
    finally:
        _ask("nvrtcDestroyProgram", ctypes.byref(program))


def _built(said: re.Match) -> Built:
    shared = re.search(r"(\d+) bytes smem", said["rest"])
    spilled = int(said["stores"]) + int(said["loads"])
    return Built(
        int(said["registers"]), int(said["stack"]), spilled, int(shared[1]) if shared else 0
    )


def _symbol(program: ctypes.c_void_p, expression: str) -> str:
    """A kernel's name in machine code."""
    name = ctypes.c_char_p()
    _ask("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(name))
    return name.value.decode()


def _ask(function: str, *args: object) -> None:
    if status := getattr(library(), function)(*args):
        raise RuntimeError(f"{function}: status {status}")
