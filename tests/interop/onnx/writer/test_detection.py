"""SSD's layers in ONNX: onnxruntime's rows are ours, whatever the keys, the number of images and the size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from minicaffe import Net, SpecError, parse  # noqa: E402
from minicaffe.interop.onnx.writer import to_onnx  # noqa: E402

TEXT = """
layers:
  - {{name: loc, type: Input, shape: {{dim: [{n}, {loc}]}}}}
  - {{name: conf, type: Input, shape: {{dim: [{n}, {conf}]}}}}
  - {{name: prior, type: Input, shape: {{dim: [1, 2, {prior}]}}}}
  - {{name: found, type: DetectionOutput, bottom: [loc, conf, prior], num_classes: {classes}, {keys}}}
"""


def net_of(n, p, classes, share, keys):
    sizes = {"loc": 4 * p * (1 if share else classes), "conf": p * classes, "prior": 4 * p}
    keys = f"{keys}, share_location: {str(share).lower()}"
    return Net(parse(TEXT.format(n=n, classes=classes, keys=keys, **sizes)), "TEST", device="cpu")


def numbers(net, seed, levels=0):
    """Boxes about the middle, none of two equal scores; with `levels` only so many scores are there."""
    random = np.random.default_rng(seed)
    shapes = {name: net.blobs[name].shape for name in ("loc", "conf", "prior")}
    p = shapes["prior"][2] // 4
    middle, half = random.uniform(0.2, 0.8, (p, 2)), random.uniform(0.05, 0.3, (p, 2))
    corners = np.concatenate([middle - half, middle + half], axis=1).ravel()
    scores = random.permutation(int(np.prod(shapes["conf"]))) / np.prod(shapes["conf"])
    scores = np.round(scores * levels) / levels if levels else scores
    arrays = {
        "loc": random.normal(size=shapes["loc"]) / 3,
        "conf": scores.reshape(shapes["conf"]),
        "prior": np.stack([corners, random.uniform(0.05, 0.3, 4 * p)])[None],
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def session(path):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(net, path, arrays):
    ours = np.array(net.forward(**arrays)["found"])
    (theirs,) = session(path).run(["found"], arrays)
    assert ours.shape == theirs.shape
    assert np.allclose(ours, theirs, rtol=0, atol=1e-5)
    return ours


@st.composite
def cases(draw):
    classes, share = draw(st.integers(1, 4)), draw(st.booleans())
    threshold = draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 2.0]))
    eta = draw(st.sampled_from([1.0, 0.5])) if threshold <= 0.5 else 1.0  # it has no effect there
    nms = f"nms_threshold: {threshold}, eta: {eta}, top_k: {draw(st.sampled_from([-1, 0, 1, 6, 400]))}"
    keys = {
        "background_label_id": draw(st.integers(-1, classes - 1)),
        "code_type": draw(st.sampled_from(["CORNER", "CENTER_SIZE", "CORNER_SIZE"])),
        "variance_encoded_in_target": str(draw(st.booleans())).lower(),
        "clip": str(draw(st.booleans())).lower(),
        "keep_top_k": draw(st.sampled_from([-1, 0, 1, 5, 1000])),
        "nms_param": f"{{{nms}}}",
        "confidence_threshold": draw(st.sampled_from(["null", "0.02", "0.6", "0.99"])),
    }
    text = ", ".join(f"{key}: {value}" for key, value in keys.items())
    n, p, levels = draw(st.integers(1, 3)), draw(st.integers(1, 20)), draw(st.sampled_from([0, 4]))
    return (n, p, classes, share, text), levels, draw(st.integers(0, 1 << 30))


@settings(max_examples=25, derandomize=True)
@given(cases())
def test_detections_are_ours_row_by_row(tmp_path_factory, case):
    """Equal scores too: of them the lower number comes first."""
    sizes, levels, seed = case
    net = net_of(*sizes)
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    to_onnx(net, path)
    compare(net, path, numbers(net, seed, levels))


def test_a_threshold_that_changes_is_refused(tmp_path):
    net = net_of(1, 2, 2, True, "nms_param: {nms_threshold: 0.6, eta: 0.9}")
    told = r"layer 'found' .* eta 0.9: ONNX's threshold stays as it is"
    with pytest.raises(SpecError, match=told):
        to_onnx(net, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


KEYS = "code_type: CENTER_SIZE, nms_param: {nms_threshold: 0.45, top_k: 40}, keep_top_k: 9"


def test_the_batch_may_be_dynamic_and_what_is_found_varies(tmp_path):
    net, path = net_of(2, 30, 3, True, KEYS + ", confidence_threshold: 0.5"), tmp_path / "net.onnx"
    to_onnx(net, path, dynamic=["batch"])
    (output,) = session(path).get_outputs()
    assert output.shape[:2] == [1, 1] and isinstance(output.shape[2], str) and output.shape[3] == 7
    counts = set()
    for n in (1, 2, 4):
        other = net_of(n, 30, 3, True, KEYS + ", confidence_threshold: 0.5")
        arrays = numbers(other, n)
        counts.add(len(compare(other, path, arrays)[0, 0]))
        nothing = arrays | {"conf": np.zeros_like(arrays["conf"])}
        assert compare(other, path, nothing)[0, 0, :, :2].tolist() == [[i, -1] for i in range(n)]
        arrays["conf"][0] = 0  # nothing in the first image alone
        counts.add(len(compare(other, path, arrays)[0, 0]))
    assert len(counts) > 3


def test_boxes_turned_inside_out_overlap_none(tmp_path):
    net, path = net_of(1, 3, 2, True, "nms_param: {nms_threshold: 0.1}"), tmp_path / "net.onnx"
    to_onnx(net, path)
    box, turned = [0.2, 0.2, 0.6, 0.6], [0.6, 0.6, 0.2, 0.2]
    prior = np.stack([[*box, *turned, *box], np.ones(12)])[None].astype(np.float32)
    conf = np.array([[0, 0.9, 0, 0.8, 0, 0.7]], np.float32)
    found = compare(net, path, {"loc": np.zeros((1, 12), np.float32), "conf": conf, "prior": prior})
    assert found[0, 0, :, 2].tolist() == pytest.approx([0.9, 0.8])


PRIORS = [
    "min_size: 8, aspect_ratio: 2",
    "min_size: [8, 10], max_size: [12, 14], clip: true, variance: [0.1, 0.1, 0.2, 0.2], flip: false, aspect_ratio: 3",
    "min_size: 5, step: 7, offset: 0.3",
    "min_size: 5, img_h: 50, img_w: 40, step_h: 3, step_w: 4",
]


@pytest.mark.parametrize("keys", PRIORS)
def test_prior_boxes_are_constants_or_follow_the_size(tmp_path, keys):
    text = """
layers:
  - {{name: image, type: Input, shape: {{dim: [1, 3, {h}, {w}]}}}}
  - {{name: map, type: Pooling, kernel_size: 5, stride: 5, pool: AVE}}
  - {{name: prior, type: PriorBox, bottom: [map, image], {keys}}}
"""
    small, large = (
        Net(parse(text.format(h=h, w=w, keys=keys)), "TEST", device="cpu")
        for h, w in ((20, 15), (35, 40))
    )
    path = tmp_path / "net.onnx"
    for dynamic, nets in (([], [small]), (["height", "width"], [small, large])):
        to_onnx(small, path, dynamic=dynamic)
        for net in nets:
            arrays = {"image": np.zeros(net.blobs["image"].shape, np.float32)}
            (theirs,) = session(path).run(["prior"], arrays)
            assert np.allclose(net.forward(**arrays)["prior"], theirs, rtol=0, atol=1e-6)
    for one in ("height", "width"):
        assert len(to_onnx(small, path, dynamic=[one])) == 3  # compared at two sizes, and written
