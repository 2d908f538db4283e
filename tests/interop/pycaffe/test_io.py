"""caffe.io: the order and arithmetic of what is done to pictures, against slow references; arrays as messages."""

import numpy as np
import pytest
from kit import refusal

pytest.importorskip("google.protobuf")
pytest.importorskip("PIL")

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import minicaffe.interop.pycaffe as caffe
from minicaffe import DataError
from minicaffe.interop.pycaffe import io
from minicaffe.interop.pycaffe.proto import caffe_pb2

SIZE = st.integers(1, 9)


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# Pictures


def slow_resize(picture, height, width, corners):
    """Each pixel by the four about it, by the formula."""
    found = np.zeros((height, width, picture.shape[2]))

    def place(i, size, had):
        if corners:
            return i * (had - 1) / (size - 1) if size > 1 else 0.0
        return min(max((i + 0.5) * had / size - 0.5, 0.0), had - 1.0)

    for y in range(height):
        for x in range(width):
            at = place(y, height, picture.shape[0]), place(x, width, picture.shape[1])
            for row in range(picture.shape[0]):
                for column in range(picture.shape[1]):
                    near = max(0, 1 - abs(at[0] - row)) * max(0, 1 - abs(at[1] - column))
                    found[y, x] += near * picture[row, column]
    return found


@settings(max_examples=40)
@given(SIZE, SIZE, SIZE, SIZE, st.integers(1, 4), st.integers(0, 99))
def test_resizing_is_bilinear(h, w, height, width, channels, seed):
    picture = drawn(seed, h, w, channels)
    found = io.resize_image(picture, (height, width))
    wanted = slow_resize(picture, height, width, corners=channels not in (1, 3))
    assert found.dtype == np.float32
    assert found.shape == (height, width, channels)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_resizing_keeps_constants_and_takes_the_nearest():
    assert np.all(io.resize_image(np.full((3, 4, 3), 7.0), (8, 2)) == 7)
    ramp = np.arange(4.0)[:, None, None]
    for rows, nearest in ((8, [0, 0, 1, 1, 2, 2, 3, 3]), (2, [1, 3])):
        assert io.resize_image(ramp, (rows, 1), interp_order=0).ravel().tolist() == nearest
    assert "interp_order: expected 0" in refusal(io.resize_image, ramp, (2, 1), 3)
    told = refusal(io.resize_image, np.zeros((4, 4)), (2, 2), error=ValueError)
    assert "expected (h, w, c) and (height, width), got (4, 4)" in told


def test_loading_gives_red_first_from_0_to_1(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = caffe.io.load_image(str(tmp_path / "a.png"))
    assert (found.dtype, found.shape) == (np.float32, (4, 5, 3))
    np.testing.assert_array_equal(found, np.float32(pixels / 255))
    grey = caffe.io.load_image(str(tmp_path / "a.png"), color=False)
    wanted = (0.2125 * pixels[..., 0] + 0.7154 * pixels[..., 1] + 0.0721 * pixels[..., 2]) / 255
    assert (grey.dtype, grey.shape) == (np.float32, (4, 5, 1))
    np.testing.assert_allclose(grey[..., 0], wanted, atol=1e-6)


def test_loading_repeats_grey_and_lays_on_white(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4), np.uint8)
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    Image.fromarray(pixels).save(tmp_path / "clear.png")
    grey = np.float32(pixels[..., :1] / 255)
    np.testing.assert_array_equal(io.load_image(tmp_path / "grey.png"), grey.repeat(3, axis=2))
    np.testing.assert_array_equal(io.load_image(tmp_path / "grey.png", color=False), grey)
    share = pixels[..., 3:] / 255
    clear, wanted = io.load_image(tmp_path / "clear.png"), pixels[..., :3] / 255 * share + 1 - share
    np.testing.assert_allclose(clear, wanted, atol=1 / 255)
    assert io.load_image(tmp_path / "clear.png", color=False).shape == (4, 5, 1)
    assert "none.png: no such file" in refusal(io.load_image, "none.png", error=DataError)


