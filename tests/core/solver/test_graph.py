"""Iterations on CUDA, captured and replayed: the bits of such as are taken as they are; what refuses, and why."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from core.layers.test_every_layer import Stretched
from core.solver.test_every_layer import TYPES, trained
from core.solver.twins import Quiet, Twins, calls, graphs, twins
from gpu import HAS_GPU
from kit import model_of, refusal, registered

from minicaffe import Layer, Solver, Traits, parse
from minicaffe.backends.cuda import cublas, fusion
from minicaffe.backends.replay import replay
from minicaffe.backends.replay.replay import CudaGraph
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv import problem
from minicaffe.core.solver.update_rules import Update
from minicaffe.errors import DivergedError

OWN = "its Python is not minicaffe's"
KINDS = [(kind, "float32") for kind in TYPES]
KINDS += [("SGD", "float64"), ("SGD", "float16"), ("Adam", "float16")]


class Heard(Quiet):
    """Remembers the events."""

    def __init__(self):
        self.events = []

    def event(self, text):
        self.events.append(text)


pytestmark = pytest.mark.usefixtures("fifty_digits")


def steps(request, few, many):
    return many if request.config.getoption("--long") else few


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_a_replay_has_the_bits_of_an_iteration(cuda, kind, dtype, request):
    """Dropout, a mirrored and cropped batch, clipping, an average, and a rate that changes each time."""
    more = ", clip_gradients: 0.5, ema_decay: 0.9, lr_policy: inv, gamma: 0.1, power: 0.75"
    both = twins(more, kind=kind, device=cuda, dtype=dtype, engine="implicit")
    both.step(steps(request, 6, 200))
    assert both.replays
    assert [graph.why for graph in graphs(both.replaying)] == [""]
    assert calls(both.replaying).keys() == {"the batch", "the end"}


def test_batches_that_are_summed(cuda, request):
    """With iter_size 2 the second batch is drawn between two graphs."""
    both = twins(", iter_size: 2", device=cuda, engine="implicit")
    both.step(steps(request, 7, 200))
    assert both.replays and len(graphs(both.replaying)) == 2


def test_a_snapshot_and_a_resume_in_between(cuda):
    trained(twins(", ema_decay: 0.9", device=cuda, engine="implicit"), 12)


def test_what_cupy_does_itself_comes_behind_what_is_held_back(cuda):
    """The gradient of a maximum that a pooling sees, of two blobs that others read too."""
    both = twins("", text=MOST, device=cuda, engine="implicit")
    both.step(8)
    assert both.replays and [graph.why for graph in graphs(both.replaying)] == [""]


MOST = """
layers:
  - {{name: data, type: Data, top: [data, label], source: digits, batch_size: 4}}
  - {{name: a, type: Convolution, bottom: data, top: a, num_output: 3, kernel_size: 5, stride: 3}}
  - {{name: b, type: Convolution, bottom: data, top: b, num_output: 3, kernel_size: 5, stride: 3}}
  - {{name: most, type: Eltwise, bottom: [a, b, a], top: most, operation: MAX}}
  - {{name: pool, type: Pooling, bottom: most, top: [pool, mask], kernel_size: 2, stride: 2}}
  - {{name: back, type: Upsample, bottom: [pool, mask], top: back}}
  - {{name: sum, type: Eltwise, bottom: [back, a], top: sum}}
  - {{name: ip, type: InnerProduct, bottom: sum, top: ip, num_output: 10}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
solver: {{base_lr: 0.1, momentum: 0.9, max_iter: 9{more}}}
"""


GIVEN = model_of(
    {"x": [4, 6, 5, 5], "label": [4]},
    "conv Convolution bottom: x, num_output: 4, kernel_size: 3, engine: implicit",
    "ip InnerProduct num_output: 5",
    "loss SoftmaxWithLoss bottom: [ip, label]",
    head="solver: {base_lr: 0.1, momentum: 0.9, max_iter: 99}",
)


class Doubled(Layer):
    """2 x, into the buffers that are there."""

    traits = Traits(capturable=True)

    def setup(self, x):
        return x

    def forward(self, x):
        return self.xp.multiply(x, x.dtype.type(2), out=self.out[0])

    def backward(self, dy):
        return self.xp.multiply(dy, dy.dtype.type(2), out=self.grad[0])


def nothing(patch):
    """All is as it is."""


def by_cublas(patch):
    patch.setattr(problem, "OWN", 10)


def by_no_cublas(patch):
    """CuPy refuses its products in a capture."""
    by_cublas(patch)
    patch.setattr(cublas, "library", lambda: None)


def untold(function):
    """cuBLAS must be told the stream and its memory; else it refuses within a capture."""

    def setup(patch):
        by_cublas(patch)
        known = cublas.library()
        patch.setattr(cublas, "library", lambda: known | {function: lambda *args: None})

    return setup


def saying(kind, able):
    """A layer says whether it can be captured."""
    return lambda patch: patch.setattr(
        REGISTRY[kind], "traits", replace(REGISTRY[kind].traits, capturable=able)
    )


def refusing(patch):
    def refuses(device, work, needs):
        raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    patch.setattr(replay, "captured", refuses)


def wavering(patch):
    """An update is not the same in each."""
    step = Update.step

    def other(self):
        arrays.scale(self.scratch, 1.0 + self.watch.last % 2, self.scratch)
        step(self)

    patch.setattr(Update, "step", other)


def faulty(change):
    """Graphs of other parts than were recorded."""
    make = CudaGraph.__init__

    def setup(patch):
        def other(self, parts, device):
            make(self, list(parts), device)
            change(self.parts)

        patch.setattr(CudaGraph, "__init__", other)

    return setup


def in_each_others_place(parts):
    i = next(i for i, part in enumerate(parts) if part.what == "ip forward")
    parts[i - 1 : i + 1] = parts[i], parts[i - 1]


UNTOLD = "another stream|a workspace taken in a capture|a replay gave another"
MEMORY = "own forward is not the same in each|allocations in a capture|taken in a capture"


@pytest.mark.parametrize(
    ("setup", "own", "said", "count"),
    [
        (by_cublas, "", "", 1),
        (by_no_cublas, "", "^ip forward: a product by cuBLAS", 3),
        (untold("cublasSetStream_v2"), "", UNTOLD, None),
        (untold("cublasSetWorkspace_v2"), "", "" if HAS_GPU else UNTOLD, None),  # a GPU's finds memory for a graph
        (saying("InnerProduct", False), "", "ip forward: InnerProduct says capturable=False", None),
        (nothing, "Doubled", "", 1),
        (nothing, "Stretched", f"^own forward: {OWN}; own backward: {OWN}$", None),
        (saying("Stretched", True), "Stretched", MEMORY, None),  # it takes memory, elsewhere each time
        (refusing, "", "^what is kept to SGD: cudaErrorStreamCaptureUnsupported$", None),
        (wavering, "", "^SGD is not the same in each$", 0),
        (faulty(lambda parts: parts.pop()), "", "^a replay gave another ", 0),
        (faulty(lambda parts: parts.append(parts[-1])), "", "^a replay gave another ", 0),
        (faulty(in_each_others_place), "", "^a replay gave another ", 0),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_is_not_in_a_graph_is_told_once(cuda, setup, own, said, count, monkeypatch):
    """Training goes on with the bits of iterations as they are."""
    with registered(Stretched, Doubled):
        setup(monkeypatch)
        loss = "  - {name: loss"
        layer = f"  - {{name: own, type: {own}, top: ip}}\n{loss}" if own else loss
        text = GIVEN.replace(loss, layer)
        both = Twins(lambda: Solver(parse(text), device=cuda, report=Heard()))
        both.step(8)
    events = both.replaying.report.events
    assert len(events) == bool(said)
    for event in events:
        assert re.search(said, event.removeprefix("not in a CUDA graph: ")), event
    assert count in (None, len(graphs(both.replaying))) and both.replays is (count != 0)


def test_what_is_watched_is_not_captured(cuda):
    solver = Solver(parse(GIVEN), device=cuda, report=Heard())
    solver.step(6)
    solver.net.steps[0].watchers.setdefault("before_forward", []).append(lambda: None)
    solver.step(2)
    assert solver.report.events == ["not in a CUDA graph: somebody watches a layer"]


def test_an_interrupted_iteration_is_counted_once(cuda, monkeypatch):
    """However it is taken, a gradient that is no number is found in its own iteration."""
    said = []
    for graph in (True, False):
        solver = Solver(parse(GIVEN), device=cuda, report=Heard(), graph=graph)
        solver.step(3)
        with monkeypatch.context() as patch:
            patch.setattr(type(solver.iterations), "passes", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                solver.net.reshape(x=(2, 6, 5, 5), label=(2,))
                solver.step(1)
        solver.step(3)
        solver.net.params["ip"][0].data.fill(np.nan)
        solver.step(1)
        said.append(refusal(solver.loss, error=DivergedError).partition(":")[0])
        assert solver.report.events == []
    assert said == ["iteration 6"] * 2


def test_a_relu_that_no_kernel_ends_in_is_found(cuda, monkeypatch):
    """Its own kernel is not launched, and nobody else does it."""
    monkeypatch.setitem(fusion.SECOND, "elementwise", lambda first, then: first)
    both = twins(", display: 1", device=cuda, engine="implicit")
    both.step(8)
    (reason,) = both.replaying.iterations.reasons
    assert reason.startswith("a replay gave another ")
