"""What pictures become, against slow definitions in float64."""

import collections
import colorsys
import math
import sys

import numpy as np
import pytest

from minicaffe.errors import DataError
from minicaffe.tools.data import augment, box_recipe
from minicaffe.tools.data.augment import COUNT, Recipe
from minicaffe.tools.data.feed import draws

pytest.importorskip("PIL")
RANDOM = np.random.default_rng(7)


def picture(c, h, w, dtype=np.uint8):
    pixels = np.random.default_rng(c * h * w).integers(0, 256, (c, h, w), np.uint8)
    return pixels if dtype == np.uint8 else (pixels / 7 - 12).astype(dtype)


def slow_scale(x, height, width):
    """Along one axis, then the other: a triangle over the inputs about each output, its weights summing to 1."""

    def along(row, count):
        step = len(row) / count
        reach = max(step, 1)
        out = np.empty(count)
        for i in range(count):
            middle = (i + 0.5) * step
            weights = [max(0, 1 - abs(k + 0.5 - middle) / reach) for k in range(len(row))]
            out[i] = np.dot(weights, row) / sum(weights)
        return out

    wide = np.apply_along_axis(along, 2, x.astype(np.float64), width)
    if x.dtype == np.uint8:
        wide = np.rint(wide)  # Pillow keeps bytes between the two
    return np.apply_along_axis(along, 1, wide, height)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("size", [(5, 9), (20, 3), (13, 7), (1, 1), (31, 40)])
@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_scaling(c, size, dtype):
    x = picture(c, 13, 7, dtype)
    found = augment.scale(x, *size)
    off = np.abs(found - slow_scale(x, *size)).max()
    assert found.dtype == dtype and off <= (1.52 if dtype == np.uint8 else 2e-4)  # of two roundings


def slow_turn(x, degrees, fill):
    """Each output looks where it came from; bilinear between the four about that place, the edge repeated."""
    c, h, w = x.shape
    out = np.full(x.shape, float(fill))
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for row in range(h):
        for column in range(w):
            right, down = column + 0.5 - w / 2, row + 0.5 - h / 2
            u, v = cos * right - sin * down + w / 2, sin * right + cos * down + h / 2
            if not (0 <= u < w and 0 <= v < h):
                continue
            i, j = math.floor(v - 0.5), math.floor(u - 0.5)
            a, b = v - 0.5 - i, u - 0.5 - j
            rows = min(max(i, 0), h - 1), min(max(i + 1, 0), h - 1)
            columns = min(max(j, 0), w - 1), min(max(j + 1, 0), w - 1)
            for k in range(c):
                (p, q), (r, s) = ([float(x[k, y, z]) for z in columns] for y in rows)
                out[k, row, column] = (p * (1 - b) + q * b) * (1 - a) + (r * (1 - b) + s * b) * a
    return out


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("degrees", [-17.3, 33.1, 121.7])
@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_turning(c, degrees, dtype):
    x = picture(c, 12, 9, dtype)
    found, wanted = augment.turn(x, degrees, 77), slow_turn(x, degrees, 77)
    assert (wanted == 77).any() and (wanted != 77).any()
    off = np.abs(found - wanted)
    assert found.dtype == dtype and off.max() <= (1.01 if dtype == np.uint8 else 0.05)
    np.testing.assert_array_equal(augment.turn(x, 0, 3), x)


def slow_colours(x, factors, blue_first):
    """Pixel by pixel, one change after the other; hue by angle and length in the plane of I and Q."""
    bright, contrast, saturation, hue = factors
    rgb = x.astype(np.float64)[:: -1 if blue_first else 1]
    grey = lambda p: 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]  # noqa: E731
    rgb = rgb * bright
    mean = grey(rgb).mean()
    rgb = mean + (rgb - mean) * contrast
    rgb = grey(rgb) + (rgb - grey(rgb)) * saturation
    out = np.empty_like(rgb)
    for row in range(x.shape[1]):
        for column in range(x.shape[2]):
            r, g, b = rgb[:, row, column]
            y = grey((r, g, b))
            i = 0.595716 * r - 0.274453 * g - 0.321263 * b
            q = 0.211456 * r - 0.522591 * g + 0.311135 * b
            angle, length = math.atan2(q, i) + 2 * math.pi * hue, math.hypot(i, q)
            i, q = length * math.cos(angle), length * math.sin(angle)
            out[:, row, column] = (
                y + 0.9563 * i + 0.6210 * q,
                y - 0.2721 * i - 0.6474 * q,
                y - 1.1070 * i + 1.7046 * q,
            )
    out = out[:: -1 if blue_first else 1]
    return out.clip(0, 255) if x.dtype == np.uint8 else out


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("blue_first", [False, True])
@pytest.mark.parametrize(
    "factors", [(1, 1, 1, 0), (1.3, 0.6, 1.4, 0), (0.7, 1.2, 0.2, 0.13), (1, 1, 1, -0.4)]
)
def test_colours(factors, blue_first, dtype):
    x = picture(3, 5, 6, dtype)
    found = augment.colours(x, factors, blue_first)
    assert found.dtype == np.float32
    assert np.abs(found - slow_colours(x, factors, blue_first)).max() < 0.06  # of four decimals
    grey = np.broadcast_to(picture(1, 5, 6, dtype), (3, 5, 6))
    alone = augment.colours(grey[:1], (*factors[:2], 1, 0), False)
    found = augment.colours(grey, factors, blue_first)
    np.testing.assert_allclose(found, np.broadcast_to(alone, found.shape), rtol=1e-4, atol=1e-3)


