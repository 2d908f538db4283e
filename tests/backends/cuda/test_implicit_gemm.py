"""Implicit GEMM on CUDA: every geometry, tile and share of the work against loops in float64."""

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import (
    blank,
    cases,
    close,
    convolutions,
    dtypes,
    numbers,
    pairs,
    put,
    same,
    seeds,
)
from hypothesis import example, given
from hypothesis import strategies as st

from minicaffe.backends import launch_listener as listener
from minicaffe.backends.cuda import fusion, implicit_gemm
from minicaffe.backends.cuda.capture import COUNTERS, arrived
from minicaffe.backends.cuda.launch import source
from minicaffe.core.ops import elementwise
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.errors import ShapeError

TILES = [(1, 2), (2, 4), (4, 2), (4, 4), (4, 8), (8, 4), (8, 8)]
MEASURED = Path(__file__).parents[3] / "examples/benchmarks/results/gpu/tiles_h100.json"
# Of any tile two
LARGE = ConvGeometry(5, 6, (9, 8), 140, Window((3, 2), (1, 2), (1, 1), (1, 1)), 2)


def products(cuda, g, arrays, work=None, out=None):
    """y, dx and dweight by the kernel; dweight is added to the last of the arrays."""
    x, weight, bias, dy, start = (None if array is None else put(cuda, array) for array in arrays)
    y, dx = (blank(cuda, shape, out or x.dtype) for shape in (g.y_shape, g.x_shape))
    dw = start if out is None else start.astype(out)
    assert implicit_gemm.forward(x, weight, bias, g, y, work) is y
    assert implicit_gemm.input_gradient(dy, weight, g, dx, work) is dx
    assert implicit_gemm.weight_gradient(x, dy, g, dw, work) is dw
    for array, host in zip((x, weight, dy), (arrays[0], arrays[1], arrays[3]), strict=True):
        same(cuda, array, host)
    return y, dx, dw


def drawn(g, seed, dtype):
    return numbers(seed, g.x_shape, g.weight_shape, (g.f,), g.y_shape, g.weight_shape, dtype=dtype)


def expected(g, arrays):
    x, weight, bias, dy, start = arrays
    y = ref.conv(x, weight, bias, g.window, g.group)
    dx = ref.conv_input_gradient(dy, weight, g.x_shape, g.window, g.group)
    return y, dx, start + ref.conv_weight_gradient(dy, x, g.weight_shape, g.window, g.group)


@functools.cache
def of_64ths(g, dtype):
    """Numbers that any type holds exactly, and their products."""
    arrays = [np.round(array * 64) / 64 for array in drawn(g, 1, dtype)]
    return arrays, expected(g, arrays)


def check(cuda, g, arrays, work=None):
    for got, right in zip(products(cuda, g, arrays, work), expected(g, arrays), strict=True):
        close(cuda, got, right)


@cases(150)
@given(convolutions(), st.booleans(), st.integers(0, 300), dtypes, seeds)
def test_against_loops(cuda, g, bias_term, lent, dtype, seed):
    x, weight, bias, *others = drawn(g, seed, dtype)
    arrays = (x, weight, bias if bias_term else None, *others)
    check(cuda, g, arrays, blank(cuda, lent, dtype))


@pytest.fixture(scope="module")
def large():
    """Numbers for LARGE and what comes of them."""
    arrays = drawn(LARGE, 1, np.float32)
    return arrays, expected(LARGE, arrays)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
def test_every_tile_and_order_of_threads(cuda, monkeypatch, large, tile, order):
    if not hasattr(cuda.xp, "is_stand_in") and order != "forward":
        pytest.skip("only the stand-in runs threads in an order of choice")
    monkeypatch.setattr(implicit_gemm, "_share", lambda *_: (tile, 1))
    monkeypatch.setattr(cuda.xp, "thread_order", order, raising=False)
    arrays, right = large
    for got, host in zip(products(cuda, LARGE, arrays), right, strict=True):
        close(cuda, got, host)


ALIGNED = {
    "1 x 1": ConvGeometry(2, 80, (4, 8), 72, Window((1, 1))),
    "3 x 3": ConvGeometry(2, 8, (5, 8), 72, Window((3, 3), (1, 1), (1, 1))),
    "groups": ConvGeometry(2, 16, (4, 8), 16, Window((3, 3), (1, 1), (1, 1)), 2),
}


def fits(way, tile, dtype):
    return dtype != np.float64 or tile == (4, 4)  # else sums of 8 bytes find no registers


