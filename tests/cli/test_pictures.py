"""Pictures of all formats and modes, and `minicaffe predict`."""

from __future__ import annotations

import os
import re
import sys

import numpy as np
import pytest
from reading_files import read_picture

from minicaffe.errors import DataError

SHAPE = (1, 28, 28)
CPU = ("--device", "cpu")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def strokes() -> np.ndarray:
    """A white cross on black, with greys, 28 x 28."""
    pixels = np.zeros((28, 28), np.uint8)
    pixels[6:22, 12:16] = 255
    pixels[12:16, 6:22] = 200
    return pixels


@pytest.fixture
def save(tmp_path):
    """Save an array or a Pillow picture, and give its path."""

    def write(picture, name: str, **options) -> str:
        if isinstance(picture, np.ndarray):
            picture = Image.fromarray(picture)
        picture.save(tmp_path / name, **options)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.gif", "a.tif", "a.pgm", "a.webp"])
def test_grey_formats(strokes, save, name):
    options = {"lossless": True} if name == "a.webp" else {}
    pixels, inverted = read_picture(save(strokes, name, **options), SHAPE)
    assert (pixels.dtype, pixels.shape, inverted) == (np.uint8, SHAPE, [])
    np.testing.assert_allclose(pixels[0].astype(int), strokes, atol=1)


def test_what_is_no_regular_file():
    """As of a pipe, there may be no end of it."""
    with pytest.raises(DataError, match=f"{os.devnull}: cannot be read: Is a pipe or a device"):
        read_picture(os.devnull, SHAPE)


def test_jpeg_is_nearly_the_same(strokes, save):
    pixels, _ = read_picture(save(strokes, "a.jpg", quality=95), SHAPE)
    assert np.abs(pixels[0].astype(int) - strokes).max() < 30


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "CMYK"])
def test_modes_that_become_grey(strokes, save, mode):
    picture = Image.fromarray(strokes).convert(mode)
    name = "a.tif" if mode == "CMYK" else "a.png"
    pixels, inverted = read_picture(save(picture, name), SHAPE)
    np.testing.assert_allclose(pixels[0].astype(int), strokes, atol=2)
    assert not inverted


def test_one_bit(strokes, save):
    pixels, _ = read_picture(save(Image.fromarray(strokes > 0), "a.png"), SHAPE)
    np.testing.assert_array_equal(pixels[0], 255 * (strokes > 0))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_grey_of_16_bits(strokes, save, name):
    wide = strokes.astype(np.uint16) * 257
    pixels, inverted = read_picture(save(wide, name), SHAPE)
    assert not inverted
    np.testing.assert_allclose(pixels[0].astype(int), strokes, atol=1)


def test_a_scan_of_16_bits_on_grey_paper(save):
    paper = np.full((28, 28), 200 * 257, np.uint16)
    paper[6:22, 12:16] = 60 * 257
    pixels, inverted = read_picture(save(paper, "a.png"), SHAPE)
    assert inverted
    assert pixels[0, 14, 14] > pixels[0, 0, 0] + 50


def test_ppm_npy_and_pgm_need_no_pillow(strokes, tmp_path, monkeypatch):
    colour = np.repeat(strokes[:, :, None], 3, axis=2)
    (tmp_path / "a.pgm").write_bytes(b"P5\n# a comment\n28 28\n255\n" + strokes.tobytes())
    (tmp_path / "a.ppm").write_bytes(b"P6 28 28 255\n" + colour.tobytes())
    np.save(tmp_path / "grey.npy", strokes)
    np.save(tmp_path / "colour.npy", colour)
    monkeypatch.setitem(sys.modules, "PIL", None)
    for name in ("a.pgm", "a.ppm", "grey.npy", "colour.npy"):
        pixels, _ = read_picture(str(tmp_path / name), SHAPE)
        np.testing.assert_array_equal(pixels[0], strokes, err_msg=name)


def test_without_pillow_the_remedy_is_told(strokes, save, tmp_path, monkeypatch):
    path = save(strokes, "a.png")
    np.save(tmp_path / "large.npy", np.zeros((30, 30), np.uint8))
    monkeypatch.setitem(sys.modules, "PIL", None)
    for name in (path, str(tmp_path / "large.npy")):
        with pytest.raises(DataError, match=r"needs Pillow: pip install 'minicaffe\[image\]'"):
            read_picture(name, SHAPE)


def test_dark_on_light_is_inverted(strokes, save):
    light, inverted = read_picture(save(255 - strokes, "light.png"), SHAPE)
    dark, kept = read_picture(save(strokes, "dark.png"), SHAPE)
    assert (inverted, kept) == (["inverted"], [])
    np.testing.assert_array_equal(light, dark)


