"""One net of the zoo in every contender: zoo.py starts this, a process for each measurement.

The answer is the last line printed, JSON: `infer` and `train` compare numbers first, then time the contenders,
processes that take turns; `memory` is of minicaffe or PyTorch alone; `export` writes the files that the other
runtimes read.
"""

import contextlib
import dataclasses
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import fma
import forms
import numpy as np
from machine import peak_memory
from measure import clock, digits, interleaved, ratios, spread
from served import Served, of_checkout
from zoo_names import ALONE, batch_of
from zoo_nets import begin, inputs_of, spec_of
from zoo_ours import (
    on_one_thread,
    ours,
    ours_step,
    shapes_of,
    trained,
    warm_batch_norms,
    without_dropout,
)
from zoo_peers import MODES, in_mode, torch_inference, torch_steps
from zoo_runtimes import RUNTIMES, RefusedError
from zoo_turns import size

TOLERANCE = {
    "opencv": 1e-3
}  # of outputs, of their largest number; OpenCV's convolutions round more
CLOSE = 1e-4  # that of all others
LOSSES = 1e-3  # of the losses of the first steps, through fifty BatchNorms
EXACT = 1e-6  # of loss and gradients in float64
ROUNDED = {"mnist_siamese": 1e-3}  # ContrastiveLoss divides by a distance + 1e-4, as Caffe's does
STEPS = 3  # whose losses are compared
TURN = 0.05  # seconds that a process works for an answer
SLOW = (
    1.0  # seconds of a call; the losses of fewer steps are compared then, and no call goes untimed
)


def infer(
    name: str, folder: str, form: str, threads: int, budget: float, before: dict | None = None
) -> dict:
    """The ms of a forward pass of one sample, after all outputs have been compared with ours."""
    apart, refused, taken, answer = compared_outputs(name, Path(folder), threads)
    told = {"name": name, "way": "infer", "weights": f"{folder}/net.npz", "folder": folder}
    told |= {"form": form, "threads": threads}
    return {"apart": apart, "refused": refused} | by_turns(told, taken, budget, before, answer)


def compared_outputs(
    name: str, folder: Path, threads: int
) -> tuple[dict[str, float], dict[str, str], dict[str, float], float]:
    """How far contenders' outputs are from ours, why some refuse, seconds of a call, and our outputs' size."""
    net = ours(name, "infer", folder / "net.npz")
    given = inputs_of(net)
    wanted = [array.copy() for array in net.forward(**given).values()]
    calls = {"minicaffe": lambda: list(net.forward(**given).values())}
    calls[ALONE] = on_one_thread(calls["minicaffe"])
    calls |= torch_inference(net, given)
    refused = {}
    for who, load in RUNTIMES.items():
        try:
            calls[who] = load(folder, threads)
            calls[who]()
        except RefusedError as error:
            refused[who] = str(error)
            calls.pop(who, None)
    apart = {}
    for who, call in calls.items():
        apart[who] = max(distance(a, b) for a, b in zip(call(), wanted, strict=True))
        if apart[who] > TOLERANCE.get(who, CLOSE):
            raise SystemExit(f"{name}: {who} is {apart[who]:.1e} away from minicaffe")
    taken = {who: seconds(call) for who, call in calls.items()}
    return apart, refused, taken, size(wanted)


def train(name: str, form: str, threads: int, budget: float, before: dict | None = None) -> dict:
    """The ms of a training step, after what `compared` compares."""
    apart = compared(name)
    told = {"name": name, "way": "train", "form": form, "threads": threads}
    return {"apart": apart} | by_turns(told, seconds_of_steps(name), budget, before)


def seconds_of_steps(name: str) -> dict[str, float]:
    """How long a step of training takes each contender, about."""
    net, solver = trained(name)
    given = inputs_of(net)
    net.forward(**given)
    calls = {"minicaffe": ours_step(solver, tell=False)} | torch_steps(net, given, tell=False)
    for call in calls.values():
        call()  # what is compiled is compiled now
    return {who: seconds(call) for who, call in calls.items()}


