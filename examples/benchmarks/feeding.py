"""Does training from JPEGs keep up with training from memory?

    python examples/benchmarks/feeding.py [--rounds 5] [--pictures 10000] [--workers N] [--json FILE]

Makes pictures of 256 x 256 in a folder that is gone afterwards, and trains a small net on them, cropped to
227 x 227 and mirrored: from the files (which the system still holds in memory); from memory, the same pictures
decoded before (the first 1000 of them, which is all the memory it should take); and has as many threads as
there are workers do nothing but decode. They take turns; files and memory once more with a net that does next
to nothing, so that reading is what takes the time. Images a second: medians, with quartiles.

Two shares, round by round, of training from the files by threads: of the slower of memory and decoder; and,
since on a CPU both need the same cores, of memory and decoder one after the other. The small net takes far
longer than its pictures, which makes the first of them easy; the net that does nothing has the second alone.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from machine import describe, peak_memory, warn_if_busy
from measure import ROOT, clock, digits, interleaved, rates, ratios, write
from PIL import Image

CLASSES, SIDE, CROP, BATCH = 10, 256, 227, 64
TEXTURES, KEPT = 24, 1000
DATA = """
name: fed
layers:
  - {{name: data, type: Data, top: [data, label], source: {source}, batch_size: {batch}, {keys}
     transform: {{crop_size: {crop}, mirror: true, mean_value: 120, scale: 0.0166}}}}
"""
SMALL = """
  - {name: conv1, type: Convolution, bottom: data, num_output: 48, kernel_size: 7, stride: 2,
     weight_filler: {type: msra}}
  - {name: relu1, type: ReLU, bottom: conv1, top: conv1}
  - {name: pool1, type: Pooling, bottom: conv1, pool: MAX, kernel_size: 3, stride: 2}
  - {name: conv2, type: Convolution, bottom: pool1, num_output: 96, kernel_size: 3, stride: 1,
     weight_filler: {type: msra}}
  - {name: relu2, type: ReLU, bottom: conv2, top: conv2}
  - {name: pool2, type: Pooling, bottom: conv2, pool: MAX, kernel_size: 3, stride: 2}
  - {name: conv3, type: Convolution, bottom: pool2, num_output: 128, kernel_size: 3, stride: 2,
     weight_filler: {type: msra}}
  - {name: relu3, type: ReLU, bottom: conv3, top: conv3}
  - {name: last, type: Pooling, bottom: conv3, pool: AVE, global_pooling: true}
"""
NOTHING = """
  - {name: last, type: Pooling, bottom: data, pool: AVE, kernel_size: 32, stride: 32}
"""
END = """
  - {name: ip, type: InnerProduct, bottom: last, num_output: 10, weight_filler: {type: xavier}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, momentum: 0.9, weight_decay: 0.0005, max_iter: 1000000, random_seed: 1}
