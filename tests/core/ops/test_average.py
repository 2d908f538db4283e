"""The running mean against one number at a time, compiled and not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.backends import cpu
from minicaffe.core.ops.update import average


@pytest.mark.parametrize("compiled", [True, False])
@given(
    n=st.integers(1, 40),
    share=st.floats(0, 1),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=15)
def test_a_mean_is_its_formula(compiled, n, share, dtype, seed):
    random = np.random.default_rng(seed)
    mean, x = (random.normal(size=n).astype(dtype) for _ in range(2))
    x[n // 2] = mean[n // 2]
    wanted = [m + share * (float(v) - m) for m, v in zip(map(float, mean), x, strict=True)]
    still = mean[n // 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(average.op, "worth", 10)  # several threads
        patch.setattr(average.op, "grain", 5)
        if not compiled:
            patch.setattr(cpu, "available", lambda: False)
        average(mean, x, np.array([share]), np.empty(n, dtype), np.zeros(1, np.int32))
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(mean, wanted, rtol=tolerance, atol=tolerance)
    assert mean[n // 2] == still  # what does not move does not drift


def test_a_mean_is_its_formula_on_each_device(device):
    random = np.random.default_rng(1)
    mean, x = (random.normal(size=(3, 5)).astype(np.float32) for _ in range(2))
    there = [device.asarray(mean.copy()), device.asarray(x), device.xp.empty((3, 5), np.float32)]
    skip, share = device.xp.zeros(1, np.int32), device.asarray(np.array([0.25]))
    average(*there[:2], share, there[2], skip)
    skip.fill(1)
    average(*there[:2], share, there[2], skip)
    np.testing.assert_allclose(device.to_host(there[0]), mean + 0.25 * (x - mean), rtol=1e-6)
