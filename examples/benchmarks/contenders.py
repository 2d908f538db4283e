"""Who computes a net: minicaffe, of any checkout, PyTorch in its modes, OpenCV 4, onnxruntime, OpenVINO.

Each is a plug-in of CONTENDERS: a function that reads the files that nets.py writes. That of minicaffe asks
for public names alone, since it runs in older checkouts as well. Run by zoo.py, this is a process of one.
"""

import importlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from machine import peak_memory
from measure import digits
from turns import asked, one_line, say

ALONE, BEFORE = "minicaffe, one thread", "before"  # the other: of another checkout
STEPS = 3  # whose losses are compared
TURN = 0.2  # seconds
WARM_UP = 6  # steps on CUDA, of which two are traced and two replays compared


class RefusedError(Exception):
    """Why a runtime cannot compute a net."""


class Contender(NamedTuple):
    """What computes a forward pass or a training step; its outputs or its loss; what waits for the device."""

    call: Callable[[], object]
    results: Callable[[], list[np.ndarray]]
    finish: Callable[[], object] = int
    engines: Callable[[], list[str]] = list  # by which minicaffe computes the convolutions


class Plug(NamedTuple):
    """A contender: what makes it, the package that it needs, what else it is told, and what it computes."""

    make: Callable[..., Contender]
    package: str
    settings: Mapping[str, Any] = MappingProxyType({})
    ways: tuple[str, ...] = ("infer", "train")


def inputs_of(files: Path) -> dict[str, np.ndarray]:
    """What a net is given, by name."""
    return dict(np.load(files / "inputs.npz"))


def minicaffe(files: Path, way: str, device: str, threads: int, **settings: object) -> Contender:
    """A net of ours. On CUDA its inputs stay on the device."""
    import minicaffe

    model, weights, inputs = str(files / "net.yaml"), files / "weights.npz", inputs_of(files)
    if way == "train":
        solver = minicaffe.Solver(model, device=device, **settings)
        solver.net.load(str(weights))
        solver.net.forward(**inputs)
        loss = lambda: [np.float64(solver.loss())]  # noqa: E731
        step = partial(solver.step, 1)
        return Contender(step, loss, solver.device.synchronize, lambda: engines_of(solver.net))
    net = minicaffe.Net(model, "TEST", device=device, keep=(), **settings)
    net.load(str(weights))
    outputs = net.forward(**inputs)  # always the same arrays
    call = net.forward if net.device.is_cuda else partial(net.forward, **inputs)
    results = lambda: [net.device.to_host(y) for y in outputs.values()]  # noqa: E731
    return Contender(call, results, net.device.synchronize, lambda: engines_of(net))


def engines_of(net: Any) -> list[str]:
    """The engines that compute a net's convolutions."""
    plans = [layer.plan for layer in net.layers.values() if type(layer).__name__ == "Convolution"]
    return sorted({name for plan in plans for name in plan.names.values()})


def torchs(
    files: Path,
    way: str,
    device: str,
    threads: int,
    mode: str = "eager",
    tf32: bool = False,
    graph: bool = False,
) -> Contender:
    """The same in PyTorch, from the same weights, with its fused SGD; as one CUDA graph, if asked for."""
    import torch
    from nets import RATE, RULE
    from torch_nets import Module

    from minicaffe import Net

    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    phase = "TRAIN" if way == "train" else "TEST"
    net = Net(str(files / "net.yaml"), phase, device="cpu", shapes_only=True)
    plain = Module(net, np.load(files / "weights.npz")).to(device)
    module, inputs = in_mode(plain, inputs_of(files), mode, device)
    outputs: list = []  # without what autograd keeps, which belongs to a stream
    if way == "train":
        groups = plain.groups(RATE, RULE["weight_decay"])
        sgd = torch.optim.SGD(groups, lr=RATE, momentum=RULE["momentum"], fused=True)

    def infer() -> None:
        with torch.inference_mode():
            outputs[:] = module(*inputs)

    def train() -> None:
        sgd.zero_grad()
        loss = module(*inputs)
        loss.backward()
        sgd.step()
        outputs[:] = [loss.detach()]

    step = train if way == "train" else infer
    replay = recorded(step, outputs.clear) if graph else step
    held = step, plain, inputs  # what a graph reads
    finish = torch.cuda.synchronize if device.startswith("cuda") else int
    results = lambda: [y.float().cpu().numpy() for y in outputs]  # noqa: E731
    return Contender(lambda: held and replay(), results, finish)


def in_mode(module: Any, arrays: dict[str, np.ndarray], mode: str, device: str = "cpu") -> Any:
    """A module and what it takes in a mode of PyTorch."""
    import torch

    inputs = [torch.from_numpy(arrays[name]).to(device) for name in module.inputs]
    if mode == "channels_last":
        last = torch.channels_last
        inputs = [x.to(memory_format=last) if x.ndim == 4 else x for x in inputs]
        return module.to(memory_format=last), inputs
    return (torch.compile(module) if mode == "compile" else module), inputs


