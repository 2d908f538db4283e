"""Data sets of every kind with mistakes in their files: entries, or one line of a MinicaffeError (see test_fuzz_files)."""

import gzip
import io
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from test_fuzz_files import EXAMPLES, FIXTURES, counted, tried

KINDS = ["idx", "npz", "npy", "pictures", "list", "hdf5", "lmdb", "cifar10", "tar.gz"]
PICTURES = ["png", "jpeg", "bmp", "gif", "tiff", "webp", "ppm"]
MIB = {"pictures": 700}  # that reading may take, if more than 64: a picture may have 2**26 pixels
TRAIN = [f"data_batch_{i}.bin" for i in range(1, 6)]


def files(kind: str) -> dict[str, bytes]:
    """The files of a small data set of a kind, by their paths; each is spoilt in its turn."""
    from minicaffe.tools.data import fetch, idx

    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (4, 3, 5, 7), np.uint8), np.arange(4, dtype=np.uint8)
    if kind == "idx":
        both = idx.header(pixels.shape) + pixels.tobytes(), idx.header((4,)) + labels.tobytes()
        packed = [gzip.compress(content) for content in both]
        names = [fetch.FILES[0], fetch.FILES[1], *(f"{name}.gz" for name in fetch.FILES[2:])]
        return dict(zip(names, (*both, *packed), strict=True))
    if kind == "npz":
        stored, packed = (
            saved(np.savez, x=pixels, y=labels),
            saved(np.savez_compressed, x=pixels, y=labels),
        )
        return {"a.npz": stored, "b.npz": packed}
    if kind == "npy":
        return {"x.npy": saved(np.save, pixels), "y.npy": saved(np.save, labels)}
    if kind == "pictures":
        from PIL import Image

        image = Image.fromarray(pixels[0].transpose(1, 2, 0))
        return {f"a/0.{name}": saved(image.save, format=name) for name in PICTURES}
    if kind == "list":
        return {"a.txt": "".join(f"{EXAMPLES}/{i}.png {i}\n" for i in range(5)).encode()}
    if kind == "hdf5":
        return {name: (FIXTURES / name).read_bytes() for name in ("f0.h5", "f1.h5")}
    if kind == "lmdb":
        return {"data.mdb": (EXAMPLES / "lmdb" / "data.mdb").read_bytes()}
    records = np.concatenate([labels[:, None], rng.integers(0, 256, (4, 3072), np.uint8)], axis=1)
    batches = {name: records.tobytes() for name in (*TRAIN, "test_batch.bin")}
    if kind == "cifar10":
        return {**batches, "batches.meta.txt": b"a b c d e f g h i j"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in batches.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return {"x.tar.gz": packed.getvalue()}


def saved(save, *given, **named) -> bytes:
    """What a function writes into a file."""
    file = io.BytesIO()
    save(file, *given, **named)
    return file.getvalue()


def use(kind: str, folder: Path, name: str, data: bytes) -> None:
    """Read a data set of a kind, all of it, with these bytes in one of its files."""
    from minicaffe.tools.data import fetch, readers

    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(data)
    try:
        if kind == "tar.gz":
            sizes = dict.fromkeys((*TRAIN, "test_batch.bin"), 4 * 3073)
            row = fetch.Archive((), name, 10**6, "", "", "cifar-10-batches-bin", sizes)
            fetch.unpack(path, row, folder)
            return
        alone = kind in ("npz", "list", "hdf5")
        for split in ("train", "test"):
            found = readers.open(str(path if alone else folder), split)
            for i in range(len(found)):
                pixels, label = found[i]
                assert pixels.ndim == 3 and isinstance(label, int) and found.place(i)
    finally:
        path.write_bytes(whole)


def work(kinds: str, folder: Path, first: int, count: int) -> None:
    """Read so many data sets of these kinds, each with one file spoilt."""
    every = []
    for kind in kinds.split(","):
        for name, content in files(kind).items():
            (folder / kind / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / kind / name).write_bytes(content)
            every.append((kind, folder / kind, name, content))
    whole = [content for *_, content in every]
    tried(kinds, whole, lambda which, data: use(*every[which][:3], data), folder, first, count)


def libraries(kinds: list[str]) -> None:
    if {"pictures", "list"} & set(kinds):
        pytest.importorskip("PIL")
    if "hdf5" in kinds:
        pytest.importorskip("h5py")


def test_spoilt_data_sets_are_read_or_refused_in_one_line(tmp_path):
    libraries(KINDS)
    assert counted(__file__, ",".join(KINDS), tmp_path, 108)["grown_mib"] < 64


@pytest.mark.parametrize("kind", KINDS)
def test_many_spoilt_data_sets(request, kind, tmp_path):
    if not request.config.getoption("--long"):
        pytest.skip("some 1400 files of each kind: --long")
    libraries([kind])
    assert counted(__file__, kind, tmp_path, 1400)["grown_mib"] < MIB.get(kind, 64)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
