"""Layers that move, cut, sum and resize, in a net: against NumPy's own words for it; stochastic pooling."""

import functools

import caffe_cases as cases
import kit
import numpy as np
import pytest
from core.ops import references as ref

from minicaffe import MinicaffeError, Net, gradcheck, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops.geometry import Window

X = (2, 6, 5, 4)


def net(keys, *shapes, top="y", **options):
    return kit.net_of(f"{keys}, top: {top}", *shapes, **options)


def run(one, *arrays, **diffs):
    """The tops and, with their diffs, the bottoms' gradients, as host arrays."""
    host = one.device.to_host
    given = {f"b{i}": array for i, array in enumerate(arrays)}
    tops = [np.array(host(top)) for top in one.forward(**given).values()]
    if diffs:
        one.backward(**diffs)
    return tops, [np.array(host(one.blobs[name].diff)) for name in given] if diffs else []


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


MOVES = {
    "type: Reshape, shape: {dim: [0, 0, -1]}": lambda x: x.reshape(2, 6, 20),
    "type: Reshape, shape: {dim: [-1, 0]}, axis: 1, num_axes: 2": lambda x: x.reshape(2, 6, 5, 4),
    "type: Reshape, shape: {dim: [3, 2]}, axis: 1, num_axes: 1": lambda x: x.reshape(2, 3, 2, 5, 4),
    "type: Reshape, axis: -1": lambda x: x,
    "type: Tile, axis: -2, tiles: 3": lambda x: np.concatenate([x, x, x], axis=2),
    "type: Tile, tiles: 1": lambda x: x,
    "type: Reduction, axis: 2, operation: SUM, coeff: 3": lambda x: 3 * x.sum(axis=(2, 3)),
    "type: Reduction, axis: -1, operation: MEAN": lambda x: x.mean(axis=-1),
    "type: Reduction, operation: ASUM": lambda x: np.abs(x).sum(),
    "type: Reduction, axis: 1, operation: SUMSQ, coeff: 0.5": lambda x: (x * x).sum(axis=(1, 2, 3)) / 2,
    "type: ArgMax": lambda x: x.reshape(2, -1).argmax(axis=1).reshape(2, 1, 1, 1),
    "type: ArgMax, axis: 2": lambda x: x.argmax(axis=2)[:, :, None],
    "type: ArgMax, axis: 1, top_k: 6, out_max_val: true": lambda x: np.sort(x, axis=1)[:, ::-1],
}  # fmt: skip


@pytest.mark.parametrize("keys", MOVES)
def test_a_layer_of_one_bottom_is_what_numpy_says(device, keys):
    x = random(*X)
    (y,), _ = run(net(keys, X, device=device), x)
    np.testing.assert_allclose(y, MOVES[keys](x), rtol=1e-13)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 2, 2, 2)])
def test_argmax_of_each_entry_has_three_axes_or_more(device, shape):
    x = random(*shape)
    (y,), _ = run(net("type: ArgMax, top_k: 1, out_max_val: true", shape, device=device), x)
    rows = x.reshape(shape[0], -1)
    assert y.shape == (shape[0], 2, 1, *(1,) * (len(shape) - 3))
    np.testing.assert_array_equal(y.reshape(-1, 2), np.stack([rows.argmax(1), rows.max(1)], 1))


def test_crop_begins_at_the_offset(device):
    x, like = random(*X), (7, 1, 2, 3)
    one = net("type: Crop, offset: [3, 1]", X, like, device=device)
    dy = random(2, 6, 2, 3, seed=1)
    (y,), grads = run(one, x, np.zeros(like), y=dy)
    np.testing.assert_array_equal(y, x[:, :, 3:5, 1:4])
    wanted = np.zeros(X)
    wanted[:, :, 3:5, 1:4] = dy
    np.testing.assert_array_equal(grads[0], wanted)


def test_slice_and_concat_are_opposites(device):
    text = """
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [2, 6, 5]}}
  - {name: cut, type: Slice, slice_point: [1, 4], top: [a, b, c]}
  - {name: y, type: Concat, bottom: [a, b, c]}
"""
    one, x, dy = Net(parse(text), device=device), random(2, 6, 5), random(2, 6, 5, seed=1)
    x, dy = x.astype(np.float32), dy.astype(np.float32)
    np.testing.assert_array_equal(device.to_host(one.forward(x=x)["y"]), x)
    one.backward(y=dy)
    np.testing.assert_array_equal(device.to_host(one.blobs["x"].diff), dy)


def test_split_and_silence(device):
    """What Silence reads is no output; through it comes no gradient."""
    text = """
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: split, type: Split, top: [a, b, c]}
  - {name: quiet, type: Silence, bottom: c}
"""
    one, x = Net(parse(text), device=device), np.float32(random(2, 3))
    assert one.outputs == ["a", "b"]
    for y in one.forward(x=x).values():
        np.testing.assert_array_equal(device.to_host(y), x)
    one.backward(a=np.full((2, 3), 2), b=np.full((2, 3), 5))
    np.testing.assert_array_equal(device.to_host(one.blobs["x"].diff), 7)


