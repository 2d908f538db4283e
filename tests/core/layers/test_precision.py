"""Each row of the contract table in float32 gives what it gives in float64, up to rounding, on each device."""

from __future__ import annotations

import layer_kit
import numpy as np
import pytest
from core.layers.rows import ROWS

ROW = [
    pytest.param(name, keys, bottoms, id=f"{name}-{i}")
    for name, rows in ROWS.items()
    for i, (keys, bottoms) in enumerate(rows)
]
TOLERANCE = 1e-4  # of the largest number of an array in float64


def numbers(name, keys, bottoms, device, dtype):
    """The tops, the gradients of the bottoms and of the parameters, of a pass of the row's net."""
    tops = list(keys.get("top", ["it"]))
    net = kit.net_of({"type": name, **keys}, *bottoms, device=device, dtype=dtype)
    random = np.random.default_rng(5)
    given = kit.arrays_for(bottoms, random)
    layer = net.layers["it"]
    for param in layer.params:
        if param.learns:
            param.load(random.normal(size=param.shape) * 0.3)
    net.forward(**given)
    flows = [i for i in range(len(bottoms)) if i not in layer.traits.label_bottoms]
    if flows or any(param.learns for param in layer.params):
        net.backward(**{top: random.normal(size=net.blobs[top].shape) for top in tops})
    found = {f"top {top}": net.blobs[top].data for top in layer.top}
    found |= {f"diff of bottom {i}": net.blobs[f"b{i}"].diff for i in flows}
    found |= {
        f"diff of parameter {i}": one.diff for i, one in enumerate(layer.params) if one.learns
    }
    return {what: np.array(net.device.to_host(array), np.float64) for what, array in found.items()}


@pytest.mark.parametrize("name, keys, bottoms", ROW)
def test_float32_is_float64_rounded(name, keys, bottoms, device):
    single, double = (
        numbers(name, keys, bottoms, device, dtype) for dtype in ("float32", "float64")
    )
    assert single.keys() == double.keys()
    for what, exact in double.items():
        assert single[what].shape == exact.shape
        largest = np.abs(exact).max(initial=0)
        far = np.abs(single[what] - exact).max(initial=0)
        assert far <= TOLERANCE * largest, f"{what}: {far:.1e} apart, largest {largest:.1e}"
