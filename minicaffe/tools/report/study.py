"""What a report looks at beside a run's log: its nets, with the weights learnt, built when a section asks."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step
from minicaffe.core.solver.scores import score_suffixes, test_nets
from minicaffe.errors import MinicaffeError
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.inference import is_scored

KEPT = 256 << 20  # bytes of feature maps that the test net may keep
MISTAKES, SAMPLES = 24, 3  # that are shown


class LeftOutError(MinicaffeError):
    """Why a section is not there, in one line."""


@dataclass(frozen=True)
class Ends:
    """Where a test net's answer is: scores seen as (n, classes, places), labels as (n, places)."""

    scores: str
    labels: str
    axis: int
    ignored: int | None
    probabilities: bool  # whether the scores are such already
    softmax: bool  # whether a softmax makes such of them


@dataclass
class Mistake:
    """A sample whose label is not the class of the highest score; the greater `badness`, the worse."""

    badness: float
    entry: int
    label: int
    answer: int
    shares: tuple[float, float] | None  # the probabilities of answer and label
    picture: np.ndarray | None = None


@dataclass
class Tested:
    """What a pass by_label. `confusion` (label, answer) counts labels; `seen` of `count` samples were seen."""

    confusion: np.ndarray
    count: int | None
    seen: int = 0
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, ends: Ends, batch: Sequence[Any], new: int, most: int) -> None:
        """Add the first `new` samples of a batch: scores, labels, pictures or None. Keep `most` mistakes."""
        scores, labels, pictures = batch
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
        np.add.at(self.confusion, (labels[valid], answers[valid]), 1)
        if places == 1:
            wrong = np.flatnonzero(valid[:, 0] & (labels[:, 0] != answers[:, 0])).tolist()
            rows = [_mistake(ends, scores[i, :, 0], labels[i, 0], answers[i, 0], i) for i in wrong]
            worst = sorted(rows, key=_rank)[:most]
            for one in worst:
                if pictures is not None and len(pictures) == n:
                    one.picture = pictures[one.entry].copy()
                one.entry += self.seen
            self.mistakes = sorted([*self.mistakes, *worst], key=_rank)[:most]
        self.seen += new


def _rank(one: Mistake) -> tuple[float, int]:
    return -one.badness, one.entry


def _mistake(ends: Ends, scores: np.ndarray, label: int, answer: int, entry: int) -> Mistake:
    """As bad as the label is unlikely or, without probabilities, as its score is lower."""
    scores, shares = scores.astype(np.float64), None
    badness = float(scores[answer] - scores[label])
    if ends.probabilities or ends.softmax:
        powers = scores if ends.probabilities else np.exp(scores - scores.max())
        share = scores if ends.probabilities else powers / powers.sum()
        shares = float(share[answer]), float(share[label])
        badness = -shares[1]
    return Mistake(badness, entry, int(label), int(answer), shares)


def host(net: Net, name: str) -> np.ndarray:
    """A blob's data as a NumPy array, float32 where it is of 16 bits."""
    array = net.device.to_host(net.blobs[name].data)
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


@dataclass(frozen=True)
class Limits:
    """How much may be spent: `seconds` on the pass over the test data, and on timing, if `timing`."""

    seconds: float = 20.0
    timing: bool = True


