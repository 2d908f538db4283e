"""What is Winograd's alone: both gradients at once, and the choice of points."""

import kit
import numpy as np
import pytest
from core.ops.cases import EDGES, blank, close, pairs, put, same
from core.ops.conv.test_conv import DIRECTIONS, TOLERANCES, arrays, check, expected

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.conv import winograd_filters
from minicaffe.backends.cpu.conv.strips import Strips
from minicaffe.backends.cpu.conv.winograd_filters import Filters, filters
from minicaffe.backends.cpu.threads import at_most, share
from minicaffe.backends.device import device as device_called
from minicaffe.backends.replay.command_buffer import recording
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import winograd
from minicaffe.core.ops.conv.plan import plan
from minicaffe.core.ops.conv.winograd import Winograd
from minicaffe.core.ops.geometry import ConvGeometry, Window

WIDE = {  # more tiles than a vector has lanes, and some left over: in rows, over samples, in both
    "samples": ConvGeometry(19, 3, (12, 12), 5, Window((5, 5))),
    "a long row": ConvGeometry(1, 2, (9, 150), 3, Window((3, 3), pad=(1, 1))),
    "many rows": ConvGeometry(2, 3, (70, 11), 4, Window((3, 5), pad=(0, 2))),
    "groups": ConvGeometry(5, 4, (21, 37), 6, Window((3, 3), pad=(2, 0)), 2),
    "even kernels": ConvGeometry(7, 2, (23, 18), 3, Window((2, 4), pad=(1, 1))),
    "one axis": ConvGeometry(3, 2, (331,), 4, Window((5,), pad=(3,))),
    "narrow": ConvGeometry(17, 2, (30, 3), 3, Window((3, 2), pad=(1, 0))),
    "padded widely": ConvGeometry(3, 2, (14, 13), 3, Window((3, 3), pad=(4, 5))),
    "many channels": ConvGeometry(3, 66, (9, 11), 68, Window((3, 3), pad=(1, 1))),
    "many channels of groups": ConvGeometry(1, 132, (14, 13), 130, Window((3, 3), pad=(0, 1)), 2),
    "many channels, dx added up": ConvGeometry(4, 65, (12, 12), 66, Window((5, 5))),
}
FEW = {  # tiles beside U, of all samples at a time: less and more than a vector, and what is left over
    "a tile": ConvGeometry(1, 66, (4, 4), 67, Window((3, 3), pad=(1, 1))),
    "a batch": ConvGeometry(5, 70, (7, 7), 131, Window((3, 3), pad=(1, 1))),
    "a line of one vector more": ConvGeometry(3, 96, (13, 13), 110, Window((3, 3), pad=(1, 1))),
    "some in groups": ConvGeometry(2, 123, (6, 5), 138, Window((3, 4), pad=(2, 0)), 3),
    "some, dilated": ConvGeometry(1, 80, (9, 7), 90, Window((3, 3), (), (2, 1), (2, 3))),
    "some on one axis": ConvGeometry(2, 90, (21,), 100, Window((5,), pad=(2,))),
    "some, dx added up": ConvGeometry(1, 40, (12, 12), 45, Window((5, 5))),
    "more filters than a block": ConvGeometry(1, 200, (5, 5), 83, Window((3, 3), pad=(1, 1))),
}
APART = {  # pixels of a tile: compiled loops alone take them
    "dilated": ConvGeometry(5, 4, (23, 19), 6, Window((3, 3), (), (2, 2), (2, 2)), 2),
    "dilated unlike": ConvGeometry(2, 3, (17, 40), 4, Window((2, 5), (), (3, 0), (4, 3))),
    "dilated far": ConvGeometry(9, 2, (12, 11), 3, Window((3, 3), (), (0, 1), (5, 6))),
    "dilated, many channels": ConvGeometry(2, 66, (10, 9), 65, Window((3, 3), (), (1, 2), (2, 2))),
    "one axis dilated": ConvGeometry(3, 2, (97,), 4, Window((3,), (), (5,), (7,))),
    "strided": ConvGeometry(3, 4, (23, 29), 6, Window((5, 7), (2, 2), (2, 3)), 2),
    "strided unlike": ConvGeometry(2, 3, (17, 60), 4, Window((3, 11), (1, 4), (1, 0))),
    "strided and dilated": ConvGeometry(2, 2, (25, 19), 3, Window((9, 3), (3, 1), (4, 2), (1, 3))),
    "strided, pixels unseen": ConvGeometry(2, 2, (35, 13), 3, Window((8, 5), (4, 2))),
    "strided, in many rooms": ConvGeometry(40, 2, (21, 23), 3, Window((5, 5), (2, 2))),
    "strided, many planes": ConvGeometry(3, 17, (13, 12), 66, Window((5, 5), (2, 2), (1, 2))),
    "one axis strided": ConvGeometry(3, 2, (201,), 4, Window((11,), (4,), (5,))),
}

SHAPES = [g for g in EDGES.values() if conv.ENGINES["winograd"].refuses(g) is None]


