"""VideoData against its frames; NdConvolution and poolings of forks for video."""

import re

import kit
import numpy as np
import pytest
from reading_files import places

from minicaffe import Net, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import DataError, MinicaffeError
from minicaffe.interop.caffe import parse as parse_prototxt
from minicaffe.interop.caffe.prototxt import prototxt

Image = pytest.importorskip("PIL.Image")
LENGTH = 3


@pytest.fixture
def clips(tmp_path, here):
    """Frames (clip, number, h, w, 3), red first, of which clips of LENGTH begin at two frames."""
    frames = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 8, 3), dtype=np.uint8)
    for clip, pattern in enumerate(("image_{:04d}.png", "{:06d}.png")):
        (tmp_path / f"v{clip}").mkdir()
        for number, frame in enumerate(frames[clip], 1):
            Image.fromarray(frame).save(tmp_path / f"v{clip}" / pattern.format(number))
    (tmp_path / "clips.txt").write_text("v0 1 7\nv1 3 2\nv0 2 5\n")
    return frames


def net_of(keys="", phase="TRAIN", device="cpu", **more):
    text = f"source: clips.txt, batch_size: 2, top: [x, y], new_length: {LENGTH}{keys}"
    spec = parse(f"layers: [{{name: d, type: VideoData, {text}}}]")
    return Net(spec, phase, device=device, **more)


def wanted(frames, clip, first):
    """The clip as the net sees it: channels blue, green, red; then frames."""
    return frames[clip, first - 1 : first - 1 + LENGTH, :, :, ::-1].transpose(3, 0, 1, 2)


def test_clips_are_the_frames_in_order(clips, device):
    net = net_of(", transform: {mean_value: [1, 2, 3], scale: 0.5}", device=device)
    mean = np.array([1, 2, 3]).reshape(3, 1, 1, 1)
    for entries in (((0, 1, 7), (1, 3, 2)), ((0, 2, 5), (0, 1, 7))):
        net.forward()
        x, y = (device.to_host(net.blobs[name].data) for name in "xy")
        assert x.shape == (2, 3, LENGTH, 6, 8) and y.tolist() == [one[2] for one in entries]
        for i, (clip, first, _) in enumerate(entries):
            np.testing.assert_allclose(x[i], (wanted(clips, clip, first) - mean) * 0.5)


def test_all_frames_of_a_clip_are_cut_and_mirrored_alike(clips):
    net = net_of(", transform: {crop_size: 4, mirror: true}, shuffle: true", seed=4)
    seen = set()
    for _ in range(12):
        net.forward()
        for x, y in zip(net.blobs["x"].data, net.blobs["y"].data, strict=True):
            clip, first = {7: (0, 1), 2: (1, 3), 5: (0, 2)}[int(y)]
            found = places(x, wanted(clips, clip, first))
            assert len(found) == 1
            seen.add(found[0])
    assert len(seen) > 8 and {turned for *_, turned in seen} == {False, True}


def test_frames_are_scaled_and_grey(clips):
    net = net_of(", new_height: 3, new_width: 4, is_color: false", "TEST")
    net.forward()
    assert net.blobs["x"].shape == (2, 1, LENGTH, 3, 4)
    net.reshape(x=(3, 1, LENGTH, 3, 4))
    net.forward()
    assert net.blobs["y"].data.tolist() == [2, 7, 5] or len(net.blobs["y"].data) == 3


@pytest.mark.parametrize(
    ("keys", "text", "message"),
    kit.rows("""
 | v0 4 1 | v0: has no frame 6, such as image_0006.jpg
 | v0 1 | expected a folder, a frame's number and a label in each line, found 2 words
 | v0 x 1 | expected a number, found 'x'
 | odd 1 1 | odd: frame 1: its frames are of several sizes
, transform: {crop_size: 7} | | crop_size 7 is larger than the frames of 6 x 8
, transform: {mean_value: [1, 2]} | | expected 1 or 3 numbers, got 2
, transform: {rotation: 3} | | clips take mirror, crop_size, mean_value and scale
"""),
)
def test_what_is_refused(keys, text, message, clips, tmp_path):
    (tmp_path / "odd").mkdir()
    for number in range(1, 4):
        Image.new("RGB", (8, 5 + number)).save(tmp_path / "odd" / f"{number:06d}.png")
    if text:
        (tmp_path / "clips.txt").write_text(f"{text}\n")
    with pytest.raises((DataError, MinicaffeError), match=re.escape(message)):
        net_of(keys).forward()


VIDEO = """
layer { name: "data" type: "VideoData" top: "data" top: "label" include { phase: TRAIN }
  video_data_param { source: "clips.txt" batch_size: 2 new_length: 3 new_height: 8 new_width: 8 shuffle: true }
  transform_param { mirror: true mean_value: 90 } }
layer { name: "conv" type: "NdConvolution" bottom: "data" top: "conv" convolution_param { num_output: 4
  kernel_shape { dim: 1 dim: 3 dim: 3 } stride_shape { dim: 1 dim: 1 dim: 1 } pad_shape { dim: 0 dim: 1 dim: 1 } } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 1
  kernel_size: 2 kernel_size: 2 stride: 1 stride: 2 stride: 2 } }
layer { name: "more" type: "NdPooling" bottom: "pool" top: "more" pooling_param { pool: AVE kernel_shape { dim: 3
  dim: 2 dim: 2 } } }
"""


def test_nets_of_video(clips):
    spec = parse_prototxt(VIDEO)
    assert [layer.type for layer in spec.layers[1:]] == ["Convolution", "Pooling", "Pooling"]
    net = Net(spec, "TRAIN", device="cpu")
    net.forward()
    assert net.blobs["conv"].shape == (2, 4, 3, 8, 8)
    assert net.blobs["more"].shape == (2, 4, 1, 3, 3)
    again = parse_prototxt(prototxt(spec, REGISTRY))
    for one, other in zip(again.layers, spec.layers, strict=True):
        assert {"pool": "MAX", **one.options} == {"pool": "MAX", **other.options}