def by_turns(
    told: dict,
    taken: Mapping[str, float],
    budget: float,
    before: dict | None,
    wanted: float | None = None,
) -> dict:
    """What `timed` tells of contenders, each a process that works TURN seconds for an answer.

    `taken` is how long a call of each has taken in this process, `before` another checkout of minicaffe. All
    answer what is `wanted`, if that is said, or this process ends.
    """
    calls, passes = {}, {}
    with contextlib.ExitStack() as processes:
        for who in (*taken, *(["before"] if before is not None else [])):
            passes[who] = max(1, round(TURN / taken["minicaffe" if who == "before" else who]))
            own, environment = told | {"who": who, "passes": passes[who]}, None
            if who == ALONE:
                own |= {"who": "minicaffe", "threads": 1}
            elif who == "before":
                own |= {"who": "minicaffe", "form": before["form"]}
                environment = of_checkout(Path(before["root"]), before["home"])
            calls[who] = Served("zoo_turns.py", own, environment)
            processes.callback(calls[who].end)
            answer = float(
                calls[who]()
            )  # what is compiled or measured is, before the next one begins
            if wanted is not None and relative(answer, wanted) > TOLERANCE.get(who, CLOSE):
                raise SystemExit(f"{told['name']}: {who} finds {answer}, not {wanted}")
        return with_rate(lambda: timed(calls, passes, budget), told["threads"])


def with_rate(measured: Callable[[], dict], threads: int) -> dict:
    """What is measured, and the GFLOP/s of multiply-adds that the cores reach just before and after it."""
    from minicaffe.backends.cpu import available

    if not available():
        return measured()
    before = fma.rate(threads)
    found = measured()
    return found | {"gflops": [digits(before), digits(fma.rate(threads))]}


def compared(name: str, batch: int | None = None) -> dict[str, float]:
    """How far PyTorch is from minicaffe: in the gradients of float64, and in the losses of the first steps.

    In float32 gradients that went through fifty BatchNorms show their rounding, and nothing else. Nothing is
    dropped meanwhile, as each would drop other numbers. Ends the process beyond the tolerances.
    """
    apart = gradients(name, min(batch or batch_of(name, "train"), 2))
    net, solver = trained(name, batch, dropout=False)
    given, found = inputs_of(net), {}
    net.forward(**given)
    steps = torch_steps(net, given, modes=MODES[:2]) | {"minicaffe": ours_step(solver)}
    for who, step in steps.items():
        start = time.perf_counter()
        found[who] = [step()]
        if time.perf_counter() - start < SLOW:
            found[who] += [step() for _ in range(STEPS - 1)]
    pairs = [
        pair for losses in found.values() for pair in zip(losses, found["minicaffe"], strict=False)
    ]
    apart["losses"] = max(relative(a, b) for a, b in pairs)
    exact = max(apart["loss"], apart["gradients"]) <= ROUNDED.get(name, EXACT)
    if apart["losses"] > LOSSES or not exact:
        raise SystemExit(f"{name}: PyTorch trains another net than minicaffe: {apart}, {found}")
    return apart


def gradients(name: str, batch: int) -> dict[str, float]:
    """How far loss and gradients, those of all parameters as one vector, are apart in float64."""
    from zoo_torch import Module

    from minicaffe import Net

    spec = without_dropout(spec_of(name, "train", batch))
    net = Net(spec, "TRAIN", device="cpu", dtype="float64", deterministic=True)
    begin(net)
    given = {key: array.astype(np.float64) for key, array in inputs_of(net).items()}
    module = Module(net)
    net.forward(**given)
    net.backward()
    loss = module(*in_mode(module, given, "eager")[1])
    loss.backward()
    one, other = (np.concatenate(arrays) for arrays in zip(*both(module), strict=True))
    far = float(np.linalg.norm(one - other) / np.linalg.norm(one))
    return {"loss": relative(loss.item(), net.loss), "gradients": digits(far)}


def warm(name: str) -> dict:
    """Have torch.compile compile what the others measure: it keeps that on disk."""
    for way, make in (("infer", torch_inference), ("train", torch_steps)):
        net = shapes_of(name, way)
        make(net, inputs_of(net), modes=["compile"])["torch compile"]()
    return {}


def layers(name: str, folder: str, passes: int) -> dict:
    """Where the time goes, by kinds of layers: inference here and in PyTorch, a training step here."""
    import torch
    import zoo_layers
    from zoo_torch import Module

    found = {}
    net = ours(name, "infer", Path(folder) / "net.npz")
    net.forward(**inputs_of(net))
    found["infer"] = zoo_layers.ours(net, passes)
    each = {}
    for mode in MODES[:2]:
        module, inputs = in_mode(Module(net), inputs_of(net), mode)
        with torch.inference_mode():
            module(*inputs)
        each[mode] = zoo_layers.theirs(module, net, inputs, passes)
    mode = min(each, key=lambda mode: sum(each[mode].values()))
    for kind, row in found["infer"].items():
        row["torch"] = each[mode].get(kind, 0.0)
    del net, module
    net, _ = trained(name)
    net.forward(**inputs_of(net))
    net.backward()
    found["train"] = zoo_layers.ours(net, passes)
    rounded = {way: zoo_layers.rounded(rows, digits) for way, rows in found.items()}
    return {"passes": passes, "torch": mode} | rounded