def test_ink_on_a_transparent_ground_is_ink_on_paper(strokes, save):
    ink = np.zeros((28, 28, 4), np.uint8)
    ink[..., 3] = strokes
    pixels, inverted = read_picture(save(ink, "a.png"), SHAPE)
    assert inverted
    np.testing.assert_allclose(pixels[0].astype(int), strokes, atol=1)


def test_three_channels(strokes, save):
    colour = np.stack([strokes, 255 - strokes, strokes // 2], axis=2)
    pixels, inverted = read_picture(save(colour, "a.png"), (3, 28, 28))
    np.testing.assert_array_equal(pixels, colour.transpose(2, 0, 1))
    assert not inverted
    grey, _ = read_picture(save(strokes, "b.png"), (3, 28, 28))
    np.testing.assert_array_equal(grey, np.stack([strokes] * 3))


def test_other_counts_of_channels_are_refused(strokes, save):
    with pytest.raises(DataError, match="the net takes 4 channels; pictures have 1 or 3"):
        read_picture(save(strokes, "a.png"), (4, 28, 28))


@pytest.mark.parametrize("size", [(56, 56), (200, 300), (300, 200), (28, 14), (1, 1), (1000, 3)])
def test_any_size_becomes_the_nets(save, size):
    """A sheet of one grey, on which there is no digit to be found."""
    width, height = size
    pixels, _ = read_picture(save(np.full((height, width), 60, np.uint8), "a.png"), SHAPE)
    assert pixels.shape == SHAPE
    assert pixels.max() == 60


def test_the_aspect_is_kept_and_the_picture_centred(save):
    """What is no digit on a ground."""
    pixels, _ = read_picture(save(np.full((300, 200), 100, np.uint8), "a.png"), SHAPE)
    columns = np.flatnonzero(pixels[0].any(axis=0))
    assert (columns[0], columns[-1]) in [(4, 22), (5, 23), (4, 23)]
    assert pixels[0].any(axis=1).all()


def test_a_photograph_is_turned_as_its_exif_says(save):
    upright = np.zeros((28, 28), np.uint8)
    upright[2:6, 4:24] = 255  # a bar at the top
    lying = Image.fromarray(upright).rotate(90, expand=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by 90 degrees to the right
    pixels, _ = read_picture(save(lying, "a.png", exif=exif), SHAPE)
    assert pixels[0, 3, 14] > 200


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("empty.png", b"", "is not a picture that can be read"),
        ("text.png", b"hello\n", "is not a picture that can be read"),
        ("head.png", b"\x89PNG\r\n\x1a\n", "is not a picture that can be read"),
        ("short.pgm", b"P5\n28 28\n255\n" + bytes(100), "expected 784 bytes of pixels, got 100"),
        ("none.pgm", b"P5\n0 0\n255\n", "expected 0 bytes of pixels, got 0"),
        ("cut.npy", b"\x93NUMPY\x01\x00", "is not a whole .npy file"),
    ],
)
def test_files_that_are_no_pictures(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path}: {expected}")) as told:
        read_picture(str(path), SHAPE)
    assert "\n" not in str(told.value)


def test_damaged_pictures(save, tmp_path):
    chance = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    for name in ("a.png", "a.jpg"):
        path = tmp_path / name
        data = (tmp_path / save(chance, name)).read_bytes()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(DataError, match="is not a picture that can be read"):
            read_picture(str(path), SHAPE)


@pytest.mark.parametrize(
    "array",
    [np.zeros((28, 28)), np.zeros((1, 28, 28), np.uint8), np.zeros(5, np.uint8), np.zeros((0, 4), np.uint8)],
    ids=["float", "channel first", "flat", "none"],
)  # fmt: skip
def test_arrays_that_are_no_pictures(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=r"expected uint8 of \(h, w\) or \(h, w, 3\), got "):
        read_picture(str(tmp_path / "a.npy"), SHAPE)


def test_a_pickle_in_an_npy_is_not_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="is not a whole .npy file"):
        read_picture(str(tmp_path / "a.npy"), SHAPE)


@pytest.mark.parametrize("side", [8300, 10000, 14000])
def test_huge_pictures_are_refused_by_their_header(save, side):
    path = save(Image.new("1", (side, side)), "a.png")
    with pytest.raises(DataError, match=r"a\.png: .*pixels"):
        read_picture(path, SHAPE)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_picture(str(tmp_path / "no.png"), SHAPE)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_picture(str(tmp_path), SHAPE)


# predict


@pytest.fixture
def trained(cli):
    """Weights that know the few drawn digits."""
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "120").code == 0
    return "tiny_iter_120.npz"


@pytest.fixture
def digits(folder):
    from minicaffe.tools.data import datasets

    return datasets.load("digits", "train")


