"""Pictures of all formats and modes, and `minicaffe predict`."""

import os
import re
import sys

import numpy as np
import pytest
from kit import CPU, refusal
from reading_files import read_picture

from minicaffe.errors import DataError, pip_install
from minicaffe.tools.data import datasets

SHAPE = (1, 28, 28)
Image = pytest.importorskip("PIL.Image")


def refused(picture, shape=SHAPE) -> str:
    return refusal(read_picture, str(picture), shape, error=DataError)


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


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "CMYK", "1", "16", "16 in TIFF"])
def test_modes_that_become_grey(strokes, save, mode):
    picture, rounding = Image.fromarray(strokes), 2
    if mode == "1":
        strokes, picture, rounding = 255 * (strokes > 0), Image.fromarray(strokes > 0), 0
    elif mode.startswith("16"):
        picture, rounding = strokes.astype(np.uint16) * 257, 1
    else:
        picture = picture.convert(mode)
    name = "a.tif" if mode in ("CMYK", "16 in TIFF") else "a.png"
    pixels, inverted = read_picture(save(picture, name), SHAPE)
    np.testing.assert_allclose(pixels[0].astype(int), strokes, atol=rounding)
    assert not inverted


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
    for name in (path, tmp_path / "large.npy"):
        assert f"needs Pillow: {pip_install('image')}" in refused(name)


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
    told = refused(save(strokes, "a.png"), (4, 28, 28))
    assert "the net takes 4 channels; pictures have 1 or 3" in told


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


PIXELS = "expected uint8 of (h, w) or (h, w, 3), got "


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.png", b"", "is not a picture that can be read"),
        ("text.png", b"hello\n", "is not a picture that can be read"),
        ("head.png", b"\x89PNG\r\n\x1a\n", "is not a picture that can be read"),
        ("short.pgm", b"P5\n28 28\n255\n" + bytes(100), "expected 784 bytes of pixels, got 100"),
        ("none.pgm", b"P5\n0 0\n255\n", "expected 0 bytes of pixels, got 0"),
        ("cut.npy", b"\x93NUMPY\x01\x00", "is not a whole .npy file"),
        ("float.npy", np.zeros((28, 28)), PIXELS),
        ("channel first.npy", np.zeros((1, 28, 28), np.uint8), PIXELS),
        ("flat.npy", np.zeros(5, np.uint8), PIXELS),
        ("none.npy", np.zeros((0, 4), np.uint8), PIXELS),
        ("pickle.npy", np.array([{}], dtype=object), "is not a whole .npy file"),
        ("no.png", None, "no such file"),
        (".", None, "cannot be read: Is a directory"),
        (os.devnull, None, "cannot be read: Is a pipe or a device"),  # of which there may be no end
    ],
)
def test_files_that_are_no_pictures(tmp_path, name, content, expected):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    told = refused(path)
    assert told.startswith(f"{path}: {expected}") and "\n" not in told


@pytest.mark.parametrize("side", [8300, 10000, 14000])
def test_huge_pictures_are_refused_by_their_header(save, side):
    assert re.search(r"a\.png: .*pixels", refused(save(Image.new("1", (side, side)), "a.png")))


# predict


@pytest.fixture
def trained(cli):
    """Weights that know the few drawn digits."""
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "120").code == 0
    return "tiny_iter_120.npz"


@pytest.fixture
def digits(folder):
    return datasets.load("digits", "train")


PREDICT = ("predict", "tiny.yaml")


@pytest.fixture
def predict(cli, trained):
    """Predict by the weights that know digits; the lines that it prints."""
    return lambda *words: cli(*PREDICT, *words, "--weights", trained, *CPU).out.splitlines()


def test_predict_knows_pictures_of_digits(predict, digits, save):
    names = []
    for i in range(12):
        names.append(save(digits.images[i, 0], f"{i}.png"))
        names.append(save(255 - digits.images[i, 0], f"{i}_light.png"))
    lines = predict(*names)
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


def test_predict_top_and_where_it_is_unsure(cli, predict, strokes, save):
    path, sheet = save(strokes, "a.png"), np.full((200, 150), 220, np.uint8)
    shares = [float(text) for text in re.findall(r"\(([\d.]+) %\)", *predict(path, "--top", "99"))]
    assert len(shares) == 10
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.1)
    (first,) = predict(path, "--top", "1")
    assert first.count("%") == 1
    blank = save(sheet, "blank.png")
    sheet[60:140, 40:50] = sheet[60:140, 90:100] = 40
    nothing, two = predict(blank, save(sheet, "two.png"))
    assert re.fullmatch(r".*blank\.png: \d .*%\) \[unsure: nothing in it.*\]", nothing)
    unsure = r"\[inverted, cropped to the digit\] \[unsure: 2 ink-like parts, took the largest.*\]"
    assert re.fullmatch(rf".*two\.png: \d .*%\) {unsure}", two)
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "1").code == 0
    ran = cli(*PREDICT, path, "--weights", "tiny_iter_1.npz", *CPU)
    assert ran.out.endswith("%) [unsure: no class has half of the probability]\n")


def test_predict_mistakes(mistake, trained, strokes, save, model):
    """Every picture is read before any is answered."""
    path = save(strokes, "a.png")
    other = model(("num_output: 4", "num_output: 5"), name="other.yaml")
    model(("{name: loss, type: SoftmaxWithLoss", "{name: loss, type: Eltwise"),
          ("bottom: [ip1, label]}\nsolver", "bottom: [ip1, ip1]}\nsolver"), name="bare.yaml")  # fmt: skip
    model(("type: Data,", "type: Data, include: TRAIN,"), name="blind.yaml")
    for words, told in (
        ([*PREDICT, path, "no.png", "--weights", trained, *CPU], "minicaffe: no.png: no such file"),
        ([*PREDICT, "--weights", trained], "required: IMAGE"),
        ([*PREDICT, path], "holds no weights; give them by --weights"),
        ([*PREDICT, path, "--weights", trained, "--top", "0"], "--top: expected an integer of at least 1, got '0'"),
        ([*PREDICT, path, "--weights", "no.npz", *CPU], "no.npz: no such file"),
        (["predict", other, path, "--weights", trained, *CPU], f"{trained}: does not fit net 'Tiny'"),
        (["predict", "bare.yaml", path, "--weights", trained, *CPU], "has no softmax"),
        (["predict", "blind.yaml", path, "--weights", trained, *CPU], "takes no part in the phase TEST"),
    ):  # fmt: skip
        assert told in mistake(*words)
