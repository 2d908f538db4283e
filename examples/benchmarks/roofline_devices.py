"""Devices as their makers publish them, and the least time that they leave to a kernel and to a step.

    work = max(flops / peak, bytes / bandwidth, instructions / slots, turns x latency)
    time of a kernel = max(work / filled, floor)

`filled` is the share of the device that the kernel's blocks fill. The floor is what a launch takes, however
little it does: LAUNCH, from the host into a stream, or NODE, of a CUDA graph. Both are assumptions.
"""

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from roofline_costs import Row

# us, assumed. LAUNCH: of a kernel from Python; the driver's share is commonly told as 2 to 3, the rest is
# CuPy's or PyTorch's own. NODE: of a kernel that does next to nothing, in a graph. A. Gray, Getting Started
# with CUDA Graphs (NVIDIA, 2019), has on a V100 3.4 for a kernel of 2.9 in a graph, 3.8 in a stream of C++.
LAUNCH, NODE = 5.0, 2.0
SLOTS = 4  # warp instructions that a multiprocessor issues a cycle: NVIDIA's tuning guides, Turing to Hopper
FEW = 2  # waves below which the last one counts as whole
WARPS = {75: 32, 80: 64, 90: 64}  # that a multiprocessor holds, by compute capability
KERNELS = Path(__file__).resolve().parent / "results" / "kernels_cuda.json"


@dataclass(frozen=True)
class Device:
    """Peak float32 outside of tensor cores and dense TF32 in TFLOP/s, memory in GB/s, the clock in GHz.

    0 is what it has not, or what is not modelled. The latency, in ns, is a thread's wait for a load that finds
    its line in the L2 cache.
    """

    name: str
    tflops: float
    gbs: float
    source: str
    latency: float = 0.0
    tf32: float = 0.0
    multiprocessors: int = 0
    clock: float = 0.0
    sm: int = 0


DEVICES = {
    "k80": Device(
        "K80, one of its two GPUs",
        4.37,  # 2496 cores x 2 x 0.875 GHz, the highest clock; 2.8 at the base clock
        240.0,
        "half of NVIDIA, Tesla K80 Board Specification BD-07317-001, 2015: 8.74 TFLOP/s, 480 GB/s",
        229.0,  # 200 cycles at 0.875 GHz
    ),
    "t4": Device(
        "T4",
        8.1,
        320.0,
        "NVIDIA T4 Tensor Core GPU datasheet; Turing Architecture whitepaper",
        multiprocessors=40,
        clock=1.59,
        sm=75,
    ),
    "a100": Device(
        "A100 SXM 80 GB",
        19.5,
        2039.0,
        "NVIDIA A100 Tensor Core GPU datasheet; Ampere Architecture whitepaper",
        tf32=156.0,
        multiprocessors=108,
        clock=1.41,
        sm=80,
    ),
    "h100": Device(
        "H100 SXM",
        67.0,
        3350.0,
        "NVIDIA H100 Tensor Core GPU datasheet; Hopper Architecture whitepaper",
        tf32=495.0,
        multiprocessors=132,
        clock=1.98,
        sm=90,
    ),
}
NOW = {name: device for name, device in DEVICES.items() if device.sm}  # that minicaffe runs on


def parts(row: Row, device: Device) -> dict[str, float]:
    """us of one launch's arithmetic, bytes, instructions and waiting, each as if nothing else took time.

    >>> more = {"latency": 50.0, "tf32": 8.0, "multiprocessors": 10, "clock": 0.5}
    >>> device = Device("made up", 1.0, 100.0, "nowhere", **more)
    >>> parts(Row("kernel", "copy", bytes=1_000_000, flops=500_000, instructions=60_000), device)
    {'arithmetic': 0.5, 'bytes': 10.0, 'instructions': 3.0, 'waits': 0.0}
    >>> parts(Row("product", "gemm", bytes=100_000, flops=40_000_000, template="Tf32"), device)["arithmetic"]
    5.0
    >>> parts(Row("kernel", "loop", bytes=100, flops=100, turns=1000), device)["waits"]
    50.0
    """
    peak = device.tf32 if row.tf32 and device.tf32 else device.tflops
    slots = SLOTS * device.multiprocessors * device.clock * 1e3  # in a us
    return {
        "arithmetic": row.flops / peak * 1e-6,
        "bytes": row.bytes / device.gbs * 1e-3,
        "instructions": row.instructions / slots if slots else 0.0,
        "waits": row.turns * device.latency * 1e-3 if row.turns > 1 else 0.0,
    }