@pytest.mark.parametrize("selector", [(4,), (4, 1, 1)])
@pytest.mark.parametrize("kept", [[1, 3], [0, 1, 2, 3], []])
@pytest.mark.parametrize("without", [None, 0])
def test_filter_lets_some_through(device, kept, selector, without):
    layer = net("type: Filter", (4, 2), (4,), selector, device=device, top="[a, b]").layers["it"]
    xs, chosen = [random(4, 2), random(4, seed=1)], np.zeros(selector)
    chosen.reshape(4)[kept] = [0.5, -1, 2, 3][: len(kept)]
    for y, x in zip(layer.forward(*map(device.asarray, (*xs, chosen))), xs, strict=True):
        np.testing.assert_array_equal(device.to_host(y), x[kept])
    dys = [random(*x[kept].shape, seed=2) for x in xs]
    layer.grad = [device.xp.full(x.shape, 9.0) for x in xs] + [None]
    if without is not None:
        layer.grad[without] = None
    layer.backward(*map(device.asarray, dys))
    for i, (dx, dy) in enumerate(zip(layer.grad, dys, strict=False)):
        if i == without:
            assert dx is None
            continue
        wanted = np.zeros(dx.shape)
        wanted[kept] = dy
        np.testing.assert_array_equal(device.to_host(dx), wanted)


STOCHASTIC = "type: Pooling, pool: STOCHASTIC, kernel_size: 3, stride: 2"


def test_stochastic_pooling_in_the_test_phase_is_caffes(device):
    case = cases.load("TRANSCRIBED_Pooling_STOCHASTIC_test_k3s2_ceil_zeros")
    x = case["bottom_0"]
    (y,), _ = run(net(STOCHASTIC, x.shape, device=device, phase="TEST", dtype="float32"), x)
    cases.assert_close(y, case["top_0"], "top")


def test_stochastic_pooling_draws_anew_each_pass(device):
    x, shape = np.abs(random(2, 3, 9, 9)), (2, 3, 9, 9)
    one, other = net(STOCHASTIC, shape, device=device), net(STOCHASTIC, shape, device=device)
    ys = [run(one, x)[0][0] for _ in range(2)]
    assert (ys[0] != ys[1]).any()
    other.context.passes = 1
    np.testing.assert_array_equal(run(other, x)[0][0], ys[1])
    for o in np.ndindex(4, 4):  # of the window, the one drawn
        rows, columns = (slice(2 * i, 2 * i + 3) for i in o)
        seen = x[:, :, rows, columns].reshape(2, 3, -1)
        assert (seen == ys[0][:, :, o[0], o[1], None]).any(axis=2).all()


def test_stochastic_poolings_gradients(device):
    layer = REGISTRY["Pooling"](pool="STOCHASTIC", kernel_size=(3,), stride=(2,))
    x = np.abs(random(2, 3, 7, 6)) + 0.1
    assert gradcheck(layer, x, device=device, phase="TEST") < 1e-6
    assert gradcheck(layer, x, device=device) < 1e-6


def test_what_works_in_place_behind_stochastic_pooling_leaves_its_top(device):
    text = """
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [1, 1, 4, 4]}}
  - {name: pool, type: Pooling, pool: STOCHASTIC, kernel_size: 2, stride: 2}
  - {name: act, type: Sigmoid, bottom: pool, top: TOP}
"""
    x, found = np.abs(random(1, 1, 4, 4)) + 0.1, []
    for top in ("pool", "act"):
        one = Net(parse(text.replace("TOP", top)), "TEST", device=device, dtype="float64")
        one.forward(x=x)
        one.backward(**{top: np.ones((1, 1, 2, 2))})
        found.append(np.array(device.to_host(one.blobs["x"].diff)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize("size", [(8, 8), (9, 13), (5, 6)])
def test_spp_is_a_pooling_a_level(device, pool, size):
    x, reference = random(2, 3, *size), {"MAX": lambda *a: ref.max_pool(*a)[0], "AVE": ref.ave_pool}
    (y,), _ = run(net(f"type: SPP, pyramid_height: 2, pool: {pool}", x.shape, device=device), x)
    kernel = tuple(-(-n // 2) for n in size)
    pad = tuple((2 * k - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
    levels = [(Window(size), (1, 1)), (Window(kernel, kernel, pad), (2, 2))]
    parts = [reference[pool](x, window, out).reshape(2, -1) for window, out in levels]
    np.testing.assert_allclose(y, np.concatenate(parts, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("keys", "shapes", "odd", "message"),
    [
        ("type: BatchReindex", [(3, 2), (2,)], [1, 3], "index 3 of entry 1 is not one of the 3 entries"),
        ("type: Upsample", [(1, 1, 1, 2)] * 2, [[[[0, 8]]]], "place 8 of the mask is not in the image of 2 x 4"),
    ],
)  # fmt: skip
def test_numbers_that_name_nothing(cuda, keys, shapes, odd, message):
    """Refused on the CPU; on CUDA they become NaN, and `check` says why."""
    arrays = [np.ones(shapes[0]), np.array(odd)]
    with pytest.raises(MinicaffeError, match=message):
        run(net(keys, *shapes), *arrays)
    one = net(keys, *shapes, device=cuda)
    (y,), _ = run(one, *arrays)
    assert np.isnan(y).any()
    with pytest.raises(MinicaffeError, match=r"layer 'it' \("):
        one.check()


def test_spatial_pyramids_by_numpy_on_any_number_of_threads(monkeypatch):
    """What threads work in is not where the gradients of the levels are added up."""
    from minicaffe.backends import cpu
    from minicaffe.backends.cpu import threads
    from minicaffe.backends.cpu.thread_pool import Crew

    monkeypatch.setattr(cpu, "available", lambda: False)
    monkeypatch.setattr(threads, "crew", functools.cache(Crew))  # not the process's own
    rng, found = np.random.default_rng(0), []
    x = rng.normal(size=(64, 32, 8, 8)).astype(np.float32)
    dy = rng.normal(size=(64, 32 * 21)).astype(np.float32)
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        _, (dx,) = run(net("type: SPP, pyramid_height: 3", x.shape), x, y=dy)
        found.append(dx)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
