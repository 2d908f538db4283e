"""The solver of a net of 16 bits: float32 masters, loss scaling, steps passed over, snapshots."""

import numpy as np
import pytest
from half_nets import BATCH, FEW, LENET, LINE, TYPES, solver, state
from kit import same_numbers

from minicaffe import Net, parse


@TYPES
def test_small_steps_are_kept_in_float32(cuda, dtype):
    """Steps too small to change a weight of 16 bits add up in its master."""
    made = solver(LINE, cuda, FEW, dtype=dtype, base_lr=100, momentum=0.0)
    before = made.device.to_host(made.net.params["ip"][0].data).tobytes()
    masters = []
    for _ in range(3):
        made.step(1)
        masters.append(made.net.weights()["ip__0"])
    assert made.device.to_host(made.net.params["ip"][0].data).tobytes() == before
    assert (masters[0] != masters[1]).any() and (masters[1] != masters[2]).any()


def test_loss_scaling_saves_a_gradient_that_would_vanish(cuda):
    full = solver(LINE, cuda, FEW, dtype="float32")
    lost = solver(LINE, cuda, FEW, loss_scale=1)
    kept = solver(LINE, cuda, FEW, loss_scale=2**20)
    start = lost.net.weights()
    full.net.load(start)
    for one in (full, lost, kept):
        one.step(1)
    same_numbers(lost.net.weights(), start)
    for name, weight in full.net.weights().items():
        step, taken = weight - start[name], kept.net.weights()[name] - start[name]
        np.testing.assert_allclose(taken, step, atol=0.01 * np.abs(step).max())
        assert np.abs(step).max() > 0


@TYPES
def test_bfloat16_needs_no_loss_scale(cuda, dtype):
    scale = {"float16": 1024, "bfloat16": 1}
    assert solver(LINE, cuda, FEW, dtype=dtype).rule.scale == scale[dtype]


@TYPES
def test_a_step_that_is_not_finite_is_passed_over(cuda, dtype):
    """It leaves weights and history as they are, and nobody waits to know."""
    made, other = (solver(LENET, cuda, BATCH, dtype=dtype) for _ in range(2))
    for one in (made, other):
        one.step(2)
    before, scale = state(made), made.net.loss_scale
    made.net.loss_scale = np.inf
    waits = getattr(cuda.xp, "synchronizations", 0)
    with np.errstate(all="ignore"):
        made.step(1)
    assert getattr(cuda.xp, "synchronizations", 0) == waits
    assert state(made) == before
    made.net.loss_scale = scale
    for one in (made, other):
        one.step(1)
    assert state(made) == state(other) != before
    assert (int(made.rule.skipped), int(other.rule.skipped)) == (1, 0)


def test_gradients_beyond_float16_are_told_at_the_end(cuda):
    made = solver(LENET, cuda, BATCH, loss_scale=2**40, max_iter=3)
    before = made.net.weights()
    made.solve()
    same_numbers(made.net.weights(), before)
    assert made.report.lines[-1] == (
        "3 iterations passed over: gradients beyond float16; loss_scale is 1.09951e+12"
    )


@pytest.mark.parametrize("limit", [-1.0, 0.01])
def test_batches_of_an_iteration_are_summed_in_float32(cuda, limit):
    """Also with a limit on the gradient, which is that of the gradient without the loss's scale."""
    options = {"iter_size": 3, "clip_gradients": limit, "base_lr": 0.5}
    half = solver(LENET, cuda, BATCH, **options)
    full = solver(LENET, cuda, BATCH, dtype="float32", **options)
    start = half.net.weights()
    full.net.load(start)
    for one in (half, full):
        one.step(1)
    for name, wanted in full.net.weights().items():
        step, taken = wanted - start[name], half.net.weights()[name] - start[name]
        assert np.abs(taken - step).max() < 0.01 * np.abs(step).max()


@TYPES
def test_resuming_goes_on_bit_for_bit(cuda, dtype, tmp_path):
    options = {"dtype": dtype, "snapshot_prefix": str(tmp_path / "net")}
    first = solver(LENET, cuda, BATCH, **options)
    first.step(3)
    path = first.snapshot()
    second = solver(LENET, cuda, BATCH, random_seed=7, **options)
    second.restore(path)
    assert state(second) == state(first)
    for one in (first, second):
        one.step(3)
    assert state(second) == state(first)
    assert first.loss() == second.loss()


@TYPES
def test_snapshots_are_those_of_float32(cuda, dtype, tmp_path):
    half = solver(LENET, cuda, BATCH, dtype=dtype, snapshot_prefix=str(tmp_path / "half"))
    half.step(2)
    path = half.snapshot()
    with np.load(path) as arrays:
        assert {arrays[key].dtype.name for key in arrays if arrays[key].dtype.kind == "f"} == {
            "float32"
        }
    full = solver(LENET, "cpu", BATCH, dtype="float32", snapshot_prefix=str(tmp_path / "full"))
    full.restore(path)
    same_numbers(full.net.weights(), half.net.weights())
    full.step(1)
    half.restore(full.snapshot())
    same_numbers(half.net.weights(), full.net.weights())
    half.step(1)
    assert half.iteration == 4


@TYPES
def test_the_float32_masters_are_averaged(cuda, dtype, tmp_path):
    options = {"dtype": dtype, "snapshot_prefix": str(tmp_path / "net"), "ema_decay": 0.8}
    made = solver(LENET, cuda, BATCH, **options)
    slow = [weight.astype(np.float64) for weight in made.net.weights().values()]
    for i in range(3):
        made.step(1)
        d = min(0.8, (1 + i) / (10 + i))
        weights = made.net.weights().values()
        slow = [d * mean + (1 - d) * weight for mean, weight in zip(slow, weights, strict=True)]
    before = state(made)
    with made.averaged():
        for wanted, (name, mean) in zip(slow, made.net.weights().items(), strict=True):
            np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-7)
            rounded = cuda.to_host(made.net.named_params[name].data)
            np.testing.assert_array_equal(rounded, mean.astype(rounded.dtype))
    assert state(made) == before
    other = solver(LENET, cuda, BATCH, **options)
    other.restore(made.snapshot())
    for one in (made, other):
        one.step(2)
    assert state(other) == state(made)
    for mine, theirs in zip(made.average.means, other.average.means, strict=True):
        np.testing.assert_array_equal(cuda.to_host(mine), cuda.to_host(theirs))


def test_weights_loaded_after_the_solver_is_made_are_learnt_from(cuda):
    full = solver(LENET, cuda, BATCH, dtype="float32", random_seed=5)
    half = solver(LENET, cuda, BATCH)
    half.net.load(full.net.weights())
    same_numbers(half.net.weights(), full.net.weights())
    for name, weight in full.net.weights().items():
        param = dict(zip(full.net.weights(), half.net.learnable, strict=True))[name]
        np.testing.assert_array_equal(cuda.to_host(param.data), weight.astype(np.float16))


@TYPES
def test_a_net_alone_saves_float32(cuda, dtype, tmp_path):
    net = Net(parse(LENET), device=cuda, dtype=dtype)
    net.save(tmp_path / "weights.npz")
    other = Net(parse(LENET), device="cpu", dtype="float32", seed=9)
    other.load(tmp_path / "weights.npz")
    for mine, param in zip(net.learnable, other.learnable, strict=True):
        np.testing.assert_array_equal(cuda.to_host(mine.data).astype(np.float32), param.data)
