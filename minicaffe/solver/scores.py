"""What a test gives: the means of a net's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.net import Net


def mean_outputs(net: Net, batches: int) -> dict[str, Any]:
    """The mean of each output of a net over so many batches, from the beginning of its data."""
    xp, sums = net.device.xp, {}
    net.context.passes = 0
    with net.device.current():
        for _ in range(batches):
            for name, value in net.forward().items():
                if name not in sums:
                    sums[name] = xp.zeros(value.shape, np.float64)
                xp.add(sums[name], value, out=sums[name])
    means = {name: net.device.to_host(total) / batches for name, total in sums.items()}
    return {name: float(mean) if mean.ndim == 0 else mean for name, mean in means.items()}
