"""On CUDA a script sees copies: whatever it does in whatever order, it sees what it would on the CPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minicaffe.interop.pycaffe as caffe
from minicaffe.errors import ShapeError
from minicaffe.interop.pycaffe import blob

NET = """
force_backward: true
input: "x" input_shape { dim: 2 dim: 3 }
layer { name: "soft" type: "Sigmoid" bottom: "x" top: "y" }
layer { name: "twice" type: "Power" bottom: "y" top: "y" power_param { scale: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "y" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }
layer { name: "other" type: "TanH" bottom: "ip" top: "other" }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "other" top: "sum" }
layer { name: "loss" type: "Reduction" bottom: "sum" top: "loss" loss_weight: 0.5 }
"""
LAYERS = ["x", "soft", "twice", "ip", "other", "sum", "loss"]  # the first is the layer of the input
BLOBS = ["x", "y", "ip", "other", "sum", "loss"]
WHICH = st.sampled_from(["data", "diff"])
NUMBERS = st.integers(-3, 3)
ENDS = st.sampled_from([(i, j) for i in range(7) for j in range(i, 7)])
STEP = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(BLOBS), WHICH, NUMBERS),
    st.tuples(st.just("read"), st.sampled_from(BLOBS), WHICH),
    st.tuples(st.just("weight"), st.integers(0, 1), WHICH, NUMBERS),
    st.tuples(st.just("forward"), ENDS),
    st.tuples(st.just("backward"), ENDS),
    st.tuples(st.just("batch"), st.integers(1, 4)),
    st.tuples(st.just("reshape")),
    st.tuples(st.just("share")),
    st.tuples(st.just("clear")),
)


def do(nets, step):
    """One thing that a script does with the first of two nets; what it reads."""
    net, other = nets
    match step:
        case "write", blob, which, number:
            getattr(net.blobs[blob], which)[...] = number
        case "read", blob, which:
            return getattr(net.blobs[blob], which).copy()
        case "weight", index, which, number:
            getattr(net.params["ip"][index], which)[...] = number
        case "forward", (first, last):
            net._forward(first, last)
        case "backward", (last, first):
            try:
                net._backward(first, last)
            except ShapeError as error:
                assert "has not run forward" in str(error)
                return np.ones(())
        case "batch", count:
            net.blobs["x"].reshape(count, 3)
        case "reshape":
            net.reshape()
        case "share":
            other.share_with(net)
            return other.params["ip"][0].data.copy()
        case "clear":
            net.clear_param_diffs()
    return None


def everything(nets):
    return [
        (name, which, getattr(blob, which).copy())
        for net in nets
        for name, blob in [*net.blobs.items(), *enumerate(net.params["ip"])]
        for which in ("data", "diff")
    ]


@settings(max_examples=15)
@given(st.lists(STEP, max_size=12))
def test_both_devices_show_the_same(cuda, text_file, steps):
    path, pairs = text_file(NET), []
    for mode in (caffe.set_mode_cpu, caffe.set_mode_gpu):
        mode()
        pairs.append([caffe.Net(path, caffe.TEST) for _ in range(2)])
    for step in steps:
        one, two = (do(nets, step) for nets in pairs)
        assert (one is None) == (two is None)
        if one is not None:
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    for one, two in zip(*map(everything, pairs), strict=True):
        assert one[:2] == two[:2]
        np.testing.assert_allclose(one[2], two[2], rtol=1e-4, atol=1e-5, err_msg=str(one[:2]))


def test_nothing_is_kept_of_nets_that_are_gone(cuda, text_file):
    import gc

    gc.collect()
    before = len(blob._MIRRORS)
    caffe.set_mode_gpu()
    net = caffe.Net(text_file(NET), caffe.TEST)
    net.forward()
    assert len(blob._MIRRORS) > before
    del net
    gc.collect()
    assert len(blob._MIRRORS) == before and not len(blob._NEWER)


def test_what_was_not_asked_for_is_not_copied(cuda, text_file):
    caffe.set_mode_gpu()
    net = caffe.Net(text_file(NET), caffe.TEST)
    net.forward()
    net._forward(0, 6)
    assert not len(blob._NEWER)
    assert net.blobs["sum"].data.shape == (2, 2)
    assert len(blob._NEWER) == 1


@pytest.mark.parametrize("which", ["data", "diff"])
def test_an_empty_blob_is_an_empty_array(cuda, text_file, which):
    text = (
        'input: "x" input_shape { dim: 1 } layer { name: "y" type: "Power" bottom: "x" top: "y" }'
    )
    caffe.set_mode_gpu()
    net = caffe.Net(text_file(text), caffe.TEST)
    value = net.blobs["y"].values[0]
    value.blob.shape, value.blob._data = (0,), cuda.xp.empty((0,), "float32")
    value.blob._diff = value.blob._data
    assert getattr(net.blobs["y"], which).shape == (0,)
