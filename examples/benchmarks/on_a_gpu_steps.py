"""The phases of on_a_gpu.py that are no script of their own.

python examples/benchmarks/on_a_gpu_steps.py gate cuda /tmp/gpu
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from machine import describe, gpu
from measure import RESULTS, ROOT, drawn, in_memory, save

STEPS = 20  # of a net, that are timed together
OURS, THEIRS = "minicaffe, auto", "torch, graph"
TF32 = (f"{OURS}, TF32", "torch, TF32, channels_last, graph")
NORMS = [(32, 64, 112, 112), (32, 64, 56, 56), (32, 256, 56, 56), (32, 512, 28, 28)]
NORMS += [(32, 1024, 14, 14), (32, 2048, 7, 7)]  # of ResNet-50
PROFILED = [(name, who) for name in ("resnet50", "mobilenet", "vgg16") for who in TF32]
PROFILED += [("resnet50", OURS), ("mobilenet", OURS)]
PROFILED += [(name, who) for name in ("resnet50", "vgg16") for who in (OURS, THEIRS)]


def gate(device: str, into: Path) -> None:
    """Whether CUDA works at all, one layer after the other, so that the first that does not is seen."""
    import numpy as np

    from minicaffe.backends import device as backend
    from minicaffe.backends.cuda import cublas
    from minicaffe.backends.cuda.capture import captured
    from minicaffe.core.ops.gemm import gemm

    made = backend.device(device)
    print("device:", made)
    if not made.is_cuda:
        return
    runtime = made.xp.cuda.runtime
    print("driver, runtime:", runtime.driverGetVersion(), runtime.runtimeGetVersion())
    print("an array's sum, 10:", float(made.xp.arange(5, dtype=np.float32).sum()))
    found = cublas.library() is not None
    print("cuBLAS by ctypes:", "found" if found else "not found: its products stay out of graphs")
    with made.current():
        a, out = made.xp.ones((64, 64), np.float32), made.xp.zeros((64, 64), np.float32)
        gemm(a, a, out)
        again = captured(made, lambda: gemm(a, a, out), [cublas.work])
        out.fill(0)
        again()
        product = float(out[0, 0])
    print("a product in a graph, 64:", product)
    if product != 64:
        sys.exit(1)


def compile_all(device: str, into: Path) -> None:
    """Every kernel, by processes side by side, into CuPy's cache."""
    asked = instances()
    began = time.monotonic()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for refusal in pool.map(compile_one, asked, [device] * len(asked), chunksize=4):
            if refusal:
                print(refusal)
    print(f"{len(asked)} modules in {time.monotonic() - began:.1f} s")


def instances() -> list[tuple[str, str]]:
    """All kernels that a net can ask for: their file and template arguments, as kernels.py wrote them down."""
    kept = json.loads((RESULTS / "kernels_cuda.json").read_text())["kernels"]
    lines = [line.partition(" ") for line in next(iter(kept.values()))]
    return sorted({(file, kernel.partition("<")[2].removesuffix(">")) for file, _, kernel in lines})


def compile_one(instance: tuple[str, str], device: str) -> str:
    """What NVRTC says against the kernels of a file for some template arguments; nothing, if it takes them."""
    from minicaffe.backends import device as backend
    from minicaffe.backends.cuda.launch import kernels

    if not (made := backend.device(device)).is_cuda:
        return ""
    try:
        with made.current():
            kernels(*instance, made.number)
    except Exception as error:  # whatever NVRTC says
        return f"{instance[0]}<{instance[1]}>: {' '.join(str(error).split())[:300]}"
    return ""


def replay(device: str, into: Path) -> None:
    """LeNet as a CUDA graph beside it as it is: losses and weights to the bit, and the ms of an iteration."""
    wrong = 0
    for dtype, engine in (("float32", "implicit"), ("float32", "batched"), ("float16", "implicit")):
        settings = {"dtype": dtype, "engine": engine, "deterministic": True}
        graph, plain = (lenet(device, graph=graph, **settings) for graph in (True, False))
        for one in (graph, plain):
            one.step(5 * STEPS)
        mine, theirs = graph.net.weights(), plain.net.weights()
        apart = [name for name in mine if mine[name].tobytes() != theirs[name].tobytes()]
        same = graph.loss() == plain.loss() and not apart
        wrong += not same
        ms = [ms_of(one, 10 * STEPS) for one in (graph, plain)]
        state = (
            "the same bits" if same else f"OTHER bits: loss {graph.loss()} {plain.loss()}, {apart}"
        )
        print(f"{dtype}, {engine}: {state}; {ms[0]:.4f} ms as a graph, {ms[1]:.4f} as it is")
    sys.exit(wrong > 0)


def lenet(device: str, batch: int = 64, **settings):
    """LeNet with a batch of digits in memory."""
    from minicaffe import Solver, parse

    rule = {"base_lr": 0.01, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005}
    model = parse(in_memory(ROOT / "models" / "lenet.yaml", batch, **rule))
    solver = Solver(model, device=device, **settings)
    images, labels = drawn(batch)
    solver.net.forward(data=images, label=labels)
    return solver


def ms_of(solver, steps: int) -> float:
    """The ms of an iteration."""
    solver.device.synchronize()
    start = time.perf_counter()
    solver.step(steps)
    solver.device.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def train(device: str, into: Path) -> None:
    """`minicaffe train models/lenet.yaml` from start to end, without compiled kernels and with."""
    command = [sys.executable, "-m", "minicaffe", "train"]
    command += [str(ROOT / "models" / "lenet.yaml"), "--device", device]
    with tempfile.TemporaryDirectory() as folder:
        own = {"CUPY_CACHE_DIR": str(Path(folder, "cupy")), "MINICAFFE_DATA": str(ROOT / "data")}
        environment = os.environ | own  # digits that are drawn where MNIST is missing take longer
        for what in ("nothing compiled", "kernels compiled"):
            start = time.monotonic()
            run = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True
            )
            seconds = time.monotonic() - start
            lines = (run.stdout + run.stderr).splitlines()
            print(
                f"{what}: exit code {run.returncode}, {seconds:.1f} s",
                *lines[-5:],
                sep="\n  ",
                flush=True,
            )
            if run.returncode:
                sys.exit(1)


