"""RawModule: CUDA source compiled by the host's C++ compiler behind shim.h, and launched."""

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ._array import buffer_of, here, ndarray, queue
from .cuda import compiler

SHIM = Path(__file__).parent.parent / "shim.h"
HEADERS = SHIM.parent / "include"  # those that NVRTC finds where CUDA is
ORDERS = ("forward", "reversed", "random")  # of threads and blocks
FLAGS = ["-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-fno-gnu-unique"]
FLAGS += ["-Wno-unused-function", "-Wno-unknown-pragmas"]
FLAGS += ["-U_FORTIFY_SOURCE"]  # it takes a jump to another stack for a fault
FLAGS += ["-fsanitize=alignment"]
IGNORED = {"--use_fast_math", "-use_fast_math", "--fmad=false", "-lineinfo", "--device-debug"}
NEEDED = {  # of shim.h, where a source has such words
    "STANDIN_BARRIERS": "__sync|__shfl|__ballot|cluster_meets|extern __shared__",
    "STANDIN_CLUSTERS": "__cluster_dims__",
    "STANDIN_DYNAMIC": "extern __shared__",
}
DYNAMIC = r"\1* const \2 = reinterpret_cast<\1*>(standin::dynamic_memory);"
HOST_ONLY = re.compile(r"#\s*include(?! <cuda_\w+\.h>).*|\bstd::\w+|\bu?int(?:8|16|32|64)_t\b")


class CompilerMissingError(RuntimeError):
    """No C++ compiler was found; set CXX, or skip the test visibly."""


class RawModule:
    """cupy.RawModule; nothing is compiled before the first get_function."""

    def __init__(self, *, code=None, options=(), backend="nvrtc", name_expressions=None):
        if code is None:
            raise TypeError("the stand-in needs `code`")
        if not isinstance(options, tuple):
            raise TypeError(f"options must be a tuple, not {type(options)}")
        if backend != "nvrtc":
            raise ValueError("the stand-in knows no backend but nvrtc")
        self.code, self.options = code, options
        self.name_expressions = tuple(name_expressions or ())

    def get_function(self, name):
        names = self.name_expressions
        if name not in names:  # only what is extern "C" keeps its name
            names = (*names, name)
        library = _library(self.code, self.options, names)
        if name not in self.name_expressions and not hasattr(library, name):
            raise RuntimeError(f'CUDA_ERROR_NOT_FOUND: no name expression or extern "C": {name}')
        return Kernel(library, names.index(name), name)


class Kernel:
    """One kernel; call it with (grid, block, args). It checks the types CUDA would not."""

    def __init__(self, library, number, name):
        self.name = name
        self._launch = getattr(library, f"standin_launch_{number}")
        self._launch.restype = ctypes.c_char_p
        describe = getattr(library, f"standin_types_{number}")
        describe.restype = ctypes.c_char_p
        self.types = describe().decode().split()
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid, block, args, *, shared_mem=0):
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise ValueError(f"{self.name}: CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes shared")
        sizes = _sizes(self.name, grid, (2**31 - 1, 65535, 65535))
        sizes += _sizes(self.name, block, (1024, 1024, 64))
        if math.prod(sizes[3:]) > 1024:
            raise ValueError(f"{self.name}: a block of {block} has more than 1024 threads")
        if len(args) != len(self.types):
            raise TypeError(f"{self.name} takes {len(self.types)} arguments, not {len(args)}")
        values = [
            self._value(i, *pair) for i, pair in enumerate(zip(args, self.types, strict=True))
        ]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        buffers = {
            i: buffer_of(arg._host) for i, arg in enumerate(args) if isinstance(arg, ndarray)
        }
        sizes.append(shared_mem)
        queue(lambda: self._run((ctypes.c_uint * 7)(*sizes), pointers, values, buffers))

    def _run(self, sizes, pointers, values, buffers):
        """Launch it; `values` are what the pointers point to."""
        order = sys.modules[__package__].thread_order
        if order not in ORDERS:
            raise ValueError(f"thread_order is {', '.join(ORDERS)}, not {order!r}")
        if error := self._launch(sizes, pointers, ORDERS.index(order)):
            raise RuntimeError(f"{self.name}: {error.decode()}")
        for i, buffer in buffers.items():
            if not buffer.intact():
                raise MemoryError(f"{self.name} wrote outside its argument {i}")

    def _value(self, index, arg, expected):
        """The argument in host memory, for the launcher to read: a pointer or a number."""
        if isinstance(arg, ndarray):
            here(arg._host)
            if arg.data.ptr % arg.dtype.itemsize:
                raise RuntimeError(f"cudaErrorMisalignedAddress: {self.name}, argument {index}")
            got, value = "p" + arg.dtype.str[1:], np.array(arg.data.ptr, np.uintp)
        elif arg is None:
            got, value = "p", np.array(0, np.uintp)
        elif isinstance(arg, np.ndarray) and arg.size == 1:  # by value
            got, value = f"?{arg.nbytes}", arg
        elif isinstance(arg, (np.generic, bool, int, float)):
            value = np.array(arg)
            got = value.dtype.str[1:]
        else:
            raise TypeError(f"{self.name}, argument {index}: Unsupported type {type(arg)}")
        untyped = got[0] == expected[0] == "p" and (got == "p" or expected == "pv")
        if got != expected and not untyped:
            raise TypeError(f"{self.name}, argument {index}: expected {expected}, got {got}")
        return value


