"""A pass of the test net over its data: the confusion matrix, and the worst mistakes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.net import Net
from minicaffe.report.ends import Ends, LeftOutError


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
    first: dict[str, np.ndarray] = field(default_factory=dict)  # blobs of some samples, by name
    classes: tuple[str, ...] = ()


def run(
    net: Net,
    ends: Ends,
    kept: Sequence[str],
    batches: int,
    seconds: float,
    mistakes: int,
    samples: int,
) -> Tested:
    """Test a net, each sample once, for so many seconds at the most but one batch at least.

    `kept` are blobs to give of the first `samples`; `batches` are tested where nothing says how many samples
    there are. Raises LeftOutError for scores that are no numbers, and what the net raises.
    """
    datasets = [getattr(step.layer, "dataset", None) for step in net.steps]
    data: Any = next((data for data in datasets if data is not None), None)
    size = net.blobs[ends.labels].shape[0]
    count = len(data) if data is not None else None
    whole = batches * size if count is None else count
    classes = net.blobs[ends.scores].shape[ends.axis]
    found = Tested(np.zeros((classes, classes), np.int64), [], 0, count)
    found.classes = tuple(getattr(data, "classes", ()))[:classes]
    net.context.passes, until = 0, time.perf_counter() + seconds
    while found.seen < whole:
        net.forward()
        arrays = {
            name: _host(net, name) for name in dict.fromkeys([ends.scores, ends.labels, *kept])
        }
        if not found.seen:
            chosen = varied(arrays[ends.labels], samples)
            found.first = {name: array[chosen] for name, array in arrays.items()}
        pictures = arrays[ends.pictures] if ends.pictures else None
        new = min(size, whole - found.seen)
        _count(found, ends, arrays[ends.scores], arrays[ends.labels], pictures, new, mistakes)
        if time.perf_counter() > until:
            break
    return found


def varied(labels: np.ndarray, count: int) -> list[int]:
    """The first samples of so many labels; of fewer labels, the first samples.

    >>> varied(np.array([7, 7, 2, 7, 1]), 3)
    [0, 2, 4]
    """
    flat = labels.reshape(len(labels), -1)[:, 0]
    first = sorted(np.unique(flat, return_index=True)[1].tolist())[:count]
    rest = [i for i in range(len(labels)) if i not in first]
    return sorted(first + rest[: count - len(first)])


def _host(net: Net, name: str) -> np.ndarray:
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
