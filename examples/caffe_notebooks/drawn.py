"""What the scripts beside this file would have downloaded: digits and pictures, drawn with NumPy alone."""

import numpy as np

FONT = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "01110 10001 00001 00110 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
GLYPHS = np.array([[[int(c) for c in row] for row in glyph.split()] for glyph in FONT])
SHAPES = ("disc", "square", "ring", "cross", "stripes", "triangle")
COLOURS = {"red": (230, 60, 40), "green": (50, 200, 70), "blue": (50, 80, 230)}
COLOURS |= {"yellow": (240, 220, 60), "white": (245, 245, 245)}


def digits(n, seed):
    """`n` digits as MNIST has them, (n, 28, 28) of uint8, and their labels."""
    rng = np.random.RandomState(seed)
    labels = rng.randint(10, size=n)
    images = np.zeros((n, 28, 28), np.float32)
    for image, label in zip(images, labels):
        y, x = rng.randint(1, 6), rng.randint(2, 11)
        image[y : y + 21, x : x + 15] = GLYPHS[label].repeat(3, 0).repeat(3, 1)
        image *= rng.uniform(150, 255)
        image += 20 * rng.rand(28, 28)
    return images.clip(0, 255).astype(np.uint8), labels


def mask(shape, size):
    """Where a shape is, as a (size, size) array of booleans."""
    y, x = np.mgrid[:size, :size] * 2.0 / (size - 1) - 1
    radius = np.hypot(x, y)
    return {
        "disc": radius < 0.95,
        "square": np.maximum(abs(x), abs(y)) < 0.8,
        "ring": (radius < 1) & (radius > 0.55),
        "cross": (abs(x) < 0.3) | (abs(y) < 0.3),
        "stripes": np.sin(9 * y) > 0,
        "triangle": (abs(x) < (y + 1) / 2) & (y < 0.9),
    }[shape]


def picture(shape, colour, size, rng, ground=90):
    """A shape of a colour, somewhere on a noisy ground: (size, size, 3) of uint8, red first."""
    image = ground + 25 * rng.randn(size, size, 3)
    paint(image, shape, colour, int(size * rng.uniform(0.55, 0.85)), rng)
    return image.clip(0, 255).astype(np.uint8)


def paint(image, shape, colour, size, rng):
    """Put a shape into a picture of floats."""
    y, x = (rng.randint(0, side - size + 1) for side in image.shape[:2])
    there = image[y : y + size, x : x + size]
    there[mask(shape, size)] = COLOURS[colour]
