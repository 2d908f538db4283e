"""Iterations on CUDA, captured and replayed: the bits of such as are taken as they are; what refuses, and why."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from core.layers.test_every_layer import Stretched
from core.solver.test_every_layer import TYPES, trained
from core.solver.twins import Quiet, Twins, calls, differences, graphs, numbers, replays, twins
from gpu import HAS_GPU
from kit import few_digits, model_of, registered

from minicaffe import Layer, Solver, Traits, parse, register
from minicaffe.backends.cuda import cublas, fusion
from minicaffe.backends.replay import replay
from minicaffe.backends.replay.replay import Graph
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


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """The drawn digits, but few; files go into a folder of their own."""
    few_digits(monkeypatch)
    monkeypatch.chdir(tmp_path)


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


@pytest.fixture
def own():
    """A layer of one's own, registered."""
    with registered(Stretched):
        yield


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


def own_before_loss(kind):
    """The model with a layer of one's own before its loss."""
    loss = "  - {name: loss"
    return GIVEN.replace(loss, f"  - {{name: own, type: {kind}, top: ip}}\n{loss}")


def told(cuda, text=GIVEN, count=6, **settings):
    """A solver that has taken some iterations, and the events it told."""
    heard = Heard()
    solver = Solver(parse(text), device=cuda, report=heard, **settings)
    solver.step(count)
    return solver, heard.events


def test_products_by_cublas_go_into_the_graph(cuda, monkeypatch):
    monkeypatch.setattr(problem, "OWN", 10)
    solver, events = told(cuda)
    plain, none = told(cuda, graph=False)
    assert len(graphs(solver)) == 1 and events == none == []
    assert not replays(plain) and not differences(numbers(solver), numbers(plain))


def test_products_by_a_cublas_that_is_not_found_do_not(cuda, monkeypatch):
    """CuPy refuses them in a capture: they lie between graphs, which is said once."""
    monkeypatch.setattr(problem, "OWN", 10)
    monkeypatch.setattr(cublas, "library", lambda: None)
    solver, (event,) = told(cuda)
    assert len(graphs(solver)) == 3
    assert event.startswith("not in a CUDA graph: ip forward: a product by cuBLAS")


@pytest.mark.parametrize("left_out", ["cublasSetStream_v2", "cublasSetWorkspace_v2"])
def test_cublas_must_be_told_the_stream_and_its_memory(cuda, monkeypatch, left_out):
    """Else it refuses within a capture, and training goes on without it; a GPU multiplies in another stream."""
    monkeypatch.setattr(problem, "OWN", 10)
    known = cublas.library()
    monkeypatch.setattr(cublas, "library", lambda: known | {left_out: lambda *args: None})
    _, events = told(cuda)
    reasons = ("another stream", "a workspace taken in a capture", "a replay gave another")
    if HAS_GPU and left_out == "cublasSetWorkspace_v2":  # it finds memory of its own for a graph
        assert events == []
    else:
        assert len(events) == 1 and any(reason in events[0] for reason in reasons)


def test_a_layer_may_say_that_it_is_not_to_be_captured(cuda, monkeypatch):
    said = replace(REGISTRY["InnerProduct"].traits, capturable=False)
    monkeypatch.setattr(REGISTRY["InnerProduct"], "traits", said)
    _, (event,) = told(cuda)
    assert "ip forward: InnerProduct says capturable=False" in event


def test_a_layer_of_ones_own_may_say_that_it_can_be(cuda, own, monkeypatch):
    _, (event,) = told(cuda, own_before_loss("Stretched"))
    assert event == f"not in a CUDA graph: own forward: {OWN}; own backward: {OWN}"
    monkeypatch.setattr(REGISTRY["Stretched"], "traits", Traits(capturable=True))
    _, (event,) = told(cuda, own_before_loss("Stretched"))
    # it takes memory, which is elsewhere each time, or in the capture
    reasons = "own forward is not the same in each|allocations in a capture|taken in a capture"
    assert re.search(reasons, event)


class Doubled(Layer):
    """2 x, into the buffers that are there."""

    traits = Traits(capturable=True)

    def setup(self, x):
        return x

    def forward(self, x):
        return self.xp.multiply(x, x.dtype.type(2), out=self.out[0])

    def backward(self, dy):
        return self.xp.multiply(dy, dy.dtype.type(2), out=self.grad[0])


def test_a_layer_of_ones_own_can_be_a_part(cuda, own):
    register(Doubled)
    text = own_before_loss("Doubled")
    both = Twins(lambda: Solver(parse(text), device=cuda, report=Heard()))
    both.step(7)
    assert len(graphs(both.replaying)) == 1 and both.replaying.report.events == []


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
        with pytest.raises(DivergedError) as error:
            solver.loss()
        said.append(str(error.value).partition(":")[0])
    assert said == ["iteration 6"] * 2


def test_what_a_capture_refuses_goes_on_as_it_is(cuda, monkeypatch):
    def refuses(device, work, needs):
        raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    monkeypatch.setattr(replay, "captured", refuses)
    both = Twins(lambda: Solver(parse(GIVEN), device=cuda, report=Heard()))
    both.step(7)
    (event,) = both.replaying.report.events
    assert event == "not in a CUDA graph: what is kept to SGD: cudaErrorStreamCaptureUnsupported"


def test_an_iteration_that_is_never_the_same_is_told(cuda, monkeypatch):
    step = Update.step

    def wavering(self):
        arrays.scale(self.scratch, 1.0 + self.watch.last % 2, self.scratch)
        step(self)

    monkeypatch.setattr(Update, "step", wavering)
    solver, (event,) = told(cuda)
    assert event == "not in a CUDA graph: SGD is not the same in each"
    assert not replays(solver)


def left_out(graph):
    del graph.parts[-1]


def twice(graph):
    graph.parts.append(graph.parts[-1])


def in_each_others_place(graph):
    i = next(i for i, part in enumerate(graph.parts) if part.what == "ip forward")
    graph.parts[i - 1 : i + 1] = graph.parts[i], graph.parts[i - 1]


@pytest.mark.parametrize("fault", [left_out, twice, in_each_others_place])
def test_a_replay_that_differs_is_found_and_given_up(cuda, fault, monkeypatch):
    """Training goes on with the bits of iterations as they are, and says why."""
    make = Graph.__init__

    def faulty(self, parts, device):
        make(self, list(parts), device)
        fault(self)

    monkeypatch.setattr(Graph, "__init__", faulty)
    both = Twins(lambda: Solver(parse(GIVEN), device=cuda, report=Heard()))
    both.step(8)
    (event,) = both.replaying.report.events
    assert event.startswith("not in a CUDA graph: a replay gave another ")
    assert not both.replays


def test_a_relu_that_no_kernel_ends_in_is_found(cuda, monkeypatch):
    """Its own kernel is not launched, and nobody else does it."""
    monkeypatch.setitem(fusion.SECOND, "elementwise", lambda first, then: first)
    both = twins(", display: 1", device=cuda, engine="implicit")
    both.step(8)
    (reason,) = both.replaying.iterations.reasons
    assert reason.startswith("a replay gave another ")
