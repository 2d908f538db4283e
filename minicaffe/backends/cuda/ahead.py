"""Kernels that are compiled side by side before they run, when a net runs for the first time on a machine.

An iteration asks for its kernels one after the other, and NVRTC compiles one at a time in a process: half a
minute for LeNet. While launches are `waiting`, none is done before somebody reads what they compute, or all
have been asked for; then what they need is compiled by processes side by side, into CuPy's cache, and they are
done in their order. What is computed by CuPy unasked does not wait: so this is for minicaffe's own layers.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from minicaffe.backends.cuda.device import capability
from minicaffe.backends.cuda.launch import kernels, source
from minicaffe.backends.device import Device
from minicaffe.backends.launch_listener import Asked, heard, hearing
from minicaffe.storage import caches

Instance = tuple[str, str, int]  # a file of kernels, its template arguments, and the device
FEW = 4  # kernels that are compiled no sooner by processes, each of which starts CUDA
EACH = 2**30  # bytes of the device's memory that must be free for each of them
MOST, SECONDS = 12, 300


class _Waiting:
    """Hears launches, and has them done when they are compiled."""

    def __init__(self, device: Device):
        self.device = device
        self.asked: list[Asked] = []

    def launched(self, asked: Asked) -> bool:
        """It is done later."""
        self.asked.append(asked)
        return False

    def host(self, why: str) -> None:
        """Somebody reads or writes what the launches do."""
        self.end()

    def end(self) -> None:
        """Compile what the launches need, and do them."""
        asked, self.asked = self.asked, []
        compile_all(self.device, [one.instance for one in asked if one.instance is not None])
        with self.device.current():
            for one in asked:
                one.do(one)


_allowed: set[int] = set()  # devices whose launches may wait


@contextlib.contextmanager
def allowed(device: Device) -> Iterator[None]:
    """Within it the first run of what repeats on a device has its kernels compiled side by side."""
    _allowed.add(device.number)
    try:
        yield
    finally:
        _allowed.discard(device.number)


@contextlib.contextmanager
def waiting(device: Device) -> Iterator[None]:
    """Within it launches on CUDA wait until all are compiled, where that is allowed and nobody hears them."""
    if device.number not in _allowed or hearing() is not None:
        yield
        return
    by = _Waiting(device)
    try:
        with heard(by):
            yield
    finally:
        by.end()


def compile_all(device: Device, instances: Iterable[Instance]) -> int:
    """Compile kernels that CuPy's cache lacks; returns by how many processes. A failure shows at launch."""
    unknown = [one for one in dict.fromkeys(instances) if not _mark(one).exists()]
    free = int(device.xp.cuda.Device(device.number).mem_info[0])
    count = min(len(unknown) // 2, os.cpu_count() or 1, free // EACH, MOST)
    if len(unknown) < FEW or count < 2:
        return 0
    for process in [_start(unknown[first::count]) for first in range(count)]:
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return count


def _start(instances: list[Instance]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "minicaffe.backends.cuda.ahead"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **quiet)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as to:
        json.dump(instances, to)
    return process


def _mark(instance: Instance) -> Path:
    """The file that says that kernels were compiled into CuPy's cache."""
    import cupy

    file, template, number = instance
    where = os.environ.get("CUPY_CACHE_DIR", ""), cupy.__version__, capability(number)
    content = repr((source(file, template)[0], template, where)).encode()
    return caches.folder() / "kernels" / hashlib.sha256(content).hexdigest()


def main() -> None:
    """Compile the kernels that standard input names, each alone."""
    import cupy

    for file, template, number in json.load(sys.stdin):
        with contextlib.suppress(Exception), cupy.cuda.Device(number):  # its launch says why
            kernels(file, template, number)
            caches.keep(_mark((file, template, number)), b"")


if __name__ == "__main__":
    main()
