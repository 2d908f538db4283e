"""The one reader of pictures: what training, tests, predict and conversion see of a file is what a viewer shows."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.errors import DataError
from minicaffe.tools.data import picture_files, readers
from minicaffe.tools.data.pictures import read
from minicaffe.tools.data.reader.picture_set import ListSet, PairSet

Image = pytest.importorskip("PIL.Image")

# What EXIF's orientations mean: where the stored first row and first column are seen (EXIF 2.3, 4.6.4 A)
SEEN = {
    1: lambda p: p,
    2: np.fliplr,
    3: lambda p: np.rot90(p, 2),
    4: np.flipud,
    5: lambda p: p.swapaxes(0, 1),
    6: lambda p: np.rot90(p, -1),
    7: lambda p: np.rot90(p, 2).swapaxes(0, 1),
    8: np.rot90,
}


def stored(pixels: np.ndarray, turn: int = 1, form: str = "PNG", mode: str | None = None) -> bytes:
    """A picture's file whose EXIF says how to turn it."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = turn
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, form, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("colour", ["colour", "grey", "own", "as it is", "labels"])
def test_a_picture_stands_upright(turn, colour):
    grey = np.arange(15, dtype=np.uint8).reshape(3, 5) * 16
    shape = 3 if colour == "colour" else 1
    picture = picture_files.decode(stored(grey, turn), "a", colour)
    np.testing.assert_array_equal(picture, np.repeat(SEEN[turn](grey)[:, :, None], shape, 2))


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_box_turns_with_its_picture(turn):
    pixels = np.zeros((8, 10), np.uint8)
    pixels[1:3, 2:9] = 1
    sides = np.array([0.2, 1 / 8, 0.9, 3 / 8])
    ys, xs = np.nonzero(picture_files.turned(pixels, turn))
    h, w = SEEN[turn](pixels).shape
    seen = [xs.min() / w, ys.min() / h, (xs.max() + 1) / w, (ys.max() + 1) / h]
    np.testing.assert_allclose(picture_files.turned_box(sides, turn), seen)


def test_every_reader_turns(tmp_path):
    """A folder, a list, a table, pairs, both kinds of databases, videos' frames by the same function."""
    from minicaffe.tools.data import datum
    from minicaffe.tools.data.datum import LmdbSet

    pytest.importorskip("lmdb")
    from reading_files import write_lmdb

    shown = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    file = stored(np.rot90(shown), 6)  # stored on its side
    for place in ("set/a/1.png", "pairs/images/1.png", "pairs/masks/1.png"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(file)
    (tmp_path / "pairs/masks/1.png").write_bytes(stored(np.rot90(shown[:, :, 0]), 6))
    (tmp_path / "list.txt").write_text("set/a/1.png 0\n")
    write_lmdb(tmp_path / "db", [datum.encoded(file, 0)])
    folder = readers.open(str(tmp_path / "set"), "train")
    for one in [folder, ListSet(tmp_path / "list.txt", "l"), LmdbSet(tmp_path / "db", "d")]:
        np.testing.assert_array_equal(one[0][0][::-1].transpose(1, 2, 0), shown)
    pair = PairSet(tmp_path / "pairs", "p", nearest=True)[0][0]
    np.testing.assert_array_equal(pair[3], shown[:, :, 0])
    np.testing.assert_array_equal(pair[2::-1].transpose(1, 2, 0), shown)
    np.testing.assert_array_equal(read(str(tmp_path / "set/a/1.png")), shown)


def test_what_shows_through_is_white():
    rgba = np.random.default_rng(0).integers(0, 256, (9, 7, 4), np.uint8)
    rgba[:3, :, 3], rgba[3:6, :, 3] = 0, 255
    picture = picture_files.decode(stored(rgba), "a", "colour")[:, :, ::-1]
    share = rgba[:, :, 3:] / 255.0
    np.testing.assert_allclose(picture, rgba[:, :, :3] * share + 255 * (1 - share), atol=1)
    np.testing.assert_array_equal(picture[:3], 255)
    np.testing.assert_array_equal(picture[3:6], rgba[3:6, :, :3])
    whole = picture_files.decode(stored(rgba), "a", "as it is")  # Caffe's, with its fourth channel
    np.testing.assert_array_equal(whole[:, :, [2, 1, 0, 3]], rgba)


def test_what_is_no_picture_is_told():
    with pytest.raises(DataError, match="a: is not a .*: it is none that Pillow reads"):
        picture_files.decode(b"\x01\x02\x03\x04", "a", "own")


def test_a_colour_that_stands_for_transparency_is_white():
    """PNG's tRNS, of a palette, of grey and of colours; GIF's."""
    grey = np.array([[0, 9], [9, 0]], np.uint8)
    for mode in ("L", "P", "RGB"):
        file = io.BytesIO()
        key = (9, 9, 9) if mode == "RGB" else 9
        Image.fromarray(grey).convert(mode).save(file, "PNG", transparency=key)
        for colour in ("colour", "grey", "own"):
            picture = picture_files.decode(file.getvalue(), mode, colour)
            np.testing.assert_array_equal(picture[:, :, 0], np.where(grey == 9, 255, 0))


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_the_upper_half_of_16_bits(form):
    """As OpenCV's imread takes them."""
    deep = np.array([[0, 255, 256], [32767, 65279, 65535]], np.uint16)
    file = io.BytesIO()
    Image.fromarray(deep).save(file, form)
    for colour in ("colour", "grey", "own", "as it is"):
        picture = picture_files.decode(file.getvalue(), "a", colour)
        np.testing.assert_array_equal(picture[:, :, 0], deep >> 8)


@given(
    st.sampled_from(["1", "L", "P", "RGB", "CMYK", "LA", "RGBA", "PA"]),
    st.sampled_from(["PNG", "TIFF", "JPEG", "GIF", "BMP", "WEBP"]),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
def test_predict_sees_what_is_trained(mode, form, turn, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 8, 4), np.uint8)
    try:
        file = stored(pixels, turn, form, "RGBA" if mode == "PA" else mode)
    except (OSError, ValueError, KeyError):
        return  # this format has no such mode
    trained = picture_files.decode(file, "a", "colour")
    seen = picture_files.decode(file, "a", "own")
    np.testing.assert_array_equal(np.broadcast_to(seen, trained.shape), trained)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [(np.ones((2, 2), np.float32), "floating-point"), (np.full((2, 2), 70000, np.int32), "larger")],
)
def test_numbers_that_are_no_pixels(numbers, words, tmp_path):
    Image.fromarray(numbers).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=f"a.tif: expected 8 or 16 bits a pixel, found {words}"):
        picture_files.read(tmp_path / "a.tif", "colour")


def test_damaged_exif_turns_nothing():
    jpeg = stored(np.zeros((2, 3), np.uint8), 6, "JPEG").replace(b"MM\x00*", b"??\x00*")
    assert b"??\x00*" in jpeg
    assert picture_files.decode(jpeg, "a", "own").shape == (2, 3, 1)


def test_a_cut_png_is_not_read_in_part():
    file = stored(np.random.default_rng(0).integers(0, 256, (90, 90, 3), np.uint8))
    with pytest.raises(DataError, match="is not a picture that can be read"):
        picture_files.decode(file[: len(file) // 2], "a", "colour")


def test_the_orientation_of_a_file(tmp_path):
    path = Path(tmp_path, "a.jpg")
    path.write_bytes(stored(np.zeros((2, 3), np.uint8), 8, "JPEG"))
    assert picture_files.orientation(path) == 8