@pytest.mark.parametrize(
    ("way", "tile", "dtype"),
    pairs(ALIGNED, [(4, 4), (4, 8), (8, 8)], [np.float16, np.float32, np.float64], when=fits),
)
def test_neighbours_are_read_at_once(cuda, monkeypatch, way, tile, dtype):
    """Where all runs of them begin at multiples of 16 bytes; one number further the same is right, too."""
    monkeypatch.setattr(implicit_gemm, "_share", lambda *_: (tile, 1))
    g = ALIGNED[way]
    arrays, right = of_64ths(g, dtype)
    computed = []
    kernels = kernels_of(lambda: computed.extend(products(cuda, g, arrays, work=None)))
    for got, wanted in zip(computed, right, strict=True):
        close(cuda, got, wanted)
    assert kernels[0].split(", ")[4:6] == ["Packs", "Each"]
    assert kernels[2].split(", ")[4:6] == ["Packs", "Packs" if way == "1 x 1" else "Deep"]
    x, weight, bias, dy, dw = arrays
    shifted = [put(cuda, np.append(array[:1].ravel()[:1], array))[1:] for array in (weight, x, dy)]
    w1, x1, dy1 = (
        one.reshape(array.shape) for one, array in zip(shifted, (weight, x, dy), strict=True)
    )
    y, dw1 = blank(cuda, g.y_shape, dtype), put(cuda, dw)
    launched = kernels_of(lambda: implicit_gemm.forward(x1, w1, put(cuda, bias), g, y))
    launched += kernels_of(lambda: implicit_gemm.weight_gradient(x1, dy1, g, dw1))
    assert all("Packs" not in types for types in launched)
    close(cuda, y, right[0].astype(dtype))
    close(cuda, dw1, right[2].astype(dtype))


@pytest.mark.parametrize("stride", [1, 3])
def test_kernels_of_more_elements_than_bits(cuda, stride):
    g = ConvGeometry(2, 2, (1, 100), 3, Window((1, 40), (1, stride), (0, 7)))
    kernels = kernels_of(lambda: check(cuda, g, drawn(g, 1, np.float64)))
    where = [types.split(", ")[6] for types in kernels]
    # With a rest of 3 are 34 pixels
    assert where == (["Spot"] * 3 if stride == 1 else ["Bits"] * 3)


@pytest.mark.parametrize("way", ["Fma", "Tf32", "F16"])
def test_tiles_and_parts_are_near_the_fastest_measured(way):
    """Of what an H100 took: see COSTS."""
    measured = [row for row in json.loads(MEASURED.read_text()) if row["by"] == way]
    slower = []
    for row in measured:
        us = {(tuple(tile), parts): us for us, tile, parts in row["all"]}
        given = 1, 4, 132, 0.0, max(n for _, n in us), way
        tile, parts = implicit_gemm._share(tuple(row["sizes"]), *given)
        # (4, 2) and (2, 4) cost the same
        tile = tile if any(one == tile for one, _ in us) else tile[::-1]
        near = [took for (one, n), took in us.items() if one == tile and n / 2 <= parts <= n * 2]
        slower.append(min(near) / min(us.values()))
    assert len(measured) > 20 and np.exp(np.mean(np.log(slower))) < 1.08


