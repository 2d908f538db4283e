"""The nets of models/ in every contender of contenders.py: inference of one sample, training steps of eight.

    python examples/benchmarks/zoo.py                       some 20 minutes on 2 CPU cores
    python examples/benchmarks/zoo.py --only lenet vgg16    these nets anew, the others as they were measured
    python examples/benchmarks/zoo.py --step                LeNet's training step, batch by batch
    python examples/benchmarks/zoo.py --before ../before --with minicaffe    beside another checkout alone
    python examples/benchmarks/zoo.py --quick --into /tmp --only lenet --with minicaffe onnxruntime
    python examples/benchmarks/zoo.py --device cuda --minutes 10

On the CPU each contender is a process of its own, with as many threads; they take turns, and a ratio is of
two turns of a round. PyTorch has the same net with the same weights (torch_nets.py), OpenCV 4 reads it as
prototxt and .caffemodel, onnxruntime and OpenVINO as ONNX. Outputs, losses and gradients are compared first.
On CUDA one process computes a net in all contenders, one after the other, each dropped before the next.
Results go to results/zoo_DEVICE.json or lenet_step_DEVICE.json after every row; readme.py shows them.
"""

import argparse
import contextlib
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nets
import numpy as np
from contenders import ALONE, BEFORE, CONTENDERS, TURN, in_mode, timed
from machine import commit, describe, free_process, gpu, new_plans, version, warn_if_busy
from measure import (
    NETS,
    REST,
    digits,
    fastest,
    in_time,
    kept,
    parsed,
    parser,
    rates,
    ratios,
    save,
    spread,
)
from turns import FORMS, Process, answers, asked, child, one_line, say

BATCHES = (1, 8, 32, 64, 128, 256)  # of LeNet's step
STEP_ON_CUDA = {  # who takes it there, and the names in its result file
    "minicaffe, auto": "minicaffe",
    "torch": "torch eager",
    "torch, channels_last": "torch channels_last",
    "torch, graph": "torch graph",
    "torch, TF32, graph": "torch graph, TF32",
}
OUTPUTS = {"opencv": 1e-3}  # of the largest number; OpenCV's convolutions round more
CLOSE = 3e-4  # that of all others, whose convolutions may round a twelfth of what ours do
LOSSES = 1e-3  # of the losses of the first steps, through fifty BatchNorms
EXACT = {"mnist_siamese": 1e-3}  # its loss divides by a distance + 1e-4, as Caffe's does
BUDGET = {"infer": 6.0, "train": 15.0}  # seconds of a net's turns; three rounds may take longer
ROUNDS = 9  # at the most
ON_CUDA = {"rounds": 5, "seconds": 0.1}


def main() -> None:
    if settings := asked():
        CHILDREN[settings.pop("what")](settings)
        return
    args = arguments()
    free_process()
    for who in args.whos:
        package = CONTENDERS[args.kind][who].package
        if version(package) is None:
            sys.exit(f"{package} is not installed here: name the other contenders by --with")
    warn_if_busy()
    args.head = head_of(args)  # before the machine is busy with us
    with new_plans():
        failed = (lenet_step if args.step else all_nets)(args)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def arguments() -> argparse.Namespace:
    words = parser(__doc__)
    words.add_argument("--only", nargs="+", choices=[*NETS], default=[*NETS], metavar="NET")
    words.add_argument("--ways", nargs="+", choices=("infer", "train"), default=("infer", "train"))
    words.add_argument(
        "--with", dest="whos", nargs="+", metavar="WHO", help="contenders; default: all"
    )
    words.add_argument("--form", choices=("numba", "numpy"), help="of minicaffe; default: numba")
    words.add_argument("--before", type=Path, help="the folder of another checkout of minicaffe")
    words.add_argument("--step", action="store_true", help="LeNet's training step, batch by batch")
    words.add_argument("--batches", nargs="+", type=int, default=BATCHES, help="of --step")
    args = parsed(words)
    known = [*(STEP_ON_CUDA if args.step and args.kind == "cuda" else CONTENDERS[args.kind])]
    args.whos = args.whos or known
    if unknown := set(args.whos) - set(known):
        words.error(f"unknown contender {min(unknown)!r}; there are {'; '.join(known)}")
    if known[0] not in args.whos and (args.kind == "cpu" or args.step):
        words.error(f"all are compared with {known[0]!r}: name it, too")
    return args


