"""Two kernels as one: the same bits, and only where it is the same."""

import contextlib
from functools import partial

import numpy as np
import pytest
from core.ops.cases import blank, numbers, put
from core.ops.launch_rows import held_in_memory

from minicaffe.backends.cuda import fusion, implicit_gemm
from minicaffe.backends.launch_listener import heard
from minicaffe.backends.step_constants import Slots
from minicaffe.core.ops import arrays, channels, elementwise, normalize, pool, random, softmax
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.ops.rows import Norm, Past, Statistics, by_channel, workspace
from minicaffe.core.ops.softmax import Labels, Mean

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


def max_pool_2x2(device, dtype, out):
    dy, which = given_pooled(device, dtype)
    return lambda: pool.max_pool_gradient(dy, which, Window((2, 2), (2, 2)), out, None, None)


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
    mask, dy = random.Mask(Slots(device), G.x_shape), given(device, dtype)[0]
    mask.kept.fill(False)
    mask.kept[:, ::2] = True
    return lambda: random.dropout_gradient(dy, mask, 0.5, out)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("work", [convolution, product_in_parts, scaled])
def test_a_product_ends_in_a_relu(cuda, work, dtype):
    shape = G.y_shape if work is convolution else (2, 3, 7, 6)
    check(cuda, work, dtype, shape, lambda y: partial(elementwise.forward, "ReLU", y, (), y))


GRADIENTS = [input_gradient, product_in_parts, max_pool, max_pool_2x2, ave_pool, dropout]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("work", GRADIENTS)
def test_a_gradient_ends_in_that_of_a_relu(cuda, work, dtype):
    top = given(cuda, dtype)[1]

    def end(dx):
        return partial(elementwise.gradient, "ReLU", dx, top, top, (), dx)

    check(cuda, work, dtype, G.x_shape, end)


def check(cuda, work, dtype, shape, end):
    """The work and then the end, each as it is, and both in as many kernels as the work takes alone."""
    found = []
    for way in (contextlib.nullcontext(), fusion.joined()):
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
            done.append(one)
        return False

    with fusion.joined() as made:
        joined, made.launched = made.launched, launched
        for work in works:
            work()
    return done


def test_what_is_not_the_same_does_not_end_in_it(cuda):
    """Another array, another formula, not in place, a kernel that cannot."""
    y, other = blank(cuda, G.y_shape, np.float32), blank(cuda, G.y_shape, np.float32)
    (first,) = asked(convolution(cuda, np.float32, y))
    (relu,) = asked(partial(elementwise.forward, "ReLU", y, (), y))
    assert fusion.together(first, relu) is not None
    assert fusion.together(fusion.together(first, relu), relu) is None
    assert fusion.together(relu, relu) is None
    for name, numbers_of, x, to in [
        ("ReLU", (), other, other),
        ("ReLU", (), y, other),
        ("ReLU", (), other, y),
        ("LeakyReLU", (0.1,), y, y),
        ("ReLU", (), y[:1], y[:1]),
    ]:
        (then,) = asked(partial(elementwise.forward, name, x, numbers_of, to))
        assert fusion.together(first, then) is None, (name, x is y, to is y)


