"""Element-wise layers in a net: what they leave alone."""

import kit
import numpy as np
import pytest


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("power", "scale"), [(1, 2), (1, -1), (-1, 1), (-3, -2), (-2, 1), (-0.5, 1)]
)
def test_a_power_keeps_the_sign_of_a_zero(power, scale, dtype, device):
    """As pow of C does, by which Caffe computes it, without a sum where the shift is 0."""
    layer = f"type: Power, power: {power}, scale: {scale}"
    x = np.tile([[0.0], [-0.0]], 9)
    y = device.to_host(kit.net_of(layer, x, device=device, dtype=dtype).forward(b0=x)["it"])
    with np.errstate(divide="ignore"):
        wanted = (scale * x) ** power
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(wanted))


@pytest.mark.parametrize("power", [-1.5, 0, 0.5, 1, 2, 3])
def test_power_is_its_formula_whichever_kernel_computes_it(power, device):
    """y = (scale x + shift)^power and dx = power scale (scale x + shift)^(power - 1) dy."""
    net = kit.net_of(f"type: Power, power: {power}, scale: 0.5, shift: 2", (4, 3), device=device)
    x, dy = np.random.default_rng(0).uniform(-2, 2, (2, 4, 3))
    y = device.to_host(net.forward(b0=x)["it"])
    np.testing.assert_allclose(y, (0.5 * x + 2) ** power, rtol=1e-12)
    net.backward(it=dy)
    wanted = power * 0.5 * (0.5 * x + 2) ** (power - 1) * dy
    np.testing.assert_allclose(device.to_host(net.blobs["b0"].diff), wanted, rtol=1e-12)
