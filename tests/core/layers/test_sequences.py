"""Lstm: gradients that are cut, what a pass leaves to the next; CTC of scores far apart."""

import math

import numpy as np
import pytest
from core.layers.fork_nets import build, run


def gradients(x, dy, params, device, **keys):
    """What Lstm gives back: of x, and of its parameters."""
    net = build("Lstm", {"num_output": 2, **keys}, [x.shape], device, phase="TRAIN")
    for param, values in zip(net.params["it"], params, strict=True):
        param.load(values)
    run(net, x)
    net.backward(it=dy)
    return [np.array(device.to_host(one.diff)) for one in (net.blobs["b0"], *net.params["it"])]


def test_gradients_of_gates_are_cut(device):
    """Of one step the bias has the sum of what the gates of each stream have, each cut by itself."""
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(3, 2)), 10 * random.normal(size=(3, 2))
    params = [random.normal(size=shape) for shape in ((8, 2), (8, 2), (8,))]
    each = [gradients(x[i : i + 1], dy[i : i + 1], params, device)[3] for i in range(3)]
    assert np.abs(each).max() > 1
    got = gradients(x, dy, params, device, batch_size=3, clipping_threshold=0.25)
    cut = np.clip(each, -0.25, 0.25)
    np.testing.assert_allclose(got[3], cut.sum(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[0], cut @ params[0], rtol=1e-9, atol=1e-12)


def test_a_limit_reaches_the_steps_before(device):
    """A step's gradient is cut before it goes on; a limit that nothing reaches changes nothing."""
    random = np.random.default_rng(1)
    x, dy = random.normal(size=(2, 2)), np.array([[0.0, 0], [50, -80]])
    params = [random.normal(size=shape) for shape in ((8, 2), (8, 2), (8,))]
    free = gradients(x, dy, params, device)
    wide = gradients(x, dy, params, device, clipping_threshold=1e6)
    for one, other in zip(free, wide, strict=True):
        np.testing.assert_array_equal(one, other)
    tight = gradients(x, dy, params, device, clipping_threshold=1e-3)
    dz = np.linalg.lstsq(x.T, tight[1].T, rcond=None)[0]  # of both steps, from dW = dz' x
    assert np.abs(dz).max() <= 1e-3 * (1 + 1e-9) and np.abs(dz[0]).max() > 0


def test_an_lstm_forgets_when_told_to(device):
    net = build("Lstm", {"num_output": 2}, [(3, 2), (3,)], device)
    for param in net.params["it"]:
        param.load(np.full(param.shape, 0.5))
    x, clip = np.ones((3, 2)), np.ones(3)
    first, second = run(net, x, clip)[0], run(net, x, clip)[0]
    assert not np.array_equal(first, second)
    net.layers["it"].reset()
    np.testing.assert_array_equal(run(net, x, clip)[0], first)
    assert len(net.layers["it"].running) == 2


def test_ctc_of_scores_far_apart_is_finite(device):
    x = np.zeros((40, 1, 3))
    x[:, :, 0] = 2000
    net = build(
        "CtcLoss", {"alphabet_size": 3, "time_step": 40}, [x.shape, (1, 2)], device, phase="TRAIN"
    )
    assert run(net, x, [[1, 2]])[0] == pytest.approx(4000 - math.log(780))
    net.backward()
    assert np.isfinite(device.to_host(net.blobs["b0"].diff)).all()