def _sizes(name, size, limits):
    if not isinstance(size, tuple) or not 1 <= len(size) <= 3:
        raise TypeError(f"{name}: {size!r} is not a tuple of one to three sizes")
    sizes = [*size, 1, 1][:3]
    if any(not 1 <= value <= limit for value, limit in zip(sizes, limits, strict=True)):
        raise ValueError(f"{name}: cudaErrorInvalidValue: {size} is not within 1 and {limits}")
    return sizes


@functools.cache
def _library(code, options, names):
    """The shared library for a source, compiled unless the cache folder has it."""
    plain = re.sub(r"//.*|/\*[\s\S]*?\*/", "", code)
    if found := HOST_ONLY.search(plain):
        raise compiler.CompileException(f"NVRTC has no host headers: {found[0]}", code, "", options)
    code = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", DYNAMIC, code)
    command = [*_compiler(), *FLAGS, *_host_options(options)]
    command += [f"-D{flag}" for flag, words in NEEDED.items() if re.search(words, plain)]
    exports = (f"STANDIN_EXPORT({i}, {name})\n" for i, name in enumerate(names))
    source = f'#include "shim.h"\n#line 1 "kernel.cu"\n{code}\n#line 1 "names"\n{"".join(exports)}'
    header = _made(command, '#include "shim.h"\n', "c++-header", "shim.h.gch", options)
    command += ["-I", str(header.parent)]  # found before shim.h, it is taken for it
    library = _made(command, source, "c++", "kernel.so", options)
    return ctypes.PyDLL(str(library))  # holds the GIL: threadIdx is one for all


def compiled(file, name):
    """A library of C++ of our own, under the name that the system is to find it by."""
    command = [*_compiler(), *FLAGS, f"-Wl,-soname,{name}"]
    return _made(command, file.read_text(encoding="utf-8"), "c++", name, ())


def _compiler():
    command = shlex.split(os.environ.get("CXX", "g++"))
    if not shutil.which(command[0]):
        raise CompilerMissingError(f"no C++ compiler: {command[0]} is not on PATH (set CXX)")
    return command


def _made(command, source, language, name, options):
    """The file that the compiler makes of a source, unless the cache folder has it."""
    headers = (file.read_text(encoding="utf-8") for file in (SHIM, *sorted(HEADERS.iterdir())))
    key = hashlib.sha256("\0".join((*command, *headers, source)).encode()).hexdigest()[:32]
    home = Path(tempfile.gettempdir()) / f"minicaffe-standin-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if not (home / key).exists():
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            made = Path(scratch) / key
            made.mkdir()
            written = Path(scratch) / "source"
            written.write_text(source, encoding="utf-8")
            folders = "-I", str(SHIM.parent), "-I", str(HEADERS)
            what = "-x", language, str(written), "-o", str(made / name)
            run = subprocess.run([*command, *folders, *what], capture_output=True, text=True)
            if run.returncode:
                raise compiler.CompileException(run.stderr, source, "kernel.cu", options)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(home / key)
    return home / key / name


def _host_options(options):
    """NVRTC's options as g++ knows them."""
    host = []
    for option in options:
        if option.startswith(("--std=", "-std=")):
            host.append("-" + option.lstrip("-"))
        elif option.startswith(("-D", "-U")):
            host.append(option)
        elif option not in IGNORED:
            raise ValueError(f"the stand-in does not know the compiler option {option}")
    return host if any(option.startswith("-std") for option in host) else ["-std=c++17", *host]
