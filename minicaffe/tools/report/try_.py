"""Section "Try it by hand": the net itself in the page, for what one draws there."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.core.net import Net
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import mib
from minicaffe.tools.data.layers.pictures import Pictures, takes_digits
from minicaffe.tools.deploy import Classifier, deploy
from minicaffe.tools.report.study import LeftOutError, Study

Said = tuple[str, dict[str, Any], Sequence[np.ndarray]]  # the script's layer, its keys, its arrays
SAME = ("Dropout", "Flatten", "Reshape", "Split")
FORMULAS = {  # of layers of one function of each number
    *("AbsVal", "BNLL", "Clip", "Constant", "ELU", "Exp", "GELUTanh", "HardSwish", "LeakyReLU"),
    *("Linear", "Log", "Power", "ReLU", "ReLU6", "Sigmoid", "Square", "Swish", "TanH", "Threshold"),
}
MOST_BYTES = 10 << 20  # of weights
MOST_SIDE = 96  # pixels of a picture
MOST_WORK = 200_000_000  # multiply-adds: more than a page computes while one draws
SAMPLES = 12


def hand(study: Study) -> dict[str, Any]:
    """The net, how a picture is prepared for it, samples. Raises LeftOutError for nets that cannot be so."""
    spec, data = deploy(study.spec)
    check(Net(spec, "TEST", device="cpu", shapes_only=True), data)
    classifier = Classifier(study.spec, device="cpu", dtype="float32")
    classifier.net.load(study.test_net.weights(), strict=False)
    named = {"classes": list(study.spec.classes)} if study.spec.classes else {}
    shown = {"samples": samples(study, data), "text": study.weights_from}
    return {**page(classifier), **named, **shown}


def check(net: Net, data: Pictures) -> None:
    """Raise LeftOutError for a net that is too large for a page, or takes no pictures one can draw."""
    channels, h, w = data.image
    inputs = [step for step in net.steps if not step.bottoms]
    if len(inputs) != 1 or inputs[0] is not net.steps[0]:
        raise LeftOutError("the net takes more than pictures")
    if channels not in (1, 3):
        raise LeftOutError(f"a picture has {channels} channels; one draws with 1 or 3")
    if max(h, w) > MOST_SIDE:
        raise LeftOutError(f"pictures of {h} x {w} are larger than {MOST_SIDE} x {MOST_SIDE}")
    size = 4 * sum(param.size for param in net.learnable)
    if size > MOST_BYTES:
        raise LeftOutError(f"its weights are {mib(size)}, more than {mib(MOST_BYTES)}")
    work = sum(layer.multiply_adds for layer in net.layers.values())
    if work > MOST_WORK:
        raise LeftOutError(f"an answer takes {work:,} multiply-adds, more than {MOST_WORK:,}")


def page(classifier: Classifier) -> dict[str, Any]:
    """What the scripts take of a net and its data layer. Raises LeftOutError for layers they do not have."""
    data = classifier.data
    top, left, h, w = data.centre
    any_one = np.random.default_rng(1).integers(0, 256, data.image)
    ours = (any_one[:, top : top + h, left : left + w] - mean_of(data)) * data.transform.scale
    theirs = data.as_tested(any_one)
    if theirs.shape != ours.shape or not np.allclose(theirs, ours):
        raise LeftOutError(f"{data.name}: its transform is more than a crop, a mean and a scale")
    return {
        "net": program(classifier.net.steps, classifier.output),
        "image": list(data.image),
        "crop": list(data.centre),
        "mean": encoded(mean_of(data).ravel().astype("<f4")),
        "scale": data.transform.scale,
        "digit": takes_digits(data) and data.image[0] == 1,
        "fit": data.fit,
        "blue_first": bool(data.blue_first),
        "count": math.prod(classifier.net.blobs[classifier.output].shape[1:]),
        "classes": [str(one) for one in getattr(data.dataset, "classes", None) or ()],
    }


def mean_of(data: Pictures) -> np.ndarray:
    """The mean that is subtracted from what a net sees: (1 or c, 1, 1), or a picture."""
    top, left, h, w = data.centre
    mean = np.asarray(data.mean(), np.float64)
    return mean if mean.shape[1:] == (1, 1) else mean[:, top : top + h, left : left + w]


def samples(study: Study, data: Pictures) -> list[dict[str, Any]]:
    """Pictures of the test data as the net sees them, uint8 (c, h, w), one of each label first."""
    ends, shape = study.ends, (data.image[0], *data.centre[2:])
    if ends is None or study.pictures is None or not data.transform.scale:
        return []
    some = study.some(SAMPLES)
    if not {study.pictures, ends.labels} <= some.keys():  # not as many of both
        return []
    pictures, labels = some[study.pictures], some[ends.labels]
    if pictures.shape[1:] != shape or labels.size != len(pictures):
        return []
    pixels = pictures.astype(np.float64) / data.transform.scale + mean_of(data)
    both = zip(np.clip(np.round(pixels), 0, 255).astype(np.uint8), labels.ravel(), strict=True)
    shown = [{"picture": encoded(picture), "label": int(label)} for picture, label in both]
    return sorted(shown, key=lambda one: one["label"])


def program(steps: Sequence[Step], output: str) -> dict[str, Any]:
    """What hand.net of try_net.js takes: values by number, steps, and float32 arrays as base64.

    The steps are those of a net of one sample, its Input the first, its answer the blob `output`. Raises
    LeftOutError for a layer that the script does not have.
    """
    numbers: dict[Value, int] = {}
    arrays: list[str] = []
    listed = []

    def number(value: Value) -> int:
        return numbers.setdefault(value, len(numbers))

    for step in steps[1:]:
        op, keys, own = said(step)
        if not all(np.isfinite(array).all() for array in own):
            raise LeftOutError(f"{step.spec}: its parameters are not all finite numbers")
        ins, outs = ([number(value) for value in side] for side in (step.bottoms, step.tops))
        places = list(range(len(arrays), len(arrays) + len(own)))
        arrays += [encoded(array.astype("<f4")) for array in own]
        listed.append({"op": op, "in": ins, "out": outs, "arrays": places, **keys})
    answer = next(v for step in reversed(steps) for v in step.tops if v.name == output)
    ends = {"input": number(steps[0].tops[0]), "output": number(answer)}
    return {**ends, "steps": listed, "arrays": arrays}


def encoded(array: np.ndarray) -> str:
    """An array's bytes as base64."""
    return base64.b64encode(array.tobytes()).decode()


