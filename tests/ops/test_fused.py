"""A ReLU, and its gradient, as the end of the kernel before: the same bits, and only where it is the same."""

from functools import partial

import numpy as np
import pytest
from ops.cases import blank, numbers, put

from minicaffe.ops import activation, channels, elementwise, fused, pool
from minicaffe.ops.conv import implicit_gemm
from minicaffe.ops.geometry import ConvGeometry, Window
from minicaffe.ops.record import recording
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
    outs = [blank(cuda, shape, dtype) for _ in range(2)]
    first, then = work(cuda, dtype, outs[0]), end(outs[0])
    launches = [noted(first), noted(then)]
    assert fused.ends_in(*launches)
    first, then = work(cuda, dtype, outs[1]), end(outs[1])
    with recording() as made:
        fused.both(first, len(launches[0]), then)
    assert not made.launches and not made.hosts  # what is heard within is told to nobody else
    one, other = map(cuda.to_host, outs)
    assert one.tobytes() == other.tobytes() and not np.isnan(one).all()


def noted(work):
    with recording() as made:
        work()
    return made.launches


def test_what_is_not_the_same_does_not_end_in_it(cuda):
    """Another array, another formula, not in place, a kernel that cannot, or more than one behind."""
    y, other = blank(cuda, G.y_shape, np.float32), blank(cuda, G.y_shape, np.float32)
    first = noted(convolution(cuda, np.float32, y))
    relu = noted(partial(elementwise.forward, "ReLU", y, (), y))
    assert fused.ends_in(first, relu)
    assert not fused.ends_in([], relu)
    assert not fused.ends_in(first, [])
    assert not fused.ends_in(first, [*relu, *relu])
    assert not fused.ends_in(relu, relu)
    for name, numbers_of, x, to in [
        ("ReLU", (), other, other),
        ("ReLU", (), y, other),
        ("ReLU", (), other, y),
        ("LeakyReLU", (0.1,), y, y),
        ("ReLU", (), y[:1], y[:1]),
    ]:
        then = noted(partial(elementwise.forward, name, x, numbers_of, to))
        assert not fused.ends_in(first, then), (name, x is y, to is y)
