"""Commands on this installation: doctor and completion."""

import argparse
import os
import platform
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from minicaffe import __version__
from minicaffe.backends import cpu
from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.cli import COMMANDS, command_of
from minicaffe.cli.options import OnDevice
from minicaffe.cli.parser import Arg, CommandOptions, add_options
from minicaffe.errors import DeviceError, MinicaffeError, needed, pip_install, say
from minicaffe.storage import caches
from minicaffe.tools.data import datasets
from minicaffe.tools.parallel import mpi_library, world
from minicaffe.tools.training.speed import NONE, cupy_version, version


class Doctor(OnDevice):
    """Show what is installed here, which devices work, and what would be used and why.

    Under mpiexec it also shows the ranks. Each GPU computes a small product, which is compared with NumPy's.

    example:
      minicaffe doctor
    """

    def __call__(self) -> None:
        if world().rank > 0:
            return
        lines = [
            ("minicaffe", __version__),
            ("python", f"{platform.python_version()} on {platform.platform()}"),
        ]
        packages = ["numpy", "pyyaml", "tqdm", "pillow", "h5py", "lmdb", "numba"]
        packages += ["onnx", "onnxruntime", "safetensors", "protobuf", "tensorboardx"]
        lines += [(name, version(name)) for name in packages]
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        lines += [("cupy", cupy_version()), ("blas", f"{blas.get('name')} {blas.get('version')}")]
        lines, memory = [*lines, ("cpu cores", str(os.cpu_count()))], backend.device("cpu").memory()
        compiled, calls_blas = cpu.with_blas("implicit", np.float32)
        how = "compiled loops" if cpu.available() else "NumPy's loops"
        products = "BLAS called from them" if compiled and calls_blas else "products by NumPy"
        lines += [("cpu threads", _or_why(lambda: f"{threads.count()}, {how}, {products}"))]
        lines += [("memory", backend.mib(memory) if memory else "not told"), *cuda(), *mpi()]
        lines += [("cache", caches.obstacle(caches.folder()) or str(caches.folder()))]
        missing = "not here; training would fetch it (minicaffe fetch mnist)"
        lines += [("mnist", _or_why(lambda: datasets.found("mnist") or missing))]
        lines += [("would use", repr(backend.device()))]
        width = max(len(name) for name, _ in lines)
        say(*(f"{name:<{width}}  {text}" for name, text in lines))


def _or_why(text: Callable[[], str]) -> str:
    """Returns a text, or why there is none."""
    try:
        return text()
    except MinicaffeError as error:
        return str(error)


def cuda() -> list[tuple[str, str]]:
    """Driver, runtime, devices and kernel cache, or why there are none."""
    try:
        first = backend.device("cuda")
    except DeviceError as error:
        return [("cuda", f"none: {str(error).removeprefix('device cuda: ')}")]
    runtime = first.xp.cuda.runtime
    versions = f"driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}"
    lines = [("cuda", versions)]
    for index in range(runtime.getDeviceCount()):
        gpu = runtime.getDeviceProperties(index)
        memory = backend.mib(gpu["totalGlobalMem"])
        text = f"{gpu['name'].decode()}, compute capability {gpu['major']}.{gpu['minor']}, {memory}"
        lines.append((f"cuda:{index}", f"{text}, {computes(index)}"))
    cache = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
    return [*lines, ("kernel cache", cache)]


def computes(index: int) -> str:
    """Whether a GPU's product of matrices is NumPy's, in words."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    try:
        device = backend.device(f"cuda:{index}")
        with device.current():
            right = np.array_equal(device.to_host(device.asarray(a) @ device.asarray(a.T)), a @ a.T)
    except Exception as error:  # whatever CuPy and CUDA raise: that is what is asked here
        return f"DOES NOT COMPUTE: {' '.join(str(error).split())}"
    return "computes" if right else "COMPUTES WRONGLY"


def mpi() -> list[tuple[str, str]]:
    """mpi4py, its library and what it sends by; and, where this is one of several ranks, which."""
    lines = [("mpi4py", version("mpi4py"))]
    if lines[0][1] == NONE:
        return lines
    try:
        ranks, library = world(), mpi_library()
    except DeviceError as error:
        return [*lines, ("ranks", str(error))]
    here = f"{ranks.size}, {ranks.local_size} of them here"
    return [*lines, ("mpi library", library), ("ranks", here)]


SHELLS = ("bash", "zsh", "fish", "tcsh")
FILES = {"model", "images", "source", "runs", "input", "output", "data", "weights", "run", "resume"}


class Completion(CommandOptions):
    """Print the script with which a shell completes minicaffe's commands and options.

    It needs the extra `completion`.

    example:
      minicaffe completion bash > ~/.local/share/bash-completion/completions/minicaffe
      minicaffe completion zsh > ~/.zfunc/_minicaffe
    """

    shell: Annotated[str, Arg("shell", choices=SHELLS), "SHELL", f"one of {', '.join(SHELLS)}"]

    def __call__(self) -> None:
        remedy = f"which the extra brings: {pip_install('completion')}"
        with needed(MinicaffeError(f"completion needs shtab, {remedy}")):
            import shtab
        print(shtab.complete(whole_parser(shtab.FILE), self.shell))


def whole_parser(files: Any) -> argparse.ArgumentParser:
    """One parser with every command and its options; what takes a file completes as `files` says."""
    whole = argparse.ArgumentParser(prog="minicaffe", allow_abbrev=False)
    commands = whole.add_subparsers(dest="command")
    for name, text in COMMANDS.items():
        parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_options(parser, command_of(name))
        for action in parser._actions:
            if action.dest in FILES and action.choices is None:
                action.complete = files  # type: ignore[attr-defined]
    return whole
