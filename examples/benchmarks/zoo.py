"""The nets of models/ beside PyTorch, OpenCV 4, onnxruntime, OpenVINO: inference of one, training of eight.

    python examples/benchmarks/zoo.py --warm                once: torch.compile keeps what it compiled
    python examples/benchmarks/zoo.py                       some 20 minutes on 2 CPU cores
    python examples/benchmarks/zoo.py --before ../before    beside another checkout of minicaffe as well
    python examples/benchmarks/zoo.py --only lenet vgg16    these nets anew, the others as they were measured
    python examples/benchmarks/zoo.py --quick --into /tmp --only lenet
    python examples/benchmarks/zoo.py --device cuda --minutes 10

Needs PyTorch, `opencv-python-headless<5`, onnx, onnxruntime and openvino installed together. PyTorch has the
same net with the same weights (zoo_torch.py) in three ways: eager, channels_last, torch.compile; what a table
shows is the fastest. OpenCV reads the net as prototxt and .caffemodel, the others as ONNX. Outputs, losses
and gradients are compared before anything is timed; each contender is a process of its own, with as many
threads, and they take turns; memory is of processes that do nothing else. Results go to results/zoo_cpu.json
after every net; zoo_tables.py makes the Markdown.

On CUDA it is beside PyTorch alone, where that is installed: eager, channels_last, as a graph and compiled, all
of them with TF32 and without; ours by rule and measured, also in float16. Training of all nets comes first,
what PyTorch has to compile last; results go to results/zoo_cuda.json after every contender (zoo_cuda.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from machine import describe, free_environment, free_process, gpu, new_plans, version, warn_if_busy
from measure import fastest, parsed, save, write
from peers import answers, in_time
from zoo_names import NETS, cuda_batch_of
from zoo_runtimes import RUNTIMES

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "torch": "torch",
    "opencv": "cv2",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
}
BUDGET = {
    "infer": 6.0,
    "train": 15.0,
}  # seconds of timing a net, which may take longer for its 3 rounds
FULL, QUICK = {"rounds": 5, "block_ms": 100.0}, {"rounds": 1, "block_ms": 1.0}  # on CUDA


def main() -> None:
    args = arguments()
    free_process()
    on_cuda = args.device != "cpu"
    for package in () if on_cuda else PACKAGES.values():
        if version(package) is None:
            sys.exit(f"{package} is not installed here: there is a peer missing to measure against")
    if not args.warm:
        warn_if_busy()
    with new_plans():
        failed = cuda(args) if on_cuda else cpu(args)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def cpu(args: argparse.Namespace) -> list[str]:
    """Every net in all contenders; gives those that failed."""
    failed = []
    for name in in_time(args.only, args.until):
        start = time.perf_counter()
        try:
            text = compiled(name, args) if args.warm else kept(name, args)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            text = f"FAILED: {' '.join(error.cmd)}"
        print(f"{name}: {text}; {time.perf_counter() - start:.0f} s", flush=True)
    return failed


def cuda(args: argparse.Namespace) -> list[str]:
    """Every net on CUDA, each way a process; gives those that failed. A lost context ends one of them."""
    path = args.into / "zoo_cuda.json"
    found = json.loads(path.read_text()) if path.exists() else {"nets": {}}
    head, nets, failed = report(args), found["nets"], []
    stages = [("train", False), ("infer", False), ("train", True), ("infer", True)]
    rows = [(name, *stage) for stage in stages for name in args.only]
    for name, way, compiled in in_time(rows, args.until):
        batch = cuda_batch_of(name, way)
        nets[name] = nets.get(name, {}) | head
        if not compiled:
            nets[name][way] = {"batch": batch, "ms": {}, "found": {}, "failed": {}}
        settings = {"name": name, "way": way, "batch": batch, "compiled": compiled}
        settings |= {"device": args.device, **(QUICK if args.quick else FULL)}
        try:
            for answer in answers("zoo_cuda.py", settings):
                for who, one in answer.items():
                    for key, value in one.items():
                        nets[name][way][key][who] = value
                    ms = f"{one['ms']['median']:.3g} ms" if "ms" in one else one["failed"]
                    print(f"{name}, {way}, {batch}: {who}: {ms}", flush=True)
                ordered = {one: nets[one] for one in NETS if one in nets}
                save(path, {"device": "cuda"} | head | {"nets": ordered})
                if time.monotonic() > args.until:
                    break
        except subprocess.CalledProcessError:
            failed.append(f"{name}, {way}")
    print(f"-> {path}")
    return failed


def kept(name: str, args: argparse.Namespace) -> str:
    """Measure a net and put it into the result file, which holds what it held of others."""
    path = args.into / "zoo_cpu.json"
    found = json.loads(path.read_text()) if path.exists() else {"nets": {}}
    head = report(args)  # before the machine is busy with us
    nets = found["nets"] | {name: head | measure(name, args)}
    found |= {"device": "cpu"} | head | {"nets": {one: nets[one] for one in NETS if one in nets}}
    write(path, found)
    return told(found["nets"][name])


def compiled(name: str, args: argparse.Namespace) -> str:
    """Have torch.compile compile a net."""
    child("zoo_step.py", common(name, args) | {"what": "warm"})
    return "compiled"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(NETS), default=list(NETS), metavar="NET")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    parser.add_argument(
        "--minutes", type=float, default=60, help="after which nothing is begun; default: 60"
    )
    parser.add_argument("--form", choices=("numba", "numpy"), default="numba")
    parser.add_argument(
        "--warm", action="store_true", help="have torch.compile compile, measure nothing"
    )
    parser.add_argument("--before", type=Path, help="the folder of another checkout of minicaffe")
    args = parsed(parser)
    args.until = time.monotonic() + 60 * args.minutes
    return args


def report(args: argparse.Namespace) -> dict[str, object]:
    """What a measurement was made on."""
    machine = describe() | {name: version(package) for name, package in PACKAGES.items()}
    machine |= {name: version(name) for name in ("numba", "threadpoolctl")}
    machine["blas_threads"] = "1 a thread"  # in every child
    if args.device != "cpu":
        machine |= gpu(args.device)
        return {"quick": args.quick, "machine": machine}
    return {"threads": args.threads, "form": args.form, "quick": args.quick, "machine": machine}


def common(name: str, args: argparse.Namespace) -> dict[str, object]:
    """What every process is told."""
    return {"form": args.form, "threads": args.threads, "name": name}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """All that is measured of a net."""
    told = common(name, args)
    budget = {way: 0.0 if args.quick else seconds for way, seconds in BUDGET.items()}
    with tempfile.TemporaryDirectory() as folder:
        files = {"folder": folder}
        found = child("zoo_step.py", told | files | {"what": "export"})
        if args.before is not None:
            home = f"{os.environ['MINICAFFE_CACHE']}/before"
            before = {"root": str(args.before.resolve()), "home": home, "form": args.form}
            timing = told | {"before": before}
        else:
            timing = told
        infer = child("zoo_step.py", timing | files | {"what": "infer", "budget": budget["infer"]})
        train = child("zoo_step.py", timing | {"what": "train", "budget": budget["train"]})
        passes = 2 if args.quick or train["ms"]["minicaffe"]["median"] > 2000 else 9
        found["layers"] = child("zoo_step.py", told | files | {"what": "layers", "passes": passes})
        found |= {"infer": infer, "train": train}
        alone = []  # processes whose memory is measured: at once, for time does not matter there
        for way in ("infer", "train"):
            found[way]["memory"] = {}
            for who in ("minicaffe", fastest(found[way]["ms"])):
                given = told | {"what": "memory", "way": way, "who": who}
                alone.append((found[way], who, "zoo_step.py", given))
        for who in [who for who in RUNTIMES if who in infer["ms"]]:
            given = {"who": who, "threads": args.threads, **files}
            alone.append((infer, who, "zoo_runtimes.py", given))
        with ThreadPoolExecutor(args.threads) as pool:
            peaks = [pool.submit(child, script, given) for *_, script, given in alone]
        for (row, who, *_), peak in zip(alone, peaks, strict=True):
            row["memory"][who] = peak.result()
    return found


def told(net: dict[str, Any]) -> str:
    """A net in a line."""
    parts = []
    for way in ("infer", "train"):
        ms = net[way]["ms"]
        parts += [f"{way} " + ", ".join(f"{who} {one['median']:.3g} ms" for who, one in ms.items())]
    return "; ".join(parts)


def child(script: str, settings: dict[str, object]) -> Any:
    """The answer of a process of its own."""
    command = [sys.executable, str(HERE / script), json.dumps(settings)]
    # One BLAS thread, as the command line says it: read when NumPy is loaded, before any setting.
    environment = free_environment() | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