def test_predict_knows_pictures_of_digits(cli, trained, digits, save):
    names = []
    for i in range(12):
        names.append(save(digits.images[i, 0], f"{i}.png"))
        names.append(save(255 - digits.images[i, 0], f"{i}_light.png"))
    ran = cli("predict", "tiny.yaml", *names, "--weights", trained, *CPU)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split(":")[0] for line in lines] == names
    guessed = []
    for i, (dark, light) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        scores = r".*\.png: ((\d) \(\d+\.\d\d %\), \d \(\d+\.\d\d %\), \d \(\d+\.\d\d %\))"
        found = re.fullmatch(scores + r"( \[unsure: .*\])?", dark)
        assert found, dark
        inverted = re.fullmatch(scores + r" \[inverted.*\]", light)
        assert inverted and inverted[1] == found[1], light
        guessed.append(int(found[2]) == digits.labels[i])
    assert sum(guessed) >= 9


def test_predict_top(cli, trained, strokes, save):
    path = save(strokes, "a.png")
    ran = cli("predict", "tiny.yaml", path, "--weights", trained, *CPU, "--top", "99")
    shares = [float(text) for text in re.findall(r"\(([\d.]+) %\)", ran.out)]
    assert len(shares) == 10
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.1)
    assert (
        cli("predict", "tiny.yaml", path, "--weights", trained, "--top", "1", *CPU).out.count("%")
        == 1
    )


def test_predict_says_where_it_is_unsure(cli, trained, save):
    sheet = np.full((200, 150), 220, np.uint8)
    path = save(sheet, "blank.png")
    sheet[60:140, 40:50] = sheet[60:140, 90:100] = 40
    lines = cli(
        "predict", "tiny.yaml", path, save(sheet, "two.png"), "--weights", trained, *CPU
    ).out.splitlines()
    assert re.fullmatch(r".*blank\.png: \d .*%\) \[unsure: nothing in it.*\]", lines[0])
    assert re.fullmatch(
        r".*two\.png: \d .*%\) \[inverted, cropped to the digit\]"
        r" \[unsure: 2 ink-like parts, took the largest.*\]",
        lines[1],
    )


def test_predict_says_that_the_net_is_unsure(cli, strokes, save):
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "1").code == 0
    path = save(strokes, "a.png")
    ran = cli("predict", "tiny.yaml", path, "--weights", "tiny_iter_1.npz", *CPU)
    assert ran.out.endswith("%) [unsure: no class has half of the probability]\n")


def test_predict_reads_every_picture_before_it_answers(mistake, trained, strokes, save):
    path = save(strokes, "a.png")
    line = mistake("predict", "tiny.yaml", path, "no.png", "--weights", trained, *CPU)
    assert line == "minicaffe: no.png: no such file"


def test_predict_mistakes(mistake, trained, strokes, save, model):
    path = save(strokes, "a.png")
    assert "required: IMAGE" in mistake("predict", "tiny.yaml", "--weights", trained)
    assert "holds no weights; give them by --weights" in mistake("predict", "tiny.yaml", path)
    line = mistake("predict", "tiny.yaml", path, "--weights", trained, "--top", "0")
    assert "--top: expected an integer of at least 1, got '0'" in line
    assert "no.npz: no such file" in mistake(
        "predict", "tiny.yaml", path, "--weights", "no.npz", *CPU
    )
    other = model(("num_output: 4", "num_output: 5"))
    line = mistake("predict", other, path, "--weights", trained, *CPU)
    assert f"{trained}: does not fit net 'Tiny'" in line
    bare = model(("{name: loss, type: SoftmaxWithLoss", "{name: loss, type: Eltwise"),
                 ("bottom: [ip1, label]}\nsolver", "bottom: [ip1, ip1]}\nsolver"), name="bare.yaml")  # fmt: skip
    assert "has no softmax" in mistake("predict", bare, path, "--weights", trained, *CPU)
    blind = model(("type: Data,", "type: Data, include: TRAIN,"), name="blind.yaml")
    assert "takes no part in the phase TEST" in mistake(
        "predict", blind, path, "--weights", trained, *CPU
    )


def test_a_digit_is_found_wherever_it_stands_on_the_paper(save):
    """The same digit in 28 x 28 and off the middle of a large, grey sheet gives nearly the same pixels."""
    digit = np.zeros((28, 28), np.uint8)
    digit[4:24, 11:17] = 255
    sheet = np.full((300, 200), 215, np.uint8)
    sheet[40:140, 20:50] = 30
    pixels, inverted = read_picture(save(sheet, "a.png"), SHAPE, digit=True)
    assert inverted
    assert np.abs(pixels[0].astype(int) - digit).mean() < 15


def test_specks_that_vanish_are_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specks = np.zeros((1000, 1000), np.uint8)
    specks[5, 5] = specks[990, 990] = 255
    np.save("specks.npy", specks)
    pixels, notes = read_picture("specks.npy", SHAPE, digit=True)
    assert not pixels.any()
    assert "nothing in it" in notes