def kernels(device: str, into: Path) -> None:
    """The kernels of a replayed step of LeNet in their order, by CUPTI through PyTorch's profiler."""
    solver = lenet(device, deterministic=True)
    solver.step(30)
    solver.device.synchronize()
    events = launched(lambda: solver.step(1), STEPS, into)
    last = events[-(len(events) // STEPS) :]
    for one in last:
        print(f"{one['dur']:8.2f} us  {one.get('args', {}).get('grid')}  {one['name'][:80]}")
    print(f"{len(last)} kernels, {sum(one['dur'] for one in last):.1f} us")


def norms(device: str, into: Path) -> None:
    """BatchNorm and Scale, there and back, with their channels in shared memory and without."""
    from minicaffe.backends import device as backend
    from minicaffe.backends.cuda import moments

    made, holding, report = backend.device(device), moments.HOLDING, {}
    machine = describe() | gpu(device)
    for shape in NORMS:
        for way, (run, moved) in norm_of(made, shape).items():
            us = {}
            for how, there in (("in shared memory", holding), ("as before", ())):
                moments.HOLDING = there
                us[how] = round(us_of(made, run), 1)
            moments.HOLDING = holding
            name = f"{' x '.join(map(str, shape))}, {way}"
            report[name] = us
            rates = (f"{how} {one} us, {moved / one / 1e3:.0f} GB/s" for how, one in us.items())
            print(f"{name}: {'; '.join(rates)}", flush=True)
            save(into / "norms_cuda.json", {"machine": machine, "us": report})


def norm_of(device, shape: tuple[int, ...]) -> dict[str, tuple[Callable[[], object], int]]:
    """A BatchNorm and its Scale: each way as a call, with the bytes that it has to read and write."""
    import numpy as np

    from minicaffe.core.ops import normalize
    from minicaffe.core.ops.rows import Affine, Norm, Statistics, by_channel, workspace

    def random(*size: int):
        return device.asarray(rng.standard_normal(size, np.float32))

    rng, rows, f = np.random.default_rng(1), by_channel(shape), shape[1]
    x, dy, y, dx = (random(*shape) for _ in range(4))
    norm, affine, learnt = (
        Norm("variance", 1e-5),
        Affine(rows, random(f), random(f)),
        (random(f), random(f)),
    )
    statistics = Statistics.empty(device.xp, rows, np.float32)
    work = device.xp.empty(workspace(device.xp, x.size, rows, f), np.float32)
    return {
        "there": (
            lambda: normalize.normalise(x, rows, statistics, affine, y, norm, work),
            2 * x.nbytes,
        ),
        "back": (
            lambda: normalize.gradients(x, dy, rows, norm, statistics, affine, learnt, dx, work),
            3 * x.nbytes,
        ),
    }


def us_of(device, run: Callable[[], object], graphs: int = 5) -> float:
    """The microseconds of a call, STEPS of which are a graph."""
    from minicaffe.backends.cuda.capture import captured

    with device.current():
        run()
        again = captured(device, lambda: [run() for _ in range(STEPS)])
        again()
        device.synchronize()
        start = time.perf_counter()
        for _ in range(graphs):
            again()
        device.synchronize()
    return (time.perf_counter() - start) / (graphs * STEPS) * 1e6


def launched(call: Callable[[], object], times: int, into: Path) -> list[dict]:
    """What CUPTI saw so many calls launch on the device: kernels and copies, by time."""
    import torch

    torch.zeros(1, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(times):
            call()
        torch.cuda.synchronize()
    trace = into / "trace.json"
    profile.export_chrome_trace(str(trace))
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    events = [
        one for one in json.loads(trace.read_text())["traceEvents"] if one.get("cat") in kinds
    ]
    return sorted(events, key=lambda one: one["ts"])


def profile(device: str, into: Path) -> None:
    """Where the time of a training step goes, kernel by kernel: ours and PyTorch's beside each other."""
    import nets
    from contenders import CONTENDERS, WARM_UP

    steps, report = 3, {}
    machine = describe() | gpu(device)
    for name, who in PROFILED:
        plug, batch = CONTENDERS["cuda"][who], nets.batch_of(name, "train", "cuda")
        with tempfile.TemporaryDirectory() as folder:
            nets.write(Path(folder), name, "train", batch, for_others=False)
            one = plug.make(Path(folder), "train", device, 1, **plug.settings)
            for _ in range(WARM_UP):
                one.call()
            one.finish()
            events = launched(one.call, steps, into)
        del one  # for memory's sake
        gc.collect()
        us: Counter[str] = Counter()
        for event in events:
            us[event["name"]] += event["dur"] / steps
        report[f"{name}, {who}"] = {key: round(took, 1) for key, took in us.most_common()}
        save(into / "profile_cuda.json", {"machine": machine, "us of a step": report})
        print(f"{name}, {who}: {len(events) / steps:.0f} kernels, {us.total():.0f} us")
        for kernel, took in us.most_common(6):
            print(f"  {took:8.1f} us  {kernel[:100]}", flush=True)


if __name__ == "__main__":
    PHASES = {one.__name__: one for one in (gate, replay, train, kernels, norms, profile)}
    PHASES["compile"] = compile_all
    PHASES[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
