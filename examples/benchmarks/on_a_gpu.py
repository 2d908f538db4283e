"""All that is worth knowing of a machine with a GPU, in the order of its value, each phase in its time.

    python examples/benchmarks/on_a_gpu.py --minutes 15 --into /tmp/gpu
    python examples/benchmarks/on_a_gpu.py --only gate check tests

Each phase is a process of its own: one that fails, hangs or loses the CUDA context ends no other; but where
the gate finds that CUDA does not work, nothing else is run. A phase's output goes to DIR/PHASE.log while it
runs; what became of all of them, with their last lines, to DIR/on_a_gpu.json after each. The results of other
scripts lie there too, row by row: `readme.py --from DIR` keeps them, and puts them into the pages. Where
there is nvidia-smi, the clock, power and temperature of each GPU go to DIR/gpu.csv, each second. Phases that
compare need PyTorch, the sanitizers NVIDIA's. The card's settings are left as they are.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machine import OF_GPU, describe, free_environment, nvidia_smi
from measure import NETS, ROOT, write

HERE = Path(__file__).resolve().parent
REST = 5  # seconds that are kept to write what was found
LEAST = 10  # seconds, of which no phase is worth beginning with less
SHOWN = 240  # characters of a line
CLOCK = "%Y/%m/%d %H:%M:%S"  # as nvidia-smi writes a time
# Tests of what is likeliest to differ between CUDA and the stand-in; and some that a sanitizer has time for
TELLING = [
    "test_cublas",
    "test_depthwise",
    "test_fusion",
    "test_implicit_gemm",
    "test_launch",
    "test_lrn",
    "test_normalize",
    "test_softmax",
    "test_sums",
    "test_gemm",
    "test_pool",
    "test_resident",
    "test_plan",
    "test_graph",
    "test_finite",
    "test_guards",
    "test_check_gpu",
    "test_cuda_path",
    "test_backend",
    "test_mixed_precision",
    "test_precision",
]
TOLD = ("resnet50", "vgg16", "mobilenet", "alexnet", "googlenet")  # nets that are measured first
# The contenders that tell most: ours, and those of which one is PyTorch's fastest
WHOS = ["minicaffe, auto, TF32", "torch, TF32, channels_last, graph", "torch, TF32, graph"]
WHOS += ["minicaffe, auto", "torch, graph", "torch, channels_last, graph"]
WHOS += ["minicaffe, auto, highest"]  # without three products for one
SANE = "test_resident or test_depthwise or test_implicit_gemm or test_softmax or test_normalize"
SANE += " or test_sums"


@dataclass(frozen=True)
class Phase:
    """A command, the seconds that it may take at the most, and how many of its last lines are shown."""

    name: str
    seconds: int
    lines: int
    command: list[str]


def phases(device: str, into: Path) -> Iterator[Phase]:
    """All phases, the most telling first."""
    python, jobs = sys.executable, str(max(1, (os.cpu_count() or 1) * 3 // 4))

    def step(name: str, seconds: int, lines: int) -> Phase:
        return Phase(
            name, seconds, lines, [python, str(HERE / "on_a_gpu_steps.py"), name, device, str(into)]
        )

    def script(path: str, *words: str) -> list[str]:
        return [python, str(ROOT / "examples" / path), "--device", device, *words]

    def boxed(name: str, seconds: int, lines: int, path: str, *words: str) -> Phase:
        # It ends by itself where all of its time is given; else it is cut off, and what it wrote remains
        minutes = f"{0.9 * seconds / 60:.1f}"
        return Phase(name, seconds, lines, script(path, *words, "--minutes", minutes))

    def tests(*words: str) -> list[str]:
        # All are collected: given single files, pytest 9.1 forgot fixtures of their folders
        options = "--full -m gpu --require-gpu --continue-on-collection-errors -q -n"
        # pytest-benchmark, where it is installed, warns that it does nothing, and warnings are errors
        options = f"-p no:cacheprovider -p no:benchmark {options}"
        return [python, "-m", "pytest", *options.split(), jobs, *words]

    yield step("gate", 75, 16)
    yield step("compile", 120, 6)
    doctor = [python, "-m", "minicaffe", "doctor"]
    yield Phase("doctor", 30, 24, doctor)
    parts = ("replays", "rates", "layers", "convolutions", "--minutes", "2")
    yield Phase("check", 125, 40, script("benchmarks/check_gpu.py", *parts))
    yield step("replay", 60, 12)
    yield Phase("tests", 150, 16, tests("-k", " or ".join(TELLING)))
    results = ("--into", str(into))
    lenet = ("--step", "--batches", "64", "256", "1")
    yield boxed("lenet", 150, 6, "benchmarks/zoo.py", *results, *lenet)
    nets = (*results, "--only")
    yield boxed(
        "nets", 240, 30, "benchmarks/zoo.py", *nets, *TOLD, "--ways", "train", "--with", *WHOS
    )
    yield step("norms", 60, 12)
    yield step("train", 60, 12)
    yield step("kernels", 60, 60)
    yield step("profile", 150, 90)
    yield boxed("paper", 240, 14, "paper_tables/run.py", "--out", str(into / "cuda.json"))
    yield Phase("parts", 150, 16, script("benchmarks/mnist_parts.py", *results))
    yield Phase("mnist", 90, 6, script("benchmarks/lenet_mnist.py", *results))
    yield boxed("ladder", 600, 40, "benchmarks/ladder.py", *results)
    yield boxed("zoo", 600, 40, "benchmarks/zoo.py", *nets, *(n for n in NETS if n not in TOLD))
    for tool in ("memcheck", "racecheck"):
        sanitizer = ["compute-sanitizer", "--target-processes", "all", "--tool", tool]
        yield Phase(tool, 120, 16, [*sanitizer, *tests("-k", SANE)])
    yield Phase("all_tests", 600, 16, tests())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N; default: cuda")
    parser.add_argument("--minutes", type=float, default=15, help="for all of it; default: 15")
    parser.add_argument("--into", type=Path, help="the folder of all it leaves; default: a new one")
    parser.add_argument("--only", nargs="+", metavar="PHASE", help="phases by name")
    args = parser.parse_args()
    into = (args.into or Path(tempfile.mkdtemp(prefix="minicaffe-gpu-"))).resolve()
    into.mkdir(parents=True, exist_ok=True)
    course = list(phases(args.device, into))
    known = [phase.name for phase in course]
    for name in args.only or ():
        if name not in known:
            parser.error(f"unknown phase {name!r}; there are {', '.join(known)}")
    wanted = [phase for phase in course if phase.name in (args.only or known)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends what was started, as Ctrl-C
    with sampled(into):
        fine = run(wanted, into, time.monotonic() + 60 * args.minutes)
    sys.exit(0 if fine else 1)


@contextlib.contextmanager
def sampled(into: Path) -> Iterator[None]:
    """Meanwhile nvidia-smi, where there is one, writes down each second what each GPU is like."""
    command = nvidia_smi("timestamp", "index", *OF_GPU)
    if not command:
        yield
        return
    with open(into / "gpu.csv", "wb") as file:
        process = subprocess.Popen(
            [*command, "-lms", "1000"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def run(wanted: list[Phase], into: Path, until: float) -> bool:
    """Run phases one after the other, as long as there is time; whether all that ran did well."""
    report: dict = {"machine": describe(), "phases": {}}
    fine = True
    for phase in wanted:
        seconds = min(phase.seconds, until - time.monotonic() - REST)
        if seconds < min(LEAST, phase.seconds):
            outcome = {"state": "left out: no time remains"}
        elif shutil.which(phase.command[0]) is None:
            outcome = {"state": f"left out: {phase.command[0]} is not installed"}
        else:
            outcome = attempt(phase, into / f"{phase.name}.log", seconds)
            fine = fine and outcome["state"] == "ok"
        report["phases"][phase.name] = outcome
        write(into / "on_a_gpu.json", report)
        print(
            f"[{phase.name}] {outcome['state']}",
            *outcome.get("lines", ()),
            sep="\n    ",
            flush=True,
        )
        if phase.name == "gate" and outcome["state"] != "ok":
            print("CUDA does not work here: nothing else is run")
            return False
    print(f"-> {into}")
    return fine


def attempt(phase: Phase, log: Path, seconds: float) -> dict:
    """What became of a phase, in so many seconds."""
    began, clock = time.monotonic(), time.strftime(CLOCK)
    with open(log, "wb") as file:
        process = subprocess.Popen(
            phase.command,
            cwd=ROOT,
            env=environment(log.parent),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            state = "ok" if code == 0 else f"failed: exit code {code}"
        except subprocess.TimeoutExpired:
            state = f"cut off after {seconds:.0f} s"
        finally:  # and what it started, and left
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = log.read_text(errors="replace").splitlines()[-phase.lines :]
    took = round(time.monotonic() - began, 1)
    shown = [line[:SHOWN] for line in lines]
    return {"state": state, "began": clock, "seconds": took, "lines": shown}


def environment(into: Path) -> dict[str, str]:
    """That of a phase: no network, nothing compiled for the CPU, caches of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MINICAFFE_OFFLINE": "1",
    }
    usual = {"MINICAFFE_NUMBA": "0", "MINICAFFE_CACHE": str(into / "cache")}
    return usual | free_environment() | own


if __name__ == "__main__":
    main()
