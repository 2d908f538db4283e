"""caffe.Detector: windows of pictures, with what surrounds them, as R-CNN cuts them."""

import sys
import types

import numpy as np
import pytest
from kit import refusal

pytest.importorskip("PIL")

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import minicaffe.interop.pycaffe as caffe

MEANS = """
input: "data" input_shape { dim: 2 dim: 3 dim: 8 dim: 8 }
layer { name: "means" type: "Pooling" bottom: "data" top: "means"
  pooling_param { pool: AVE global_pooling: true } }
"""
MEAN = np.array([10.0, 20.0, 30.0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    (folder / "means.prototxt").write_text(MEANS)
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 24, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def detector(folder, **more):
    return caffe.Detector(str(folder / "means.prototxt"), None, **more)


def test_each_window_is_seen_alone(folder):
    """A net that gives the mean of each channel, blue first, in the order of the windows."""
    net = detector(folder, mean=MEAN, raw_scale=255, channel_swap=(2, 1, 0))
    windows = [(0, 0, 8, 8), (3, 5, 11, 13), (12, 16, 20, 24)]  # of the input's size
    names = [str(folder / f"{i}.png") for i in range(2)]
    found = net.detect_windows(zip(names, [windows, windows[:2]], strict=True))
    assert [(one["filename"], one["window"]) for one in found] == [
        *((names[0], window) for window in windows), *((names[1], window) for window in windows[:2]),
    ]  # fmt: skip
    for one in found:
        pixels = np.asarray(Image.open(one["filename"])).astype(float)
        top, left, bottom, right = one["window"]
        wanted = pixels[top:bottom, left:right, ::-1].mean((0, 1)) - MEAN
        np.testing.assert_allclose(one["prediction"].ravel(), wanted, rtol=1e-4, atol=1e-3)
    assert net.detect_windows([]) == []


def slow_context(image, window, size, pad, background):
    """As R-CNN: the box made wider, cut at the border, and laid where it belongs."""
    scale = size / (size - pad * 2)
    half = np.array([window[2] - window[0] + 1, window[3] - window[1] + 1]) / 2
    center = np.array(window[:2]) + half
    box = np.round(np.concatenate([center - scale * half, center + scale * half]))
    per = [size / (box[2] - box[0] + 1), size / (box[3] - box[1] + 1)]
    at = [round(max(0, -box[0]) * per[0]), round(max(0, -box[1]) * per[1])]
    rows, columns = image.shape[:2]
    box = np.clip(box, 0, [rows, columns, rows, columns])
    count = [round((box[2] - box[0] + 1) * per[0]), round((box[3] - box[1] + 1) * per[1])]
    count = [min(count[0], size - at[0]), min(count[1], size - at[1])]
    piece = image[int(box[0]) : int(box[2]), int(box[1]) : int(box[3])]
    found = np.ones((size, size, 3)) * background
    found[at[0] : at[0] + count[0], at[1] : at[1] + count[1]] = caffe.io.resize_image(piece, count)
    return found


@settings(max_examples=60)
@given(st.data())
def test_a_window_with_its_context(contextual, data):
    image = np.random.default_rng(0).random((20, 24, 3))
    top, left = data.draw(st.integers(0, 18)), data.draw(st.integers(0, 22))
    bottom, right = data.draw(st.integers(top + 1, 19)), data.draw(st.integers(left + 1, 23))
    pad = data.draw(st.integers(1, 3))
    contextual.configure_crop(pad)
    found = contextual.crop(image, np.array([top, left, bottom, right]))
    wanted = slow_context(image, [top, left, bottom, right], 8, pad, MEAN[::-1] / 255)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.fixture(scope="module")
def contextual(folder):
    return detector(folder, mean=MEAN, raw_scale=255, channel_swap=(2, 1, 0), context_pad=2)


def test_context_beyond_the_picture_is_the_mean(contextual):
    contextual.configure_crop(2)
    found = contextual.crop(np.zeros((20, 24, 3)), (0, 0, 7, 7))
    wanted = np.broadcast_to(MEAN[::-1] / 255, (4, 3))
    np.testing.assert_allclose(found[0, :4], wanted, atol=1e-6)  # red first, from 0 to 1
    assert not found[4:, 4:].any()
    assert contextual.transformer.preprocess("data", found)[:, 0, 0] == pytest.approx(0, abs=1e-4)


def test_selective_search_is_asked_where_it_is_installed(folder, monkeypatch):
    net, name = detector(folder), str(folder / "0.png")
    monkeypatch.setitem(sys.modules, "selective_search_ijcv_with_python", None)
    told = refusal(net.detect_selective_search, [name])
    assert "needs MATLAB and is not installed; give windows" in told
    search = types.ModuleType("selective_search_ijcv_with_python")
    search.get_windows = lambda names, cmd: [np.array([[0, 0, 9, 9]]) for _ in names]
    monkeypatch.setitem(sys.modules, search.__name__, search)
    (found,) = net.detect_selective_search([name])
    assert found["prediction"].shape == (3, 1, 1)


def test_mistakes_are_named(folder):
    net = detector(folder)
    for pad, window in (
        (0, (-3, 0, 5, 5)),
        (0, (4, 4, 4, 9)),
        (0, (30, 30, 40, 40)),
        (2, (60, 60, 70, 70)),
    ):
        if pad:
            net.configure_crop(pad)
        told = refusal(net.crop, np.zeros((20, 24, 3)), window)
        assert "is not in a picture of (20, 24)" in told
    told = refusal(detector, folder, context_pad=4)
    assert "context_pad: expected less than half of 8, got 4" in told
