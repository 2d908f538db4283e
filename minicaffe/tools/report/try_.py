"""Section "Try it by hand": the net itself in the page, for what one draws there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.net import Net
from minicaffe.errors import mib
from minicaffe.tools.data.layers.pictures import Pictures, takes_digits
from minicaffe.tools.deploy import Classifier, deploy
from minicaffe.tools.report.ends import LeftOutError
from minicaffe.tools.report.program import encoded, program
from minicaffe.tools.report.study import Study

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
    return {
        **page(classifier),
        **named,
        "samples": samples(study, data),
        "text": study.weights_from,
    }


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
    top, left, h, w = area(data)
    any_one = np.random.default_rng(1).integers(0, 256, data.image)
    ours = (any_one[:, top : top + h, left : left + w] - mean_of(data)) * data.transform.scale
    theirs = data.as_tested(any_one)
    if theirs.shape != ours.shape or not np.allclose(theirs, ours):
        raise LeftOutError(f"{data.name}: its transform is more than a crop, a mean and a scale")
    return {
        "net": program(classifier.net.steps, classifier.output),
        "image": list(data.image),
        "crop": list(area(data)),
        "mean": encoded(mean_of(data).ravel().astype("<f4")),
        "scale": data.transform.scale,
        "digit": takes_digits(data) and data.image[0] == 1,
        "blue_first": bool(data.blue_first),
        "count": math.prod(classifier.net.blobs[classifier.output].shape[1:]),
        "classes": [str(one) for one in getattr(data.dataset, "classes", None) or ()],
    }


def area(data: Pictures) -> tuple[int, int, int, int]:
    """What a net sees of a picture in the phase TEST: the top, left, height and width of its middle."""
    _, h, w = data.image
    size = data.transform.crop_size
    return ((h - size) // 2, (w - size) // 2, size, size) if size else (0, 0, h, w)


def mean_of(data: Pictures) -> np.ndarray:
    """The mean that is subtracted from what a net sees: (1 or c, 1, 1), or a picture."""
    top, left, h, w = area(data)
    mean = np.asarray(data.mean(), np.float64)
    return mean if mean.shape[1:] == (1, 1) else mean[:, top : top + h, left : left + w]


def samples(study: Study, data: Pictures) -> list[dict[str, Any]]:
    """Pictures of the test data as the net sees them, uint8 (c, h, w), one of each label first."""
    ends, shape = study.ends, (data.image[0], *area(data)[2:])
    if ends is None or study.pictures is None or not data.transform.scale:
        return []
    some = study.some(SAMPLES)
    pictures, labels = some[study.pictures], some[ends.labels]
    if pictures.shape[1:] != shape or labels.size != len(pictures):
        return []
    pixels = pictures.astype(np.float64) / data.transform.scale + mean_of(data)
    bytes_ = np.clip(np.round(pixels), 0, 255).astype(np.uint8)
    found = [(encoded(one), int(label)) for one, label in zip(bytes_, labels.ravel(), strict=True)]
    return [
        {"picture": picture, "label": label}
        for picture, label in sorted(found, key=lambda one: one[1])
    ]
