"""An evening of training, resuming, ranks and feeding: memory, files, threads and temporary files must not grow.

    python tests/tools/soak.py                      200,000 iterations, 5,000 resumes, 50,000 by two ranks
    python tests/tools/soak.py --share 0.01         a hundredth of it
    python tests/tools/soak.py --only resumes
    python tests/tools/soak.py --only cuda_iterations cuda_resumes     the first two on a GPU

A row is written after each twentieth of a part: MiB that the process holds, its open files and threads, the
files in its temporary folder, and MiB that are taken of the GPU. The result is soak.json: the first row,
after a twentieth, and the last. A part fails if anything but memory is more at its end, or memory by more than
GROWTH.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE.parent)]

from tools.parallel.mpi import environment, launched, ranks_of  # noqa: E402

GROWTH = 8.0  # MiB between a twentieth and the end
RESULT = Path("soak.json")
ROWS = 20  # of a part
MODEL = """
layers:
  - {name: digits, type: Data, top: [data, label], source: digits, batch_size: BATCH, transform: {scale: 0.00390625}}
  - {name: conv, type: Convolution, bottom: data, num_output: 8, kernel_size: 5, stride: 2, weight_filler: xavier}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, momentum: 0.9, max_iter: 1000000, display: 1000000, snapshot_prefix: FOLDER/a}
"""


def held(pid: int, folder: Path) -> dict[str, float]:
    """What a process holds, and the files in a folder but for those that are meant to be there."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return {
        "mib": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "left": sum(
            1 for path in folder.rglob("*") if path.name.startswith(".") or ".tmp" in path.name
        ),
    }


def on_gpu() -> float:
    """The MiB that are taken of a GPU, by whoever computes there."""
    from minicaffe.backends import device as backend

    device = backend.device("cuda")
    free, whole = device.xp.cuda.Device(device.number).mem_info
    return round((whole - free) / 2**20, 1)


def solver(folder: Path, device: str, batch: int = 64):
    """A solver of a small net on drawn digits."""
    from minicaffe import Solver, parse
    from minicaffe.core.solver.report import Mute

    text = MODEL.replace("FOLDER", str(folder)).replace("BATCH", str(batch))
    return Solver(parse(text), device=device, report=Mute(), deterministic=True)


def iterations(count: int, folder: Path, device: str = "cpu") -> Iterator[tuple[int, int]]:
    """LeNet's iterations, one after the other: how many are done, and by which process."""
    from minicaffe import Solver, read
    from minicaffe.core.solver.report import Mute

    found = Solver(read("lenet", "layers.mnist.source=digits"), device=device, report=Mute())
    for done in portions(count):
        found.step(done - found.iteration)
        yield done, os.getpid()


def resumes(count: int, folder: Path, device: str = "cpu") -> Iterator[tuple[int, int]]:
    """An iteration, a snapshot, and a new solver that goes on from it; in the end one that was never stopped."""
    import numpy as np

    found, more = solver(folder, device, 8), set(portions(count))
    for done in range(1, count + 1):
        found.step(1)
        path = folder / f"a_iter_{found.iteration}.npz"
        found.snapshot()
        found = solver(folder, device, 8)
        found.restore(path)
        for old in folder.glob("a_iter_*"):
            old.unlink()
        if done in more:
            yield done, os.getpid()
    whole = solver(folder, device, 8)
    whole.step(count)
    np.testing.assert_equal(found.net.weights(), whole.net.weights())


def ranks(count: int, folder: Path) -> Iterator[tuple[int, int]]:
    """Two processes that train together."""
    model = folder / "model.yaml"
    text = MODEL.replace("FOLDER", str(folder)).replace("BATCH", "8")
    model.write_text(text.replace("display: 1000000", f"display: {max(1, count // ROWS)}"))
    words = ["-m", "minicaffe", "train", str(model), "--device", "cpu", "--max-iter", str(count)]
    command = launched(2, sys.executable, *words, "--run", str(folder / "run"))
    quiet = {"stdout": subprocess.DEVNULL, "env": environment()}
    with subprocess.Popen(command, cwd=ROOT, **quiet) as running:
        log, wanted, rank = folder / "run" / "log.jsonl", iter(portions(count)), 0
        done = next(wanted)
        while running.poll() is None:
            time.sleep(0.2)
            lines = log.read_text().splitlines() if log.exists() else []
            working = ranks_of(running.pid)
            rank = rank or max(working, key=lambda pid: held(pid, folder)["mib"], default=0)
            if rank in working and any(f'"iteration": {done},' in line for line in lines):
                yield done, rank
                done = next(wanted, count + 1)
    if running.returncode:
        raise SystemExit(f"the ranks ended with exit status {running.returncode}")


def portions(count: int) -> list[int]:
    """Where rows are written: after each twentieth."""
    return sorted({max(1, count * i // ROWS) for i in range(1, ROWS + 1)})


PARTS: dict[str, tuple[Callable[[int, Path], Iterator[tuple[int, int]]], int]] = {
    "iterations": (iterations, 200_000),
    "resumes": (resumes, 5_000),
    "ranks": (ranks, 50_000),
    "cuda_iterations": (partial(iterations, device="cuda"), 200_000),
    "cuda_resumes": (partial(resumes, device="cuda"), 5_000),
}
ON_CPU = [name for name in PARTS if not name.startswith("cuda")]


def soaked(name: str, share: float) -> dict[str, object]:
    """One part: its first row and its last."""
    part, whole = PARTS[name]
    count, start = max(ROWS, int(whole * share)), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        rows = []
        with patch.dict(os.environ, TMPDIR=folder), patch.object(tempfile, "tempdir", folder):
            for done, pid in part(count, Path(folder)):
                rows.append({"done": done} | held(pid, Path(folder)))
                if name not in ON_CPU:
                    rows[-1]["gpu_mib"] = on_gpu()
                print(f"{name}: {rows[-1]}", flush=True)
    first, last = rows[0], rows[-1]
    grown = [key for key in ("files", "threads", "left") if last[key] > first[key]]
    grown += [key for key in ("mib", "gpu_mib") if last.get(key, 0) > first.get(key, 0) + GROWTH]
    minutes = round((time.perf_counter() - start) / 60, 1)
    return {"count": count, "minutes": minutes, "first": first, "last": last, "grown": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of each part; default: 1")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=ON_CPU)
    parser.add_argument("--into", type=Path, default=RESULT, help="the file of the result")
    args = parser.parse_args()
    result = json.loads(args.into.read_text()) if args.into.exists() else {}
    for name in args.only:
        result[name] = soaked(name, args.share)
        args.into.write_text(json.dumps(result, indent=1) + "\n")
    grown = {name: row["grown"] for name, row in result.items() if row["grown"]}
    if grown:
        sys.exit(f"grown: {grown}")


if __name__ == "__main__":
    main()
