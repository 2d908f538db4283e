"""Does training from JPEGs keep up with training from memory?

    python examples/benchmarks/feeding.py [--rounds 7] [--pictures 10000] [--workers N] [--json FILE]

Makes pictures of 256 x 256 in a folder that is gone afterwards, and trains a small net on them, cropped to
227 x 227 and mirrored: from the files; from memory, the same pictures decoded before (the first 1000 of them,
which is all the memory it should take); and has as many threads as there are workers do nothing but decode.
They take turns; training from the files once more with processes instead of threads. A tiny net, which
takes hardly longer for a picture than the decoder does, is trained in both ways too: there training and
decoding share the cores in earnest. Images a second: medians, with quartiles. The share is what training
from the files by threads reaches of the slower of memory and decoder, round by round; of the tiny net also
the share of what both give where each takes its time from the same cores, 1 / (1 / memory + 1 / decoder).
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from machine import describe, peak_memory, warn_if_busy
from measure import ROOT, clock, digits, interleaved, rates, ratios, write
from PIL import Image

CLASSES, SIDE, CROP, BATCH = 10, 256, 227, 64
TEXTURES, KEPT = 24, 1000
MODEL = """
name: small
layers:
  - {{name: data, type: Data, top: [data, label], source: {source}, batch_size: {batch}, {keys}
     transform: {{crop_size: {crop}, mirror: true, mean_value: 120, scale: 0.0166}}}}
{layers}
  - {{name: ip, type: InnerProduct, num_output: 10, weight_filler: {{type: xavier}}}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver: {{base_lr: 0.01, momentum: 0.9, weight_decay: 0.0005, max_iter: 1000000, random_seed: 1}}
"""
SMALL = """
  - {name: conv1, type: Convolution, bottom: data, num_output: 48, kernel_size: 7, stride: 2,
     weight_filler: {type: msra}}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 3, stride: 2}
  - {name: conv2, type: Convolution, num_output: 96, kernel_size: 3, weight_filler: {type: msra}}
  - {name: relu2, type: ReLU, top: conv2}
  - {name: pool2, type: Pooling, pool: MAX, kernel_size: 3, stride: 2}
  - {name: conv3, type: Convolution, num_output: 128, kernel_size: 3, stride: 2, weight_filler: {type: msra}}
  - {name: relu3, type: ReLU, top: conv3}
  - {name: pool3, type: Pooling, pool: AVE, global_pooling: true}
"""
TINY = """
  - {name: conv1, type: Convolution, bottom: data, num_output: 8, kernel_size: 7, stride: 4,
     weight_filler: {type: msra}}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 3, stride: 2}
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


def solver(source: str, keys: str = "", layers: str = SMALL) -> object:
    """A solver that trains a net of these layers on a data set."""
    from minicaffe import Solver, parse

    given = {"source": source, "keys": keys, "layers": layers, "crop": CROP, "batch": BATCH}
    model = MODEL.format(**given)
    return Solver(parse(model), device="cpu")


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
    """Images a second of each contender; the shares that training from files reaches of what bounds it."""
    arrays, workers = folder.parent / "kept.npz", f"workers: {threads},"
    keep(folder, arrays)
    contenders = {
        "files": solver(str(folder), workers),
        "files, processes": solver(str(folder), f"{workers} feed: processes,"),
        "memory": solver(str(arrays)),
        "tiny net, files": solver(str(folder), workers, TINY),
        "tiny net, memory": solver(str(arrays), "", TINY),
    }
    steps = {name: (lambda one=one: one.step(1)) for name, one in contenders.items()}
    steps["decoder"] = decoder(folder, threads)
    times = interleaved(steps, clock, rounds, block_ms, warm_up=6)
    each = {name: [ms / BATCH for ms in found] for name, found in times.items()}
    tiny = list(zip(each["tiny net, memory"], each["decoder"], strict=True))
    small = zip(each["memory"], each["decoder"], strict=True)
    return {
        "images_per_s": {name: rates(ms) for name, ms in each.items()},
        "share_of_the_slower": ratios([max(pair) for pair in small], each["files"]),
        "tiny_share_of_the_slower": ratios([max(pair) for pair in tiny], each["tiny net, files"]),
        "tiny_share_of_both": ratios([sum(pair) for pair in tiny], each["tiny net, files"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block-ms", type=float, default=4000)
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