SHAPES = {  # whose channels a block has whole, with 256 threads and with 1024; and in parts
    "whole": (3, 70, 2, 3),
    "long": (2, 5, 90, 93),
    "parts": (2, 3, 90, 93),
    "one place": (5, 600),
    "held": (2, 5, 20, 16),
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
        self.by = self.norm, self.work, Past(0.9, self.rows.length, *self.sums)

    def forward(self, y, z, s):
        see = [array.reshape(self.nfp) for array in (y, z)]
        return (
            lambda: normalize.normalise(self.x, self.rows, self.found, None, y, *self.by),
            lambda: channels.scale(see[0], self.a, self.b, see[1]),
            lambda: arrays.plus(self.other, z, s),
            lambda: elementwise.forward("ReLU", s, (), s),
        )

    def rectified(self, kind="ReLU"):
        """Its gradient comes before, of a ReLU whose top is `other`."""
        elementwise.gradient(kind, self.dz, self.other, self.other, (), self.dz)

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
    shape, parts = SHAPES[name], name == "parts"
    monkeypatch.setattr("minicaffe.backends.cuda.moments.ALONE", 5)  # so few channels
    back = 1 if name == "held" and dtype != np.float64 else 2 + parts
    with held_in_memory(cuda, 1024) if name == "held" else contextlib.nullcontext():
        alone, whole = Normalised(cuda, shape, dtype), Normalised(cuda, shape, dtype)
        found = []
        for one, way in ((alone, contextlib.nullcontext()), (whole, fusion.joined())):
            y, z, s, g, dx = (blank(cuda, shape, dtype) for _ in range(5))
            da, db = (put(cuda, np.ones(shape[1]), dtype) for _ in range(2))
            with way:
                for work in (*one.forward(y, z, s), one.rectified, *one.backward(y, g, dx, da, db)):
                    work()
            written = y, z, s, g, dx, da, db, one.dz, *one.sums, *vars(one.found).values()
            found.append([cuda.to_host(array).copy() for array in written])
        for mine, other in zip(*found, strict=True):
            assert mine.tobytes() == other.tobytes() and not np.isnan(mine).any()
        assert len(kernels_of(*whole.forward(y, z, s))) == 1 + parts
        assert len(kernels_of(whole.rectified, *whole.backward(y, g, dx, da, db))) == back
        gone = np.maximum(found[0][1].astype(np.float64) + cuda.to_host(whole.other), 0)
        near = {2: 2e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
        np.testing.assert_allclose(found[0][2], gone, rtol=near, atol=near)


def test_rows_in_shared_memory_are_joined_with_whole_packs_alone(cuda):
    """Not with arrays that begin between two, nor with the gradient of something else."""
    shape = (2, 5, 20, 16)
    one, room = Normalised(cuda, shape, np.float32), blank(cuda, 3201, np.float32)
    y, z, s, g, dx = (blank(cuda, shape, np.float32) for _ in range(5))
    odd, sums = room[1:].reshape(shape), [put(cuda, np.ones(5), np.float32) for _ in range(2)]
    with held_in_memory(cuda):
        assert len(kernels_of(*one.forward(y, z, s))) == 1
        assert len(kernels_of(*one.forward(y, odd, s)[:2])) == 2
        assert len(kernels_of(*one.forward(y, z, odd)[:3])) == 2
        back = one.backward(y, g, dx, *sums)
        assert len(kernels_of(one.rectified, *back)) == len(kernels_of(*back)) == 1
        assert len(kernels_of(partial(one.rectified, "TanH"), *back)) == 2
        one.dz, dz = s, one.dz
        assert len(kernels_of(one.rectified, one.backward(y, g, dx, *sums)[1])) == 2
        one.dz, one.other = dz, odd
        assert len(kernels_of(one.rectified, *one.backward(y, g, dx, *sums))) == 2


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
    # A Scale's top over a BatchNorm's bottom
    assert len(kernels_of(norm, scale)) == (2 if shift else 1)
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


PLANES = {  # what is pooled: filters and planes that fill no tile, one group and two, one tile and many, in parts
    "one window": ConvGeometry(1, 1, (3, 2), 1, Window((2, 1))),
    "wide": ConvGeometry(3, 2, (2, 14), 5, Window((1, 1))),
    "groups": ConvGeometry(2, 4, (8, 7), 6, Window((3, 2), (1, 1), (1, 1)), 2),
    "strides": ConvGeometry(2, 3, (13, 21), 40, Window((3, 3), (2, 2))),
    "parts": ConvGeometry(1, 150, (4, 6), 17, Window((3, 3), (1, 1), (1, 1))),
}
TWO = Window((2, 2), (2, 2))


class Pooled:
    """A convolution, perhaps a ReLU, and the pooling of 2 x 2 pixels of it; some are equal, some no numbers."""

    def __init__(self, cuda, g, dtype):
        shapes = g.x_shape, g.weight_shape, (g.f,)
        x, weight, bias = (np.round(array) for array in numbers(1, *shapes, dtype=np.float64))
        x.ravel()[: x.size // 7] = np.nan
        self.g, self.cuda = g, cuda
        self.x, self.weight, self.bias = (put(cuda, one, dtype) for one in (x, weight, bias))
        self.work = blank(cuda, implicit_gemm.FAN * 4 * g.n * g.f * (g.places + 1), dtype)
        n, f, h, w = g.y_shape
        self.y = blank(cuda, (n, f, h, w), dtype)
        self.z = blank(cuda, (n, f, h // 2, w // 2), dtype)
        self.which = put(cuda, np.full(self.z.shape, -7), np.int32)

    def convolve(self):
        implicit_gemm.forward(self.x, self.weight, self.bias, self.g, self.y, work=self.work)

    def relu(self):
        elementwise.forward("ReLU", self.y, (), self.y)

    def pool(self, window=TWO):
        pool.max_pool(self.y, window, self.z, self.which, None)


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize(
    ("tile", "dtype"),
    [
        (tile, dtype)
        for dtype in (np.float16, np.float32, np.float64)
        for tile in implicit_gemm.tiles(
            "F16" if dtype == np.float16 else "Fma", np.dtype(dtype).itemsize
        )
        if tile[1] % 4 == 0
    ],
)
def test_a_product_pools_what_it_writes(cuda, monkeypatch, name, tile, dtype):
    """The same bits in all three, whatever the tile; and against windows that NumPy cuts out."""
    parts = 3 if name == "parts" else 1
    monkeypatch.setattr(implicit_gemm, "_share", lambda *_: (tile, parts))
    for relu in (False, True):
        found = []
        for way in (contextlib.nullcontext(), fusion.joined()):
            one = Pooled(cuda, PLANES[name], dtype)
            works = [one.convolve, *([one.relu] if relu else []), one.pool]
            with way:
                for work in works:
                    work()
            found.append([cuda.to_host(array).copy() for array in (one.y, one.z, one.which)])
        for mine, other in zip(*found, strict=True):
            assert mine.tobytes() == other.tobytes()
        assert len(kernels_of(*works)) == 1
        y, z, which = found[1]
        windows = y.reshape(*z.shape[:3], 2, -1, 2).swapaxes(3, 4).reshape(*z.shape, 4)
        windows = np.where(np.isnan(windows), -np.inf, windows)
        assert (z == windows.max(-1)).all()
        assert (which == np.where(np.isneginf(z), -1, windows.argmax(-1))).all()


@pytest.mark.parametrize("tile", [(2, 4), (4, 4), (4, 8), (8, 8)])
@pytest.mark.parametrize("name", PLANES)
def test_a_product_by_tf32_pools_what_it_writes(cuda, monkeypatch, name, tile):
    if not cuda.has_tf32:
        pytest.skip("a GPU without tensor cores for TF32")
    with cuda.of_precision("tf32").current():
        test_a_product_pools_what_it_writes(cuda, monkeypatch, name, tile, np.float32)


def test_only_such_windows_are_pooled_by_a_product(cuda, monkeypatch):
    """Not others, of another array, behind a sum, in a tile of fewer columns, in strides, at an odd place, nor over what is read."""
    g = PLANES["groups"]
    for tile, kernels in (((2, 2), 2), ((2, 4), 1)):
        monkeypatch.setattr(implicit_gemm, "_share", lambda *_, tile=tile: (tile, 1))
        one, other = (Pooled(cuda, g, np.float32) for _ in range(2))
        assert len(kernels_of(one.convolve, one.pool)) == kernels
    turned = Pooled(cuda, ConvGeometry(2, 5, (8, 8), 3, Window((2, 2), (2, 2))), np.float32)
    dx = blank(
        cuda, turned.g.x_shape, np.float32
    )  # as of a Deconvolution, by remainders of its stride
    back = partial(implicit_gemm.input_gradient, turned.y, turned.weight, turned.g, dx)
    turned.y, turned.z = dx, blank(cuda, (2, 5, 4, 4), np.float32)
    turned.which = put(cuda, np.zeros(turned.z.shape), np.int32)
    assert len(kernels_of(back, turned.pool)) == 2
    assert len(kernels_of(one.convolve, one.pool, one.relu)) == 2
    assert len(kernels_of(one.convolve, one.pool, one.pool)) == 2
    assert len(kernels_of(one.convolve, other.pool)) == 2
    assert len(kernels_of(one.convolve, lambda: arrays.add(other.y, one.y), one.pool)) == 3
    assert len(kernels_of(one.convolve, one.pool, lambda: arrays.add(one.y, other.y))) == 2
    shapes = {(1, 1): one.y.shape, (2, 3): (2, 6, 4, 4), (3, 2): (2, 6, 4, 4)}
    for kernel, shape in shapes.items():
        one.z, one.which = blank(cuda, shape, np.float32), put(cuda, np.zeros(shape), np.int32)
        assert len(kernels_of(one.convolve, partial(one.pool, Window(kernel, (2, 2))))) == 2
    odd = Pooled(cuda, ConvGeometry(2, 3, (4, 7), 5, Window((1, 1))), np.float32)
    assert len(kernels_of(odd.convolve, odd.pool)) == 2
    odd = Pooled(cuda, g, np.float32)
    odd.y = blank(cuda, (odd.y.size + 1,), np.float32)[1:].reshape(odd.y.shape)
    assert len(kernels_of(odd.convolve, odd.pool)) == 2
    same = Pooled(cuda, ConvGeometry(2, 1, (4, 4), 4, Window((1, 1))), np.float32)
    same.z = same.x.reshape(2, 4, 2, 2)  # pooled over the bottom
    assert len(kernels_of(same.convolve, same.pool)) == 2


class Lost:
    """A loss of scores, the fill of its own gradient, and the gradient by the scores."""

    def __init__(self, cuda, dtype, ignore=None, counts=False, shape=(5, 7, 3)):
        (n, c, s), wide = shape, np.promote_types(dtype, np.float32)
        labels = np.random.default_rng(1).integers(0, c, (n, s))
        labels[1] = 2
        self.x, self.labels = put(cuda, numbers(1, shape, dtype=dtype)[0]), put(cuda, labels, wide)
        self.read = Labels.empty(cuda.xp, n, c, s, wide)
        self.mean = Mean.empty(cuda.xp, 6, counts, wide)
        self.prob, self.dx = (blank(cuda, shape, wide) for _ in range(2))
        self.losses, self.work = blank(cuda, (n, s), wide), blank(cuda, 8, wide)
        self.loss, self.dloss, self.ignore = blank(cuda, (), wide), blank(cuda, (), wide), ignore

    def lose(self):
        filled = self.prob, self.losses, self.read, self.mean, self.loss, self.work
        softmax.softmax_loss(self.x, self.labels, self.ignore, *filled)

    def fill(self):
        arrays.fill(self.dloss, 1.75)

    def gradient(self):
        given = self.dx, self.read, self.mean
        softmax.softmax_loss_gradient(self.prob, self.labels, self.ignore, self.dloss, *given)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("ignore", [None, 2])
@pytest.mark.parametrize("shape", [(5, 7, 3), (64, 10, 1), (2, 3, 700)])
def test_a_loss_goes_on_to_its_gradient(cuda, shape, ignore, dtype):
    found = []
    for way in (contextlib.nullcontext(), fusion.joined()):
        one = Lost(cuda, dtype, ignore, shape=shape)
        works = one.lose, one.fill, one.gradient
        with way:
            for work in works:
                work()
        found.append([cuda.to_host(each).copy() for each in (one.prob, one.loss, one.dx)])
    for mine, other in zip(*found, strict=True):
        assert mine.tobytes() == other.tobytes() and not np.isnan(mine).any()
    prob, labels, dx = found[0][0], cuda.to_host(one.labels)[:, None], found[0][2]
    gradient = (prob - (np.arange(shape[1])[:, None] == labels)) * (labels != ignore) * 1.75 / 6
    np.testing.assert_allclose(dx, gradient, rtol=1e-6, atol=1e-7)
    assert len(kernels_of(*works)) == 2  # and the fill


def test_a_loss_whose_labels_are_counted_is_apart(cuda):
    """As is one of other probabilities, of what is ignored, and the gradient of a gradient that is one's own."""
    one, other, counted = (Lost(cuda, np.float32, counts=counts) for counts in (False, False, True))
    assert len(kernels_of(counted.lose, counted.fill, counted.gradient)) == 3
    assert len(kernels_of(one.lose, one.gradient)) == 1
    assert len(kernels_of(one.lose, one.gradient, one.gradient)) == 2
    assert len(kernels_of(one.lose, other.gradient)) == 2
    other.prob, other.labels, other.mean = one.prob, one.labels, one.mean
    assert len(kernels_of(one.lose, other.gradient)) == 1
    other.ignore = 2
    assert len(kernels_of(one.lose, other.gradient)) == 2
    gone = Lost(cuda, np.float32)
    gone.dx = gone.x  # what it is by is read no more, but others may lie there
    assert len(kernels_of(gone.lose, gone.gradient)) == 2
    wide = blank(cuda, (5, 4), np.float32)
    cuda.xp.copyto(wide[:, 3], one.labels.reshape(-1)[:5])
    every = Lost(cuda, np.float32, shape=(5, 7, 1))
    every.labels = wide.reshape(-1)[15:20].reshape(5, 1)  # across them lies what is filled
    filled = lambda: arrays.fill(wide[:, 0], 1.0)  # noqa: E731
    assert len(kernels_of(every.lose, filled, every.gradient)) == 3
    one.dloss = one.loss  # which is filled behind the loss, not before
    assert len(kernels_of(one.lose, one.fill, one.gradient)) == 3
    assert len(kernels_of(one.lose, one.gradient)) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_gradient_is_added_by_the_product(cuda, dtype):
    """In its own type: of 16 bits it would be rounded once, not twice; and it may end in a ReLU's gradient."""
    start, top = (given(cuda, dtype)[i] for i in (0, 1))
    found = []
    for way in (contextlib.nullcontext(), fusion.joined()):
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
