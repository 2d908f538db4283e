"""Layers of sequences: Lstm, Reverse, Flip, Transpose, ContinuationIndicator, and CTC's losses and decoder."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.losses import folded
from minicaffe.core.layers.recurrent import LSTM
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.routing import Permute
from minicaffe.core.ops import arrays
from minicaffe.core.ops.take import take
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks.whole import Whole, labels


def ctc(
    x: np.ndarray, labels: Sequence[Sequence[int]], lengths: Sequence[int], blank: int, merge: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The loss -log p(labels | x) of each sequence (n,), and its gradient, of x's shape (t, n, c).

    p sums over all ways to say the labels in `lengths` steps: a class a step, with the softmax of x. Of a way
    equal neighbours are merged, if `merge`, and then blanks are left out. What lies behind a sequence's steps
    has no gradient. The loss is infinite, with a gradient of softmax - 0, where no way is long enough.
    Source: A. Graves et al., Connectionist Temporal Classification, 2006, with logarithms.

    >>> loss, gradient = ctc(np.zeros((2, 1, 2)), [[1]], [2], 0, True)
    >>> np.exp(-loss), gradient[:, 0].round(3).tolist()  # of 00, 01, 10, 11 three say 1
    (array([0.75]), [[0.167, -0.167], [0.167, -0.167]])
    """
    steps, n, c = x.shape
    x = x - x.max(axis=2, keepdims=True)
    log_y = x - np.log(np.exp(x).sum(axis=2, keepdims=True))
    u = 2 * max(map(len, labels), default=0) + 1
    path = np.full((n, u), blank)  # the labels with a blank before each, and one behind
    for row, label in zip(path, labels, strict=True):
        row[1 : 2 * len(label) : 2] = label
    states = 2 * np.array(list(map(len, labels))) + 1
    inside, last = np.arange(u) < states[:, None], np.array(lengths) - 1
    end = inside & (np.arange(u) >= states[:, None] - 2)
    same = np.zeros((n, u), bool)
    same[:, 2:] = path[:, 2:] == path[:, :-2]
    stays = np.where((path == blank) | merge, 0.0, -np.inf)
    skips = np.where((path != blank) & ~(same & merge), 0.0, -np.inf)
    skips[:, :2] = -np.inf
    said = np.take_along_axis(log_y, np.broadcast_to(path, (steps, n, u)), axis=2)

    def moved(array: np.ndarray, by: int) -> np.ndarray:
        """The entries so many places on or, below 0, back."""
        places = np.full_like(array, -np.inf)
        places[:, max(by, 0) : u + min(by, 0)] = array[:, max(-by, 0) : u - max(by, 0)]
        return places

    alpha, beta = np.full((steps, n, u), -np.inf), np.full((steps, n, u), -np.inf)
    alpha[0, :, :2] = said[0, :, :2]
    for t in range(1, steps):
        a = alpha[t - 1]
        ways = np.logaddexp(a + stays, moved(a, 1))
        alpha[t] = np.logaddexp(ways, moved(a, 2) + skips) + said[t]
    alpha[:, ~inside] = -np.inf
    for t in reversed(range(steps)):
        if t + 1 < steps:
            b = beta[t + 1] + said[t + 1]
            ways = np.logaddexp(b + stays, moved(b, -1))
            beta[t] = np.logaddexp(ways, moved(b + skips, -2))
        beta[t][(last == t)[:, None] & end] = 0
    beta[:, ~inside] = -np.inf
    total = np.logaddexp.reduce(alpha[0] + beta[0], axis=1)
    some = np.isfinite(total)
    weight = np.exp(alpha + beta - np.where(some, total, 0)[:, None])
    share = np.zeros((steps, n, c))
    for k in range(u):
        share[:, np.arange(n), path[:, k]] += weight[:, :, k] * some
    return -total, (np.exp(log_y) - share) * (np.arange(steps)[:, None] <= last)[:, :, None]


def needed(label: Sequence[int], merge: bool) -> int:
    """The fewest steps that say a label: between equal neighbours that would merge a blank stands."""
    return len(label) + merge * sum(a == b for a, b in zip(label[1:], label[:-1], strict=True))


def classes(row: np.ndarray, count: int, blank: int, what: str) -> list[int]:
    """Labels as whole numbers. Raises DataError for one that is no class, or the blank."""
    for value in row:
        if not 0 <= value < count or value == blank:
            among = f"the {count} classes 0..{count - 1} without the blank {blank}"
            raise DataError(f"{what}: label {value:g} is not one of {among}")
    return [int(value) for value in row]