def said(step: Step) -> Said:
    """How the script is told of a layer. Raises LeftOutError for one that it does not have."""
    layer: Any = step.layer
    arrays = [param.owner.to_host().astype(np.float64) for param in layer.params]
    if step.spec.type in SAME and getattr(layer, "scale_train", True):
        return "Same", {}, []
    x, y = step.bottoms[0].shape, step.tops[0].shape
    match step.spec.type:
        case "Convolution" if len(x) == 4 and x[0] == len(step.bottoms) == 1 == layer.axis % 4:
            keys = _lists(layer.geometry.window, "kernel", "stride", "pad", "dilation")
            return "Convolution", {"x": x[1:], "y": y[1:], "group": layer.group, **keys}, arrays
        case "Pooling" if layer.pool != "STOCHASTIC" and len(step.tops) == 1 and len(x) == 4:
            keys = _lists(layer.window, "kernel", "stride", "pad")
            keys |= {"x": [x[0] * x[1], *x[2:]], "y": [y[0] * y[1], *y[2:]]}
            return "Pooling", {**keys, "max": layer.pool == "MAX"}, []
        case "InnerProduct":
            sizes = {"m": layer.m, "k": layer.k, "n": layer.num_output}
            return "InnerProduct", {**sizes, "transpose": layer.transpose}, arrays
        case "Softmax":
            return "Softmax", _lists(layer, "ncs"), []
        case "LRN":
            r = layer.response
            keys = {key: getattr(r, key) for key in ("up", "side", "base", "alpha", "beta")}
            return "LRN", {"image": list(r.image), **keys}, []
        case "PReLU":
            return "PReLU", _lists(layer, "nfp"), [arrays[0].ravel()]
        case "Scale" | "Bias" as kind if len(step.bottoms) == 1:
            first, *rest = (array.ravel() for array in arrays)
            numbers = [first, *(rest or [np.zeros_like(first)])]
            if kind == "Bias":
                numbers = [np.ones_like(first), first]
            return "Channels", _lists(layer, "nfp"), numbers
        case "BatchNorm" if layer.by_past:
            mean, variance, count, *learnt = arrays
            share = 1 / count[0] if count[0] else 0.0
            rate = 1 / np.sqrt(variance * share + layer.eps)
            scale, bias = learnt or (np.ones_like(mean), np.zeros_like(mean))
            nfp = [x[0], x[1], math.prod(x[2:])]
            return "Channels", {"nfp": nfp}, [rate * scale, bias - mean * share * rate * scale]
        case "Eltwise":
            return "Eltwise", {"operation": layer.operation, **_lists(layer, "factors")}, []
        case "Concat":
            return "Concat", {"rows": math.prod(y[: len(layer.parts[0]) - 1])}, []
        case _ if getattr(layer, "name_of_formula", None) in FORMULAS:
            keys = {"formula": layer.name_of_formula, "numbers": list(map(float, layer.numbers))}
            return "Elementwise", keys, []
    raise LeftOutError(f"{step.spec}: this page's script does not have it")


def _lists(of: Any, *names: str) -> dict[str, Any]:
    return {name: list(getattr(of, name)) for name in names}
