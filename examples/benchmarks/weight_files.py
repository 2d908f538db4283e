"""Reading a .caffemodel: minicaffe's own reader of the wire format, and the package protobuf.

    python examples/benchmarks/weight_files.py [--lenet FOLDER] [--mib 200] [--rounds 5]

Both give {"conv1": [array, ...]} of float32. protobuf's classes are made at run time from a description of
the few fields that count; no code is generated. Each reading is a process of its own: the time of the reading
alone, and by how much it raised the process's peak memory. FOLDER holds lenet_iter_10000.caffemodel of the
real Caffe; without it that row is left out. Writes results/weight_files_cpu.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe, free_process, peak_memory, version

RESULTS = Path(__file__).parent / "results" / "weight_files_cpu.json"
FIELDS = {  # message: field: (number, kind, label)
    "Net": {"layer": (100, "Layer", "repeated")},
    "Layer": {"name": (1, "string", "optional"), "blobs": (7, "Blob", "repeated")},
    "Blob": {"data": (5, "packed float", "repeated"), "shape": (7, "Shape", "optional")},
    "Shape": {"dim": (1, "packed int64", "repeated")},
}


def described():
    """protobuf's class of a net, from FIELDS."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="net.proto", package="c", syntax="proto2")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, label) in fields.items():
            one = message.field.add(name=field, number=number)
            one.label = getattr(one, f"LABEL_{label.upper()}")
            packed, _, scalar = kind.rpartition(" ")
            one.options.packed = bool(packed)
            if scalar in FIELDS:
                one.type, one.type_name = one.TYPE_MESSAGE, f".c.{scalar}"
            else:
                one.type = getattr(one, f"TYPE_{scalar.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("c.Net"))


def by_protobuf(path: str) -> dict[str, list[np.ndarray]]:
    """The arrays of a file, by the package protobuf."""
    net = described()()
    net.ParseFromString(Path(path).read_bytes())
    return {
        layer.name: [
            np.array(blob.data, np.float32).reshape(tuple(blob.shape.dim)) for blob in layer.blobs
        ]
        for layer in net.layer
        if layer.blobs
    }


def by_own(path: str) -> dict[str, list[np.ndarray]]:
    """The arrays of a file, by minicaffe."""
    from minicaffe.interop.caffe import weights

    return weights.read(path)


WAYS = {"own": by_own, "protobuf": by_protobuf}


def one(way: str, path: str) -> dict[str, float]:
    """Seconds, peak MiB above what the process took before, and a sum of all numbers."""
    from minicaffe.interop.caffe import weights  # imported before the clock starts

    weights.is_caffes(path)
    if way == "protobuf":
        described()
    before, start = peak_memory(), time.perf_counter()
    arrays = WAYS[way](path)
    seconds = time.perf_counter() - start
    total = sum(float(a.sum(dtype=np.float64)) for blobs in arrays.values() for a in blobs)
    return {"ms": 1e3 * seconds, "peak_mib": peak_memory() - before, "sum": total}


def synthetic(path: Path, mib: int) -> None:
    """A file of so many MiB: VGG's proportions, one large matrix and many small ones."""
    from minicaffe.interop.caffe import weights

    random = np.random.default_rng(1)
    sizes = [0.55, 0.12, *[0.33 / 14] * 14]
    layers = [
        weights.Layer(
            f"layer{i}", "InnerProduct", {0: random.random((int(s * mib * 256), 1024), "f4")}
        )
        for i, s in enumerate(sizes)
    ]
    weights.write(path, layers, "synthetic")


def main() -> None:
    """Measure in turn, write the result file, print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lenet", type=Path)
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(*args.one)))
        return
    report: dict = {"machine": describe() | {"protobuf": version("google.protobuf")}, "files": {}}
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder, "synthetic.caffemodel")
        synthetic(large, args.mib)
        files = [args.lenet / "lenet_iter_10000.caffemodel"] if args.lenet else []
        for file in (*files, large):
            found: dict[str, list] = {way: [] for way in WAYS}
            for _ in range(args.rounds):
                for way in WAYS:
                    words = [sys.executable, __file__, "--one", way, str(file)]
                    told = subprocess.run(words, capture_output=True, text=True, check=True)
                    found[way].append(json.loads(told.stdout))
            sums = {run["sum"] for runs in found.values() for run in runs}
            if len(sums) != 1:
                raise SystemExit(f"{file}: the two read different numbers: {sums}")
            report["files"][file.name] = {"mib": file.stat().st_size / 2**20} | {
                way: {
                    key: float(np.median([run[key] for run in runs])) for key in ("ms", "peak_mib")
                }
                for way, runs in found.items()
            }
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    free_process()
    main()
