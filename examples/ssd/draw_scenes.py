"""Draw scenes of circles, squares and triangles, with the boxes around them, to train a detector on.

python examples/ssd/draw_scenes.py scenes          draws scenes/train and scenes/test, and lists of both

A scene is 96 x 96 pixels: one to four shapes, 14 to 48 pixels wide, which overlap little, on a ground of two
colours with noise, and three lines that are none of the shapes. A box is as tight as the pixels say.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE, LARGER = 96, 4  # pixels; drawn so many times as large, for smooth edges
CLASSES = ("circle", "square", "triangle")
LABEL_MAP = 'item {{ name: "{0}" label: {1} display_name: "{0}" }}\n'


def scene(seed: int) -> tuple[Image.Image, list[tuple[str, tuple[int, int, int, int]]]]:
    """A scene and its boxes: class, x0, y0, x1, y1 in pixels."""
    random = np.random.default_rng(seed)
    ground = random.integers(0, 256, (2, 3))
    share = np.linspace(0, 1, SIZE)[:, None, None]
    pixels = np.broadcast_to(ground[0] * share + ground[1] * (1 - share), (SIZE, SIZE, 3))
    noise = random.normal(0, random.uniform(2, 16), (SIZE, SIZE, 3))
    picture = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
    drawing = ImageDraw.Draw(picture)
    for _ in range(3):
        drawing.line([*random.integers(0, SIZE, 4)], fill=_colour(random), width=2)
    boxes: list[tuple[str, tuple[int, int, int, int]]] = []
    for _ in range(random.integers(1, 5)):
        for _ in range(20):  # until there is room
            size = int(random.integers(14, 49))
            x, y = (int(v) for v in random.integers(0, SIZE - size + 1, 2))
            if all(_apart((x, y, x + size, y + size), box) for _, box in boxes):
                name = CLASSES[random.integers(3)]
                boxes.append((name, _draw(picture, name, x, y, size, random)))
                break
    return picture, boxes


def _colour(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(v) for v in random.integers(0, 256, 3))


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two boxes share no more than a tenth of the smaller."""
    w = min(one[2], other[2]) - max(one[0], other[0])
    h = min(one[3], other[3]) - max(one[1], other[1])
    least = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return w <= 0 or h <= 0 or w * h <= least / 10


def _draw(
    picture: Image.Image, name: str, x: int, y: int, size: int, random: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw a shape, turned unless it is a circle; returns the box of its pixels."""
    side, turn = size * LARGER, random.uniform(0, 2 * np.pi)
    mask = Image.new("L", (side, side))
    drawing, middle = ImageDraw.Draw(mask), side / 2
    if name == "circle":
        drawing.ellipse((0, 0, side - 1, side - 1), fill=255)
    else:
        count = {"square": 4, "triangle": 3}[name]
        angles = turn + 2 * np.pi * np.arange(count) / count
        corners = [(middle * (1 + np.cos(a)), middle * (1 + np.sin(a))) for a in angles]
        drawing.polygon(corners, fill=255)
    small = mask.resize((size, size), Image.Resampling.BOX)
    picture.paste(_contrasting(picture, x, y, size, random), (x, y), small)
    rows, columns = np.nonzero(np.asarray(small) > 127)
    return (
        int(x + columns.min()),
        int(y + rows.min()),
        int(x + columns.max() + 1),
        int(y + rows.max() + 1),
    )


def _contrasting(
    picture: Image.Image, x: int, y: int, size: int, random: np.random.Generator
) -> tuple[int, ...]:
    """A colour that differs from the ground's."""
    around = np.asarray(picture.crop((x, y, x + size, y + size))).reshape(-1, 3).mean(axis=0)
    while True:
        colour = _colour(random)
        if np.abs(np.array(colour) - around).sum() > 150:
            return colour


def write(folder: Path, name: str, seeds: range) -> None:
    """Write scenes, a text of boxes beside each, and the list of both."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = []
    for i, seed in enumerate(seeds):
        picture, boxes = scene(seed)
        picture.save(folder / name / f"{i:05d}.png")
        text = "".join(f"{kind} {' '.join(map(str, box))}\n" for kind, box in boxes)
        (folder / name / f"{i:05d}.txt").write_text(text)
        lines.append(f"{name}/{i:05d}.png {name}/{i:05d}.txt\n")
    (folder / f"{name}.txt").write_text("".join(lines))


def draw(folder: Path, train: int, test: int) -> None:
    """Draw so many scenes to train and to test on, and write the label map."""
    write(folder, "train", range(train))
    write(folder, "test", range(10**6, 10**6 + test))
    named = enumerate(("background", *CLASSES))
    text = "".join(LABEL_MAP.format(name, label) for label, name in named)
    (folder / "labelmap.prototxt").write_text(text)


def main() -> None:
    """Draw both sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=4000, help="scenes to train on; default: 4000")
    parser.add_argument("--test", type=int, default=500, help="scenes to test on; default: 500")
    args = parser.parse_args()
    draw(args.folder, args.train, args.test)
    print(f"{args.folder}: {args.train} scenes to train on, {args.test} to test on")


if __name__ == "__main__":
    main()