def filled(row: Row, device: Device) -> float:
    """The share of the device that a launch's blocks fill, on average; 1 if their number is not known.

    >>> device = Device("made up", 1.0, 100.0, "nowhere", multiprocessors=10, sm=90)
    >>> [filled(Row("kernel", "copy", 1, 1, blocks=n, threads=1024), device) for n in (10, 20, 30, 50)]
    [0.5, 1.0, 0.75, 1.0]
    """
    if not row.blocks or not device.multiprocessors:
        return 1.0
    waves = row.blocks / (device.multiprocessors * resident(row, device.sm))
    return waves / math.ceil(waves) if waves < FEW else 1.0


def resident(row: Row, sm: int) -> int:
    """How many blocks of a kernel a multiprocessor holds at once, by registers and shared memory.

    >>> template = "float,float,8,8,Packs,Each,Bits,false,Fma"
    >>> resident(Row("kernel", "implicit", 0, 0, blocks=1, threads=256, template=template), 90)
    2
    """
    share = occupancies(sm).get(_instance(row.name, row.template), 1.0)
    return max(1, int(share * WARPS[sm] * 32 / row.threads))


@functools.cache
def occupancies(sm: int) -> dict[str, float]:
    """The share of a multiprocessor's threads that fit, of every kernel; the least of those of one tile."""
    least: dict[str, float] = {}
    for line, numbers in json.loads(KERNELS.read_text())["kernels"][str(sm)].items():
        name, _, template = line.split(" ", 1)[1].rstrip(">").partition("<")
        instance, share = _instance(name, template), float(numbers.split()[-1])
        least[instance] = min(share, least.get(instance, 1.0))
    return least


def _instance(name: str, template: str) -> str:
    """A kernel's name and template arguments; of the implicit product without how it reads."""
    words = template.replace(" ", "").split(",")
    return " ".join([name, *words[:4], *words[7:]])


def roofline(row: Row, device: Device) -> float:
    """us of one launch: of its arithmetic, bytes, instructions or waiting what takes longest, by its blocks.

    >>> device = Device("made up", 1.0, 100.0, "nowhere", multiprocessors=10, sm=90)
    >>> roofline(Row("kernel", "copy", bytes=1_000_000, flops=1_000_000), device)  # 10 us for the bytes
    10.0
    >>> roofline(Row("kernel", "copy", 1_000_000, 1_000_000, blocks=10, threads=1024), device)
    20.0
    """
    return max(parts(row, device).values()) / filled(row, device)


def ideal(rows: Iterable[Row], device: Device) -> float:
    """ms of all launches, were launching free."""
    return sum(row.launches * roofline(row, device) for row in rows) / 1e3


def launched(rows: Iterable[Row], device: Device, waited: bool = False) -> float:
    """ms, each launched from the host: of the launch and the work the longer, or, `waited` for, both."""
    total = 0.0
    for row in rows:
        work = roofline(row, device)
        total += row.launches * (LAUNCH + work if waited else max(LAUNCH, work))
    return total / 1e3


def captured(rows: Iterable[Row], device: Device) -> float:
    """ms, all in one CUDA graph, but for uploads, which are launched."""
    return sum(bounds(rows, device).values())


def bounds(rows: Iterable[Row], device: Device) -> dict[str, float]:
    """The ms of `captured`, by what bounds them; "waves" is what a device that is partly filled loses.

    >>> device = Device("made up", 1.0, 100.0, "nowhere", multiprocessors=10, sm=90)
    >>> rows = [Row("kernel", "copy", 1_000_000, 0, blocks=10, threads=1024), Row("kernel", "fill", 8, 0)]
    >>> bounds(rows, device)  # 10 us, twice that with half of the blocks, the second kernel's 2, and a launch
    {'launches': 0.007, 'bytes': 0.01, 'waves': 0.01}
    """
    us: Counter[str] = Counter({"launches": LAUNCH})
    for row in rows:
        least = LAUNCH if row.kind == "upload" else NODE
        of = parts(row, device)
        longest = max(of, key=of.__getitem__)
        whole = roofline(row, device)
        if whole <= least:
            us["launches"] += row.launches * least
        else:
            us[longest] += row.launches * of[longest]
            us["waves"] += row.launches * (whole - of[longest])
    return {name: value / 1e3 for name, value in us.items()}