"""


def texture(rng: np.random.Generator) -> np.ndarray:
    """(2 SIDE, 2 SIDE, 3), from 0 to 1: noise of every scale, the finer the fainter, as in photographs."""
    total = np.zeros((2 * SIDE, 2 * SIDE, 3), np.float32)
    for cells in (2, 4, 8, 16, 32, 64, 128, 256, 512):
        grey = (
            rng.standard_normal((cells, cells, 1)) * 0.8
            + rng.standard_normal((cells, cells, 3)) * 0.4
        )
        for c in range(3):
            plane = Image.fromarray(grey[..., c].astype(np.float32))
            total[..., c] += (
                np.asarray(plane.resize((2 * SIDE, 2 * SIDE), Image.BICUBIC)) / cells**0.45
            )
    return (0.5 + 0.18 * total).clip(0, 1)


def make(folder: Path, count: int) -> float:
    """Write `count` JPEGs, a folder a class; gives their mean size in bytes."""
    rng = np.random.default_rng(1)
    textures = [texture(rng) for _ in range(TEXTURES)]
    draws = rng.random((count, 6))
    for k in range(CLASSES):
        (folder / f"class{k}").mkdir(parents=True)

    def one(i: int) -> int:
        which, other, top, left, share, light = draws[i]
        a, b = textures[int(which * TEXTURES)], textures[int(other * TEXTURES)]
        rows, columns = (slice(int(at * SIDE), int(at * SIDE) + SIDE) for at in (top, left))
        mask = np.clip((np.linspace(-6, 6, SIDE) + 8 * (share - 0.5)), 0, 1)[None, :, None]
        mixed = a[rows, columns] * mask + b[columns, rows] * (1 - mask)
        pixels = (255 * (mixed * (0.6 + 0.4 * light))).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        (folder / f"class{i % CLASSES}" / f"{i:05d}.jpg").write_bytes(file.getvalue())
        return len(file.getvalue())

    with ThreadPoolExecutor() as pool:
        return sum(pool.map(one, range(count))) / count


def solver(source: str, keys: str = "", body: str = SMALL) -> object:
    """A solver that trains a net on a data set."""
    from minicaffe import Solver, parse

    data = DATA.format(source=source, keys=keys, crop=CROP, batch=BATCH)
    return Solver(parse(data + body + END), device="cpu")


def decoder(folder: Path, threads: int) -> object:
    """A call that decodes a batch of pictures with Pillow, and does nothing else."""
    files = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))[:KEPT]]
    pool, chance = ThreadPoolExecutor(threads), np.random.default_rng(1)

    def one(i: int) -> None:
        with Image.open(io.BytesIO(files[i])) as opened:
            np.asarray(opened.convert("RGB"))

    def batch() -> None:
        list(pool.map(one, chance.integers(0, len(files), BATCH)))

    return batch


def keep(folder: Path, path: Path) -> None:
    """Write the first pictures, decoded, as a data set of arrays."""
    files = sorted(folder.rglob("*.jpg"), key=lambda file: file.name)[:KEPT]
    pictures = [
        np.asarray(Image.open(file).convert("RGB"))[..., ::-1].transpose(2, 0, 1) for file in files
    ]
    labels = np.array([int(file.parent.name[-1]) for file in files])
    np.savez(path, images=np.stack(pictures), labels=labels)


def memory_of(source: str, keys: str) -> dict[str, float]:
    """Peak memory of this process, MiB: after 5 and after 40 steps."""
    training = solver(source, keys)
    training.step(5)
    early = peak_memory()
    training.step(35)
    return {"after 5 steps": early, "after 40 steps": peak_memory()}


def measure(folder: Path, rounds: int, block_ms: float, threads: int) -> dict[str, object]:
    """Images a second of each contender; the shares that training from the files reaches."""
    arrays = folder.parent / "kept.npz"
    keep(folder, arrays)
    contenders = {
        "files": solver(str(folder), f"workers: {threads},"),
        "memory": solver(str(arrays)),
        "files, no net": solver(str(folder), f"workers: {threads},", NOTHING),
        "memory, no net": solver(str(arrays), body=NOTHING),
    }
    steps = {name: (lambda one=one: one.step(1)) for name, one in contenders.items()}
    steps["decoder"] = decoder(folder, threads)
    times = interleaved(steps, clock, rounds, block_ms, warm_up=6)
    each = {name: [ms / BATCH for ms in found] for name, found in times.items()}

    def share(bound: Callable[..., float], net: str = "") -> dict[str, float]:
        memory, decoded = each[f"memory{net}"], each["decoder"]
        bounds = [bound(pair) for pair in zip(memory, decoded, strict=True)]
        return ratios(bounds, each[f"files{net}"])

    return {
        "images_per_s": {name: rates(ms) for name, ms in each.items()},
        "share_of_the_slower": share(max),
        "share_of_one_after_the_other": share(sum),
        "share_of_one_after_the_other, no net": share(sum, ", no net"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-ms", type=float, default=3000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--json", type=Path, default=ROOT / "examples/benchmarks/results/feeding_cpu.json"
    )
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(memory_of(args.memory_of, f"workers: {args.workers},")))
        return
    warn_if_busy()
    report: dict[str, object] = {"machine": describe(), "pictures": args.pictures, "batch": BATCH}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "pictures")
        start = time.perf_counter()
        report["bytes_per_picture"] = digits(make(folder, args.pictures))
        print(f"made {args.pictures} pictures in {time.perf_counter() - start:.0f} s")
        report |= measure(folder, args.rounds, args.block_ms, args.workers)
        command = [
            sys.executable,
            __file__,
            "--workers",
            str(args.workers),
            "--memory-of",
            str(folder),
        ]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        report["peak_memory_mib"] = json.loads(told)
    print(json.dumps(report, indent=1))
    write(args.json, report)


if __name__ == "__main__":
    main()