def memory(name: str, way: str, who: str, batch: int | None = None) -> dict:
    """Peak memory of this process in MiB, with minicaffe or PyTorch alone: of its imports, and of all."""
    importlib.import_module("minicaffe.core.solver" if who == "minicaffe" else "zoo_torch")
    imports, mode = peak_memory(), who.removeprefix("torch ")
    if who == "minicaffe" and way == "infer":
        net = ours(name, way)
        call = net.forward
        net.forward(**inputs_of(net))
    elif who == "minicaffe":
        net, solver = trained(name, batch)
        net.forward(**inputs_of(net))
        call = ours_step(solver, tell=False)
    else:
        net = shapes_of(name, way, batch)
        make = torch_inference if way == "infer" else torch_steps
        call = make(net, inputs_of(net), modes=[mode])[who]
    for _ in range(2):
        call()
    return {"imports": imports, "peak": peak_memory()}


def export(name: str, folder: str) -> dict:
    """Files of a net to infer with: prototxt and .caffemodel, ONNX if it can be said, weights, inputs."""
    from minicaffe.cli import main
    from minicaffe.core.layers import REGISTRY
    from minicaffe.interop.caffe.prototxt import prototxt

    folder = Path(folder)
    net = ours(name, "infer")
    warm_batch_norms(name, net)
    text = str(folder / "net.prototxt")
    Path(text).write_text(prototxt(dataclasses.replace(net.spec, solver=None), REGISTRY))
    for ending in (".npz", ".caffemodel"):
        net.save(str(folder / "net") + ending)
    np.savez(folder / "inputs.npz", **inputs_of(net))
    (folder / "outputs.json").write_text(json.dumps(producers(net)))
    past = [p for step in net.steps if step.spec.type == "BatchNorm" for p in step.layer.past]
    found = {
        "parameters": sum(param.size for param in net.learnable if param not in past),
        "multiply_adds": sum(step.layer.multiply_adds for step in net.steps),
        "batch": {way: batch_of(name, way) for way in ("infer", "train")},
    }
    command = [
        "export",
        text,
        "--weights",
        str(folder / "net.npz"),
        "--onnx",
        str(folder / "net.onnx"),
    ]
    main(command)  # which tells why, where a net cannot be said in ONNX
    return found


def producers(net) -> list[str]:
    """The layers that give a net's outputs."""
    return [value.producer.name for value in net.graph.outputs.values()]


def timed(calls: Mapping[str, Callable], passes: Mapping[str, int], budget: float) -> dict:
    """The ms of each contender, in turn, and by how much ours is faster; in about `budget` seconds.

    An answer of a contender takes so many `passes`.
    """
    block, whole, most = 200.0, 0.0, 0.0
    for call in calls.values():
        took = seconds(call)
        whole, most = whole + 2 * max(took, block / 1e3), max(most, took)
    rounds = int(min(9, max(3, budget / whole)))
    settled = most <= SLOW
    times = interleaved(calls, clock, rounds, block, 0) if settled else one_by_one(calls, rounds)
    times = {who: [ms / passes[who] for ms in each] for who, each in times.items()}
    return {
        "ms": {who: spread(values) for who, values in times.items()},
        "ratios": {
            who: ratios(values, times["minicaffe"])
            for who, values in times.items()
            if who != "minicaffe"
        },
    }


def one_by_one(calls: Mapping[str, Callable], rounds: int) -> dict[str, list[float]]:
    """As `interleaved`, for calls beside which what threads of the one before do is nothing: each counts."""
    names, times = list(calls), {name: [] for name in calls}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(1e3 * seconds(calls[name]))
    return times


def seconds(call: Callable) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def both(module):
    """(ours, theirs) of every gradient, flat."""
    for owner, theirs in module.gradients():
        yield owner.diff.ravel(), theirs.ravel()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, over the largest number."""
    most = float(np.abs(b).max(initial=0)) or 1.0
    return digits(float(np.abs(np.asarray(a).reshape(b.shape) - b).max(initial=0)) / most)


def relative(a: float, b: float) -> float:
    return digits(abs(a - b) / max(abs(b), 1e-6))


def main(settings: dict) -> None:
    forms.prepare(settings | {"contender": settings.get("who", "")})
    what, keys = settings["what"], {**settings}
    for key in ("what", *(() if what in ("infer", "train") else ("form", "threads"))):
        keys.pop(key)
    calls = {one.__name__: one for one in (export, infer, train, layers, memory, warm)}
    found = calls[what](**keys)
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
