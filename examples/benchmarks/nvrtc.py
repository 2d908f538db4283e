"""NVRTC by ctypes: what it makes of a kernel, on a machine without a GPU.

CuPy compiles only where there is a device. This is given the same source and options, and asks for what the
assembler says of each kernel. Needs the wheel nvidia-cuda-nvrtc-cu12, for headers nvidia-cuda-runtime-cu12.
"""

import ctypes
import functools
import importlib.util
import re
from dataclasses import asdict, dataclass
from pathlib import Path

CUPY = ("-ftz=true", "--device-as-default-execution-space")  # options that CuPy 14.2 adds
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
def wheel(name: str, inside: str) -> Path | None:
    """A file or folder of one of NVIDIA's wheels; None where it is not installed."""
    try:
        found = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    places = found.submodule_search_locations if found else None
    return next((path for place in places or () if (path := Path(place, inside)).exists()), None)


@functools.cache
def library() -> ctypes.CDLL | None:
    """NVRTC, if it is installed."""
    path = wheel("cuda_nvrtc", "lib/libnvrtc.so.12")
    return path and ctypes.CDLL(str(path))


def version() -> str:
    """As `12.9`."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def built(code: str, expressions: list[str], options: tuple[str, ...], sm: int) -> list[Built]:
    """Compile for an architecture, such as 90; raises ValueError with what NVRTC says against it."""
    program, given = ctypes.c_void_p(), [*options, *CUPY, f"-arch=sm_{sm}", "--ptxas-options=-v"]
    if headers := wheel("cuda_runtime", "include"):
        given.append(f"-I{headers}")
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
        found = {one["symbol"]: _built(one) for one in SAID.finditer(said)}
        return [found[_symbol(program, name)] for name in expressions]
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
