"""Photographs of handwritten digits, drawn: paper, ink, light, lens and sensor (extra `image`).

A scene is the light that comes from it, (HEIGHT, WIDTH, 3) from 0 to 1: paint on paper on a table, times
a lamp. The camera blurs it, adds noise and encodes it. All chance comes from the generator that is given.
"""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

HEIGHT, WIDTH = 400, 300
GAMMA = 2.2
LUMA = np.array([0.299, 0.587, 0.114])
Random = np.random.Generator


def photograph(condition: str, digit: np.ndarray, rng: Random) -> Image.Image:
    """A digit (28, 28), uint8, white on black, as a camera shows it under a condition of SCENES."""
    return camera(SCENES[condition](digit, rng), rng, noise=2.5 if "noise" in condition else 1)


def camera(scene: np.ndarray, rng: Random, noise: float = 1) -> Image.Image:
    """Lens, sensor and JPEG."""
    light = np.clip(blur(scene, rng.uniform(0.4, 1.0)), 0, 1)
    light += noise * np.sqrt(4e-5 + 4e-4 * light) * rng.standard_normal(light.shape)
    pixels = np.rint(255 * np.clip(light, 0, 1) ** (1 / GAMMA)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=int(rng.integers(75, 95)))
    return Image.open(file).convert("RGB")


def blur(values: np.ndarray, radius: float) -> np.ndarray:
    """Gaussian, along the first two axes."""
    reach = int(3 * radius) + 1
    weights = np.exp(-np.square(np.arange(-reach, reach + 1) / radius) / 2)
    weights /= weights.sum()
    for axis in (0, 1):
        pad = [(reach, reach) if i == axis else (0, 0) for i in range(values.ndim)]
        along = np.moveaxis(np.pad(values, pad, "edge"), axis, 0)
        count = values.shape[axis]
        shifted = (weight * along[i : i + count] for i, weight in enumerate(weights))
        values = np.moveaxis(sum(shifted), 0, axis)
    return values


def smooth(rng: Random, rows: int, columns: int) -> np.ndarray:
    """Chance (HEIGHT, WIDTH) from -1 to 1, smooth between rows x columns values."""
    chance = Image.fromarray(rng.uniform(-1, 1, (rows, columns)).astype(np.float32))
    return np.asarray(chance.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))


def ink(
    digit: np.ndarray, rng: Random, low: float = 0.25, high: float = 0.55, at=None
) -> np.ndarray:
    """How far a pen has covered each pixel, (HEIGHT, WIDTH) from 0 to 1.

    The digit's picture is `low` to `high` of the width wide, turned a little; its middle is at `at`,
    in shares of the width and height, by default somewhere around the middle.
    """
    side = WIDTH * rng.uniform(low, high)
    x, y = rng.uniform(0.4, 0.6, 2) if at is None else at
    turn = rng.uniform(-0.15, 0.15)
    cos, sin = np.cos(turn) * 28 / side, np.sin(turn) * 28 / side
    x, y = x * WIDTH, y * HEIGHT
    back = (cos, sin, 14 - cos * x - sin * y, -sin, cos, 14 + sin * x - cos * y)
    large = Image.fromarray(digit).transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, back, Image.Resampling.BICUBIC
    )
    soft = blur(np.asarray(large) / 255, side / 90)
    return np.clip(0.5 + 3 * (soft - 0.45), 0, 1) * (1 - 0.12 * np.abs(smooth(rng, 90, 70)))


def paint(scene: np.ndarray, cover: np.ndarray, colour) -> np.ndarray:
    return scene + cover[..., None] * (np.asarray(colour) - scene)


def paper(rng: Random, colour=(0.82, 0.80, 0.75)) -> np.ndarray:
    """A sheet, everywhere."""
    grain = 1 + 0.02 * smooth(rng, 200, 150) + 0.02 * smooth(rng, 8, 6)
    return grain[..., None] * (np.asarray(colour) * rng.uniform(0.9, 1.1))


def pen(rng: Random) -> np.ndarray:
    """The colour of a pen: black, blue, red or pencil."""
    inks = [(0.02, 0.02, 0.03), (0.03, 0.05, 0.25), (0.45, 0.03, 0.04), (0.12, 0.12, 0.13)]
    return np.array(inks[rng.integers(len(inks))])


