"""Two kernels as one: the same bits, and only where it is the same."""

import contextlib
from functools import partial

import numpy as np
import pytest
from ops.cases import blank, numbers, put

from minicaffe.kernels import heard
from minicaffe.ops import activation, arrays, channels, elementwise, fused, normalize, pool, rows
from minicaffe.ops.conv import implicit_gemm
from minicaffe.ops.geometry import ConvGeometry, Window
from minicaffe.ops.rows import Norm, Past, Statistics, by_channel, workspace
from minicaffe.ops.slots import Slots

G = ConvGeometry(2, 3, (7, 6), 5, Window((3, 2), (1, 1), (1, 1)))
POOL = Window((3, 2), (2, 3), (1, 1))


def given(device, dtype):
    """Images, and a top of theirs that is what a ReLU leaves: zeros of either sign, and no number."""
    x, y, weight, bias = numbers(1, G.x_shape, G.x_shape, G.weight_shape, (G.f,), dtype=dtype)
    y = np.maximum(y, 0)
    y.ravel()[:3] = -0.0, np.nan, np.inf
    return [put(device, array) for array in (x, y, weight, bias)]


def convolution(device, dtype, out):
    x, _, weight, bias = given(device, dtype)
    return lambda: implicit_gemm.forward(x, weight, bias, G, out)


def input_gradient(device, dtype, out):
    weight, dy = given(device, dtype)[2], put(device, numbers(2, G.y_shape, dtype=dtype)[0])
    return lambda: implicit_gemm.input_gradient(dy, weight, G, out)


def product_in_parts(device, dtype, out):
    a, b = (put(device, x) for x in numbers(3, (6, 900), (900, 42), dtype=dtype))
    work = blank(device, 10**4, dtype)
    return lambda: implicit_gemm.product(a, b, out.reshape(6, 42), work)


def max_pool(device, dtype, out):
    dy, which = given_pooled(device, dtype)
    return lambda: pool.max_pool_gradient(dy, which, POOL, out, None, None)


def ave_pool(device, dtype, out):
    dy, _ = given_pooled(device, dtype)
    return lambda: pool.ave_pool_gradient(dy, POOL, out, None)


def scaled(device, dtype, out):
    x, see = given(device, dtype)[0], (2, 3, 42)
    a, b = (put(device, array) for array in numbers(5, (3,), (3,), dtype=dtype))
    return lambda: channels.scale(x.reshape(see), a, b, out.reshape(see))


def given_pooled(device, dtype):
    shape = (2, 3, 4, 3)
    which = np.random.default_rng(1).integers(-1, 6, shape)
    return put(device, numbers(4, shape, dtype=dtype)[0]), put(device, which, np.int32)


def dropout(device, dtype, out):
    mask, dy = activation.Mask(Slots(device), G.x_shape), given(device, dtype)[0]
    mask.kept.fill(False)
    mask.kept[:, ::2] = True
    return lambda: activation.dropout_gradient(dy, mask, 0.5, out)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("work", [convolution, product_in_parts, scaled])
def test_a_product_ends_in_a_relu(cuda, work, dtype):
    shape = G.y_shape if work is convolution else (2, 3, 7, 6)
    check(cuda, work, dtype, shape, lambda y: partial(elementwise.forward, "ReLU", y, (), y))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("work", [input_gradient, product_in_parts, max_pool, ave_pool, dropout])
def test_a_gradient_ends_in_that_of_a_relu(cuda, work, dtype):
    top = given(cuda, dtype)[1]

    def end(dx):
        return partial(elementwise.gradient, "ReLU", dx, top, top, (), dx)

    check(cuda, work, dtype, G.x_shape, end)


def check(cuda, work, dtype, shape, end):
    """The work and then the end, each as it is, and both in as many kernels as the work takes alone."""
    found = []
    for way in (contextlib.nullcontext(), fused.joined()):
        out = blank(cuda, shape, dtype)
        works = work(cuda, dtype, out), end(out)
        with way:
            for one in works:
                one()
        found.append(cuda.to_host(out).copy())
    assert found[0].tobytes() == found[1].tobytes() and not np.isnan(found[0]).all()
    assert len(kernels_of(*works)) == len(asked(works[0]))


class Collected(list):
    """What is asked for, and done."""

    def launched(self, asked):
        self.append(asked)
        return True


def asked(*works):
    with heard(Collected()) as made:
        for work in works:
            work()
    return made


def kernels_of(*works):
    """What a device is given for some works where all that can be is one."""
    done = []

    def launched(one):
        if joined(one._replace(do=done.append)):
            done.append(one.args)
        return False

    with fused.joined() as made:
        joined, made.launched = made.launched, launched
        for work in works:
            work()
    return done