def edits(a: Sequence[int], b: Sequence[int]) -> int:
    """How many entries must be put in, taken out or replaced to make one of the other."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        left, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (one != other))
    return row[-1]


class Limited(LSTM):
    """An LSTM the gradients of whose gates are cut to -most..most."""

    most: float

    def limit(self, dz: Any) -> None:
        """Cut from below, and turn it round, twice."""
        for _ in range(2):
            arrays.at_least(dz, -self.most)
            arrays.scale(dz, -1, dz)


@register
class Lstm(Layer):
    """The LSTM of J. Oh's fork: time and streams are one axis, and W_hc comes before the bias.

    Bottoms: x (t batch_size, ...), of each step its streams; optionally clip (t batch_size,), 0 where a stream
    starts again, else 1. Top: h (t batch_size, num_output). Parameters: W_xc (4 num_output, k), W_hc (4
    num_output, num_output), b_c (4 num_output,), rows by i, f, o, g: the formula is LSTM's. Without clip all
    streams start again with each pass; with it they go on from the pass before, as in LSTM. With
    clipping_threshold above 0 the gradients of i, f, o, g, before their functions, are cut to that size.
    Source: Lstm of J. Oh's caffe-lstm.

    Example: (6, 3), (6,) -> {type: Lstm, num_output: 4, batch_size: 2} -> (6, 4)
    """

    num_output: Annotated[int, "outputs of a stream at each step", AtLeast(1)]
    clipping_threshold: Annotated[float, "the largest gradient of a gate; 0: any", AtLeast(0)] = 0.0
    weight_filler: Annotated[Filler, "how the weights start"] = XAVIER
    bias_filler: Annotated[Filler, "how the biases start"] = ZERO
    batch_size: Annotated[int, "streams", AtLeast(1)] = 1

    traits = Traits(keeps_top=True, recordable=True, mixes_samples=True, label_bottoms=(1,))

    def setup(self, x: Shape, clip: Shape | None = None) -> Shape:
        n, d = self.batch_size, self.num_output
        if not x or x[0] % n:
            raise ShapeError(
                f"needs x (t {n}, ...), a whole number of steps of {n} streams, got {x}"
            )
        if clip is not None and math.prod(clip) != x[0]:
            raise ShapeError(f"needs clip ({x[0]},), a number for each row of x, got {clip}")
        self.steps, self.clipped = x[0] // n, clip is not None
        if not self.params:
            fillers = self.weight_filler, self.bias_filler
            kind = Limited if self.clipping_threshold > 0 else LSTM
            self.lstm = kind(num_output=d, weight_filler=fillers[0], bias_filler=fillers[1])
            if isinstance(self.lstm, Limited):
                self.lstm.most = self.clipping_threshold
        self.lstm.context = self.context
        self.lstm.top_shapes((self.steps, n, math.prod(x[1:])), (self.steps, n))
        weight, bias, state_weight = self.lstm.params
        self.params[:] = weight, state_weight, bias
        self.multiply_adds = self.lstm.multiply_adds
        return (x[0], d)

    def allocate(self) -> None:
        self.lstm.runs_backward = self.runs_backward
        self.lstm.allocate()
        self.cont = None
        if not self.clipped:
            self.cont = self.empty((self.steps, self.batch_size), self.sum_dtype)
            self.cont.fill(1)
            self.cont[0].fill(0)

    @property
    def running(self) -> list[Any]:
        """The states from which the next pass starts, if it does not start again."""
        return self.lstm.running if self.clipped else []

    def reset(self) -> None:
        self.lstm.reset()

    def forward(self, x: Any, clip: Any = None) -> Any:
        shape = self.steps, self.batch_size
        if clip is None:
            for state in self.lstm.ends:  # which may be NaN
                arrays.fill(state, 0)
        self.lstm.out = [self.out[0].reshape(*shape, -1)]
        self.lstm.forward(x.reshape(*shape, -1), self.cont if clip is None else clip.reshape(shape))
        return self.out[0]

    def backward(self, dh: Any) -> Any:
        self.lstm.grad, self.lstm.needs_gradient = self.grad, self.needs_gradient
        self.lstm.backward(dh.reshape(self.steps, self.batch_size, -1))
        return self.grad


@register
class ContinuationIndicator(Layer):
    """(time_step, batch_size): 0 in the first row, else 1: the `cont` of an LSTM whose sequences start anew.

    No bottoms, no gradient. Source: ContinuationIndicator of warpctc-caffe.

    Example: -> {type: ContinuationIndicator, time_step: 3, batch_size: 2} -> (3, 2)
    """

    time_step: Annotated[int, "steps of a sequence", AtLeast(1)]
    batch_size: Annotated[int, "sequences", AtLeast(1)]

    traits = Traits(recordable=True, mixes_samples=True)

    def setup(self) -> Shape:
        return (self.time_step, self.batch_size)

    def forward(self) -> Any:
        arrays.fill(self.out[0], 1)
        arrays.fill(self.out[0][0], 0)
        return self.out[0]


class Turned(Layer):
    """Rows of numbers in another order, which done twice is the first; `place` is where each comes from."""

    traits = Traits(recordable=True)
    width = 1  # numbers in a row
    axes: tuple[int, ...]  # that are turned round
    place: Any

    def turned(self, x: Any, out: Any) -> Any:
        take(x.reshape(-1, self.width), self.place, out.reshape(-1, self.width))
        return out

    def forward(self, x: Any) -> Any:
        return self.turned(x, self.out[0])

    def backward(self, dy: Any) -> Any:
        return self.turned(dy, self.grad[0])


@register
class Reverse(Turned):
    """The entries along `axis` in reverse order. Source: Reverse of C. Wick's Caffe.

    Example: (5, 2, 3) -> {type: Reverse} -> (5, 2, 3)
    """

    axis: Annotated[int, "the axis that is turned round"] = 0

    def setup(self, x: Shape) -> Shape:
        axis = canonical_axis(self.axis, x)
        self.traits = replace(self.traits, mixes_samples=axis == 0)
        self.axes, (self.n, self.size, self.width) = (axis,), folded(x, axis)
        return x

    def allocate(self) -> None:
        rows = np.arange(self.n * self.size).reshape(self.n, self.size)[:, ::-1]
        self.place = self.context.device.asarray(np.ascontiguousarray(rows.ravel()), np.int32)


@register
class Flip(Turned):
    """The image turned round: left and right with flip_width, top and bottom with flip_height.

    (n, c, h, w) -> the same. Source: Flip of F. Wang's caffe-windows.

    Example: (2, 3, 4, 5) -> {type: Flip, flip_height: true} -> (2, 3, 4, 5)
    """

    flip_width: Annotated[bool, "turn left and right"] = True
    flip_height: Annotated[bool, "turn top and bottom"] = False

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.shape, self.axes = x, (2,) * self.flip_height + (3,) * self.flip_width
        return x

    def allocate(self) -> None:
        where = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        self.place = self.context.device.asarray(np.flip(where, self.axes).reshape(-1).copy())


@register
class Transpose(Layer):
    """y's axis i is x's axis dim[i]; every axis is named once. Source: Transpose of Z. Tian's Caffe (CTPN).

    Example: (2, 3, 4, 5) -> {type: Transpose, dim: [3, 0, 1, 2]} -> (5, 2, 3, 4)
    """

    dim: Annotated[tuple[int, ...], "the axes in their new order", AtLeast(0)]

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        if sorted(self.dim) != list(range(len(x))):
            raise ShapeError(f"dim: expected each of the {len(x)} axes once, got {list(self.dim)}")
        self.axes = self.dim
        self.traits = replace(self.traits, mixes_samples=self.dim[:1] != (0,))
        return tuple(x[i] for i in self.dim)

    forward, backward = Permute.forward, Permute.backward  # by `axes`


class OfSequences(Whole):
    """CTC's loss of scores (t, n, c): the mean of -log p over the n sequences, on the host, in float64."""

    traits = replace(Whole.traits, **labels(1, 2), is_loss=True, mixes_samples=True)
    x_shape: Shape
    delay = 0

    def read(self, array: Any) -> np.ndarray:
        """A bottom of labels or indicators on the host, in the shape of its first two axes."""
        return self.on_host(array).reshape(array.shape[:2])

    def loss(
        self, x: Any, labels: list[list[int]], lengths: np.ndarray, blank: int, merge: bool
    ) -> Any:
        """The mean loss; a sequence of length 0 has none. Its gradient waits for `backward`."""
        x = self.context.device.to_host(x).astype(np.float64).reshape(self.x_shape)
        loss, gradient = ctc(x[self.delay :], labels, list(lengths - self.delay), blank, merge)
        self.gradient = np.zeros(x.shape)
        self.gradient[self.delay :] = gradient / x.shape[1]
        return self.from_host(loss[lengths > 0].sum() / x.shape[1])

    def backward(self, dloss: Any) -> Any:
        gradient = self.from_host(self.gradient).reshape(self.grad[0].shape)
        return gradient * dloss, *[None] * (len(self.grad) - 1)


