"""Binary files with mistakes of every kind: arrays, or one line of a MinicaffeError; no hang, little memory.

Each kind is read in a process of its own, whose memory is limited: what the libraries of C do with a damaged
file is seen there, a crash included.
"""

import functools
import io
import json
import random
import resource
import subprocess
import sys
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

FIXTURES = Path(__file__).parent / "fixtures"
EXAMPLES = FIXTURES / "examples"
MEMORY = 3 << 30  # bytes of address space, of which Python, NumPy and BLAS reserve the most
KINDS = ["caffemodel", "solverstate", "binaryproto", "lmdb", "h5", "caffemodel.h5"]
KINDS += ["solverstate.h5", "npz", "entry.npz", "safetensors"]
NET = """
name: small
layers:
  - {name: x, type: Input, top: [x, label], shape: [{dim: [2, 3]}, {dim: [2]}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 4}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, momentum: 0.9, max_iter: 9, display: 0, snapshot_prefix: FOLDER/a}
"""
INTERESTING = [0, 1, 2, 4, 7, 8, 127, 128, 255, 2**16 - 1]
INTERESTING += [2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one to four things wrong in them."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(7):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + rng.choice((1, 2, 8, 100))]
            case 2:
                found[at:at] = rng.randbytes(rng.choice((1, 4, 9)))
            case 3:
                width = rng.choice((1, 2, 4, 8))
                number = rng.choice(INTERESTING) & (2 ** (8 * width) - 1)
                found[at : at + width] = number.to_bytes(width, "little")
            case 4:
                del found[at:]
            case 5:
                other = rng.randrange(len(found) + 1)
                found[at : at + 16] = found[other : other + 16]
            case _:
                if at < len(found):
                    found[at] ^= 1 << rng.randrange(8)
    return bytes(found)


def spoilt(kind: str, data: bytes, rng: random.Random) -> bytes:
    """A file with mistakes; of entry.npz in one of its arrays, whose checksum is right."""
    if kind != "entry.npz":
        return mutated(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice([*entries, *["@model.npy"] * 3])
    start = 0 if rng.random() < 0.5 else entries[name].index(b"\n") + 1  # its head, or its numbers
    entries[name] = entries[name][:start] + mutated(entries[name][start:], rng)
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name, inside in entries.items():
            archive.writestr(name, inside)
    return found.getvalue()


@functools.cache
def solver(folder: Path):
    """A solver that has taken a snapshot."""
    from minicaffe import Solver, parse
    from minicaffe.core.solver.report import Mute

    found = Solver(parse(NET.replace("FOLDER", str(folder))), device="cpu", report=Mute())
    found.step(2)
    found.snapshot()
    return found


def seeds(kind: str, folder: Path) -> list[bytes]:
    """Whole files of a kind."""
    from minicaffe.interop.caffe import state, weights

    if kind.endswith("npz"):
        solver(folder)
        return [(folder / "a_iter_2.npz").read_bytes()]
    if kind == "safetensors":
        solver(folder).net.save(folder / "a.safetensors")
        return [(folder / "a.safetensors").read_bytes()]
    if kind == "lmdb":
        return [(EXAMPLES / "lmdb" / "data.mdb").read_bytes()]
    if kind == "binaryproto":
        return [(FIXTURES / "infogain_H.binaryproto").read_bytes()]
    if kind == "h5":
        return [(FIXTURES / name).read_bytes() for name in ("f0.h5", "f1.h5")]
    with np.load(FIXTURES / "Solver_Adam_basic.npz") as case:
        model, given = (case[f"{what}_iter5"].tobytes() for what in ("caffemodel", "solverstate"))
    if kind == "caffemodel":
        return [model]
    if kind == "solverstate":
        return [given]
    (folder / "a.caffemodel").write_bytes(model)
    (folder / "a.solverstate").write_bytes(given)
    if kind == "caffemodel.h5":
        found = weights.read(folder / "a.caffemodel")
        layers = [weights.Layer(n, "", dict(enumerate(blobs))) for n, blobs in found.items()]
        weights.write(folder / "a.h5", layers)
    else:
        state.write(folder / "a.h5", state.read(folder / "a.solverstate"))
    return [(folder / "a.h5").read_bytes()]


def restore(folder: Path, file: Path) -> None:
    """Go on from a snapshot; where it is refused nothing may have changed."""
    from minicaffe.errors import MinicaffeError

    found = solver(folder)
    before = found.iteration, found.net.weights(), [a.copy() for a in found.rule.history]
    try:
        found.restore(file)
    except MinicaffeError:
        np.testing.assert_equal((found.iteration, found.net.weights(), found.rule.history), before)
        raise


def use(kind: str, folder: Path, data: bytes) -> None:
    """Read a file of a kind, all of it."""
    from minicaffe import Net, parse, read
    from minicaffe.interop.caffe import state, weights
    from minicaffe.storage import wire

    if kind == "lmdb":
        (folder / "db").mkdir(exist_ok=True)
        (folder / "db" / "data.mdb").write_bytes(data)
        # no workers: the file is written to at once
        keys = f"source: {folder}/db, backend: LMDB, batch_size: 5, workers: 0"
        Net(parse(f"layers: [{{name: d, type: Data, {keys}}}]"), device="cpu").forward()
        return
    file = folder / f"x.{kind}"
    file.write_bytes(data)
    if kind == "binaryproto":
        wire.read_blob(file)
    elif kind == "h5":
        (folder / "list.txt").write_text(str(file))
        keys = f"top: [data, label], source: {folder}/list.txt, batch_size: 9"
        Net(parse(f"layers: [{{name: d, type: HDF5Data, {keys}}}]"), device="cpu").forward()
    elif kind.endswith("npz"):
        restore(folder, file)
        Net(read(file), shapes_only=True, device="cpu")
    elif kind == "safetensors":
        Net(parse(NET), device="cpu").load(file)
        Net(read(file), shapes_only=True, device="cpu")
    elif kind.startswith("solverstate"):
        state.read(file)
    else:
        weights.read(file)


def work(kind: str, folder: Path, first: int, count: int) -> None:
    """Read so many mutations of the files of a kind."""
    whole = seeds(kind, folder)
    tried(kind, whole, lambda which, data: use(kind, folder, data), folder, first, count)


Use = Callable[[int, bytes], None]


def tried(kind: str, whole: list[bytes], use: Use, folder: Path, first: int, count: int) -> None:
    """Use so many mutations of the files; what became of each is counted, and told when all is done."""
    from minicaffe.errors import MinicaffeError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: Counter = Counter()
    for which, data in enumerate(whole):
        use(which, data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(first, first + count):
        (folder / "at").write_text(str(i))
        which = i % len(whole)
        data = spoilt(kind, whole[which], random.Random(f"{kind} {i}"))
        try:
            use(which, data)
            counts["read"] += 1
        except MinicaffeError as error:
            counts["refused"] += 1
            if not str(error).isprintable():
                counts[f"{i}: not one line: {str(error)[:200]!r}"] += 1
        except Exception:
            counts[f"{i}: {traceback.format_exc()[-600:]}"] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"counts": counts, "grown_mib": grown / 1024}))


def test_the_mutations_are_of_every_kind():
    data = bytes(range(200))
    made = {mutated(data, random.Random(i)) for i in range(200)}
    assert len(made) > 150 and {len(one) < 200 for one in made} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_spoilt_file_is_read_or_refused_in_one_line(request, kind, tmp_path):
    if kind.endswith("h5"):
        pytest.importorskip("h5py")
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    told = counted(__file__, kind, tmp_path, 1500 if request.config.getoption("--long") else 60)
    assert told["grown_mib"] < 64


def counted(script: str, kind: str, tmp_path: Path, count: int) -> dict:
    """What became of so many mutations in a process of their own, each of them read or refused in one line."""
    words = [sys.executable, script, kind, str(tmp_path), "0", str(count)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=1200)
    at = (tmp_path / "at").read_text() if (tmp_path / "at").exists() else "none"
    assert ran.returncode == 0, f"mutation {at}: exit {ran.returncode}: {ran.stderr[-1000:]}"
    told = json.loads(ran.stdout)
    wrong = {name for name in told["counts"] if name not in ("read", "refused")}
    assert not wrong, "\n".join(sorted(wrong))
    assert told["counts"]["refused"] > count // 10
    assert ran.stderr == ""
    return told


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
