"""BatchNorm, Scale and ReLU of a replay, which are one loop each way: the bits of an iteration layer by layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.cpu import available
from minicaffe.replay import fusion_training
from minicaffe.replay.command import Row
from tests.solver.twins import segments, twins

pytestmark = pytest.mark.skipif(not available(), reason="needs Numba: loops are compiled")

MODEL = """
name: chain
layers:
  - {{name: data, type: Data, top: [x, label], source: digits, batch_size: 5, transform: {{scale: 0.004}}}}
  - {{name: conv, type: Convolution, bottom: x, num_output: 6, kernel_size: 5, stride: 2%s}}
%s
  - {{name: ip, type: InnerProduct, num_output: 10}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver: {{base_lr: 0.05, momentum: 0.9, max_iter: 1000{more}}}
"""
NORM = "  - {{name: norm, type: BatchNorm}}\n"
SCALE = "  - {{name: scale, type: Scale, bias_term: true}}\n"
RELU = "  - {{name: relu, type: ReLU, top: scale}}\n"
FIXED = (
    "  - {{name: scale, type: Scale, bias_term: true, param: [{{lr_mult: 0}}, {{lr_mult: 0}}]}}\n"
)
FORWARD, BACKWARD = "norm to relu forward", "relu to norm backward"


@pytest.mark.parametrize(
    ("layers", "conv", "rows"),
    [
        (NORM + SCALE + RELU, "", [FORWARD, BACKWARD]),
        (NORM + SCALE + RELU, ", bias_term: false", [FORWARD, BACKWARD]),
        (NORM + SCALE, "", ["norm to scale forward", "scale to norm backward"]),
        (NORM, "", ["norm forward", "norm backward"]),
        (NORM + RELU.replace("scale", "norm"), "", ["norm forward", "relu forward"]),
        (NORM + SCALE.replace("true", "false") + RELU, "", [FORWARD, BACKWARD]),
        (NORM + FIXED + RELU, "", [FORWARD, "relu backward", "scale backward", "norm backward"]),
        (NORM + SCALE + RELU.replace("top: scale", "top: apart"), "", ["relu forward", BACKWARD]),
        (NORM + SCALE + RELU.replace("ReLU", "ELU"), "", ["norm to scale forward", "relu forward"]),
        (SCALE + RELU, "", ["scale forward", "relu to scale backward"]),
        (NORM + RELU.replace("scale", "norm") + SCALE + NORM.replace("norm", "more"), "", []),
    ],
)
def test_the_bits_are_those_of_layers(layers, conv, rows):
    both = twins(", iter_size: 2" if conv else "", MODEL % (conv, layers.rstrip("\n")))
    both.step(7)
    assert both.replays
    whose = [what for segment in segments(both.replaying) for what in segment.whose]
    assert set(rows) <= set(whose), whose


@pytest.mark.parametrize(("dtype", "threads"), [("float32", "3"), ("float64", "1")])
def test_of_any_type_and_number_of_threads(dtype, threads, monkeypatch):
    monkeypatch.setenv("MINICAFFE_THREADS", threads)
    both = twins("", MODEL % ("", (NORM + SCALE + RELU).rstrip("\n")), dtype=dtype)
    both.step(7)
    whose = [what for segment in segments(both.replaying) for what in segment.whose]
    assert {FORWARD, BACKWARD} <= set(whose)


def test_arrays_that_overlap_are_not_passed_channel_by_channel():
    """What one channel writes, another would read: memory of gradients is lent again."""
    block = np.zeros(40, "f")

    def loop(*args):
        """Stands for a loop: it is not called."""

    loop.__module__, loop.__name__ = "minicaffe.cpu.kernels.normalize", "statistics"
    x, numbers = block[:24], [np.zeros(3, "f") for _ in range(6)]
    statistics = Row(loop, (x, (2, 3, 4), 0, np.float32(1), *numbers[:3]), 3, 1)
    sums = (*numbers[:2], np.float32(1), np.float32(1), *numbers[3:5], np.zeros(1, "f"))
    remembered = fusion_training.TRAINING["normalize.statistics", "running.remember"](
        statistics, Row(loop, sums, 3, 1)
    )
    assert remembered is not None
    join = fusion_training.TRAINING["batch_norm.forward", "normalize.normalise"]
    for hat, joined in ((np.zeros(24, "f"), True), (x, True), (block[4:28], False)):
        then = Row(loop, (x, (2, 3, 4), numbers[0], numbers[2], hat), 3, 1)
        assert (join(remembered, then) is not None) == joined


def test_only_what_touches_other_memory_is_moved():
    def loop(*args):
        """Stands for a loop."""

    def row(name, *args):
        module, _, function = name.partition(".")
        named = type(loop)(loop.__code__, {}, function)
        named.__module__ = f"kernels.{module}"
        return Row(named, args, 4, 1)

    a, b = np.zeros(4, "f"), np.zeros(4, "f")
    slope = row("elementwise.ReLU_slope", a, a, a, (), a)
    assert fusion_training.may_go_before(slope, row("arrays.copy", b))
    assert not fusion_training.may_go_before(slope, row("arrays.copy", a[2:]))
    assert not fusion_training.may_go_before(slope, row("channels.scale", b))
    assert not fusion_training.may_go_before(
        row("elementwise.ReLU_y", a, (), a), row("arrays.copy", b)
    )


@st.composite
def chains(draw):
    """The text of a net: layers that are joined, others between them, and blobs that are read twice."""
    sizes = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3, 17]))
    stride = draw(st.sampled_from([2, 4]))
    lines, blobs = [], ["conv"]
    for i in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["BatchNorm", "Scale", "ReLU", "PReLU", "ELU", "Eltwise"]))
        bottom, top, more = blobs[-1], f"{kind.lower()}{i}", ""
        if kind == "Scale":
            options = ["", ", bias_term: true", ", bias_term: true, num_axes: 2", ", num_axes: 0"]
            options += [", bias_term: true, param: [{{lr_mult: 0}}, {{lr_mult: 1}}]"]
            more = draw(st.sampled_from(options))
        if kind in ("ReLU", "ELU") and draw(st.booleans()):
            top = bottom
        if kind == "Eltwise":
            bottom = f"[{bottom}, {draw(st.sampled_from(blobs))}]"
        name = f"{kind.lower()}{i}"
        lines.append(f"  - {{{{name: {name}, type: {kind}, bottom: {bottom}, top: {top}{more}}}}}")
        if top != blobs[-1]:
            blobs.append(top)
    model = MODEL % ("", "\n".join(lines))
    model = model.replace("batch_size: 5", f"batch_size: {sizes[0]}")
    return model.replace("num_output: 6", f"num_output: {sizes[1]}").replace(
        "stride: 2", f"stride: {stride}"
    )


@settings(max_examples=8, deadline=None)
@given(model=chains(), more=st.sampled_from(["", ", iter_size: 2", ", weight_decay: 0.01"]))
def test_nets_at_random_have_the_bits_of_layers(model, more):
    with np.errstate(all="ignore"):
        both = twins(more, model, dtype="float64")
        both.step(5)
    assert both.replays