@register
class CTCLoss(OfSequences):
    """loss = -sum of log p(labels | x) / n: p sums over all ways to say a sequence's labels, one class a step.

    Bottoms: scores x (t, n, c), of which a softmax is taken; indicators (t, n): a 0 behind the first step
    ends a sequence; labels (t, n): a number below 0 ends them. In a way, equal neighbours are merged unless a
    blank stands between them, with ctc_merge_repeated; then blanks are left out. A sequence without labels
    has no loss. The gradient is the loss's; Wick's is n times that, and has no loss_weight. Top: the loss, of
    shape (). It runs on the host, and waits for the device. Raises DataError for a label that is no class,
    and for more labels than a sequence has steps for. Source: CTCLoss of C. Wick's Caffe; A. Graves et al.,
    Connectionist Temporal Classification, 2006.

    Example: (5, 2, 4), (5, 2), (5, 2) -> {type: CTCLoss, ctc_merge_repeated: false} -> ()
    """

    output_delay: Annotated[int, "steps that come before what is said", AtLeast(0)] = 0
    blank_index: Annotated[int, "the class that says nothing; below 0: the last"] = -1
    preprocess_collapse_repeated: Annotated[bool, "equal neighbours among labels are one"] = False
    ctc_merge_repeated: Annotated[bool, "equal neighbours of a way are one"] = True
    loss_calculation_t: Annotated[int, "Wick's, for his tests: without effect"] = 0

    def setup(self, x: Shape, indicators: Shape, labels: Shape) -> Shape:
        self.x_shape = scored(x, indicators, labels, self.blank_index)
        self.delay = self.output_delay
        if self.output_delay >= x[0]:
            raise ShapeError(f"output_delay: expected below {x[0]} steps, got {self.output_delay}")
        return ()

    def forward(self, x: Any, indicators: Any, labels: Any) -> Any:
        indicators, labels = self.read(indicators), self.read(labels)
        _, n, c = self.x_shape
        blank = self.blank_index if self.blank_index >= 0 else c - 1
        rows, lengths = [], first_end(indicators)
        for i in range(n):
            row = classes(until_negative(labels[:, i]), c, blank, f"sequence {i}")
            if self.preprocess_collapse_repeated:
                row = [one for k, one in enumerate(row) if not k or one != row[k - 1]]
            rows.append(row)
            lengths[i] *= len(row) > 0
            least = needed(row, self.ctc_merge_repeated)
            if least > lengths[i] - self.delay and row:
                raise DataError(
                    f"sequence {i}: its {len(row)} labels need {least} steps, it has "
                    f"{lengths[i] - self.delay}"
                )
        return self.loss(x, rows, lengths, blank, self.ctc_merge_repeated)


