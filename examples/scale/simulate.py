"""A training step of many ranks, event by event: layers end, sums of gradients begin and end.

A sum of n bytes over p ranks takes, by R. Thakur, R. Rabenseifner and W. Gropp (Optimization of Collective
Communication Operations in MPICH, 2005), a being the latency of a message and b bytes a ms,

    2 log2(p) a + 2 (p - 1) / p n / b

Buckets begin as the layers behind them are done, one sum after the other on the network, while the way back
goes on; where the network needs the processor, as shared memory does, it waits meanwhile. The update is last.
"""

import heapq
import math
from dataclasses import dataclass

BUCKET = 2**20  # as solver/buckets.py has it


@dataclass(frozen=True)
class Network:
    """What a message takes: `latency` in ms, and bytes a ms; `apart` where the processor need not help."""

    name: str
    latency: float
    rate: float
    source: str
    apart: bool = True

    def sum_ms(self, size: int, ranks: int) -> float:
        """A sum of so many bytes over so many ranks.

        >>> Network("", 0.001, 1e6, "").sum_ms(10**6, 4)
        1.504
        """
        if ranks == 1:
            return 0.0
        return 2 * math.log2(ranks) * self.latency + 2 * (ranks - 1) / ranks * size / self.rate


PUBLISHED = [
    Network("Ethernet 25 Gb/s", 0.020, 25e9 / 8 / 1e3, "line rate; 20 us, TCP as kernels have it"),
    Network("Ethernet 100 Gb/s", 0.010, 100e9 / 8 / 1e3, "line rate; 10 us, TCP"),
    Network(
        "InfiniBand HDR", 0.0013, 200e9 / 8 / 1e3, "200 Gb/s a port; 1.3 us, a switch in between"
    ),
    Network(
        "NVLink 3", 0.003, 300e9 / 1e3, "A100: 600 GB/s, both ways together; 3 us a step of NCCL"
    ),
]


@dataclass(frozen=True)
class Step:
    """What one rank computes in a step, in ms: forward, each layer backward (the last first), the update."""

    forward: float
    backward: tuple[float, ...]
    sizes: tuple[int, ...]  # bytes of the gradients that are complete behind each
    update: float


def simulated(step: Step, network: Network, ranks: int) -> dict[str, float]:
    """A step, event by event; `hidden` is the share of its sums that work goes on beside.

    >>> step = Step(1.0, (2.0, 3.0), (2**20, 2**20), 0.5)
    >>> slow = Network("", 0.0, 2**20 / 4, "")  # 4 ms for a bucket of each of 2 ranks
    >>> simulated(step, slow, 2)["ms"], simulated(step, slow, 1)["ms"]
    (11.5, 6.5)
    """
    events: list[tuple[float, int, str, int]] = [(step.forward, 0, "layer", -1)]
    full, free, end, total = 0, 0.0, 0.0, 0.0
    while events:
        now, order, kind, number = heapq.heappop(events)
        end = max(end, now)
        if kind == "sum":
            continue
        full += step.sizes[number] if number >= 0 else 0
        last = number == len(step.backward) - 1
        took = 0.0
        if full >= BUCKET or (last and full):
            took = network.sum_ms(full, ranks)
            free = max(free, now) + took
            heapq.heappush(events, (free, order + 1, "sum", number))
            full, total = 0, total + took
        if not last:
            wait = 0.0 if network.apart else took
            heapq.heappush(
                events, (now + wait + step.backward[number + 1], order + 2, "layer", number + 1)
            )
    compute = step.forward + sum(step.backward)
    hidden = 1 - (end - compute) / total if total else 0.0
    return {
        "ms": end + step.update,
        "compute": compute + step.update,
        "sums": total,
        "hidden": hidden,
    }
