"""Where the pixels of one blob lie in another: Caffe's own cases, and the middles of real receptive fields."""

import numpy as np
import pytest
from kit import refusal

pytest.importorskip("google.protobuf")

from hypothesis import given, settings
from hypothesis import strategies as st

import minicaffe.interop.pycaffe as caffe
from minicaffe import Net
from minicaffe.interop.caffe import parse
from minicaffe.interop.pycaffe import layers as L
from minicaffe.interop.pycaffe import params as P
from minicaffe.interop.pycaffe.coord_map import (
    AxisMismatchException,
    UndefinedMapException,
    compose,
    conv_params,
    coord_map,
    coord_map_from_to,
    crop,
    crop_params,
    inverse,
)


def spec(ks=3, stride=1, pad=0, pool=2, dstride=2, dpad=0):
    """Convolution, pooling and deconvolution, as each of Caffe's own cases has them."""
    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[2, 1, 100, 100]))
    n.aux = L.Input(shape=dict(dim=[2, 1, 20, 20]))
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=ks, stride=stride, pad=pad)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=pool, stride=pool, pad=0)
    twice = [2 * one for one in dstride] if isinstance(dstride, list) else 2 * dstride
    n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=twice, stride=dstride, pad=dpad)
    return n


def mapped(top_from, top_to):
    """The map, its arrays as lists."""
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    return axis, np.ravel(scale).tolist(), np.ravel(shift).tolist()


def test_convolution_pooling_deconvolution():
    n = spec()
    assert mapped(n.deconv, n.data) == (1, [1], [0])
    n = spec(pool=4, dstride=4)
    assert mapped(n.deconv, n.data) == (1, [1], [-1])


def test_what_passes_through_changes_nothing():
    n = spec()
    n.relu = L.ReLU(n.deconv)
    n.conv1x1 = L.Convolution(n.relu, num_output=10, kernel_size=1, stride=1, pad=0)
    for top in (n.relu, n.conv1x1):
        assert mapped(top, n.data) == mapped(n.deconv, n.data)
    assert coord_map(n.relu.fn) == (None, 1, 0)
    assert crop(L.ReLU(n.data), n.data).fn.params == {"crop_param": {"axis": 2, "offset": [0]}}


@pytest.mark.parametrize("pad", [1, 7])
def test_padding_shifts(pad):
    for n, moved in ((spec(pad=pad), -pad), (spec(dpad=pad), pad), (spec(pad=pad, dpad=pad), 0)):
        assert mapped(n.deconv, n.data) == (1, [1], [moved])


def test_all_bottoms_of_a_layer_are_alike():
    n = spec()
    n.conv_data, n.conv_aux = L.Convolution(
        n.data, n.aux, ntop=2, num_output=10, kernel_size=5, stride=2, pad=0
    )
    assert mapped(n.conv_data, n.data) == mapped(n.conv_aux, n.aux)


def test_three_axes():
    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[2, 3, 100, 100, 100]))
    n.conv = L.Convolution(
        n.data, num_output=10, kernel_size=[3, 3, 3], stride=[1, 1, 1], pad=[0, 1, 2]
    )
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=2, stride=2, pad=0)
    n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=4, stride=2, pad=0)
    assert mapped(n.deconv, n.data) == (1, [1, 1, 1], [0, -1, -2])


def test_a_crop_of_a_crop():
    n = spec()
    n.crop = L.Crop(n.deconv, n.data, axis=2, offset=3)
    assert crop_params(n.crop.fn) == (2, np.array([3]))
    axis, _, shift = mapped(n.crop, n.data)
    assert (axis, shift) == (1, [mapped(n.deconv, n.data)[2][0] + 3])