@pytest.mark.parametrize("g", SHAPES, ids=str)
def test_both_gradients_at_once_have_the_bits_of_each_alone(device, threads, g):
    op = Winograd()
    x, weight, _, dy, dw = (put(device, array) for array in arrays(g, np.float32, 1))
    work = blank(device, share(x) * op.workspace(g, 5000), np.float32)
    alone = [blank(device, g.x_shape, np.float32), dw.copy()]
    op.input_gradient(dy, weight, g, alone[0], work)
    op.weight_gradient(x, dy, g, alone[1], work)
    both = [blank(device, g.x_shape, np.float32), dw.copy()]
    op.gradients(x, dy, weight, g, *both, work)
    for one, other in zip(alone, both, strict=True):
        same(device, one, device.to_host(other))


def test_a_plan_takes_both_at_once_only_of_one_strategy():
    g = ConvGeometry(2, 3, (9, 8), 4, Window((3, 3), pad=(1, 1)))
    x, weight, _, dy, dw = arrays(g, np.float32, 1)
    found = []
    for engine in ("winograd", "batched"):
        chosen = plan(g, np.float32, device_called("cpu"), engine)
        dx, sums = np.empty(g.x_shape, np.float32), np.zeros_like(dw)
        chosen.gradients(x, dy, weight, dx, sums, None, np.empty(chosen.workspace, np.float32))
        found.append((dx, sums))
    for ours, others in zip(*found, strict=True):
        close(device_called("cpu"), ours, others.astype(np.float64))


@pytest.mark.parametrize("products", [1, 60, 10**9])
def test_products_are_added_in_groups_of_points(monkeypatch, threads, products):
    """However many points are taken at a time: on NumPy, which cannot add a product to what is there."""
    monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: False)
    monkeypatch.setattr(winograd, "PRODUCTS", products)
    g, op = ConvGeometry(3, 3, (9, 8), 4, Window((3, 3), pad=(1, 1))), conv.ENGINES["winograd"]
    x, _, _, dy, dw = arrays(g, np.float32, 1)
    expected = conv.ENGINES["direct"].weight_gradient(x, dy, g, dw.copy(), np.empty(10_000, "f4"))
    work = np.full(threads * op.workspace(g, 0), np.nan, np.float32)
    close(device_called("cpu"), op.weight_gradient(x, dy, g, dw, work), expected.astype("f8"))


@pytest.mark.parametrize(("g", "dtype"), pairs(WIDE, [np.float32, np.float64]))
def test_whole_vectors_and_what_is_left_over(device, threads, g, dtype):
    g = WIDE[g]
    for direction in DIRECTIONS:
        for limit in (1, 10**6):
            check(device, "winograd", direction, g, limit, True, dtype)


@pytest.mark.parametrize("block", [winograd_filters.OF_BLOCK, 1])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
@pytest.mark.parametrize("g", FEW.values(), ids=FEW)
def test_blocks_of_filters_with_the_least_work(device, monkeypatch, threads, g, dtype, block):
    """As many as the cache holds, or five or four; and with one thread to the bit the same."""
    monkeypatch.setattr(winograd_filters, "OF_BLOCK", block)
    x, weight, bias, dy, dw = arrays(g, dtype, 1)
    least, found = max(Filters(Strips(g, 4, lanes)).least for lanes in (4, 8, 16)), []
    blocks = filters(g, 4, loops("winograd", dtype).lanes(dtype))
    for most in (1, threads):
        with at_most(most):
            y, sums = blank(device, g.y_shape, dtype), dw.copy()
            work = blank(device, share(x) * least, dtype)
            winograd_filters.correlate(blocks, x, weight, bias, False, y, work)
            winograd_filters.weight_gradient(blocks, x, dy, sums, work)
            found.append((y, sums))
    for direction, one, other in zip(DIRECTIONS[::2], *found, strict=True):
        same(device, one, other)
        close(device, one, expected(direction, g, True, dtype, 1), TOLERANCES["winograd"])


def test_lines_of_tiles_are_longer_by_a_vector():
    """Else the last tiles of a channel would be written over those of another thread's first."""
    for g in FEW.values():
        for lanes in (4, 8, 16):
            found = Filters(Strips(g, 4, lanes))
            assert found.line >= found.tiles + lanes - 1
            assert found.line % (2 * lanes) == lanes


@pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
@pytest.mark.parametrize(("g", "dtype"), pairs(APART | FEW, [np.float32, np.float64]))
def test_what_compiled_loops_take_otherwise(device, threads, g, dtype):
    g = (APART | FEW)[g]
    for direction in DIRECTIONS:
        check(device, "winograd", direction, g, 1, True, dtype)


@pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
@pytest.mark.parametrize("image", [(27, 12), (12, 12)])
def test_a_pixel_that_no_place_sees_though_it_is_padded_has_no_gradient(device, threads, image):
    """Of 12 pixels, a pad of 1 and 3 places that are 6 wide in steps of 3, the last is pixel 10."""
    g = ConvGeometry(2, 2, image, 3, Window((6, 6), (3, 3), (1, 1)))
    check(device, "winograd", "input_gradient", g)


@pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
@pytest.mark.parametrize("g", (APART | FEW).values(), ids=APART | FEW)
def test_all_of_it_is_recorded(device, g):
    """No call of NumPy's among the loops."""
    op = conv.ENGINES["winograd"]
    x, weight, bias, dy, dw = arrays(g, np.float32, 1)
    work = blank(device, share(x) * op.workspace(g, 1), np.float32)
    with recording() as made:
        op.forward(x, weight, bias, g, blank(device, g.y_shape, np.float32), work)
        op.input_gradient(dy, weight, g, blank(device, g.x_shape, np.float32), work)
        op.weight_gradient(x, dy, g, dw.copy(), work)
    assert made.rows and not made.hosts


def test_strides_are_taken_where_that_saves_products():
    taken = {(11, 4), (7, 2), (5, 2)}
    for kernel, stride in ((11, 4), (7, 2), (5, 2), (3, 2), (2, 2), (64, 32), (9, 5)):
        g = ConvGeometry(1, 2, (99, 98), 3, Window((kernel,) * 2, (stride,) * 2))
        refused = conv.ENGINES["winograd"].refuses(g)
        assert (refused is None) == ((kernel, stride) in taken), (kernel, stride, refused)
    both = ConvGeometry(1, 2, (99, 98), 3, Window((7, 7), (2, 2), (0, 0), (1, 2)))
    assert "stride 1 along an axis with a dilation" in conv.ENGINES["winograd"].refuses(both)


def test_dx_is_added_up_where_its_own_tiles_would_be_more():
    """And where a sample's tiles are all in one unit."""
    without, padded = (ConvGeometry(8, 3, (12, 12), 5, Window((5, 5), pad=(p, p))) for p in (0, 2))
    assert Strips(without, 4, 8).adds_up((2, 2))
    assert not Strips(without, 4, 8).adds_up((1, 1))
    assert not Strips(padded, 4, 8).adds_up((2, 3))
    dilated = ConvGeometry(8, 3, (12, 12), 5, Window((3, 3), (), (0, 0), (2, 2)))
    assert not Strips(dilated, 4, 8).adds_up((2, 2))


@pytest.mark.parametrize("image, kernel", [((3000,), (3,)), ((5, 600), (3, 3)), ((600, 5), (5, 5))])
def test_long_images_stay_within_the_work(device, threads, image, kernel):
    """More tiles than the work has room for at a time, along either axis."""
    g, op = ConvGeometry(3, 4, image, 6, Window(kernel)), conv.ENGINES["winograd"]
    x, weight, bias, dy, dw = (put(device, array) for array in arrays(g, np.float32, 1))
    size, guard = share(x) * op.workspace(g, 2000), 100_000
    room = blank(device, size + guard, np.float32)
    y, dx = blank(device, g.y_shape, np.float32), blank(device, g.x_shape, np.float32)
    batched = conv.ENGINES["batched"]
    other = blank(device, share(x) * batched.workspace(g, 2**20), np.float32)
    outs = [blank(device, g.y_shape, np.float32), blank(device, g.x_shape, np.float32), dw.copy()]
    batched.forward(x, weight, bias, g, outs[0], other)
    batched.input_gradient(dy, weight, g, outs[1], other)
    batched.weight_gradient(x, dy, g, outs[2], other)
    op.forward(x, weight, bias, g, y, room[:size])
    op.gradients(x, dy, weight, g, dx, dw, room[:size])
    for ours, others in zip((y, dx, dw), outs, strict=True):
        close(device, ours, device.to_host(others).astype(np.float64), {"f": 3e-5})
    assert np.isnan(device.to_host(room)[size:]).all()


@pytest.mark.parametrize("name", ["direct", "winograd"])
def test_places_of_a_constant_image_are_the_same_bits_but_for_winograd(name):
    """As docs/convolution.md says of ties."""
    layer = "type: Convolution, num_output: 4, kernel_size: 5"
    net = kit.net_of(layer, (1, 3, 12, 12), engine=name, dtype="float32")
    y = net.forward(b0=np.full((1, 3, 12, 12), 0.3))["it"][0].reshape(4, -1)
    apart = np.ptp(y, axis=1).max() / abs(y).max()
    assert 0 < apart < 1e-6 if name.startswith("winograd") else apart == 0


@pytest.mark.parametrize(
    ("image", "window", "reason"),
    [
        ((5, 5, 5), Window((3, 3, 3)), "it needs 1 or 2 axes"),
        ((9, 9), Window((3, 3), (9, 9)), "it needs a stride of 1 to "),
        ((9, 9), Window((3, 3), (2, 2), dilation=(2, 2)), "it needs stride 1 along an axis with"),
        ((30, 30), Window((3, 3), (2, 2)), "F(4x4) would take no fewer multiplications"),
    ],
)
def test_a_shape_that_is_not_taken_says_why(image, window, reason):
    g = ConvGeometry(1, 2, image, 2, window)
    said = [one.refuses(g) or "" for one in conv.ENGINES.values() if isinstance(one, Winograd)]
    assert any(reason in one for one in said), said
