"""What onnxruntime makes of a model, beside what the net makes of the same numbers."""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from minicaffe.core.layers.recurrent import Recurrent
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import CheckpointError, reason
from minicaffe.interop.onnx.table import DRAWN, JUMPS, packages
from minicaffe.tools.inference import inputs

Arrays = Mapping[str, np.ndarray]
Names = Mapping[Value, str]  # of the tensors that hold values
MOST = 1e-4  # of a blob's largest number: the largest difference


def drawn(
    net: Net, seed: int = 0, usual: Callable[..., Any] = np.random.Generator.standard_normal
) -> dict[str, np.ndarray]:
    """Numbers for the inputs of a net: normal, or as `usual` draws them, but where a layer asks for others."""
    random = np.random.default_rng(seed)
    arrays = {}
    for value in inputs(net):
        wanted = [
            (DRAWN[step.spec.type, at], step)
            for step in net.steps
            for i, bottom in enumerate(step.bottoms)
            for at in (i, i - len(step.bottoms))
            if bottom is value and (step.spec.type, at) in DRAWN
        ]
        if wanted:
            draw, step = wanted[0]
            array = draw(random, step, value.shape)
        else:
            array = usual(random, value.shape)
        arrays[value.name] = np.asarray(array, np.float32)
    return arrays


def difference(array: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two arrays, as a part of the largest number wanted; inf for other shapes.

    What is not finite must be so in both.

    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    """
    if array.shape != wanted.shape:
        return math.inf
    if not wanted.size:
        return 0.0
    finite = np.isfinite(wanted)
    if not np.array_equal(array[~finite], wanted[~finite], equal_nan=True):
        return math.inf
    apart = np.abs(array[finite].astype(np.float64) - wanted[finite])
    largest = float(apart.max(initial=0.0) / (np.abs(wanted[finite]).max(initial=0.0) or 1.0))
    return math.inf if math.isnan(largest) else largest


def run(data: bytes, arrays: Arrays) -> dict[str, np.ndarray]:
    """The outputs of a model in onnxruntime, on the CPU. Raises CheckpointError if it cannot run it."""
    _, runtime = packages()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what it would say is raised as well
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(arrays)), strict=True))
    except Exception as error:  # of its own classes, which have no base of theirs
        raise CheckpointError(f"onnxruntime cannot run it: {reason(error)}") from None


def before_jumps(steps: Sequence[Step]) -> list[Value]:
    """What is read by layers whose tops leap where a bottom changes by a rounding error."""
    return [value for step in steps if step.spec.type in JUMPS for value in step.bottoms]


def outputs(data: bytes, net: Net, names: Names) -> dict[Value, float]:
    """The difference of each of a model's outputs from the net's, of the same random numbers.

    A layer that jumps is compared given onnxruntime's bottoms, which the model is to give out and which are
    compared as well: a box that is the better one by a rounding error is no difference.
    """
    arrays = drawn(net)
    theirs, apart = run(data, arrays), {}
    last = set(net.graph.outputs.values())
    wanted = {*last, *before_jumps(net.steps)}
    for step in by_step(net, arrays, theirs, names, JUMPS):
        for value in step.tops:
            if value not in wanted or names[value] not in theirs:
                continue
            ours = value.blob.data
            if value in last and ours.size and not np.isfinite(ours).any():
                raise CheckpointError(
                    f"output {value.name!r} holds no finite number, of random input, so that there is "
                    "nothing to compare: are these the weights of a trained net? Nothing was written"
                )
            apart[value] = difference(theirs[names[value]], ours)
    return apart


def culprit(data: bytes, net: Net, names: Names) -> NoReturn:
    """Raise CheckpointError for the first layer that differs, given what onnxruntime makes of those before."""
    arrays = drawn(net)
    theirs = run(data, arrays)
    for step in by_step(net, arrays, theirs, names, {step.spec.type for step in net.steps}):
        for value in step.tops:
            if names[value] not in theirs:
                continue
            apart = difference(theirs[names[value]], value.blob.data)
            if apart > MOST:
                raise CheckpointError(
                    f"{step.place}: top {value.name!r} differs in onnxruntime, by {apart:.1e} of its "
                    f"largest number; nothing was written"
                )
    raise CheckpointError(
        f"net {net.name!r} differs in onnxruntime, though none of its layers does alone: rounding grows "
        "from layer to layer; nothing was written"
    )


def by_step(
    net: Net, arrays: Arrays, reference: Arrays, names: Names, kinds: Container[str]
) -> Iterator[Step]:
    """Each step of a net after it has run, of inputs `arrays`; some kinds are given what was found."""
    for layer in net.layers.values():
        if isinstance(layer, Recurrent):
            layer.reset()  # its first states are zeros, as in a file
    for step in net.steps:
        blobs: Any = {v.name: arrays[v.name] for v in step.tops if step.spec.type == "Input"}
        if step.spec.type in kinds:
            theirs = {v: reference[names[v]] for v in step.bottoms if names[v] in reference}
            blobs |= {v.name: a for v, a in theirs.items() if a.shape == v.shape}
        with np.errstate(all="ignore"):
            net.forward(start=step.spec.name, end=step.spec.name, **blobs)
        yield step
