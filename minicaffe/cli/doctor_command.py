"""Show what is installed here, which devices work, and what would be used and why.

Under mpiexec it also shows the ranks. --check compares every layer and convolution of a GPU with the CPU, and
replayed iterations with iterations without replay, and measures the GPU's rates, in a table that you can paste
into an issue. Each row is printed as soon as it is known, also for a part that fails; a lost CUDA context ends
the checks.

example:
  minicaffe doctor
  minicaffe doctor --check
  minicaffe doctor --check layers,replays --minutes 10
"""

from __future__ import annotations

import argparse
import math
import os
import platform

import numpy as np

from minicaffe import __version__, backend, caches, cpu
from minicaffe.cli.doctor_check import PARTS, check
from minicaffe.cli.options import device_option, number
from minicaffe.cpu import threads
from minicaffe.data import datasets
from minicaffe.errors import DataError, DeviceError, MinicaffeError, did_you_mean
from minicaffe.parallel.launched import told, world
from minicaffe.runs.environment import NONE, cupy_version, version


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--check",
        metavar="PART,...",
        nargs="?",
        const=PARTS,
        type=parts,
        help=f"check the GPU: {', '.join(PARTS)}; all of these unless some are named",
    )
    parser.add_argument(
        "--minutes", metavar="N", type=number(1), help="end --check after so many minutes"
    )
    device_option(parser)


def run(args: argparse.Namespace) -> int:
    """Tell; of several ranks the first does."""
    if args.minutes and not args.check:
        raise MinicaffeError("--minutes is for --check")
    if world().rank > 0:
        return 0
    lines = [
        ("minicaffe", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
    ]
    packages = ["numpy", "pyyaml", "tqdm", "pillow", "h5py", "lmdb", "numba", "threadpoolctl"]
    packages += ["onnx", "onnxruntime", "safetensors", "protobuf", "tensorboardx"]
    lines += [(name, version(name)) for name in packages]
    lines += [("cupy", cupy_version()), ("blas", blas()), ("cpu cores", str(os.cpu_count()))]
    lines += [("cpu threads", cpu_threads())]
    lines += [("memory", backend.mib(backend.device("cpu").memory()))]
    lines += cuda()
    lines += mpi()
    lines += [("cache", caches.obstacle(caches.folder()) or str(caches.folder()))]
    lines += [("mnist", where("mnist")), ("would use", repr(backend.device()))]
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {text}" for name, text in lines))
    if args.check:
        device = backend.device(args.device)
        if not device.is_cuda:
            raise DeviceError(f"--check is for a GPU; here is {device!r}")
        check(device, args.check, args.minutes or math.inf)
    return 0


def parts(text: str) -> tuple[str, ...]:
    """The parts of --check that a text names."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(
                f"expected some of {', '.join(PARTS)}, got {name!r:.60}{did_you_mean(name, PARTS)}"
            )
    return names


def blas() -> str:
    """NumPy's BLAS."""
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found.get('name')} {found.get('version')}"


def cpu_threads() -> str:
    """How many threads share a batch, and what they run."""
    compiled, blas = cpu.with_blas("implicit", np.empty(0, np.float32))
    how = "compiled loops" if cpu.available() else "NumPy's loops"
    products = "BLAS called from them" if compiled and blas else "products by NumPy"
    try:
        return f"{threads.count()}, {how}, {products}"
    except MinicaffeError as error:
        return str(error)


def cuda() -> list[tuple[str, str]]:
    """Driver, runtime, devices and kernel cache, or why there are none."""
    try:
        first = backend.device("cuda")
    except DeviceError as error:
        return [("cuda", f"none: {str(error).removeprefix('device cuda: ')}")]
    runtime = first.xp.cuda.runtime
    lines = [
        ("cuda", f"driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}")
    ]
    for index in range(runtime.getDeviceCount()):
        found = runtime.getDeviceProperties(index)
        memory = backend.mib(found["totalGlobalMem"])
        text = f"{found['name'].decode()}, compute capability {found['major']}.{found['minor']}, {memory}"
        lines.append((f"cuda:{index}", text))
    cache = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
    return [*lines, ("kernel cache", cache)]


def mpi() -> list[tuple[str, str]]:
    """mpi4py, its library and what it sends by; and, where this is one of several ranks, which."""
    lines = [("mpi4py", version("mpi4py"))]
    if lines[0][1] == NONE:
        return lines
    try:
        ranks, library = world(), told()
    except DeviceError as error:
        return [*lines, ("ranks", str(error))]
    return [
        *lines,
        ("mpi library", library),
        ("ranks", f"{ranks.size}, {ranks.local_size} of them here"),
    ]


def where(name: str) -> str:
    """Where a data set would be read from."""
    try:
        return datasets.found(name) or "not here; training would fetch it (minicaffe fetch mnist)"
    except DataError as error:
        return str(error)