def test_maps_compose_and_invert():
    first, then = (1, 2.0, 3.0), (1, 0.5, -1.0)
    assert compose(first, then) == (1, 1.0, 1.0)
    assert compose((None, 1, 0), first) == compose(first, (None, 1, 0)) == first
    assert compose(first, inverse(first)) == compose(inverse(first), first) == (1, 1, 0)
    told = refusal(compose, (1, 1, 0), (2, 1, 0), error=AxisMismatchException)
    assert "one map begins at axis 1, the next at 2" in told
    ip = L.InnerProduct(L.Input(), num_output=1).fn
    told = refusal(coord_map, ip, error=UndefinedMapException)
    assert "InnerProduct has no map of places" in told
    axis, stride, kernel, pad = conv_params(L.Convolution(kernel_size=3, dilation=2, pad=[1, 2]).fn)
    assert (axis, stride, kernel, pad.tolist()) == (1, [1], [5], [1, 2])


def test_mistakes_are_named_and_are_caffes_too():
    n = spec()
    n.ip = L.InnerProduct(n.deconv, num_output=10)
    told = "no map between the tops: are they connected by spatial layers"
    assert told in refusal(coord_map_from_to, n.ip, n.data, error=RuntimeError)
    sides = spec()
    sides.conv.fn.params = {"num_output": 3, "kernel_h": 3, "kernel_w": 4}
    none = spec()
    none.conv.fn.params = {"num_output": 3}
    for wrong, told in (
        (spec(pool=3, dstride=2), "scale mismatch"),
        (spec(dpad=10), "negative offset"),
        (spec(ks=4, pad=1), "noninteger offset"),
        (sides, "kernel_h has no map here"),
        (none, "Convolution: kernel_size must be given for a map"),
    ):
        assert told in refusal(crop, wrong.deconv, wrong.data)
        refusal(crop, wrong.deconv, wrong.data, error=AssertionError)


def test_a_long_ladder_is_walked_once():
    """Each step has two ways; they are not followed again for each."""
    data = top = L.Input(shape=dict(dim=[1, 1, 8, 8]))
    for _ in range(60):
        top = L.Eltwise(L.ReLU(top), L.TanH(top))
    assert coord_map_from_to(top, data)[1:] == (1, 0)


def chain(data, kind, size):
    """Some layers with windows, one behind the other, all weights 1, and what they make of each single pixel."""
    n, draw = caffe.NetSpec(), lambda low, high: data.draw(st.integers(low, high))
    n.data = top = L.Input(shape=dict(dim=[size, 1, 1, size]))
    for i in range(draw(1, 3)):
        keys = dict(
            kernel_size=[1, draw(1, 4)], stride=[1, draw(1, 3)], pad=[0, draw(0, 1)],
            dilation=[1, draw(1, 2)], num_output=1, bias_term=False,
            weight_filler=dict(type="constant", value=1),
        )  # fmt: skip
        n[f"layer{i}"] = top = getattr(L, kind)(top, convolution_param=keys)
    net = Net(parse(str(n.to_proto())), "TEST", device="cpu")
    (found,) = net.forward(data=np.eye(size)[:, None, None]).values()
    return n.data, top, np.array(found).reshape(size, -1)


def middles(rows):
    """The middle of the nonzero entries of each row that no end cuts: of those with most of them."""
    most = max(np.count_nonzero(row) for row in rows)
    assert most
    for i, row in enumerate(rows):
        (seen,) = np.nonzero(row)
        if len(seen) == most and seen[0] > 0 and seen[-1] < len(row) - 1:
            yield i, (seen[0] + seen[-1]) / 2


@pytest.mark.parametrize(("kind", "most"), [("Convolution", 100), ("Deconvolution", 16)])
@settings(max_examples=20)
@given(data=st.data())
def test_the_middle_of_what_a_pixel_sees_or_writes_is_where_the_map_says(kind, most, data):
    bottom, top, found = chain(data, kind, most)
    wide, small, weights = (bottom, top, found.T) if kind == "Convolution" else (top, bottom, found)
    _, scale, shift = coord_map_from_to(small, wide)
    for x, middle in middles(weights):
        assert middle == pytest.approx(np.ravel(scale)[-1] * x + np.ravel(shift)[-1])
