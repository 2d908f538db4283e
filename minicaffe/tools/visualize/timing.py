"""Milliseconds of each layer, forward and backward."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping

from minicaffe.core.net.net import Net
from minicaffe.core.net.run import backward, forward
from minicaffe.core.net.step import Value

Times = dict[str, tuple[list[float], list[float]]]


def measure(net: Net, passes: int, seconds: float = math.inf) -> Times:
    """The ms of every layer in so many forward and backward passes, fewer where the seconds are over."""
    times: Times = {step.spec.name: ([], []) for step in net.steps}
    until = time.perf_counter() + seconds
    for done in range(passes):
        if done and time.perf_counter() >= until:
            break
        for step in net.steps:
            stop = net.device.timer()
            forward(step, net.graph, net.memory)
            times[step.spec.name][0].append(stop())
        net.context.passes += 1
        written: set[Value] = set()
        for step in reversed(net.steps):
            stop = net.device.timer()
            backward(step, net.device, written, net.memory.scratch, net.loss_scale)
            times[step.spec.name][1].append(stop())
    return times


def medians(times: Mapping[str, tuple[list[float], list[float]]]) -> dict[str, tuple[float, float]]:
    """The median ms of every layer, forward and backward.

    >>> medians({"conv1": ([3.0, 1.0, 2.0], [4.0])})
    {'conv1': (2.0, 4.0)}
    """
    return {
        name: (statistics.median(forth), statistics.median(back))
        for name, (forth, back) in times.items()
    }