def table(rng: Random) -> np.ndarray:
    """Dark wood with its grain, or a plain dark top."""
    colour = np.array(
        [(0.10, 0.05, 0.025), (0.03, 0.03, 0.035), (0.16, 0.09, 0.05)][rng.integers(3)]
    )
    grain = 1 + 0.35 * smooth(rng, 100, 4) + 0.2 * smooth(rng, 300, 6)
    return grain[..., None] * colour


def quadrangle(rng: Random, corners: np.ndarray) -> np.ndarray:
    """How far each pixel lies in it, the corners, in shares of the picture, moved a little."""
    moved = (corners + rng.uniform(-0.03, 0.03, (4, 2))) * (4 * WIDTH, 4 * HEIGHT)
    mask = Image.new("L", (4 * WIDTH, 4 * HEIGHT))
    ImageDraw.Draw(mask).polygon([tuple(corner) for corner in moved], fill=255)
    return np.asarray(mask.resize((WIDTH, HEIGHT), Image.Resampling.BOX)) / 255


def slope(rng: Random, least: float) -> np.ndarray:
    """Light (HEIGHT, WIDTH, 1) that falls from 1 to `least` across the picture."""
    turn = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    along = x * np.cos(turn) + y * np.sin(turn)
    along = (along - along.min()) / np.ptp(along)
    return (least**along)[..., None]


def sheet(digit: np.ndarray, rng: Random) -> np.ndarray:
    """A sheet that fills the picture."""
    return slope(rng, 0.8) * paint(paper(rng), ink(digit, rng), pen(rng))


def dark_table(digit: np.ndarray, rng: Random) -> np.ndarray:
    """A whole sheet on a dark table."""
    corners = np.array([(0.15, 0.15), (0.85, 0.15), (0.85, 0.85), (0.15, 0.85)])
    corners += rng.uniform(-0.1, 0.1, (4, 1)) * np.sign(corners - 0.5)
    written = paint(paper(rng), ink(digit, rng, 0.2, 0.4), pen(rng))
    return slope(rng, 0.7) * paint(table(rng), quadrangle(rng, corners), written)


def sloping_light(digit: np.ndarray, rng: Random) -> np.ndarray:
    """One lamp at the side."""
    return slope(rng, rng.uniform(0.08, 0.2)) * paint(paper(rng), ink(digit, rng), pen(rng))


def equal_brightness(digit: np.ndarray, rng: Random) -> np.ndarray:
    """Ink and paper of two colours that make the same grey."""
    turn = rng.uniform(0, 2 * np.pi)
    red, blue = 60 * np.cos(turn), 60 * np.sin(turn)
    away = np.array([red, -(LUMA[0] * red + LUMA[2] * blue) / LUMA[1], blue])
    grey = rng.uniform(120, 160)
    colours = [((grey + sign * away) / 255) ** GAMMA for sign in (1, -1)]
    return slope(rng, 0.8) * paint(paper(rng, colours[0]), ink(digit, rng), colours[1])


def cast_shadow(digit: np.ndarray, rng: Random) -> np.ndarray:
    """The shadow of a hand or a shelf across the sheet."""
    edge = rng.uniform(0.3, 0.7)
    tilt = rng.uniform(-0.3, 0.3)
    corners = np.array([(-0.2, edge - tilt), (1.2, edge + tilt), (1.2, 1.5), (-0.2, 1.5)])
    dark = blur(quadrangle(rng, corners), rng.uniform(1, 8))
    if rng.random() < 0.5:
        dark = dark[::-1]
    light = 1 - rng.uniform(0.55, 0.8) * dark
    return light[..., None] * sheet(digit, rng)


def ruled(digit: np.ndarray, rng: Random) -> np.ndarray:
    """Ruled or squared paper, not quite straight in the picture."""
    step, turn = rng.uniform(16, 34), rng.uniform(-0.06, 0.06)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    lines = np.zeros((HEIGHT, WIDTH))
    for along in (y + turn * x, x - turn * y)[: rng.integers(1, 3)]:
        away = np.abs((along + rng.uniform(0, step)) % step - step / 2)
        lines = np.maximum(lines, np.clip(1.2 - away, 0, 1))
    lined = paint(paper(rng), rng.uniform(0.4, 0.8) * lines, (0.3, 0.4, 0.6))
    return slope(rng, 0.7) * paint(lined, ink(digit, rng, 0.3, 0.55), pen(rng))