def head_of(args: argparse.Namespace) -> dict[str, object]:
    """What a measurement was made on."""
    packages = {one.package for one in CONTENDERS["cpu"].values()} - {"minicaffe", "cv2"}
    machine = describe() | {name: version(name) for name in ("numba", *packages)}
    machine |= {"opencv": version("cv2"), "blas_threads": "1 a thread"}  # in every process
    if args.kind != "cpu":
        machine |= gpu(args.device)
    head = {"device": args.kind, "threads": args.threads, "quick": args.quick, "machine": machine}
    head |= {"commit": commit()}
    return head | ({BEFORE: commit(args.before)} if args.before else {})


def all_nets(args: argparse.Namespace) -> list[str]:
    """Every net, both ways; returns those that failed."""
    path, failed = args.into / f"zoo_{args.kind}.json", []
    found = kept(path) or {"nets": {}}
    groups = [args.whos]
    if args.kind == "cuda":  # training of all nets first, what PyTorch has to compile last
        groups = [
            [who for who in args.whos if ("compile" in who) == last] for last in (False, True)
        ]
    rows = [(name, way, whos) for whos in groups if whos for way, name in order(args)]
    for name, way, whos in in_time(rows, args.until):
        net = found["nets"].setdefault(name, {})
        net |= args.head | {"form": args.form or "numba"}
        if args.kind == "cuda" and whos is groups[0]:
            net.pop(way, None)  # of an older commit
        try:
            if args.kind == "cpu":
                batch = nets.batch_of(name, way)
                facts, net[way] = by_turns(args, name, way, batch, args.form or "numba", whos)
                net |= facts
                net["batch"] = net.get("batch", {}) | {way: batch}
            else:
                for row in on_cuda(args, name, way, whos, net):
                    save(path, found | args.head)
                    print(f"{name}, {way}: {row}", flush=True)
                    if time.monotonic() > args.until:
                        break
        except (subprocess.CalledProcessError, SystemExit) as error:
            failed.append(f"{name}, {way}")
            print(f"{name}, {way}: FAILED: {error}", flush=True)
        else:
            print(f"{name}, {way}: {told(net[way])}", flush=True)
        found["nets"] = {one: found["nets"][one] for one in NETS if one in found["nets"]}
        save(path, found | args.head)
    print(f"-> {path}")
    return failed