@dataclass(eq=False)
class Study:
    """The nets of one run. `fill(net)` gives a net its weights, and `weights_from` says which these are."""

    spec: NetSpec
    fill: Callable[[Net], Any]
    weights_from: str
    device: backend.Device
    limits: Limits
    dtype: Any = None

    def again(self, weights_from: str, limits: Limits) -> None:
        """Look anew at nets whose weights have changed."""
        self.weights_from, self.limits = weights_from, limits
        self.__dict__.pop("tested", None)

    def shapes(self, phase: Any) -> Net:
        """The net of a phase with shapes alone; a test net of the model's own is the first of them."""
        return self._net(phase, shapes_only=True)

    def train_net(self) -> Net:
        """A net that can be trained, as `minicaffe time` runs it, with the weights."""
        net = self._net("TRAIN")
        self.fill(net)
        return net

    @functools.cached_property
    def test_net(self) -> Net:
        """The test net with the weights; the blobs of `kept` are there after a forward pass."""
        boxes = detector(self.shapes("TEST").steps) or ()
        net = self._net("TEST", keep=[*self.kept, *filter(None, boxes)])
        self.fill(net)
        return net

    @functools.cached_property
    def kept(self) -> list[str]:
        """The blobs that sections look at: scores, labels, pictures, feature maps."""
        ends = self.ends
        named = [self.pictures] if ends is None else [ends.scores, ends.labels, self.pictures]
        return list(dict.fromkeys([*filter(None, named), *self.features]))

    @functools.cached_property
    def pictures(self) -> str | None:
        """The blob of pictures: of a layer that reads them, or of 1 or 3 channels out of nothing; or None."""
        for step in self.shapes("TEST").steps:
            value = step.tops[0] if step.tops else None
            if value is None or step.bottoms or len(value.shape) != 4:
                continue
            if isinstance(step.layer, Pictures) or value.shape[1] in (1, 3):
                return value.name
        return None

    def some(self, count: int) -> dict[str, np.ndarray]:
        """The blobs of `kept`, of so many test samples by their labels, as many of each as time allows."""
        most = -(-count // max(1, min(count, self.classes)))  # of a label
        by_label: dict[int, list[dict[str, np.ndarray]]] = {}
        for new in self.passes(self.limits.seconds / 4):
            labels = host(self.test_net, self.ends.labels) if self.ends else np.zeros(new)
            flat = labels.reshape(len(labels), -1)[:new, 0].astype(int).tolist()
            if any(len(by_label.get(label, ())) < most for label in flat):
                arrays = {name: np.atleast_1d(host(self.test_net, name)) for name in self.kept}
            for i, label in enumerate(flat):
                if len(rows := by_label.setdefault(label, [])) < most:
                    rows.append({key: one[i].copy() for key, one in arrays.items() if i < len(one)})
            if sum(map(len, by_label.values())) >= most * max(1, self.classes):
                break
        ranked = sorted((i, label) for label, rows in by_label.items() for i in range(len(rows)))[
            :count
        ]
        chosen = [by_label[label][i] for label, i in sorted((label, i) for i, label in ranked)]
        names = [name for name in self.kept if all(name in rows for rows in chosen)]
        return {name: np.stack([rows[name] for rows in chosen]) for name in names}

    def passes(self, seconds: float) -> Iterator[int]:
        """Run the test net over the test data as long as time allows; yields how many samples are new.

        `test_iter` batches are tested where nothing says how many samples there are.
        """
        net, seen, until = self.test_net, 0, time.perf_counter() + seconds
        size = net.blobs[self.ends.labels if self.ends else self.kept[0]].shape[0]
        batches = ((self.spec.solver is not None and self.spec.solver.test_iter) or (1,))[0]
        whole = self.count or batches * size
        net.context.passes = 0
        while seen < whole and (not seen or time.perf_counter() <= until):
            net.forward()
            yield min(size, whole - seen)
            seen += size

    @property
    def count(self) -> int | None:
        """How many samples the test data has; None if nothing says it."""
        sets: Any = (getattr(step.layer, "dataset", None) for step in self.test_net.steps)
        return next((len(one) for one in sets if one is not None), None)

    @property
    def classes(self) -> int:
        """How many classes the scores are of; 0 of a net without an answer."""
        scores = self.ends and self.test_net.blobs[self.ends.scores]
        return scores.shape[self.ends.axis] if scores and self.ends else 0

    @functools.cached_property
    def features(self) -> list[str]:
        """The blobs that have maps (n, c, h, w), from the pictures up, as far as memory allows."""
        sizes: dict[str, int] = {}
        for step in self.shapes("TEST").steps:
            for value in step.tops:
                if len(value.shape) == 4 and min(value.shape[2:]) > 1:
                    sizes[value.name] = math.prod(value.shape) * value.dtype.itemsize
        names, most = list(sizes), 12
        if len(names) > most:  # so many, from the first to the last
            names = [names[round(i * (len(names) - 1) / (most - 1))] for i in range(most)]
        chosen, room = [], KEPT
        for name in names:
            if sizes[name] <= room:
                chosen.append(name)
                room -= sizes[name]
        return chosen

    @functools.cached_property
    def ends(self) -> Ends | None:
        """Where the test net's answer is, by its last Accuracy or SoftmaxWithLoss; None without either."""
        steps = self.shapes("TEST").steps
        loss = next((s for s in reversed(steps) if is_scored(s.spec)), None)
        last = next((s for s in reversed(steps) if s.spec.type == "Accuracy"), loss)
        if last is None:
            return None
        scores, labels = last.bottoms[:2]
        maker = next(step for step in steps if scores in step.tops)
        options: Any = last.layer
        axis, ignored = options.axis % len(scores.shape), getattr(options, "ignore_label", None)
        probable = maker.spec.type == "Softmax"
        return Ends(scores.name, labels.name, axis, ignored, probable, loss is not None)

    @functools.cached_property
    def tested(self) -> Tested:
        """What a pass over the test data finds, one batch at least.

        Raises LeftOutError for a net without an answer and for scores that are no numbers, and what the net
        raises.
        """
        ends, net = self.ends, self.test_net
        if ends is None:
            raise LeftOutError("the net has neither Accuracy nor SoftmaxWithLoss in the phase TEST")
        tested = Tested(np.zeros((self.classes, self.classes), np.int64), self.count)
        for new in self.passes(self.limits.seconds):
            images = host(net, self.pictures) if self.pictures else None
            tested.add(
                ends, (host(net, ends.scores), host(net, ends.labels), images), new, MISTAKES
            )
        return tested

    @property
    def seen(self) -> dict[str, Any]:
        """What the pass was over, with which weights, and what must be known of the data."""
        tested = self.tested
        whole = f" of {tested.count:,}" if tested.count is not None else ""
        what = "training" if any(score_suffixes([self.test_net])) else "test"
        text = f"{tested.seen:,}{whole} {what} samples, {self.weights_from}"
        return {"text": text, "warnings": self.test_net.warnings}

    def _net(self, phase: Any, **settings: Any) -> Net:
        options = {"device": self.device, "dtype": self.dtype, "deterministic": True, **settings}
        solver = self.spec.solver
        if phase == "TEST" and solver is not None and solver.tests(1):
            first = dataclasses.replace(solver, test_iter=(1,))
            return test_nets(self.spec, first, options.pop("keep", None), **options)[0]
        built = solver.train_state if solver is not None else self.spec.state
        return Net(self.spec, phase, **options, level=built.level, stages=built.stage)


def detector(steps: Sequence[Step]) -> tuple[str, str | None] | None:
    """The blob of what a detector finds, and that of the true boxes, if any; None for other nets."""
    ends = [step for step in steps if step.spec.type == "DetectionOutput"]
    if not ends:
        return None
    judges = [step for step in steps if step.spec.type == "DetectionEvaluate"]
    return ends[-1].tops[0].name, judges[-1].bottoms[1].name if judges else None
