"""The digit of a photograph is found, and what is in doubt is told."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from reading_files import read_picture

from minicaffe.tools.data.digits import draw
from minicaffe.tools.data.pictures import Doubt

pytest.importorskip("PIL")
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "benchmarks"
CONDITIONS = "a sheet|a sheet on a dark table|sloping light, noise|equal brightness|a cast shadow"
CONDITIONS += "|ruled paper|the sheet's corner, specks|chalk on a board"
PEN, PAPER = 60, 210


@pytest.fixture
def photographs(monkeypatch):
    """examples/benchmarks/photographs.py."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("photographs")
    sys.modules.pop("photographs", None)


@pytest.fixture
def read(tmp_path):
    """Read a picture (h, w) or (h, w, 3) as that of a digit: pixels (28, 28), what was done, doubts."""

    def given(pixels: np.ndarray) -> tuple[np.ndarray, list[str], list[str]]:
        np.save(tmp_path / "a.npy", np.ascontiguousarray(pixels, np.uint8))
        (found,), notes = read_picture(str(tmp_path / "a.npy"), (1, 28, 28), digit=True)
        doubts = [note for note in notes if isinstance(note, Doubt)]
        return found, [note for note in notes if note not in doubts], doubts

    return given


def paper(*strokes: tuple[int, int, int, int], shape: tuple[int, int] = (300, 240)) -> np.ndarray:
    """A sheet with strokes: top, left, bottom, right."""
    sheet = np.full(shape, PAPER, np.uint8)
    for top, left, bottom, right in strokes:
        sheet[top:bottom, left:right] = PEN
    return sheet


def as_mnist(digit: np.ndarray) -> np.ndarray:
    """A clean digit, white on black: its box scaled to 20 pixels, its mass in the middle of 28 x 28."""
    from PIL import Image

    rows, columns = np.nonzero(digit > 110)
    cut = Image.fromarray(digit[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1])
    factor = 20 / max(cut.size)
    cut = cut.resize([max(1, round(factor * side)) for side in cut.size], Image.Resampling.BICUBIC)
    large = np.pad(np.asarray(cut, float), 28)
    y, x = (
        int(np.round((large * index).sum() / large.sum() - 13.5))
        for index in np.indices(large.shape)
    )
    return large[y : y + 28, x : x + 28]


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


@pytest.mark.parametrize("condition", CONDITIONS.split("|"))
def test_the_digit_of_a_photograph(photographs, read, condition):
    """It is nearly that of the clean picture, turned a little as it is; and there is no doubt."""
    images, labels = draw(40, seed=5)
    for k in (int(np.flatnonzero(labels == digit)[0]) for digit in (2, 5)):
        rng = np.random.default_rng([k, 3])
        shown, _, doubts = read(np.asarray(photographs.photograph(condition, images[k], rng)))
        assert likeness(shown, as_mnist(images[k])) > 0.75, labels[k]
        assert not doubts


def test_blank_paper_in_a_sloping_light_has_nothing_in_it(photographs, read):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        blank = photographs.photograph("blank paper", np.zeros((28, 28)), rng)
        pixels, done, doubts = read(np.asarray(blank))
        assert not pixels.any()
        assert (done, doubts) == ([], ["nothing in it"])


def test_two_digits_are_told_and_the_largest_is_taken(photographs, read):
    seven = draw(10, seed=5)[0][0]
    picture = photographs.photograph("two digits", seven, np.random.default_rng(0))
    assert read(np.asarray(picture))[2] == ["2 ink-like parts, took the largest"]
    pixels, _, doubts = read(paper((100, 60, 180, 72), (90, 150, 190, 162)))
    assert doubts == ["2 ink-like parts, took the largest"]
    alone, _, none = read(paper((90, 150, 190, 162)))
    assert not none
    np.testing.assert_array_equal(pixels, alone)


