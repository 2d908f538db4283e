"""A pass of the test net over its data: the confusion matrix, and the worst mistakes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.core.net import Net
from minicaffe.tools.report.ends import Ends, LeftOutError


@dataclass
class Mistake:
    """A sample whose label is not the class of the highest score; the greater `badness`, the worse."""

    badness: float
    entry: int
    label: int
    answer: int
    shares: tuple[float, float] | None  # the probabilities of answer and label
    picture: np.ndarray | None


@dataclass
class Tested:
    """What a pass found. `confusion` (label, answer) counts labels; `seen` of `count` samples were seen."""

    confusion: np.ndarray
    mistakes: list[Mistake]
    seen: int
    count: int | None


def run(
    net: Net, ends: Ends, pictures: str | None, batches: int, seconds: float, mistakes: int
) -> Tested:
    """Test a net, each sample once, for so many seconds at the most but one batch at least.

    `pictures` is the blob to keep of mistakes; `batches` are tested where nothing says how many samples there
    are. Raises LeftOutError for scores that are no numbers, and what the net raises.
    """
    datasets = [getattr(step.layer, "dataset", None) for step in net.steps]
    data: Any = next((data for data in datasets if data is not None), None)
    size = net.blobs[ends.labels].shape[0]
    count = len(data) if data is not None else None
    whole = batches * size if count is None else count
    classes = net.blobs[ends.scores].shape[ends.axis]
    found = Tested(np.zeros((classes, classes), np.int64), [], 0, count)
    net.context.passes, until = 0, time.perf_counter() + seconds
    while found.seen < whole:
        net.forward()
        images = host(net, pictures) if pictures else None
        new = min(size, whole - found.seen)
        _count(found, ends, host(net, ends.scores), host(net, ends.labels), images, new, mistakes)
        if time.perf_counter() > until:
            break
    return found


def host(net: Net, name: str) -> np.ndarray:
    """A blob's data as a NumPy array, float32 where it is of 16 bits."""
    array = net.device.to_host(net.blobs[name].data)
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _count(
    found: Tested,
    ends: Ends,
    scores: np.ndarray,
    labels: np.ndarray,
    pictures: np.ndarray | None,
    new: int,
    most: int,
) -> None:
    """Add the first `new` samples of a batch to what was found."""
    size, classes = len(labels), scores.shape[ends.axis]
    scores = scores.reshape(math.prod(scores.shape[: ends.axis]), classes, -1)
    n, _, places = scores.shape
    if not np.isfinite(scores).all():
        raise LeftOutError("the net's scores are no finite numbers: its weights have diverged")
    labels = labels.reshape(n, places).astype(np.int64)
    answers = scores.argmax(axis=1)
    valid = (labels >= 0) & (labels < classes)
    if ends.ignored is not None:
        valid &= labels != ends.ignored
    valid[new * n // size :] = False
    np.add.at(found.confusion, (labels[valid], answers[valid]), 1)
    if places == 1:
        wrong = np.flatnonzero(valid[:, 0] & (labels[:, 0] != answers[:, 0]))
        if pictures is not None and len(pictures) != n:
            pictures = None
        new_ones = _mistakes(ends, scores[..., 0], labels[:, 0], answers[:, 0], wrong)
        new_ones.sort(key=_rank)
        for one in new_ones[:most]:
            one.picture = None if pictures is None else pictures[one.entry].copy()
            one.entry += found.seen
        found.mistakes = sorted([*found.mistakes, *new_ones[:most]], key=_rank)[:most]
    found.seen += new


def _rank(one: Mistake) -> tuple[float, int]:
    return -one.badness, one.entry


def _mistakes(
    ends: Ends, scores: np.ndarray, labels: np.ndarray, answers: np.ndarray, wrong: np.ndarray
) -> list[Mistake]:
    """Those of a batch: as bad as the label is unlikely or, without probabilities, as its score is lower."""
    found = []
    for i in wrong:
        one, label, answer = scores[i].astype(np.float64), int(labels[i]), int(answers[i])
        if ends.probabilities or ends.softmax:
            share = one if ends.probabilities else _softmax(one)
            shares: Any = float(share[answer]), float(share[label])
            found.append(Mistake(-shares[1], int(i), label, answer, shares, None))
        else:
            found.append(
                Mistake(float(one[answer] - one[label]), int(i), label, answer, None, None)
            )
    return found


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()