@settings(max_examples=25)
@given(st.integers(1, 3), SIZE, SIZE, st.data())
def test_oversampling_takes_corners_and_middle_and_mirrors(count, h, w, data):
    height, width = data.draw(st.integers(1, h)), data.draw(st.integers(1, w))
    pictures = drawn(1, count, h, w, 2).astype(np.float32)
    found = io.oversample(pictures, np.array([height, width]))
    assert found.shape == (10 * count, height, width, 2)
    for i, picture in enumerate(pictures):
        ten = found[10 * i : 10 * i + 10]
        assert np.array_equal(ten[0], picture[:height, :width])
        assert np.array_equal(ten[1], picture[:height, w - width :])
        assert np.array_equal(ten[2], picture[h - height :, :width])
        assert np.array_equal(ten[3], picture[h - height :, w - width :])
        y, x = int(h / 2 - height / 2), int(w / 2 - width / 2)
        assert np.array_equal(ten[4], picture[y : y + height, x : x + width])
        assert np.array_equal(ten[5:], np.array([one[:, ::-1] for one in ten[:5]]))


# Transformer


def caffenet(shape=(10, 3, 4, 4)):
    """As the notebook 00-classification sets it."""
    transformer = io.Transformer({"data": shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", np.array([104.0, 117.0, 123.0]))
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    return transformer


def test_preprocessing_is_in_caffes_order():
    picture = np.random.default_rng(0).random((4, 4, 3))
    transformer = caffenet()
    transformer.set_input_scale("data", 0.017)
    found = transformer.preprocess("data", picture)
    assert (found.dtype, found.shape) == (np.float32, (3, 4, 4))
    for c, mean in enumerate((104, 117, 123)):
        wanted = (picture[:, :, 2 - c] * 255 - mean) * 0.017
        np.testing.assert_allclose(found[c], wanted, rtol=1e-5, atol=1e-5)


def test_preprocessing_resizes_and_leaves_the_picture_as_it_was():
    picture = np.random.default_rng(0).random((8, 6, 3)).astype(np.float32)
    for transformer, one in ((caffenet(), picture), (caffenet((1, 3, 8, 6)), picture)):
        before = one.copy()
        assert transformer.preprocess("data", one).shape == transformer.inputs["data"][1:]
        assert np.array_equal(one, before)
    small = io.resize_image(picture, (4, 4))
    large, small = (caffenet().preprocess("data", one) for one in (picture, small))
    assert np.array_equal(large, small)


@settings(max_examples=30)
@given(st.permutations(range(3)), st.permutations(range(3)), st.booleans(), st.integers(0, 99))
def test_deprocessing_undoes_it(order, swap, batch, seed):
    transformer = io.Transformer({"x": (1, 3, 4, 5)})
    # the axes of a picture so ordered that its transpose has the input's shape
    transformer.set_transpose("x", order)
    transformer.set_channel_swap("x", swap)
    transformer.set_raw_scale("x", 255)
    transformer.set_input_scale("x", 0.5)
    transformer.set_mean("x", drawn(seed, 3, 4, 5))
    picture = drawn(seed, 3, 4, 5).transpose(np.argsort(order))
    transformer.inputs["x"] = (1, 3, *picture.shape[:2])  # not to be resized
    given_ = transformer.preprocess("x", picture)
    found = transformer.deprocess("x", given_[None] if batch else given_)
    np.testing.assert_allclose(found, picture, atol=1e-5)


def test_a_mean_of_another_size_is_resized():
    mean = drawn(0, 3, 6, 7)
    transformer = caffenet()
    transformer.set_mean("data", mean)
    wanted = slow_resize(mean.transpose(1, 2, 0), 4, 4, corners=False).transpose(2, 0, 1)
    np.testing.assert_allclose(transformer.mean["data"], wanted, atol=1e-6)
    grey = io.Transformer({"data": (1, 1, 2, 2)})
    grey.set_mean("data", np.ones((2, 2)))
    assert grey.mean["data"].shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda t: t.preprocess("dat", 0), "'dat' is not one of the net's inputs: data; did you mean"),
        (lambda t: t.set_transpose("data", (0, 1)), "expected an order of 3 axes, got (0, 1)"),
        (lambda t: t.set_channel_swap("data", (2, 1)), "expected an order of 3 channels, got (2, 1)"),
        (lambda t: t.set_mean("data", np.zeros(2)), "expected a mean of 3 channels, got 2"),
        (lambda t: t.set_mean("data", np.zeros((1, 3, 4, 4))), "shape (c,) or (c, h, w), got (1, 3, 4"),
        (lambda t: t.preprocess("data", np.zeros((4, 4))), "expected a picture of 3 axes, got (4, 4)"),
        (lambda t: t.preprocess("data", np.zeros((4, 4, 1))), "expected 3 channels, got 1"),
        (lambda t: io.oversample([np.zeros((4, 4, 3))], (5, 2)), "no piece of 5 x 2 lies in a picture of 4 x 4"),
    ],
)  # fmt: skip
def test_mistakes_are_named(use, told):
    assert told in refusal(use, caffenet())