def test_hue_turns_as_people_name_it():
    """A third of a turn takes red towards green, and green towards blue."""
    red = np.zeros((3, 1, 1), np.float32)
    red[0] = 100
    for turns, most in ((1 / 3, 1), (-1 / 3, 2)):
        turned = augment.colours(red, (1, 1, 1, -turns), False)[:, 0, 0]
        assert colorsys.rgb_to_hsv(*turned.clip(0))[0] == pytest.approx(most / 3, abs=0.12)


def test_the_area_is_even_and_the_ratio_even_in_its_logarithm():
    h, w, found = 200, 300, []
    for row in np.random.default_rng(3).random((3000, 2 + augment.TRIES)):
        top, left, rows, columns = augment.area(h, w, (0.1, 0.3), (0.5, 2), row[:2], row[2:])
        assert 0 <= top <= h - rows and 0 <= left <= w - columns
        found.append((rows * columns / (h * w), math.log2(columns / rows), top / max(1, h - rows)))
    shares, logs, places = np.array(found).T
    for values, least, most in ((shares, 0.1, 0.3), (logs, -1, 1), (places, 0, 1)):
        counts, _ = np.histogram(values, 4, (least, most))
        assert (np.abs(counts / 750 - 1) < 0.12).all(), counts
    assert augment.area(100, 10, (1, 1), (0.9, 1.1), row[:2], row[2:]) == (44, 0, 11, 10)


@pytest.mark.parametrize("by_area", [True, False])
def test_a_part_lies_at_each_place_alike(by_area):
    """The last row and column, too, of a part of 2 x 3 of a picture of 6 x 5."""
    how = {"share": (0.2, 0.2), "ratio": (1.5, 1.5)} if by_area else {}
    recipe, chance = Recipe(chance=True, crop=True, **how), np.full(COUNT, 0.5)
    found = collections.Counter()
    for chance[0] in np.arange(0.01, 1, 0.02):
        for chance[1] in np.arange(1 / 60, 1, 1 / 30):
            found[recipe.part((1, 6, 5), (1, 2, 3), chance)] += 1
    assert found == {(top, left, 2, 3): 100 for top in range(5) for left in range(3)}


def test_draws_are_even_and_apart():
    epochs, entries = (part.ravel() for part in np.mgrid[0:40, 0:500])
    found = draws(5, epochs, entries, 4)
    assert found.shape == (20000, 4) and found.min() >= 0 and found.max() < 1
    counts = [np.histogram(column, 20, (0, 1))[0] for column in found.T]
    assert np.abs(np.array(counts) / 1000 - 1).max() < 0.15
    rows = np.hstack([found, found.reshape(40, 500, 4)[:, ::-1].reshape(-1, 4)])
    assert np.abs(np.corrcoef(rows.T) - np.eye(8)).max() < 0.04
    assert len(np.unique(found)) == found.size
    assert (draws(6, epochs, entries, 4) != found).all()


def test_the_order_of_what_is_done():
    """Each step by itself, one after the other, gives what the recipe does."""
    x, mean = picture(3, 30, 40), RANDOM.random((3, 1, 1)).astype(np.float32)
    how = {"resize": 20, "degrees": 30, "fill": 9, "crop": 12, "mirror": True}
    how |= {"mean": mean, "scale": 0.5}
    jitter = {"jitter": (0.4, 0.3, 0.2, 0.1), "blue_first": True, "finished": True}
    chance = np.random.default_rng(2).random(COUNT)
    chance[2] = 0.3
    out = np.empty((3, 12, 12), np.float32)
    Recipe(chance=True, **how, **jitter).make(x, chance, out)
    done = augment.turn(augment.scale(x, 20, 26), (2 * chance[3] - 1) * 30, 9)
    top, left = int(chance[0] * 9), int(chance[1] * 15)
    done = done[:, top : top + 12, left : left + 12]
    b, c, s = (1 + m * (2 * t - 1) for m, t in zip((0.4, 0.3, 0.2), chance[4:7], strict=True))
    done = augment.colours(done, (b, c, s, (2 * chance[7] - 1) * 0.1), True)
    np.testing.assert_allclose(out, ((done - mean) * np.float32(0.5))[..., ::-1], rtol=1e-6)
    Recipe(chance=False, **how, **jitter).make(x, chance, out)
    plain = augment.scale(x, 20, 26)[:, 4:16, 7:19]
    np.testing.assert_allclose(out, ((plain - mean) * np.float32(0.5))[..., ::-1], rtol=1e-6)
    how |= {"share": (0.2, 0.6), "ratio": (0.5, 2), "degrees": 0}
    bytes_ = np.empty((3, 12, 12), np.uint8)
    Recipe(chance=True, **how).make(x, chance, bytes_)
    top, left, rows, columns = augment.area(30, 40, (0.2, 0.6), (0.5, 2), chance[:2], chance[8:])
    part = x[:, top : top + rows, left : left + columns]
    np.testing.assert_array_equal(bytes_, augment.scale(part, 12, 12)[..., ::-1])


def test_without_pillow_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    picture = np.zeros((1, 4, 4), np.uint8)
    for work in (lambda: augment.scale(picture, 2, 2), lambda: augment.turn(picture, 9, 0)):
        with pytest.raises(DataError, match="^scaling, turning or cutting by area: needs Pillow: "):
            work()
    with pytest.raises(DataError, match="^noise of JPEG: needs Pillow: "):
        box_recipe.Noise(jpeg=9.0).of(picture, 0.5)
