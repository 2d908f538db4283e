"""Recurrent layers, resizing, regions and choices in ONNX: onnxruntime's numbers are ours, at other sizes too."""

import numpy as np
import pytest
from kit import onnx_runs, refusal

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from minicaffe import Net, SpecError, parse
from minicaffe.interop.onnx.writer import to_onnx

RNG = np.random.default_rng(11)


def net_of(inputs, layer, *, seed=0):
    """A net of a layer `it`, its parameters drawn alike for each size of the inputs."""
    lines = ["layers:"]
    for name, dim in inputs.items():
        lines.append(f"  - {{name: {name}, type: Input, shape: {{dim: {list(dim)}}}}}")
    lines.append(f"  - {{name: it, bottom: [{', '.join(inputs)}], {layer}}}")
    net, random = Net(parse("\n".join(lines)), "TEST", device="cpu"), np.random.default_rng(seed)
    for param in net.layers["it"].params:
        param.load(random.normal(size=param.shape))
    return net


def agree(path, net, **arrays):
    """Both give the same; an input that is not given is drawn."""
    for step in net.steps[:-1]:
        (blob,) = step.tops
        arrays.setdefault(blob.name, RNG.normal(size=blob.shape))
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    ours = {name: np.array(array) for name, array in net.forward(**arrays).items()}
    theirs = onnx_runs(path, **arrays)
    assert set(theirs) == set(ours)
    for name, found in theirs.items():
        assert ours[name].shape == found.shape, name
        assert np.allclose(ours[name], found, rtol=0, atol=1e-5), name
    return ours


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_streams_begin_anew_where_cont_says_so(tmp_path, kind, static):
    def sized(t):
        more = {"static": (3, 2, 2)} if static else {}
        return net_of({"x": (t, 3, 2, 2), "cont": (t, 3), **more}, f"type: {kind}, num_output: 4")

    path = tmp_path / "net.onnx"
    to_onnx(sized(4), path, dynamic=["batch"])  # the first axis: steps
    for t in (1, 4, 7):
        cont = RNG.integers(2, size=(t, 3))
        agree(path, sized(t), cont=cont)


@pytest.mark.parametrize(("kind", "states"), [("LSTM", ["h", "c"]), ("RNN", ["h"])])
def test_states_go_in_and_come_out(tmp_path, kind, states):
    tops = ", ".join(["it", *(f"last_{name}" for name in states)])
    inputs = {"x": (4, 3, 5), "cont": (4, 3), **dict.fromkeys(states, (1, 3, 6))}
    net = net_of(inputs, f"type: {kind}, num_output: 6, expose_hidden: true, top: [{tops}]")
    path = tmp_path / "net.onnx"
    to_onnx(net, path)
    cont = np.ones((4, 3))
    cont[0, 1] = cont[2, 0] = 0
    found = agree(path, net, cont=cont)
    assert len(found) == 1 + len(states)
    assert np.array_equal(found["last_h"][0], found["it"][-1]) == (kind == "LSTM")


def test_one_step_of_an_lstm(tmp_path):
    net = net_of({"c": (1, 3, 2), "x": (1, 3, 8), "cont": (1, 3)}, "type: LSTMUnit, top: [it, h]")
    to_onnx(net, tmp_path / "net.onnx")
    agree(tmp_path / "net.onnx", net, cont=[[1, 0, 1]])


@pytest.mark.parametrize(
    "keys",
    [
        "zoom_factor: 3",
        "shrink_factor: 2, zoom_factor: 2, pad_beg: -1",
        "height: 5, width: 6",
        "height: 1, width: 9, pad_end: -1",
        "like",
    ],
)
def test_interpolation_has_its_corners_aligned(tmp_path, keys):
    def sized(n, h, w):
        inputs = {"x": (n, 2, h, w)} | ({"like": (n, 1, h + 3, 2 * w)} if keys == "like" else {})
        return net_of(inputs, "type: Interp, " + ("pad_beg: -1" if keys == "like" else keys))

    path = tmp_path / "net.onnx"
    to_onnx(sized(1, 6, 7), path)
    agree(path, sized(1, 6, 7))
    if keys == "like":  # whose sizes would be the input's own, apart from x's
        return
    to_onnx(sized(1, 6, 7), path, dynamic=["batch", "height", "width"])
    agree(path, sized(1, 6, 7))
    agree(path, sized(3, 4, 11))


