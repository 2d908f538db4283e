"""PNG files of 8 bits a channel, written by zlib and struct alone."""

import base64
import struct
import zlib

import numpy as np

KINDS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> colour type: grey, grey alpha, RGB, RGBA


def encode(pixels: np.ndarray) -> bytes:
    """The PNG file of pixels, uint8 (h, w) or (h, w, channels): grey, RGB, either with alpha behind.

    Source: the PNG specification (W3C), chunks IHDR, IDAT, IEND; each row bears filter 0.
    """
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    assert pixels.dtype == np.uint8 and pixels.size, "pixels are some bytes"
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">2I5B", width, height, 8, KINDS[channels], 0, 0, 0)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def data_uri(pixels: np.ndarray) -> str:
    """The same as a `data:` URI, which a page can hold."""
    return "data:image/png;base64," + base64.b64encode(encode(pixels)).decode()


def sheet(tiles: np.ndarray, columns: int, gap: int = 1) -> np.ndarray:
    """Tiles (n, h, w, channels), uint8, side by side in rows of `columns`, clear pixels between them.

    Returns (height, width, channels + 1): the last channel is the alpha.
    """
    n, h, w, channels = tiles.shape
    rows = -(-n // columns)
    out = np.zeros((rows * (h + gap) - gap, columns * (w + gap) - gap, channels + 1), np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * (h + gap), i % columns * (w + gap)
        out[top : top + h, left : left + w, :-1] = tile
        out[top : top + h, left : left + w, -1] = 255
    return out
