"""Small files for the layers that read, such as their documentation's examples name.

python tests/reading_files.py      makes fixtures/examples anew
"""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent / "fixtures" / "examples"
COUNT, SIZE = 5, (6, 7)


def pictures(seed: int = 1) -> np.ndarray:
    """COUNT pictures (n, h, w, 3), uint8, red before green before blue as files hold them."""
    return np.random.default_rng(seed).integers(0, 256, (COUNT, *SIZE, 3), dtype=np.uint8)


def write_lmdb(folder: Path, values: list[bytes]) -> None:
    """An LMDB database with convert_imageset's keys."""
    lmdb = pytest.importorskip("lmdb")
    folder.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(folder), map_size=1 << 30) as env:
        for start in range(0, len(values), 1000):
            with env.begin(write=True) as put:
                for i, value in enumerate(values[start : start + 1000], start):
                    put.put(f"{i:08d}".encode(), value)
    (folder / "lock.mdb").unlink()


def read_picture(path, shape, digit=False, invert=True):
    """The picture in a file, as `predict` makes it ready."""
    from minicaffe.tools.data.pictures import prepared, read

    return prepared(read(path), shape, digit, path, invert=invert)


def with_boxes() -> list[bytes]:
    """AnnotatedDatums of pictures of 24 x 32 that hold 3, 0 and 1 boxes."""
    from PIL import Image

    from minicaffe.tools.data import datum

    random, values = np.random.default_rng(0), []
    for count in (3, 0, 1):
        picture, rows = random.integers(0, 60, (24, 32, 3), np.uint8), []
        for k in range(count):
            x0, y0 = random.integers(0, 20), random.integers(0, 14)
            x1, y1 = x0 + random.integers(5, 12), y0 + random.integers(4, 10)
            picture[y0:y1, x0:x1, k] = 255
            rows.append([1 + k % 2, 0, x0 / 32, y0 / 24, x1 / 32, y1 / 24, k == 2])
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        table = np.array(rows, float).reshape(-1, 7)
        values.append(datum.write_annotated(datum.encoded(file.getvalue(), 0), table))
    return values


def main() -> None:
    """Write the fixtures."""
    import h5py
    from PIL import Image

    from minicaffe.tools.data import datum

    shutil.rmtree(EXAMPLES, ignore_errors=True)
    EXAMPLES.mkdir()
    for i, pixels in enumerate(pictures()):
        Image.fromarray(pixels).save(EXAMPLES / f"{i}.png")
    (EXAMPLES / "images.txt").write_text("".join(f"{i}.png {i % 3}\n" for i in range(COUNT)))
    rows = ["1 0.9 1 1 4 4", "2 0.6 0 0 3 5", "0 0.2 2 0 6 5", "0 0.0 3 3 5 5"]
    blocks = [f"# {i}\n{i}.png\n3\n6\n7\n4\n" + "\n".join(rows) + "\n" for i in range(COUNT)]
    (EXAMPLES / "windows.txt").write_text("".join(blocks))
    raw = [datum.write(p[:, :, ::-1].transpose(2, 0, 1), i) for i, p in enumerate(pictures())]
    write_lmdb(EXAMPLES / "lmdb", raw)
    write_lmdb(EXAMPLES / "boxes_lmdb", with_boxes())
    (EXAMPLES / "clip").mkdir()
    for i, pixels in enumerate(pictures(), 1):
        Image.fromarray(pixels).save(EXAMPLES / "clip" / f"image_{i:04d}.png")
    (EXAMPLES / "clips.txt").write_text("clip 1 2\nclip 3 0\nclip 2 1\n")
    with h5py.File(EXAMPLES / "rows.h5", "w") as file:
        file["t0"] = np.arange(12, dtype=np.float32).reshape(3, 4)
    (EXAMPLES / "rows.txt").write_text("rows.h5\n")


if __name__ == "__main__":
    main()


def places(crop: np.ndarray, whole: np.ndarray) -> list[tuple[int, int, bool]]:
    """Where in a picture (..., h, w) a crop is from: (top, left, mirrored), all that fit."""
    (h, w), (oh, ow) = whole.shape[-2:], crop.shape[-2:]
    return [
        (top, left, flip)
        for top, left in np.ndindex(h - oh + 1, w - ow + 1)
        for flip in (False, True)
        if (whole[..., top : top + oh, left : left + ow][..., :: -1 if flip else 1] == crop).all()
    ]