@register
class CtcLoss(OfSequences):
    """CTCLoss of sequences that all have time_step steps, as warpctc-caffe has it. Bottoms: scores, labels.

    (time_step, n, alphabet_size), labels (n, l), of which blanks are left out. A sequence that has too few
    steps for its labels has no loss and no gradient, as in warp-ctc. The gradient is the loss's, the mean's;
    warpctc-caffe's is n times that. Top: the loss, of shape (). It runs on the host, and waits for the
    device. Raises DataError for a label that is no class. Source: CtcLoss of warpctc-caffe; A. Graves et al.,
    Connectionist Temporal Classification, 2006.

    Example: (5, 2, 4), (2, 3) -> {type: CtcLoss, alphabet_size: 4, time_step: 5} -> ()
    """

    alphabet_size: Annotated[int, "classes, the blank among them", AtLeast(1)]
    time_step: Annotated[int, "steps of a sequence", AtLeast(1)]
    blank_label: Annotated[int, "the class that says nothing", AtLeast(0)] = 0

    traits = replace(OfSequences.traits, **labels(1))

    def setup(self, x: Shape, labels: Shape) -> Shape:
        wanted = self.time_step, self.alphabet_size
        if len(x) < 3 or (x[0], x[2]) != wanted or math.prod(x[3:]) != 1:
            raise ShapeError(f"needs scores ({wanted[0]}, n, {wanted[1]}), got {x}")
        if len(labels) < 2 or labels[0] != x[1] or math.prod(labels[2:]) != 1:
            raise ShapeError(f"needs labels ({x[1]}, l), a row a sequence, got {labels}")
        if self.blank_label >= self.alphabet_size:
            raise ShapeError(f"blank_label: expected below {wanted[1]}, got {self.blank_label}")
        self.x_shape = x[:3]
        return ()

    def forward(self, x: Any, labels: Any) -> Any:
        count, blank, pairs = self.alphabet_size, self.blank_label, enumerate(self.read(labels))
        rows = [classes(row[row != blank], count, blank, f"sequence {i}") for i, row in pairs]
        long = np.array([needed(row, True) <= self.time_step for row in rows])
        return self.loss(x, rows, self.time_step * long, blank, True)