def test_digits_of_a_number_are_not_joined_however_near(read):
    """Side by side, as high as each other, 8 pixels apart."""
    alone, _, _ = read(paper((100, 80, 180, 92), (100, 92, 112, 110)))
    pixels, _, doubts = read(paper((100, 80, 180, 92), (100, 92, 112, 110), (100, 118, 180, 130)))
    assert doubts == ["2 ink-like parts, took the largest"]
    assert likeness(pixels, alone) > 0.9


def test_the_strokes_of_a_digit_stay_together(read):
    """A 5 whose bar is apart, in three pieces."""
    bow = ((150, 90, 162, 140), (162, 128, 200, 140), (200, 90, 212, 140))
    stem, bar = (100, 90, 150, 102), (100, 116, 112, 150)
    pixels, _, doubts = read(paper(*bow, stem, bar))
    assert not doubts
    rows, columns = np.nonzero(pixels)
    assert np.ptp(rows) == 19
    assert pixels[rows.min() : rows.min() + 2, columns.max() - 3 : columns.max()].min() > 100


def test_a_thin_stroke_shines_as_a_thick_one(read):
    thick, _, _ = read(paper((60, 100, 240, 124)))
    thin, _, _ = read(paper((60, 100, 240, 103)))
    assert thick.max() == thin.max() == 255


@pytest.mark.parametrize(
    "wide, hole, margin",
    [
        (1.01, (0.25, 0.25), 0),
        (1.01, (0.5, 0.5), 0),
        (0.6, (0.75, 0.2), 0),
        (1.01, (0.6, 0.25), 20),
    ],
)
def test_the_hole_of_a_0_is_not_the_digit(read, wide, hole, margin):
    """However thick its strokes are, and also where they reach the frame."""
    y, x = np.mgrid[-1:1:121j, -1:1:81j]
    inside = np.hypot(y / hole[0], x / hole[1]) < 1
    zero = np.where((np.hypot(y / 1.01, x / wide) < 1) & ~inside, PEN, PAPER)
    pixels, done, doubts = read(np.pad(zero, margin, constant_values=PAPER))
    assert done == ["inverted", "cropped to the digit"]
    assert doubts == ([] if margin else ["cut by the frame"])
    assert pixels[14, 14] < 60
    assert pixels[14, 7:21].max() > 200


@pytest.mark.parametrize(
    "pixels, doubt",
    [
        (paper((100, 0, 112, 60), (100, 48, 180, 60)), "cut by the frame"),
        (np.where(paper((80, 110, 180, 122)) == PEN, PAPER - 20, PAPER), "faint ink"),
        (paper((100, 80, 180, 160), shape=(400, 400)), "a blob, no strokes"),
        (paper((100, 40, 112, 200)), "wider than high"),
    ],
)  # fmt: skip
def test_doubts(read, pixels, doubt):
    assert doubt in read(pixels)[2]


def test_an_uneven_ground_is_told(read):
    """Hatching, and on it a stroke not much darker."""
    y, x = np.mgrid[:300, :240]
    hatched = np.where((x + y) % 12 < 4, 150, PAPER)
    hatched[80:220, 110:124] = 90
    assert "uneven ground" in read(hatched)[2]


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1, 3), (3, 1000), (27, 28), (28, 14, 3)])
def test_pictures_of_any_shape_hold_something_or_nothing(read, shape):
    rng = np.random.default_rng(0)
    for pixels in (np.zeros(shape), np.full(shape, 255), rng.integers(0, 256, shape)):
        found, _, doubts = read(pixels)
        assert found.any() or doubts == ["nothing in it"]


def test_a_picture_of_the_nets_size_is_taken_as_it_is(read):
    """MNIST's own, in grey and in colours, inverted or not: pixel by pixel."""
    for image in draw(20, seed=1)[0]:
        for pixels in (image, np.repeat(image[:, :, None], 3, axis=2)):
            np.testing.assert_array_equal(read(pixels)[0], image)
            inverted, done, _ = read(255 - pixels)
            np.testing.assert_array_equal(inverted, image)
            assert done == ["inverted"]