def corner_and_specks(digit: np.ndarray, rng: Random) -> np.ndarray:
    """The sheet's edges in the frame, crumbs and dots on it."""
    corners = np.array([(-0.5, -0.5), (0.88, -0.5), (0.88, 0.85), (-0.5, 0.85)])
    specked = paint(paper(rng), ink(digit, rng, 0.25, 0.45, rng.uniform(0.38, 0.5, 2)), pen(rng))
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for _ in range(rng.integers(6, 14)):
        near = np.hypot(y - rng.uniform(0, HEIGHT), x - rng.uniform(0, WIDTH)) - rng.uniform(0.5, 3)
        specked = paint(specked, np.clip(0.5 - near, 0, 1) * 0.9, pen(rng))
    return slope(rng, 0.6) * paint(table(rng), quadrangle(rng, corners), specked)


def chalk(digit: np.ndarray, rng: Random) -> np.ndarray:
    """Chalk on a board that has been wiped."""
    board = np.array([(0.02, 0.06, 0.04), (0.03, 0.03, 0.035)][rng.integers(2)])
    wiped = board * (1 + 0.5 * np.abs(smooth(rng, 7, 5)) + 0.3 * smooth(rng, 200, 5))[..., None]
    dust = np.clip(0.85 + 0.35 * smooth(rng, 200, 150), 0, 1)
    return slope(rng, 0.6) * paint(wiped, ink(digit, rng) * dust, (0.75, 0.75, 0.7))


def blank(digit: np.ndarray, rng: Random) -> np.ndarray:
    """Paper with nothing on it, whatever the digit."""
    return slope(rng, rng.uniform(0.2, 0.8)) * paper(rng)


def two_digits(digit: np.ndarray, rng: Random) -> np.ndarray:
    """The digit twice, side by side."""
    y, apart = rng.uniform(0.4, 0.6), rng.uniform(0.12, 0.16)
    scene, colour = paper(rng), pen(rng)
    for x in (0.5 - apart, 0.5 + apart):
        scene = paint(scene, ink(digit, rng, 0.3, 0.35, (x, y)), colour)
    return slope(rng, 0.7) * scene


def note_on_cloth(digit: np.ndarray, rng: Random) -> np.ndarray:
    """A small yellow note on a striped or checked cloth."""
    step, turn = rng.uniform(14, 40), rng.uniform(0, np.pi)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    across = (x * np.cos(turn) + y * np.sin(turn)) % step < step / 2
    if rng.random() < 0.5:
        across = across ^ ((y * np.cos(turn) - x * np.sin(turn)) % step < step / 2)
    light, dark = rng.uniform(0.4, 0.7, 3), rng.uniform(0.03, 0.3, 3)
    weave = 1 + 0.2 * smooth(rng, 200, 150)
    cloth = paint(light * weave[..., None], blur(across.astype(float), 0.7), dark)
    corners = np.array([(0.25, 0.3), (0.75, 0.3), (0.75, 0.7), (0.25, 0.7)])
    written = paint(paper(rng, (0.85, 0.75, 0.25)), ink(digit, rng, 0.25, 0.4), pen(rng))
    return slope(rng, 0.6) * paint(cloth, quadrangle(rng, corners), written)


def stained(digit: np.ndarray, rng: Random) -> np.ndarray:
    """The ring of a coffee cup, and the picture out of focus."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    away = np.hypot(y - rng.uniform(0.2, 0.8) * HEIGHT, x - rng.uniform(0.2, 0.8) * WIDTH)
    ring = np.clip(rng.uniform(2, 6) - np.abs(away - rng.uniform(70, 110)), 0, 1)
    brown = rng.uniform(0.3, 0.7) * ring * (1 - 0.5 * np.abs(smooth(rng, 9, 7)))
    scene = paint(paint(paper(rng), ink(digit, rng), pen(rng)), brown, (0.30, 0.17, 0.07))
    return blur(slope(rng, 0.5) * scene, rng.uniform(1.5, 3))


Scene = Callable[[np.ndarray, Random], np.ndarray]
SCENES: dict[str, Scene] = {
    "a sheet": sheet,
    "a sheet on a dark table": dark_table,
    "sloping light, noise": sloping_light,
    "equal brightness": equal_brightness,
    "a cast shadow": cast_shadow,
    "ruled paper": ruled,
    "the sheet's corner, specks": corner_and_specks,
    "chalk on a board": chalk,
    "blank paper": blank,
    "two digits": two_digits,
    "a note on a patterned cloth": note_on_cloth,
    "a stain, out of focus": stained,
}
NO_DIGIT = ("blank paper", "two digits")  # a picture of these is to be doubted, not to be read
UNSEEN = (
    "a note on a patterned cloth",
    "a stain, out of focus",
)  # played no part while the code was written