# Messages


def test_a_blob_in_the_old_form_and_in_the_new():
    blob = caffe.proto.caffe_pb2.BlobProto(data=range(6))
    blob.num, blob.channels, blob.height, blob.width = 1, 1, 2, 3
    assert caffe.io.blobproto_to_array(blob).tolist() == [[[[0, 1, 2], [3, 4, 5]]]]
    blob = caffe.io.caffe_pb2.BlobProto(data=range(6))
    blob.shape.dim.extend([2, 3])
    assert caffe.io.blobproto_to_array(blob).tolist() == [[0, 1, 2], [3, 4, 5]]
    told = refusal(io.blobproto_to_array, caffe_pb2.BlobProto(data=range(6)), error=ValueError)
    assert "a BlobProto of shape () holds 6 numbers" in told
    assert io.blobproto_to_array(caffe_pb2.BlobProto(data=[123])) == 123
    assert io.blobproto_to_array(caffe_pb2.BlobProto(double_data=[0.1])) == 0.1


@settings(max_examples=25)
@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 99))
def test_arrays_survive_as_blobs(shape, seed):
    array, diff = drawn(seed, *shape).astype("f"), drawn(seed + 1, *shape).astype("f")
    blob = io.array_to_blobproto(array, diff)
    again = caffe_pb2.BlobProto.FromString(blob.SerializeToString())
    for found, wanted in ((again, array), (blob, array)):
        assert io.blobproto_to_array(found).dtype == np.float64
        assert np.array_equal(io.blobproto_to_array(found), wanted)
        assert io.blobproto_to_array(found).shape == wanted.shape
    assert np.array_equal(io.blobproto_to_array(again, return_diff=True), diff)
    (found,) = io.blobprotovector_str_to_arraylist(io.arraylist_to_blobprotovector_str([array]))
    assert np.array_equal(found, array)


def test_pictures_survive_as_data():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    whole = io.array_to_datum(pixels, 7)
    assert whole.label == 7
    assert np.array_equal(io.datum_to_array(whole), pixels)
    real = drawn(0, 1, 2, 3).astype("f")
    found = io.datum_to_array(io.array_to_datum(real))
    assert (found.dtype, found.tolist()) == (np.float64, real.astype(float).tolist())
    bare, labelled = (io.array_to_datum(real, label=label) for label in (None, 1))
    assert len(labelled.SerializeToString()) > len(bare.SerializeToString())
    told = refusal(io.array_to_datum, pixels[0], error=ValueError)
    assert "a Datum is of shape (channels, height, width), got (4" in told
    told = refusal(io.array_to_blobproto, [1], [1, 2], error=ValueError)
    assert "diff: expected the shape (1,), got (2,)" in told


def test_an_encoded_picture_is_decoded_with_blue_first(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    datum = caffe_pb2.Datum(data=(tmp_path / "a.png").read_bytes(), encoded=True)
    assert np.array_equal(io.datum_to_array(datum), pixels[:, :, ::-1].transpose(2, 0, 1))