@given(*[st.integers(1, 3000)] * 3, st.integers(1, 8), st.sampled_from([4, 8]), st.integers(0, 300))
@example(16, 16, 10**6, 1, 4, 10**6)  # all parts that are tried
def test_parts_are_as_many_as_can_be_counted(rows, columns, depth, products, size, most):
    for way in implicit_gemm.COSTS:
        given = products, size, 132, 3.0, most, way
        (tm, tn), parts = implicit_gemm._share((rows, columns, depth), *given)
        blocks = -(-rows // (16 * tm)) * -(-columns // (16 * tn)) * products
        assert 1 <= parts <= max(1, most) and blocks * implicit_gemm._sums(
            parts
        ) <= COUNTERS * 99 ** (parts == 1)
        assert way == "Fma" or tm > 1
        assert way != "Tf32x3" or tm * tn < 32 or (tm, tn) == (8, 4)  # its others spill registers
        assert size == 4 or tm * tn <= 16


def rounded(array):
    """To TF32: halves away from zero."""
    return ((array.astype(np.float32).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


@functools.cache
def rounded_large(dtype, way):
    """Numbers for LARGE that tensor cores multiply exactly, and their products in float64."""
    exact = rounded if way == "Tf32" else np.asarray
    arrays = [exact(array).astype(dtype) for array in drawn(LARGE, 1, np.float32)]
    return arrays, expected(LARGE, [array.astype(np.float64) for array in arrays])


@pytest.fixture
def with_cores(cuda, monkeypatch):
    """The same device, which may round float32 to TF32, if it has tensor cores; they are fast, too."""
    if not cuda.has_tf32:
        pytest.skip("a GPU without tensor cores for TF32")
    monkeypatch.setattr(implicit_gemm, "FAST", range(80, 999))
    return cuda.of_precision("tf32")


@pytest.mark.parametrize(
    ("way", "tile", "parts"),
    pairs(["F16", "Bf16", "Tf32", "Tf32x3"], [tile for tile in TILES if tile[0] > 1], [1, 3]),
)
@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
def test_tensor_cores(cuda, with_cores, monkeypatch, way, tile, parts, order):
    """As in float64 of what they round to, in any tile and in parts; and only where that is allowed."""
    dtype = {"F16": "float16", "Bf16": "bfloat16"}.get(way, "float32")
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    monkeypatch.setattr(cuda.xp, "thread_order", order, raising=False)
    monkeypatch.setattr(implicit_gemm, "_share", lambda *given: (tile, min(parts, given[-2] or 1)))
    arrays, right = rounded_large(dtype, way)
    work = blank(cuda, 10**5, dtype)
    computed, out = [], np.dtype(dtype)
    with with_cores.of_precision("high" if way == "Tf32x3" else "tf32").current():
        kernels = kernels_of(lambda: computed.extend(products(cuda, LARGE, arrays, work, out=out)))
    for got, host in zip(computed, right, strict=True):
        close(cuda, got, host.astype(dtype))
        rms = [np.sqrt(np.mean(part**2)) for part in (cuda.to_host(got) - host, host)]
        assert way != "Tf32x3" or rms[0] < 4e-7 * rms[1]
    assert {types.split(", ")[-1] for types in kernels} == {way}


def test_three_products_are_float32s(cuda, with_cores):
    """Infinities and NaN as multiply-adds have them; the smallest numbers lose digits, long sums none."""
    most, nan = float(np.finfo("f4").max), np.uint32(0x7F800001).view("f4")
    odd = [0, -0.0, 1, -3, 1 / 3, 1e-30, 3e38, most, -most, np.inf, -np.inf, nan]
    odd += [1e-40] if hasattr(cuda.xp, "is_stand_in") else []  # which CUDA takes as 0, or not
    a = np.array([odd], np.float32)
    by = {}
    for precision in ("high", "highest"):
        with with_cores.of_precision(precision).current():
            out = blank(cuda, (len(odd), len(odd)), np.float32)
            implicit_gemm.product(put(cuda, a.T.copy()), put(cuda, a), out, None)
            by[precision] = cuda.to_host(out)
    small = abs(a) < 1e-38
    few = (small | small.T) & np.isfinite(by["highest"])
    np.testing.assert_allclose(by["high"][~few], by["highest"][~few], rtol=2e-6)
    np.testing.assert_allclose(by["high"][few], by["highest"][few], rtol=0.1)
    a, b = (abs(array) for array in numbers(1, (32, 4608), (4608, 32), dtype=np.float32))
    out = blank(cuda, (32, 32), np.float32)
    with with_cores.of_precision("high").current():
        implicit_gemm.product(put(cuda, a), put(cuda, b), out, None)
    right = a.astype(float) @ b.astype(float)
    assert np.sqrt(np.mean((cuda.to_host(out) / right - 1) ** 2)) < 1e-6


def kernels_of(work):
    """The template arguments of the kernels that some work launches."""
    heard = SimpleNamespace(found=[], host=lambda why: None)
    heard.launched = lambda asked: asked.name != "implicit" or not heard.found.append(asked.types)
    with listener.heard(heard):
        work()
    return heard.found


def test_tf32_is_rounded_as_it_is_defined(cuda, with_cores):
    """A product with one is what was rounded: halves away from zero, infinite as they are, NaN as NaN.

    What is smaller than the smallest normal number is cut off, or is zero, as CUDA takes it.
    """
    finite = [0x3F800FFF, 0x3F801000, 0xBF801000, 0x3F803000, 0x007FFFFF, 0x7F7FFFFF]
    bits = [*finite, 0xFF800000, 0x7FFFFFFF]
    x = np.array(bits, np.uint32).view(np.float32).reshape(1, 1, 1, 8)
    g = ConvGeometry(1, 1, (1, 8), 1, Window((1, 1)))
    y = blank(cuda, g.y_shape, np.float32)
    with with_cores.current():
        one = put(cuda, np.ones(g.weight_shape, np.float32))
        implicit_gemm.forward(put(cuda, x), one, None, g, y)
    rounded = [0x3F800000, 0x3F802000, 0xBF802000, 0x3F804000, 0x007FE000, 0x7F800000, 0xFF800000]
    want = np.array(rounded, np.uint32)
    got = cuda.to_host(y).reshape(-1)
    if not hasattr(cuda.xp, "is_stand_in"):
        want[4] = 0
    assert got[:7].view(np.uint32).tolist() == want.tolist() and np.isnan(got[7])


def test_float32_is_exact_unless_somebody_allows_tf32(cuda, with_cores):
    """Nested as they are entered; and in another thread not at all."""
    import threading

    from minicaffe.backends.cuda.device import precision

    assert precision() == "highest"
    with with_cores.current():
        assert precision() == "tf32"
        with cuda.current():
            assert precision() == "high"
        found = []
        one = threading.Thread(target=lambda: found.append(precision()))
        one.start(), one.join()
        assert precision() == "tf32" and found == ["highest"]
    assert precision() == "highest"


def test_three_products_where_tensor_cores_are_fast(cuda, monkeypatch):
    """Of an A100, H100 or B200; GeForce cards multiply float32 as fast by multiply-adds."""
    x = blank(cuda, 3, np.float32)
    for since, by in ((75, "Fma"), (80, "Tf32x3"), (86, "Fma"), (90, "Tf32x3"), (120, "Fma")):
        monkeypatch.setattr(implicit_gemm, "capability", lambda number, since=since: since)
        with cuda.of_precision("high").current():
            assert implicit_gemm.multiplier(x) == by
            assert implicit_gemm.multiplier(x.astype(np.float64)) == "Fma"
        assert implicit_gemm.multiplier(x) == "Fma"


@pytest.mark.parametrize(
    ("parts", "dtype", "way", "stride"),
    pairs(
        [1, 2, 3, 7, 16, 17, 50, 256],
        [np.float16, np.float32, np.float64],
        ["forward", "input_gradient", "weight_gradient"],
        [1, 2],
    ),
)
def test_parts_of_the_depth_are_summed_apart(cuda, monkeypatch, parts, dtype, way, stride):
    """As many as there is work for; what is beyond is left alone."""
    g = ConvGeometry(6, 4, (6, 5), 6, Window((2, 3), (stride, 1), (1, 1)), 2)
    monkeypatch.setattr(implicit_gemm, "_share", lambda *given: ((2, 4), min(parts, given[-2])))
    arrays, right = of_64ths(g, dtype)
    x, weight, bias, dy, dw = (put(cuda, array) for array in arrays)
    y, dx = blank(cuda, g.y_shape, dtype), blank(cuda, g.x_shape, dtype)
    which = ["forward", "input_gradient", "weight_gradient"].index(way)
    out = (y, dx, dw)[which]
    size = out.size * (2 if dtype == np.float16 else 1)
    work = blank(cuda, size * parts + 3, dtype)
    if way == "forward":
        implicit_gemm.forward(x, weight, bias, g, y, work=work)
    elif way == "input_gradient":
        implicit_gemm.input_gradient(dy, weight, g, dx, work)
    else:
        implicit_gemm.weight_gradient(x, dy, g, dw, work)
    close(cuda, out, right[which])
    used = size * parts if parts > 1 else 0
    assert np.isnan(cuda.to_host(work)[used:]).all()
    assert not np.isnan(cuda.to_host(work)[:used].view(np.promote_types(dtype, np.float32))).any()
    same(cuda, arrived(), np.zeros(COUNTERS))


STRIDED = {
    "1 x 1": ConvGeometry(2, 3, (7, 8), 4, Window((1, 1), (2, 2))),
    "3 x 3": ConvGeometry(2, 3, (7, 8), 4, Window((3, 3), (2, 2), (1, 1))),
    "dilated": ConvGeometry(2, 4, (9, 11), 6, Window((3, 2), (2, 4), (1, 1), (3, 6)), 2),
    "7 x 7": ConvGeometry(1, 3, (12, 13), 20, Window((7, 7), (2, 3), (3, 2))),
    "beyond the image": ConvGeometry(1, 2, (1, 2), 3, Window((2, 2), (3, 4), (1, 2))),
    "three axes": ConvGeometry(2, 2, (4, 5, 6), 3, Window((2, 3, 1), (3, 1, 2), (1, 0, 0))),
}


@pytest.mark.parametrize("g", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_strided_input_gradient_multiplies_what_meets(cuda, monkeypatch, g, parts):
    """Each rest of a pixel by the strides is a product of its own.

    Elements of other rests are not multiplied, nor with zero: zero times infinity is no number.
    """
    tile = (2, 2)
    monkeypatch.setattr(implicit_gemm, "_share", lambda *given: (tile, min(parts, given[-2] or 1)))
    _, weight, _, dy, _ = drawn(g, 1, np.float64)
    work = blank(cuda, 4 * np.prod(g.x_shape), np.float64)
    dx = blank(cuda, g.x_shape, np.float64)
    implicit_gemm.input_gradient(put(cuda, dy), put(cuda, weight), g, dx, work)
    close(cuda, dx, ref.conv_input_gradient(dy, weight, g.x_shape, g.window, g.group))
    weight[..., -1] = np.inf
    implicit_gemm.input_gradient(put(cuda, dy), put(cuda, weight), g, dx, work)
    w, (kernel, stride, pad, dilation) = g.image[-1], (axes[-1] for axes in g.window.lifted())
    meets_last = (np.arange(w) + pad - (kernel - 1) * dilation) % stride == 0
    assert np.isfinite(cuda.to_host(dx)[..., ~meets_last]).all() and not meets_last.all()
    same(cuda, arrived(), np.zeros(COUNTERS))


@cases(60)
@given(convolutions(), st.integers(1, 4), seeds)
def test_input_gradients_of_any_stride_in_parts(cuda, g, parts, seed):
    arrays = drawn(g, seed, np.float64)
    work = blank(cuda, parts * max(np.prod(g.x_shape), np.prod(g.y_shape)), np.float64)
    check(cuda, g, arrays, work=work)


@pytest.mark.parametrize("parts", [1, 2, 17, 40])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_bias_has_its_gradient_from_the_same_kernel(cuda, monkeypatch, parts, dtype):
    """The sums of dy over samples and places, added to what is there; of tiles and groups several."""
    g = ConvGeometry(6, 4, (6, 5), 70, Window((2, 3), (1, 1), (1, 1)), 2)
    monkeypatch.setattr(implicit_gemm, "_share", lambda *given: ((2, 4), min(parts, given[-2])))
    x, weight, start, dy, _ = (np.round(array * 64) / 64 for array in drawn(g, 1, dtype))
    dw, db = put(cuda, np.zeros_like(weight)), put(cuda, start)
    work = blank(cuda, (weight.size + 70) * (2 if dtype == np.float16 else 1) * parts, dtype)
    implicit_gemm.weight_gradient(put(cuda, x), put(cuda, dy), g, dw, work, db)
    close(cuda, dw, ref.conv_weight_gradient(dy, x, g.weight_shape, g.window, g.group))
    close(cuda, db, start + dy.astype(np.float64).sum(axis=(0, 2, 3)))


@pytest.mark.parametrize("turned", range(8))
@pytest.mark.parametrize("lent", [0, 10**5])
def test_a_product_of_matrices_however_they_lie(cuda, turned, lent):
    """With a bias and the sums of rows; each matrix row by row, or column by column."""
    a, b, out, bias, sums = numbers(1, (37, 300), (300, 21), (37, 21), (37,), (37,), dtype=float)
    there = [
        put(cuda, array.T.copy()).T if turned >> i & 1 else put(cuda, array)
        for i, array in enumerate((a, b, out))
    ]
    to, work = put(cuda, sums), blank(cuda, lent, float)
    given = there[2], work, put(cuda, bias), True, to, True
    assert implicit_gemm.product(*there[:2], *given) is there[2]
    close(cuda, there[2], a @ b + bias[:, None] + out)
    close(cuda, to, sums + a.sum(axis=1))


def test_work_is_asked_for_within_its_limit():
    """The most of what the three directions ask for, where there is so much: here that of dx, of 3 parts."""
    g = ConvGeometry(64, 20, (12, 12), 50, Window((5, 5)))
    dx, dweight = 64 * 20 * 144, 50 * 20 * 25 + 50
    limits = 0, dweight, 2 * dweight, 3 * dweight + 1, 10**9
    asked = [implicit_gemm.workspace(g, limit) for limit in limits]
    assert asked == [0, 0, 2 * dweight, 3 * dweight, max(asked)] and asked[-1] % dx == 0
    assert 2 <= asked[-1] // dx <= 4
    assert implicit_gemm.workspace(ConvGeometry(0, 1, (5, 5), 1, Window((3, 3))), 10**9) == 0


@pytest.mark.parametrize("out", [np.float16, np.float32])
@pytest.mark.parametrize("lent", [0, 10**4])
def test_16_bits_are_summed_in_32(cuda, out, lent):
    """From numbers that 16 bits can hold, the result is the right one, rounded once."""
    g = ConvGeometry(3, 4, (7, 6), 6, Window((3, 2), (2, 1), (1, 2), (1, 2)), 2)
    arrays = [np.round(array * 64) / 64 for array in drawn(g, 1, np.float16)]
    work = blank(cuda, lent, np.float16)
    for got, right in zip(
        products(cuda, g, arrays, work, out=out), expected(g, arrays), strict=True
    ):
        assert got.dtype == out
        close(cuda, got, right.astype(out))


def test_a_relu_is_of_what_has_been_added(cuda):
    """As of a ReLU in place behind the product, whose kernel ends in it; and passes what is no number."""
    a, b, out = numbers(1, (5, 40), (40, 7), (5, 7), dtype=float)
    out[2] = np.nan
    there = [put(cuda, array) for array in (a, b, out)]
    with fusion.joined():
        implicit_gemm.product(*there, None, add=True)
        elementwise.forward("ReLU", there[2], (), there[2])
    close(cuda, there[2], np.maximum(a @ b + out, 0))


def test_nothing_is_taken_and_nothing_waited_for(cuda):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts")
    g = ConvGeometry(8, 2, (9, 9), 3, Window((3, 3)))
    x, weight, bias, dy, dw = (put(cuda, array) for array in drawn(g, 1, np.float32))
    y, dx = dy.copy(), x.copy()
    work = blank(cuda, implicit_gemm.workspace(g, 10**6), np.float32)
    assert work.size > 0
    arrived()  # of which there is one for all
    before = cuda.xp.allocations, cuda.xp.synchronizations
    implicit_gemm.forward(x, weight, bias, g, y)
    implicit_gemm.input_gradient(dy, weight, g, dx)
    implicit_gemm.weight_gradient(x, dy, g, dw, work)
    assert (cuda.xp.allocations, cuda.xp.synchronizations) == before


def test_more_than_an_index_reaches_is_refused(cuda):
    g = ConvGeometry(2**11, 2**10, (32, 32), 1, Window((1, 1)))
    nothing, huge = blank(cuda, 0, np.float32), SimpleNamespace(size=2**31)
    with pytest.raises(ShapeError, match="implicit: 2147483648 elements"):
        implicit_gemm.forward(huge, nothing, None, g, nothing)


def test_the_integers_are_named_as_the_kernel_names_them():
    code = source("implicit.cu", "float")[0]

    def names(struct):
        body = re.search(rf"struct {struct} {{(.*?)}};", code, re.S)[1]
        declared = re.findall(r"^\s*(?:int|Axes) ([\w, ]+);", body, re.M)
        return [name.strip() for line in declared for name in line.split(",")]

    assert list(implicit_gemm.PRODUCT.names) == names("Product")
    assert list(implicit_gemm.PRODUCT["k"].names) == names("Axes")


def test_a_size_beyond_32_bits_is_refused(cuda):
    with pytest.raises(ShapeError, match="^implicit: 2147483648 elements"):
        implicit_gemm._product((3, 2**31, 5), (1,))


def test_numbers_are_read_at_once_only_where_they_are_neighbours():
    """One place of 4 x 4: all of an image of 4 x 4, and rows of 4 in one of 6 x 6."""
    for image, stride, lies in (((4, 4), 1, ("Deep", 64)), ((6, 6), 3, ("Deep", 1))):
        g = ConvGeometry(1, 4, image, 8, Window((4, 4), (stride, stride)))
        assert g.out == (1, 1)
        assert implicit_gemm._directions(g)[0].entries == lies


def test_weights_are_read_one_by_one_where_strides_leave_some_out():
    """Of dx, each of the products for a remainder of a stride multiplies by every second weight."""
    for stride, lies in (((1, 1), "Deep"), ((1, 2), "Each"), ((2, 2), "Each")):
        g = ConvGeometry(1, 1, (9, 9), 8, Window((4, 4), stride))
        assert implicit_gemm._directions(g)[1].left[0] == lies
