"""What is written as PNG, Pillow reads as the same pixels."""

import io

import numpy as np
import pytest

from minicaffe.tools.data import png


@pytest.mark.parametrize("channels", [None, 1, 2, 3, 4])
def test_pixels_come_back(channels):
    image = pytest.importorskip("PIL.Image")
    shape = (5, 7) if channels is None else (5, 7, channels)
    pixels = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    with image.open(io.BytesIO(png.encode(pixels))) as opened:
        assert (np.asarray(opened) == (pixels[..., 0] if channels == 1 else pixels)).all()


def test_a_sheet_has_each_tile_in_its_place():
    tiles = np.random.default_rng(4).integers(0, 256, (5, 2, 3, 1), dtype=np.uint8)
    sheet = png.sheet(tiles, 2)
    assert sheet.shape == (8, 7, 2)
    for i, tile in enumerate(tiles):
        top, left = i // 2 * 3, i % 2 * 4
        assert (sheet[top : top + 2, left : left + 3, :1] == tile).all()
    assert int((sheet[..., 1] == 255).sum()) == 5 * 6
