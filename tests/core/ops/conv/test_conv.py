"""Every way to lower a convolution, each direction, against loops over its taps."""

import functools

import numpy as np
import pytest
from core.ops import cases as ops
from core.ops import references as ref
from core.ops.cases import (
    EDGES,
    TOLERANCE,
    blank,
    cases,
    close,
    convolutions,
    dtypes,
    numbers,
    put,
    same,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends import cpu
from minicaffe.backends.cpu.conv import implicit as cpu_implicit
from minicaffe.backends.cpu.threads import share
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv.common import bias_gradient, bias_workspace
from minicaffe.core.ops.geometry import ConvGeometry, Window

DIRECTIONS = ("forward", "input_gradient", "weight_gradient")
TOLERANCES = {  # Winograd's transforms add numbers of very different size
    "winograd": {"e": 3e-2, "f": 1e-4, "d": 1e-10},
}
TAKE_ALL = {"direct", "caffe", "loopfree", "batched", "implicit"}
GUARD = 64  # elements on either side of the work that nobody may touch

on_threads = pytest.mark.usefixtures("threads")
every_strategy = pytest.mark.parametrize("strategy", conv.ENGINES)
every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
limits = st.one_of(st.just(1), st.integers(1, 3000), st.just(10**7))


@functools.lru_cache(maxsize=256)
def arrays(g, dtype, seed):
    """x, weight, bias, dy and a weight's gradient to add to."""
    y_shape = (g.n, g.f, *ref.conv_sizes(g.image, g.window))
    shapes = ((g.n, g.c, *g.image), g.weight_shape, (g.f,), y_shape, g.weight_shape)
    return numbers(seed, *shapes, dtype=dtype)


@functools.lru_cache(maxsize=256)
def expected(direction, g, bias_term, dtype, seed):
    x, weight, bias, dy, dw = arrays(g, dtype, seed)
    if direction == "forward":
        return ref.conv(x, weight, bias if bias_term else None, g.window, g.group)
    if direction == "input_gradient":
        return ref.conv_input_gradient(dy, weight, x.shape, g.window, g.group)
    return dw + ref.conv_weight_gradient(dy, x, dw.shape, g.window, g.group)


def workspace_of(op, device, direction=""):
    """A strategy's `workspace`, that of a direction, or that which it has for CUDA."""
    if device.is_cuda and hasattr(op, "cuda_workspace"):
        return lambda g, limit: op.cuda_workspace(g, limit, 4)
    return op.forward_workspace if direction == "forward" else op.workspace


def run(device, strategy, direction, g, limit, bias_term, dtype, seed):
    """The result of a strategy; it must leave its inputs, and what lies around its work, as they were."""
    op, hosts = conv.ENGINES[strategy], arrays(g, dtype, seed)
    x, weight, bias, dy, dw = there = [put(device, host) for host in hosts]
    size = share(x) * workspace_of(op, device, direction)(g, limit)
    room = blank(device, size + 2 * GUARD, dtype)
    room[:GUARD] = room[GUARD + size :] = 77
    work = room[GUARD : GUARD + size]
    if direction == "forward":
        out = blank(device, dy.shape, dtype)
        result = op.forward(x, weight, bias if bias_term else None, g, out, work)
    elif direction == "input_gradient":
        out = blank(device, x.shape, dtype)
        result = op.input_gradient(dy, weight, g, out, work)
    else:  # gradients of parameters are added to what is there
        out = dw
        result = op.weight_gradient(x, dy, g, out, work)
    assert result is out
    for array, host in zip(there, hosts, strict=True):
        if array is not out:
            same(device, array, host)
    same(device, room[:GUARD], 77)
    same(device, room[GUARD + size :], 77)
    return out


def check(device, strategy, direction, g, limit=10**7, bias_term=True, dtype=np.float32, seed=1):
    if cpu.available() and not device.is_cuda and not ops.FULL:
        dtype = np.float32  # the loops of float64 are compiled with --full alone
    got = run(device, strategy, direction, g, limit, bias_term, dtype, seed)
    wanted = expected(direction, g, bias_term, dtype, seed)
    close(device, got, wanted, TOLERANCES.get(strategy, TOLERANCE))


def check_threads(monkeypatch, crew, device, strategy, direction, g):
    """The same bits by one thread, two and three."""
    got = []
    monkeypatch.setattr("minicaffe.backends.cpu.threads.crew", lambda threads: crew)
    for count in (1, 2, 3):
        monkeypatch.setattr("minicaffe.backends.cpu.threads.count", lambda count=count: count)
        got.append(run(device, strategy, direction, g, 1, True, np.float32, 1))
    for other in got[1:]:
        np.testing.assert_array_equal(got[0], other)


@on_threads
@every_strategy
@every_direction
@cases(8)
@given(st.data(), limits, st.booleans(), dtypes, seeds)
def test_against_loops(device, strategy, direction, data, limit, bias_term, dtype, seed):
    g = data.draw(convolutions().filter(lambda g: conv.ENGINES[strategy].refuses(g) is None), "g")
    check(device, strategy, direction, g, limit, bias_term, dtype, seed)


@pytest.fixture(params=[1, 60, 400])
def small_tile(request, monkeypatch):
    """Tiles of so many elements; what was computed of other tiles is forgotten, before and after."""
    cached = [conv.implicit.band, conv.implicit.tile_size]
    cached += [cpu_implicit._cut, cpu_implicit._kernel_sizes]
    with monkeypatch.context() as patch:
        patch.setattr(conv.implicit, "TILE", request.param)
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()


@on_threads
@every_direction
@pytest.mark.parametrize("device", ["cpu", "cpu-compiled"], indirect=True)
@cases(6)
@given(convolutions(), dtypes, seeds)
def test_implicit_in_small_tiles(device, small_tile, direction, g, dtype, seed):
    check(device, "implicit", direction, g, dtype=dtype, seed=seed)


@pytest.mark.parametrize("threads", [3], indirect=True)
@every_strategy
@pytest.mark.parametrize("g", [pytest.param(g, id=name) for name, g in EDGES.items()])
def test_edges_against_loops(device, threads, strategy, g):
    reason = conv.ENGINES[strategy].refuses(g)
    if reason is not None:
        assert strategy not in TAKE_ALL, reason
        return
    for direction in DIRECTIONS:
        for dtype, limit in ((np.float32, 1), (np.float32, 10**7), (np.float64, 5000)):
            check(device, strategy, direction, g, limit, dtype=dtype)


@every_strategy
@every_direction
def test_float16_on_cuda(cuda, strategy, direction):
    for g in EDGES.values():
        if conv.ENGINES[strategy].refuses(g) is None:
            check(cuda, strategy, direction, g, 5000, dtype=np.float16)


@every_strategy
def test_every_strategy_takes_some_edges(strategy):
    taken = [conv.ENGINES[strategy].refuses(g) is None for g in EDGES.values()]
    assert sum(taken) >= (len(taken) if strategy in TAKE_ALL else 5)


@on_threads
@every_strategy
@every_direction
def test_the_same_bits_each_time(device, strategy, direction):
    op = conv.ENGINES[strategy]
    g = next(g for g in reversed(EDGES.values()) if op.refuses(g) is None)
    one, two = (
        device.to_host(run(device, strategy, direction, g, 5000, True, np.float32, 3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


@on_threads
@cases(40)
@given(convolutions(), seeds, dtypes)
def test_bias_gradient_against_loops(device, g, seed, dtype):
    _, _, bias, dy, _ = arrays(g, dtype, seed)
    dy_there, out = put(device, dy), put(device, bias)
    bias_gradient(dy_there, g, out, blank(device, share(dy_there) * bias_workspace(g), dtype))
    close(device, out, bias + ref.conv_bias_gradient(dy))
    same(device, dy_there, dy)


@every_strategy
@cases(80)
@given(
    convolutions(), st.integers(1, 100), st.integers(1, 64), st.integers(0, 30), st.integers(0, 24)
)
def test_a_workspace_keeps_to_its_limit_if_it_can(strategy, g, samples, channels, pixels, power):
    """It is the least there is where that is above the limit, and grows with the limit only."""
    image = tuple(size + pixels for size in g.image)
    g = ConvGeometry(g.n * samples, g.c * channels, image, g.f * channels, g.window, g.group)
    op, limit = conv.ENGINES[strategy], 2**power
    reason = op.refuses(g)
    if reason is not None:
        assert isinstance(reason, str) and reason and strategy not in TAKE_ALL
        return
    least, size = op.workspace(g, 0), op.workspace(g, limit)
    assert type(size) is int
    assert least <= size <= max(least, limit)
    assert size <= op.workspace(g, 2 * limit)


@every_strategy
@every_direction
def test_a_step_allocates_nothing_and_waits_for_nothing(cuda, strategy, direction):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts allocations")
    op = conv.ENGINES[strategy]
    for g in (
        EDGES["two groups"],
        EDGES["more places than a tile"],
        EDGES["more channels than a tile 1x1"],
    ):
        if op.refuses(g) is not None:
            continue
        x, weight, bias, dy, dw = (put(cuda, array) for array in arrays(g, np.float32, 1))
        work = blank(cuda, op.workspace(g, 5000), np.float32)
        for first in (True, False):  # constants are taken to the device once
            before = cuda.xp.allocations, cuda.xp.synchronizations
            if direction == "forward":
                op.forward(x, weight, bias, g, dy, work)
            elif direction == "input_gradient":
                op.input_gradient(dy, weight, g, x, work)
            else:
                op.weight_gradient(x, dy, g, dw, work)
            if not first:
                assert (cuda.xp.allocations, cuda.xp.synchronizations) == before


@pytest.mark.parametrize("strategy", ["batched", "implicit"])
def test_what_is_asked_of_a_device_does_not_grow_with_the_batch(cuda, strategy):
    """The strategies that the fixed rule prefers take no operation a sample, as long as there is work."""
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts operations")
    op, counts = conv.ENGINES[strategy], []
    for n in (20, 40):
        g = ConvGeometry(n, 4, (5, 4), 6, Window((1, 1)), 2)
        x, weight, bias, dy, dw = (put(cuda, array) for array in arrays(g, np.float32, 1))
        work = blank(cuda, workspace_of(op, cuda)(g, 10**6), np.float32)
        before = cuda.xp.operations
        op.weight_gradient(x, dy, g, dw, work)
        op.forward(x, weight, bias, g, dy, work)
        op.input_gradient(dy, weight, g, x, work)
        counts.append(cuda.xp.operations - before)
    assert counts[0] == counts[1]
