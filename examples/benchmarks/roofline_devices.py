"""Devices as their makers publish them, and the least time that they leave to a kernel and to a step.

    time of a kernel = max(flops / peak, bytes / bandwidth, turns x latency, floor)

The floor is what a launch takes, however little it does: LAUNCH, from the host into a stream, or NODE, of a
CUDA graph. Both are assumptions, not measured here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from roofline_costs import Row

# us, assumed. LAUNCH: of a kernel from Python; the driver's share is commonly told as 2 to 3, the rest is
# CuPy's or PyTorch's own. NODE: of a kernel that does next to nothing, in a graph. A. Gray, Getting Started
# with CUDA Graphs (NVIDIA, 2019), has on a V100 3.4 for a kernel of 2.9 in a graph, 3.8 in a stream of C++.
LAUNCH, NODE = 5.0, 2.0


@dataclass(frozen=True)
class Device:
    """Peak float32 outside of tensor cores in TFLOP/s, memory in GB/s; a thread's wait for a load in ns.

    The latency, 0 where it is not modelled, is that of a load that finds its line in the L2 cache.
    """

    name: str
    tflops: float
    gbs: float
    source: str
    latency: float = 0.0


DEVICES = {
    "k80": Device(
        "K80, one of its two GPUs",
        4.37,  # 2496 cores x 2 x 0.875 GHz, the highest clock; 2.8 at the base clock
        240.0,
        "half of NVIDIA, Tesla K80 Board Specification BD-07317-001, 2015: 8.74 TFLOP/s, 480 GB/s",
        229.0,  # 200 cycles at 0.875 GHz
    ),
    "a100_40": Device("A100 SXM 40 GB", 19.5, 1555.0, "NVIDIA A100 Tensor Core GPU datasheet"),
    "a100_80": Device("A100 SXM 80 GB", 19.5, 2039.0, "NVIDIA A100 Tensor Core GPU datasheet"),
    "h100": Device("H100 SXM", 67.0, 3350.0, "NVIDIA H100 Tensor Core GPU datasheet"),
}


def roofline(row: Row, device: Device) -> float:
    """us of one launch's arithmetic, bytes or waiting, whichever takes longest.

    >>> device = Device("made up", tflops=1.0, gbs=100.0, source="nowhere", latency=50.0)
    >>> roofline(Row("kernel", "copy", bytes=1_000_000, flops=1_000_000), device)  # 10 us for the bytes
    10.0
    >>> roofline(Row("kernel", "product", bytes=1_000_000, flops=20_000_000), device)
    20.0
    >>> roofline(Row("kernel", "loop", bytes=100, flops=100, turns=1000), device)
    50.0
    """
    arithmetic, memory = row.flops / device.tflops * 1e-6, row.bytes / device.gbs * 1e-3
    return max(arithmetic, memory, row.turns * device.latency * 1e-3 if row.turns > 1 else 0.0)


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
    total = LAUNCH
    for row in rows:
        least = LAUNCH if row.kind == "upload" else NODE
        total += row.launches * max(least, roofline(row, device))
    return total / 1e3