def test_what_is_not_the_same_does_not_end_in_it(cuda):
    """Another array, another formula, not in place, a kernel that cannot."""
    y, other = blank(cuda, G.y_shape, np.float32), blank(cuda, G.y_shape, np.float32)
    (first,) = asked(convolution(cuda, np.float32, y))
    (relu,) = asked(partial(elementwise.forward, "ReLU", y, (), y))
    assert fused.together(first, relu) is not None
    assert fused.together(fused.together(first, relu), relu) is None
    assert fused.together(relu, relu) is None
    for name, numbers_of, x, to in [
        ("ReLU", (), other, other),
        ("ReLU", (), y, other),
        ("ReLU", (), other, y),
        ("LeakyReLU", (0.1,), y, y),
        ("ReLU", (), y[:1], y[:1]),
    ]:
        (then,) = asked(partial(elementwise.forward, name, x, numbers_of, to))
        assert fused.together(first, then) is None, (name, x is y, to is y)


SHAPES = {  # whose channels a block has whole, with 256 threads and with 1024; and in parts
    "whole": (3, 70, 2, 3),
    "long": (2, 5, 90, 93),
    "parts": (2, 3, 90, 93),
    "one place": (5, 600),
}


class Normalised:
    """What a BatchNorm, a Scale, a sum with something else and a ReLU do, there and back."""

    def __init__(self, cuda, shape, dtype):
        rng = np.random.default_rng(3)
        f = shape[1]
        self.x, self.other, self.dz = (put(cuda, rng.normal(size=shape), dtype) for _ in range(3))
        self.a, self.b = (put(cuda, rng.normal(size=f), dtype) for _ in range(2))
        self.rows, self.norm = by_channel(shape), Norm("variance", 1e-5)
        self.nfp = shape[0], f, int(np.prod(shape[2:]))
        kind = np.float64 if dtype == np.float64 else np.float32
        self.found = Statistics.empty(cuda.xp, self.rows, kind)
        self.sums = [put(cuda, np.ones(n), kind) for n in (f, f, 1)]
        self.work = blank(cuda, workspace(cuda.xp, self.x.size, self.rows, f), dtype)
        past = Past(0.9, self.rows.length, *self.sums)
        self.by = self.norm, self.work, past

    def forward(self, y, z, s):
        see = [array.reshape(self.nfp) for array in (y, z)]
        return (
            lambda: normalize.normalise(self.x, self.rows, self.found, None, y, *self.by),
            lambda: channels.scale(see[0], self.a, self.b, see[1]),
            lambda: arrays.plus(self.other, z, s),
            lambda: elementwise.forward("ReLU", s, (), s),
        )

    def backward(self, y, g, dx, da, db):
        see = [array.reshape(self.nfp) for array in (self.dz, y, g)]
        given = self.rows, self.norm, self.found, None, (None, None), dx, self.work
        return (
            lambda: channels.gradients(*see[:2], self.a, da, db, see[2], self.work),
            lambda: normalize.gradients(self.x, g, *given),
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_a_batch_norm_goes_on_to_what_follows(cuda, monkeypatch, name, dtype):
    """There and back: the same bits in every array that is written, and as few kernels as it says."""
    shape, parts = SHAPES[name], name == "parts"
    monkeypatch.setattr(rows, "ALONE", 5)  # so few channels
    alone, whole = Normalised(cuda, shape, dtype), Normalised(cuda, shape, dtype)
    found = []
    for one, way in ((alone, contextlib.nullcontext()), (whole, fused.joined())):
        y, z, s, g, dx = (blank(cuda, shape, dtype) for _ in range(5))
        da, db = (put(cuda, np.ones(shape[1]), dtype) for _ in range(2))
        with way:
            for work in (*one.forward(y, z, s), *one.backward(y, g, dx, da, db)):
                work()
        written = y, z, s, g, dx, da, db, *one.sums, *vars(one.found).values()
        found.append([cuda.to_host(array).copy() for array in written])
    for mine, other in zip(*found, strict=True):
        assert mine.tobytes() == other.tobytes() and not np.isnan(mine).any()
    assert len(kernels_of(*whole.forward(y, z, s))) == 1 + parts
    assert len(kernels_of(*whole.backward(y, g, dx, da, db))) == 1 + parts
    gone = np.maximum(found[0][1].astype(np.float64) + cuda.to_host(whole.other), 0)
    near = {2: 2e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(found[0][2], gone, rtol=near, atol=near)


def test_only_what_follows_a_batch_norm_is_its_end(cuda):
    """Not a Scale of something else, a sum of twice the same, nor what comes after a ReLU."""
    one = Normalised(cuda, (3, 70, 2, 3), np.float32)
    y, z, s, g = (blank(cuda, (3, 70, 2, 3), np.float32) for _ in range(4))
    norm, scale, plus, relu = one.forward(y, z, s)
    assert len(kernels_of(norm, scale, plus, relu)) == 1
    assert len(kernels_of(norm, relu)) == 2
    assert len(kernels_of(norm, plus)) == 2
    assert len(kernels_of(norm, scale, lambda: arrays.plus(z, z, s))) == 2
    assert len(kernels_of(norm, scale, lambda: arrays.plus(y, z, s))) == 2
    assert len(kernels_of(norm, scale, lambda: arrays.plus(z, y, s))) == 2
    assert len(kernels_of(norm, scale, lambda: arrays.plus(one.other, g, s))) == 2
    assert len(kernels_of(norm, scale, lambda: arrays.plus(one.other, z[:1], s))) == 2
    last = lambda: elementwise.forward("ReLU", z, (), z)  # noqa: E731
    assert len(kernels_of(norm, scale, last)) == 1
    assert len(kernels_of(norm, scale, last, plus)) == 2
    flat, see = one.other.reshape(one.nfp), z.reshape(one.nfp)
    assert len(kernels_of(norm, lambda: channels.scale(flat, one.a, one.b, see))) == 2
    assert len(kernels_of(norm, lambda: channels.scale(y.reshape(one.nfp), None, one.b, see))) == 2


@pytest.mark.parametrize("shift", [0, 6, -6])
def test_what_reaches_into_what_others_still_read_is_not_joined(cuda, shift):
    """As where a buffer is laid over others that are no longer needed, at another place."""
    shape = (3, 70, 2, 3)
    one, size = Normalised(cuda, shape, np.float32), 3 * 70 * 6
    whole = blank(cuda, size + 12, np.float32)
    lies, over = (whole[at : at + size].reshape(shape) for at in (6, 6 + shift))
    y, z, s, g = (blank(cuda, shape, np.float32) for _ in range(4))
    cuda.xp.copyto(lies, one.x)
    one.x = lies
    norm, scale, plus, _ = one.forward(y, over, s)
    assert len(kernels_of(norm, scale)) == (
        2 if shift else 1
    )  # a Scale's top over a BatchNorm's bottom
    norm, scale, plus, _ = one.forward(y, z, over)
    assert len(kernels_of(norm, scale, plus)) == (2 if shift else 1)
    one.x = g
    norm, scale, plus, _ = one.forward(lies, z, over)
    assert len(kernels_of(norm, scale, plus)) == (2 if shift else 1)
    one.dz = lies
    sums = [put(cuda, np.ones(70), np.float32) for _ in range(2)]
    assert len(kernels_of(*one.backward(y, g, over, *sums))) == (2 if shift else 1)


def test_what_is_read_besides_is_not_what_the_first_writes(cuda):
    """A Scale by what it scales; a mask that is the gradient."""
    one = Normalised(cuda, (1, 70), np.float32)
    y, z = (blank(cuda, (1, 70), np.float32) for _ in range(2))
    norm, scale, *_ = one.forward(y, z, z)
    see = [array.reshape(one.nfp) for array in (y, z)]
    assert len(kernels_of(norm, scale)) == 1
    assert len(kernels_of(norm, lambda: channels.scale(see[0], y[0], one.b, see[1]))) == 2
    assert len(kernels_of(norm, lambda: channels.scale(see[0], one.a, y[0], see[1]))) == 2
    dx = blank(cuda, G.x_shape, np.float32)
    product = input_gradient(cuda, np.float32, dx)
    assert len(kernels_of(product, partial(elementwise.gradient, "ReLU", dx, dx, dx, (), dx))) == 2


def test_only_the_gradient_of_what_was_scaled_is_joined(cuda):
    """Not of another array, nor of one that a third is added to in between."""
    one = Normalised(cuda, (3, 70, 2, 3), np.float32)
    y, g, dx = (blank(cuda, (3, 70, 2, 3), np.float32) for _ in range(3))
    sums = [put(cuda, np.ones(70), np.float32) for _ in range(2)]
    scale, norm = one.backward(y, g, dx, *sums)
    assert len(kernels_of(scale, norm)) == 1
    assert len(kernels_of(norm, scale)) == 2
    assert len(kernels_of(scale, lambda: arrays.add(one.other, g), norm)) == 3
    other = Normalised(cuda, (3, 70, 2, 3), np.float32).backward(y, one.other, dx, *sums)[1]
    assert len(kernels_of(scale, other)) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_gradient_is_added_by_the_product(cuda, dtype):
    """In its own type: of 16 bits it would be rounded once, not twice; and it may end in a ReLU's gradient."""
    start, top = (given(cuda, dtype)[i] for i in (0, 1))
    found = []
    for way in (contextlib.nullcontext(), fused.joined()):
        part, total = blank(cuda, G.x_shape, dtype), start.copy()
        works = (
            input_gradient(cuda, dtype, part),
            lambda part=part, total=total: arrays.add(part, total),
            lambda total=total: elementwise.gradient("ReLU", total, top, top, (), total),
        )
        with way:
            for work in works:
                work()
        found.append(cuda.to_host(total).copy())
    assert found[0].tobytes() == found[1].tobytes()
    assert len(kernels_of(*works)) == (3 if dtype == np.float16 else 1)