def recorded(
    step: Callable[[], object], between: Callable[[], object] = lambda: None
) -> Callable[[], None]:
    """A step of PyTorch as a CUDA graph; `between` its first runs and the capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    side.synchronize()
    between()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def opencv(files: Path, way: str, device: str, threads: int) -> Contender:
    """A forward pass in OpenCV 4, whose importer reads what minicaffe writes. Raises RefusedError."""
    import cv2

    cv2.setNumThreads(threads)
    inputs, outputs = inputs_of(files), json.loads((files / "outputs.json").read_text())
    results: dict[str, np.ndarray] = {}

    def call() -> None:
        for name, array in inputs.items():
            net.setInput(array, name)
        results.update(zip(last, net.forward(last), strict=True))

    try:
        net = cv2.dnn.readNetFromCaffe(str(files / "net.prototxt"), str(files / "net.caffemodel"))
        last = list(net.getUnconnectedOutLayersNames())
        call()
    except (cv2.error, AttributeError, ValueError) as error:
        raise RefusedError(one_line(error)) from None
    return Contender(call, lambda: [results[name] for name in outputs])


def onnxruntime(files: Path, way: str, device: str, threads: int) -> Contender:
    """A forward pass in onnxruntime, of what `minicaffe export` writes. Raises RefusedError."""
    import onnxruntime

    options, inputs = onnxruntime.SessionOptions(), inputs_of(files)
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(exported(files), options, providers=providers)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    feed = {one.name: inputs[one.name].astype(kinds[one.type]) for one in session.get_inputs()}
    results: list = []

    def call() -> None:
        results[:] = session.run(None, feed)

    return Contender(call, lambda: results)


def openvino(files: Path, way: str, device: str, threads: int) -> Contender:
    """A forward pass in OpenVINO, of the same file, in float32. Raises RefusedError."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    settings |= {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    inputs, results = inputs_of(files), []

    def call() -> None:
        results[:] = [value.copy() for value in request.infer(feed).to_tuple()]

    try:
        model = openvino.Core().compile_model(exported(files), "CPU", settings)
        request = model.create_infer_request()
        wanted = {one.any_name: one.element_type.to_dtype() for one in model.inputs}
        feed = {name: inputs[name].astype(kind) for name, kind in wanted.items()}
        call()
    except RuntimeError as error:
        raise RefusedError(one_line(error)) from None
    return Contender(call, lambda: results)


def exported(files: Path) -> str:
    """The file of ONNX. Raises RefusedError where there is none."""
    if not (files / "net.onnx").exists():
        raise RefusedError("minicaffe export refuses it")
    return str(files / "net.onnx")


MODES = ("eager", "channels_last", "compile")
PRECISIONS = {
    "": {},  # high
    ", TF32": {"precision": "tf32"},
    ", float16": {"dtype": "float16"},
    ", highest": {"precision": "highest"},
}
RULES = {"by rule": {"deterministic": True}, "auto": {}}


def on_cuda() -> dict[str, Plug]:
    """Ours by rule and measured, in four precisions; PyTorch's modes, what it has to compile last."""
    plugs = {}
    for (rule, how), (precision, what) in itertools.product(RULES.items(), PRECISIONS.items()):
        plugs[f"minicaffe, {rule}{precision}"] = Plug(minicaffe, "minicaffe", how | what)
    for modes in (MODES[:2], MODES[2:]):
        for tf32, mode, graph in itertools.product((False, True), modes, (True, False)):
            words = ["torch", *["TF32"] * tf32, *[mode] * (mode != "eager"), *["graph"] * graph]
            settings = {"tf32": tf32, "mode": mode, "graph": graph}
            plugs[", ".join(words)] = Plug(torchs, "torch", settings)
    return plugs


CONTENDERS: dict[str, dict[str, Plug]] = {
    "cpu": {
        "minicaffe": Plug(minicaffe, "minicaffe"),
        ALONE: Plug(minicaffe, "minicaffe", ways=("infer",)),  # started with one thread
        **{f"torch {mode}": Plug(torchs, "torch", {"mode": mode}) for mode in MODES},
        "opencv": Plug(opencv, "cv2", ways=("infer",)),
        "onnxruntime": Plug(onnxruntime, "onnxruntime", ways=("infer",)),
        "openvino": Plug(openvino, "openvino", ways=("infer",)),
    },
    "cuda": on_cuda(),
}


def take_turns(settings: dict) -> None:
    """A process of a contender: says first what it finds, then of each turn how long a call took."""
    who, files, way = settings["who"], Path(settings["folder"]), settings["way"]
    plug = CONTENDERS["cpu"]["minicaffe" if who == BEFORE else who]
    getattr(importlib.import_module(plug.package), "Solver", None)  # with all that it imports
    imports = peak_memory()
    try:
        one = plug.make(files, way, "cpu", settings["threads"], **plug.settings)
        losses = []
        for _ in range(STEPS):
            taken = seconds_of(one, 1)
            losses += [float(one.results()[0])] if way == "train" else []
    except RefusedError as error:
        say({"refused": str(error)})
        return
    if way == "infer":
        np.savez(files / f"{who}.npz", *one.results())
    passes = max(1, round(TURN / taken))
    memory = {"imports": imports, "peak": peak_memory()}
    say({"seconds": taken, "losses": losses, "memory": memory, "engines": one.engines()})
    for _ in sys.stdin:
        one.call()
        say({"ms": digits(1e3 * seconds_of(one, passes))})


def seconds_of(one: Contender, calls: int) -> float:
    """How long a call takes, of some calls one after the other."""
    one.finish()
    start = time.perf_counter()
    for _ in range(calls):
        one.call()
    one.finish()
    return (time.perf_counter() - start) / calls


def timed(one: Contender, rounds: int, seconds: float) -> dict[str, object]:
    """The ms of a call, in blocks of about so many seconds; the size of what it finds, which is finite."""
    seconds_of(one, WARM_UP)
    calls = max(1, round(seconds / seconds_of(one, 1)))
    ms = [1e3 * seconds_of(one, calls) for _ in range(rounds)]
    total = float(sum(np.abs(array.astype(np.float64)).sum() for array in one.results()))
    if not math.isfinite(total):
        raise ArithmeticError(f"it found {total}")
    return {"ms": ms, "found": digits(total), "engines": one.engines()}


if __name__ == "__main__":
    take_turns(asked())
