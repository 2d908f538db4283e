"""Answers drawn on pictures, by Pillow: boxes with their names, or a line of text below."""

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.tools.data.picture_files import pillow

LEAST = 320  # pixels of the longer side: smaller pictures are drawn larger


def with_boxes(pixels: np.ndarray, boxes: np.ndarray, texts: Sequence[str]) -> Any:
    """Pillow's image of pixels (h, w) or (h, w, 3) with boxes (k, 5): class, x0, y0, x1, y1 as fractions."""
    from PIL import ImageDraw

    image = _enlarged(pixels)
    drawing, width = ImageDraw.Draw(image), max(2, max(image.size) // 250)
    size = max(10, max(image.size) // 40)
    areas = (boxes[:, 3] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 2])
    for i in np.argsort(-areas, kind="stable"):  # the largest first
        row, text = boxes[i], texts[i]
        colour = _colour(int(row[0]))
        x0, y0, x1, y1 = (row[1:5].clip(0, 1) * np.array([*image.size] * 2)).astype(int).tolist()
        drawing.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=width)
        _say(drawing, (x0, y0), text, colour, size)
    return image


def with_text(pixels: np.ndarray, text: str) -> Any:
    """Pillow's image of pixels, with text at the top, in as many lines as its width needs."""
    from PIL import ImageDraw, ImageFont

    image = _enlarged(pixels)
    drawing, size = ImageDraw.Draw(image), max(10, max(image.size) // 30)
    font: Any = ImageFont.load_default(size)
    lines: list[str] = []
    for part in text.split(", "):
        longer = f"{lines[-1]}, {part}" if lines else part
        if lines and drawing.textlength(longer, font) < image.width - 4:
            lines[-1] = longer
        else:
            lines.append(part)
    _say(drawing, (0, 0), "\n".join(lines), (255, 255, 255), size)
    return image


def mask_image(mask: np.ndarray) -> Any:
    """Pillow's image of a mask (h, w): its numbers are the classes, its palette shows them in colours."""
    image = pillow("mask").fromarray(mask, "L").convert("P")
    image.putdata(mask.ravel().tolist())
    image.putpalette([part for k in range(256) for part in (_colour(k) if k else (0, 0, 0))])
    return image


def with_mask(pixels: np.ndarray, mask: np.ndarray) -> Any:
    """Pillow's image of pixels with the colours of a mask (h, w) laid over them; class 0 is left as it is."""
    image = pillow("picture")
    ground = image.fromarray(pixels).convert("RGB")
    colours = mask_image(mask).convert("RGB")
    ground.paste(colours, (0, 0), image.fromarray(np.where(mask > 0, 128, 0).astype(np.uint8), "L"))
    return ground


def _enlarged(pixels: np.ndarray) -> Any:
    image = pillow("picture").fromarray(pixels).convert("RGB")
    factor = -(-LEAST // max(image.size))
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor), 0)
    return image


def _say(drawing: Any, at: tuple[int, int], text: str, colour: Any, size: int) -> None:
    """Text on a ground of a colour, above a place, or below it at the upper edge."""
    from PIL import ImageFont

    font: Any = ImageFont.load_default(size)
    left, top, right, bottom = drawing.textbbox((0, 0), text, font=font)
    high, wide = bottom - top + 4, right - left + 4
    image_width, _ = drawing.im.size
    x, y = max(0, min(at[0], image_width - wide)), at[1] - high if at[1] >= high else at[1]
    drawing.rectangle((x, y, x + wide, y + high), fill=colour)
    drawing.text((x + 2 - left, y + 2 - top), text, fill=(0, 0, 0), font=font)


def _colour(label: int) -> tuple[int, int, int]:
    """A colour for a class: hues a golden section apart, light enough for black text."""
    red, green, blue = colorsys.hls_to_rgb((label * 0.618034) % 1, 0.62, 0.9)
    return int(red * 255), int(green * 255), int(blue * 255)