def test_pixels_go_where_the_mask_says(tmp_path):
    def sized(h, w):
        shape = (2, 3, h, w)
        return net_of({"x": shape, "mask": shape}, "type: Upsample, scale: 3, pad_out_w: true")

    path = tmp_path / "net.onnx"
    to_onnx(sized(3, 4), path, dynamic=["height", "width"])
    for h, w in ((3, 4), (5, 2)):
        mask = RNG.integers(-1, 3 * h * (3 * w - 1), size=(2, 3, h, w))
        mask[0, 0, 0] = -1
        mask[1, 1, 0, :2] = 7  # of two pixels the last
        agree(path, sized(h, w), mask=mask)


@pytest.mark.parametrize("keys", ["scale: 3", "scale_h: 1, scale_w: 4"])
def test_pixels_become_blocks(tmp_path, keys):
    path = tmp_path / "net.onnx"
    to_onnx(net_of({"x": (1, 2, 3, 4)}, f"type: Upsample, {keys}"), path, dynamic=["height"])
    agree(path, net_of({"x": (1, 2, 5, 4)}, f"type: Upsample, {keys}"))


def test_regions_are_rounded_as_fast_r_cnn_rounds(tmp_path):
    keys = "type: ROIPooling, pooled_h: 3, pooled_w: 2, spatial_scale: 0.0625"
    net = net_of({"x": (2, 3, 9, 11), "rois": (60, 5)}, keys)
    to_onnx(net, tmp_path / "net.onnx")
    corners = RNG.integers(-30, 190, size=(60, 4))
    corners[:20] = corners[:20] // 8 * 8  # half a place of the map
    corners[30] = (100, 100, 20, 20)
    rois = np.concatenate([RNG.integers(2, size=(60, 1)), corners], axis=1)
    agree(tmp_path / "net.onnx", net, rois=rois)


def test_entries_are_chosen(tmp_path):
    net = net_of({"x": (5, 2, 3), "y": (5,), "selector": (5, 1)}, "type: Filter, top: [a, b]")
    to_onnx(net, tmp_path / "net.onnx")
    for selector in ([1, 0, 2, 0, -1], [0] * 5, [1] * 5):
        found = agree(tmp_path / "net.onnx", net, selector=np.reshape(selector, (5, 1)))
        assert len(found["a"]) == np.count_nonzero(selector)
    net = net_of({"x": (5, 2), "index": (4,)}, "type: BatchReindex")
    to_onnx(net, tmp_path / "net.onnx")
    agree(tmp_path / "net.onnx", net, index=[4, 0, 4, 1])


CHAIN = """
layers:
  - {name: x, type: Input, shape: {dim: [6, 3]}}
  - {name: selector, type: Input, shape: {dim: [6]}}
  - {name: some, type: Filter, bottom: [x, selector]}
  - {name: twice, type: Power, bottom: some, scale: 2}
  - {name: best, type: ArgMax, bottom: twice, axis: 1}
"""


def test_what_follows_a_choice_has_its_size(tmp_path):
    to_onnx(Net(parse(CHAIN), "TEST", device="cpu"), tmp_path / "net.onnx")
    x, selector = RNG.normal(size=(6, 3)).astype("f"), np.array([1, 0, 0, 1, 1, 0], "f")
    best = onnx_runs(tmp_path / "net.onnx", x=x, selector=selector)["best"]
    assert best.ravel().tolist() == x[selector > 0].argmax(axis=1).tolist()


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
def test_a_window_may_be_larger_than_the_image(tmp_path, kind):
    """As where OpenPose's nets say 1 x 1, until they are told a size."""
    layer = f"type: Pooling, pool: {kind}, kernel_size: 2, stride: 2"
    for dynamic in ([], ["height", "width"]):
        to_onnx(net_of({"x": (1, 2, 1, 1)}, layer), tmp_path / "net.onnx", dynamic=dynamic)
        for h, w in ((1, 1), (5, 2)) if dynamic else ((1, 1),):
            agree(tmp_path / "net.onnx", net_of({"x": (1, 2, h, w)}, layer))


def test_a_pyramid_takes_images_of_one_size_alone(tmp_path):
    net = net_of({"x": (2, 3, 9, 7)}, "type: SPP, pyramid_height: 3")
    to_onnx(net, tmp_path / "net.onnx", dynamic=["batch"])
    agree(tmp_path / "net.onnx", net_of({"x": (4, 3, 9, 7)}, "type: SPP, pyramid_height: 3"))
    with pytest.raises(SpecError, match=r"layer 'it' .*dynamic height or width"):
        to_onnx(net, tmp_path / "other.onnx", dynamic=["height"])