def until_negative(label: np.ndarray) -> np.ndarray:
    """What stands before the first number below 0, rounded."""
    ended = np.flatnonzero(label < 0)
    return np.floor(label[: ended[0] if len(ended) else None] + 0.5)


def scored(x: Shape, indicators: Shape, labels: Shape | None, blank: int) -> Shape:
    """Returns (t, n, c) of scores. Raises ShapeError for bottoms or a blank that do not go with them."""
    if len(x) < 3 or math.prod(x[3:]) != 1:
        raise ShapeError(f"needs scores (t, n, c), got {x}")
    for what, shape in (("indicators", indicators), ("labels", labels)):
        if shape is not None and (shape[:2] != x[:2] or math.prod(shape[2:]) != 1):
            raise ShapeError(f"needs {what} {x[:2]}, got {shape}")
    if blank >= x[2]:
        raise ShapeError(f"blank_index: expected below {x[2]}, got {blank}")
    return x[:3]


def first_end(marks: np.ndarray) -> np.ndarray:
    """Of each column of marks (t, n) the first row behind the first that is 0 when rounded; else t.

    >>> first_end(np.array([[0, 0], [1, 1], [1, 0]]))
    array([3, 2])
    """
    ends = np.floor(marks + 0.5).astype(int) == 0
    ends[:1] = False
    return np.where(ends.any(axis=0), ends.argmax(axis=0), len(marks))


@register
class CTCGreedyDecoder(Whole):
    """The best class of each step, without what is repeated and without blanks: what a sequence says.

    Bottoms: scores (t, n, c); indicators (t, n), in which a 0 behind the first step ends a sequence;
    optionally the labels (t, n), a number below 0 behind them. Tops: what is said (t, n, 1, 1), -1 behind it;
    of two bottoms, scores (n, 1, 1, 1): minus the sum of the best classes' scores; of three, the accuracy (1,
    1, 1, 1), or both in this order: 1 - the mean of edits over the length of the longer of said and label. It
    runs on the host, waits for the device, and has no gradient. Source: CTCGreedyDecoder of C. Wick's Caffe.

    Example: (5, 2, 4), (5, 2) -> {type: CTCGreedyDecoder} -> (5, 2, 1, 1), (2, 1, 1, 1)
    """

    blank_index: Annotated[int, "the class that says nothing; below 0: the last"] = -1
    ctc_merge_repeated: Annotated[bool, "equal neighbours are one"] = True

    traits = Traits(
        capturable=False,
        mixes_samples=True,
        label_bottoms=(0, 1, 2),
        float32_bottoms=(1, 2),
        float32_tops=(0, 1, 2),
    )

    def setup(self, x: Shape, indicators: Shape, labels: Shape | None = None) -> list[Shape]:
        self.x_shape = scored(x, indicators, labels, self.blank_index)
        said, scores, accuracy = (*x[:2], 1, 1), (x[1], 1, 1, 1), (1, 1, 1, 1)
        count = max(len(self.top), 1)
        if labels is None:
            return [said, scores][:count]
        return [[said], [said, accuracy], [said, scores, accuracy]][min(count, 3) - 1]

    def forward(self, x: Any, indicators: Any, labels: Any = None) -> Any:
        (steps, n, c), x = self.x_shape, self.on_host(x).reshape(self.x_shape)
        blank = self.blank_index if self.blank_index >= 0 else c - 1
        marks = self.on_host(indicators).reshape(steps, n) != 0
        inside = np.arange(steps)[:, None] < first_end(marks.astype(int))
        best, rows = x.argmax(axis=2), np.full((steps, n), -1)
        shown = inside & (best != blank)
        if self.ctc_merge_repeated:
            shown[1:] &= best[1:] != best[:-1]
        said = [best[shown[:, i], i] for i in range(n)]
        for i, row in enumerate(said):
            rows[: len(row), i] = row
        values = [rows, -(x.max(axis=2) * inside).sum(axis=0)]
        if labels is not None:
            labels = self.on_host(labels).reshape(steps, n)
            pairs = zip(map(list, said), map(list, map(until_negative, labels.T)), strict=True)
            wrong = sum(edits(a, b) / max(len(a), len(b), 1) for a, b in pairs)
            values.append(np.array(1 - wrong / n))
            values = [values[i] for i in ((0,), (0, 2), (0, 1, 2))[len(self.out) - 1]]
        tops = zip(values, self.out, strict=False)
        return [self.from_host(array.reshape(top.shape)) for array, top in tops]