def order(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Ways and nets: on the CPU net by net, on CUDA training first."""
    if args.kind == "cpu":
        return [(way, name) for name in args.only for way in args.ways]
    return [(way, name) for way in sorted(args.ways, reverse=True) for name in args.only]


def lenet_step(args: argparse.Namespace) -> list[str]:
    """LeNet's training step, in each form and batch."""
    path, failed = args.into / f"lenet_step_{args.kind}.json", []
    found = kept(path) | args.head
    forms = ["cuda"] if args.kind == "cuda" else [args.form] if args.form else ["numba", "numpy"]
    found |= {"lenet": {form: {} for form in forms}, "memory": {}}
    for form, batch in in_time([(form, n) for form in forms for n in args.batches], args.until):
        try:
            if args.kind == "cuda":
                row = step_on_cuda(args, batch)
            else:
                whos = [who for who in args.whos if "train" in CONTENDERS["cpu"][who].ways]
                _, row = by_turns(args, "lenet", "train", batch, form, whos)
        except (subprocess.CalledProcessError, SystemExit) as error:
            failed.append(f"{form}, batch {batch}")
            print(f"{failed[-1]}: FAILED: {error}", flush=True)
            continue
        print(f"{FORMS[form]}, batch {batch}: {told(row)}", flush=True)
        for who, peak in row.pop("memory", {}).items():
            whose = "torch" if who.startswith("torch") else form
            if who == "minicaffe" or (form == forms[0] and who == fastest(row["ms"])):
                found["memory"].setdefault(whose, {})[str(batch)] = peak
        found["lenet"][form][str(batch)] = row
        save(path, found)
    print(f"-> {path}")
    return failed


def told(row: Mapping[str, Any]) -> str:
    """A row in a line."""
    ms = ", ".join(f"{who} {one['median']:.4g} ms" for who, one in row["ms"].items())
    if BEFORE not in row.get("ratios", ()):
        return ms
    ratio = row["ratios"][BEFORE]
    return f"{ratio['median']:.3f}x ({ratio['low']:.3f} to {ratio['high']:.3f}) of the speed before; {ms}"


# on the CPU: contenders by turns


def by_turns(
    args: argparse.Namespace, name: str, way: str, batch: int, form: str, whos: list[str]
) -> tuple[dict[str, object], dict[str, Any]]:
    """What a net is; the ms of its contenders in turn, ratios to ours, memory, how far they are apart."""
    whos = [who for who in whos if way in CONTENDERS["cpu"][who].ways]
    whos += [BEFORE] if args.before else []
    first: dict[str, dict] = {}
    processes: dict[str, Process] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        common = {"folder": folder, "name": name, "way": way, "batch": batch}
        check = way == "train" and any(who.startswith("torch") for who in whos)
        facts = child("zoo.py", common | {"what": "files", "check": check})
        apart = {key: facts.pop(key) for key in ("loss", "gradients") if key in facts}
        for who in whos:
            threads = 1 if who == ALONE else args.threads
            settings = {**common, "who": who, "form": form, "threads": threads}
            root = args.before.resolve() if who == BEFORE else None
            processes[who] = stack.enter_context(Process("contenders.py", settings, root))
            first[who] = processes[who].answer()  # before the next one begins
        refused = {who: one["refused"] for who, one in first.items() if "refused" in one}
        first = {who: one for who, one in first.items() if who not in refused}
        apart |= compared(name, way, Path(folder), first)
        whole = sum(max(one["seconds"], TURN) for one in first.values())
        rounds = int(min(ROUNDS, max(3, BUDGET[way] / whole / 2)))
        times: dict[str, list[float]] = {who: [] for who in first}
        for turn in range(1 if args.quick else rounds):
            start = turn % len(first)
            for who in [*first][start:] + [*first][:start]:
                time.sleep(REST)  # until idle threads of the one before have gone to sleep
                times[who].append(processes[who].ask()["ms"])
    row = {"apart": apart, "refused": refused} | of_times(times)
    row["memory"] = {who: one["memory"] for who, one in first.items() if who not in (ALONE, BEFORE)}
    return facts, row | {"engines": first["minicaffe"]["engines"]}


def of_times(times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Spreads of ms and of calls a second, and ratios to ours, round by round."""
    others = {who: taken for who, taken in times.items() if who != "minicaffe"}
    return {
        "ms": {who: spread(taken) for who, taken in times.items()},
        "rates": {who: rates(taken) for who, taken in times.items()},
        "ratios": {who: ratios(taken, times["minicaffe"]) for who, taken in others.items()},
    }


def compared(name: str, way: str, folder: Path, first: Mapping[str, dict]) -> dict[str, float]:
    """How far outputs, or the losses of the first steps, are from ours. Raises SystemExit if too far."""
    ours = first["minicaffe"]
    if way == "train":
        if "Dropout" in (folder / "net.yaml").read_text():  # each drops other numbers
            return {}
        pairs = [
            pair
            for one in first.values()
            for pair in zip(one["losses"], ours["losses"], strict=True)
        ]
        apart = {"losses": max(relative(a, b) for a, b in pairs)}
        if apart["losses"] > LOSSES:
            raise SystemExit(f"{name}: other losses than minicaffe's: {dict(first)}")
        return apart
    results = {who: list(np.load(folder / f"{who}.npz").values()) for who in first}
    wanted, apart = results["minicaffe"], {}
    for who, arrays in results.items():
        apart[who] = max(distance(a, b) for a, b in zip(arrays, wanted, strict=True))
        if apart[who] > OUTPUTS.get(who, CLOSE):
            raise SystemExit(f"{name}: {who} is {apart[who]:.1e} away from minicaffe")
    return apart


def write_files(settings: dict) -> None:
    """A process that writes a net's files, and holds PyTorch's gradients against ours in float64."""
    name, way, batch = settings["name"], settings["way"], settings["batch"]
    facts = nets.write(Path(settings["folder"]), name, way, batch)
    if settings["check"]:
        facts |= gradients(name, min(batch, 2))
        if max(facts["loss"], facts["gradients"]) > EXACT.get(name, 1e-6):
            sys.exit(f"{name}: PyTorch trains another net than minicaffe: {facts}")
    say(facts)


def gradients(name: str, batch: int) -> dict[str, float]:
    """How far PyTorch's loss, and all gradients as one vector, are from ours in float64."""
    from torch_nets import Module

    from minicaffe import Net

    spec = nets.without_dropout(nets.spec_of(name, "train", batch))
    net = Net(spec, "TRAIN", device="cpu", dtype="float64", deterministic=True)
    nets.begin(net)
    arrays = {key: array.astype(np.float64) for key, array in nets.inputs_of(net).items()}
    module = Module(net)
    net.forward(**arrays)
    net.backward()
    loss = module(*in_mode(module, arrays, "eager")[1])
    loss.backward()
    pairs = [(owner.diff.ravel(), theirs.ravel()) for owner, theirs in module.gradients()]
    one, other = (np.concatenate(flat) for flat in zip(*pairs, strict=True))
    far = float(np.linalg.norm(one - other) / np.linalg.norm(one))
    return {"loss": relative(loss.item(), net.loss), "gradients": digits(far)}


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, over the largest number."""
    most = float(np.abs(b).max(initial=0)) or 1.0
    return digits(float(np.abs(np.asarray(a).reshape(b.shape) - b).max(initial=0)) / most)


def relative(a: float, b: float) -> float:
    """A difference, over the second of two numbers."""
    return digits(abs(a - b) / max(abs(b), 1e-6))


# on CUDA: contenders one after the other


def on_cuda(args: argparse.Namespace, name: str, way: str, whos: list[str], net: dict) -> Any:
    """Measure a net in some contenders; each goes into the net's row, and its line is yielded."""
    batch = nets.batch_of(name, way, "cuda")
    row = net.setdefault(way, {"batch": batch, "ms": {}, "found": {}, "failed": {}})
    for who, one in of_cuda(args, name, way, batch, whos):
        for key in ("ms", "found", "failed"):
            if key in one:
                row[key][who] = spread(one[key]) if key == "ms" else one[key]
        yield f"{batch}: {who}: {one.get('failed') or row['ms'][who]['median']}"


def step_on_cuda(args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """LeNet's step in ours and in PyTorch."""
    found = dict(of_cuda(args, "lenet", "train", batch, args.whos))
    times = {STEP_ON_CUDA[who]: one["ms"] for who, one in found.items() if "ms" in one}
    if "minicaffe" not in times:
        raise SystemExit(str(found))
    return of_times(times) | {"engines": found["minicaffe, auto"]["engines"]}


def of_cuda(args: argparse.Namespace, name: str, way: str, batch: int, whos: list[str]) -> Any:
    """Each contender and what it found, as a process says it."""
    settings = {"what": "cuda", "name": name, "way": way, "batch": batch, "whos": whos}
    settings |= {"device": args.device, "threads": args.threads, **ON_CUDA}
    settings |= {"rounds": 1, "seconds": 0.001} if args.quick else {}
    for answer in answers("zoo.py", settings):
        yield from answer.items()


def one_after_the_other(settings: dict) -> None:
    """A process of a net on CUDA: one contender fails or loses the context without the rows before it."""
    from check_gpu_layers import is_lost

    from minicaffe.backends import device as backend

    device = backend.device(settings["device"])
    name, way, batch = settings["name"], settings["way"], settings["batch"]
    with tempfile.TemporaryDirectory() as folder:
        nets.write(Path(folder), name, way, batch, for_others=False)
        common = Path(folder), way, settings["device"], settings["threads"]
        for who in settings["whos"]:
            plug = CONTENDERS["cuda"][who]
            try:
                one = plug.make(*common, **plug.settings)
                answer = timed(one, settings["rounds"], settings["seconds"])
            except Exception as error:  # of PyTorch, CuPy or ours: the others are measured
                answer = {"failed": one_line(error)}
            one = None  # for memory's sake
            gc.collect()
            say({who: answer})
            if "failed" in answer and is_lost(device):
                sys.exit("the CUDA context is lost")


CHILDREN = {"files": write_files, "cuda": one_after_the_other}

if __name__ == "__main__":
    main()