DUMMY = """
layers:
  - {{name: x, type: Input, shape: {{dim: [2, 3]}}}}
  - {{name: noise, type: DummyData, shape: {{dim: [2, 3]}}, data_filler: {filler}}}
  - {{name: sum, type: Eltwise, bottom: [x, noise]}}
"""


def test_dummies_are_constants_unless_they_are_drawn(tmp_path):
    filled = Net(parse(DUMMY.format(filler="{type: constant, value: 2}")), "TEST", device="cpu")
    to_onnx(filled, tmp_path / "net.onnx")
    assert (onnx_runs(tmp_path / "net.onnx", x=np.ones((2, 3)))["sum"] == 3).all()
    drawn = Net(parse(DUMMY.format(filler="{type: gaussian}")), "TEST", device="cpu")
    with pytest.raises(SpecError, match="layer 'noise' .*data_filler gaussian: draws anew"):
        to_onnx(drawn, tmp_path / "other.onnx")


IMAGE, TWO = {"x": (1, 2, 4, 4)}, {"x": (1, 2, 4, 4), "y": (1, 2, 4, 4)}
REGIONS = {"x": (1, 2, 4, 4), "y": (3, 5)}
BATCH, HEIGHT = ["batch"], ["height"]
NO_HEIGHT = "cannot be exported with a dynamic height or width: "
OHEM = {"a": (3, 5), "b": (3,), "c": (3,), "d": (3, 8)}
REFUSALS = [
    (REGIONS, "type: ROIAlign, pooled_h: 2, pooled_w: 2", [], "cannot be exported to ONNX: ONNX pools no regions in this way"),
    (TWO, "type: Correlation, kernel_size: 1, max_displacement: 1", [], "cannot be exported to ONNX: ONNX has no word for it"),
    (TWO, "type: FlowWarp", [], "ONNX reads points near an image's border in another way"),
    (OHEM, "type: BoxAnnotatorOHEM, roi_per_img: 2, top: [v, w]", [], "it chooses what is learnt from: leave it out of a deploy net"),
    (IMAGE, "type: Dropout, sample_weights_test: true", [], "drops entries at random, which ONNX's runtimes do not"),
    (IMAGE, "type: Pooling, global_pooling: true, pool: STOCHASTIC", HEIGHT, f"{NO_HEIGHT}its window is the image"),
    (IMAGE, "type: SPP, pyramid_height: 2", HEIGHT, f"{NO_HEIGHT}its windows are parts of the image"),
    (IMAGE, "type: ImResize, factor: 2", BATCH, "its matrices fit one number and one size of maps"),
    ({"x": (2, 4, 5, 6)}, "type: Im2col, kernel_size: [2, 1, 3], axis: 0", BATCH, "exported with channels of a dynamic number"),
    ({"x": (2, 3)}, "type: ReLU", HEIGHT, "dynamic: no input of net '' has a height"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "layer", "dynamic", "told"), REFUSALS)
def test_what_onnx_does_not_say_is_refused(tmp_path, inputs, layer, dynamic, told):
    net, path = net_of(inputs, layer), tmp_path / "net.onnx"
    assert told in refusal(to_onnx, net, path, dynamic=dynamic, error=SpecError)
    assert not list(tmp_path.iterdir())


BOTH = ["height", "width"]


@pytest.mark.parametrize(
    ("first", "then", "dynamic", "told"),
    [
        ("Reshape, axis: 2, num_axes: 0, shape: {dim: 1}", "Pooling, kernel_size: 1", BOTH, f"{NO_HEIGHT}it pools three axes"),
        ("DummyData, bottom: [], shape: {dim: [1, 2, 4, 4]}, data_filler: {type: gaussian}", "Eltwise, bottom: [x, first]",
         [], "data_filler gaussian: draws anew for each pass; expected constant"),
        ("Transpose, dim: [2, 3, 1, 0]", "Convolution, axis: 2, num_output: 2, kernel_size: 1",
         BOTH, "axis 1 of its top cannot be dynamic as others are"),
    ],
)  # fmt: skip
def test_what_follows_another_layer_is_refused(tmp_path, first, then, dynamic, told):
    text = "layers: [{name: x, type: Input, shape: {dim: [1, 2, 4, 4]}}, "
    text += f"{{name: first, type: {first}}}, {{name: it, type: {then}}}]"
    net, path = Net(parse(text), "TEST", device="cpu"), tmp_path / "net.onnx"
    assert told in refusal(to_onnx, net, path, dynamic=dynamic, error=SpecError)
    assert not list(tmp_path.iterdir())
