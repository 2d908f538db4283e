"""Model files: what they may say, and the one line that each mistake gets."""

import itertools
import tracemalloc

import pytest
from calls import calls
from kit import refusal, rows

from minicaffe.core.config.declare import Rule, State
from minicaffe.core.net import Net, parse
from minicaffe.core.solver.update_rules import KINDS
from minicaffe.errors import SpecError

NET = """\
name: small
layers:
  - name: data
    type: Input
    top: [data, label]
    shape: [{dim: [2, 1, 8, 8]}, {dim: [2]}]
  - name: conv1
    type: Convolution
    bottom: data
    num_output: 4
    kernel_size: 3
    weight_filler: {type: xavier}
  - name: pool1
    type: Pooling
    pool: MAX
    kernel_size: 2
    stride: 2
  - name: ip1
    type: InnerProduct
    num_output: 5
    param: [{lr_mult: 1}, {lr_mult: 2}]
  - name: loss
    type: SoftmaxWithLoss
    bottom: [ip1, label]

solver:
  base_lr: 0.01
  max_iter: 10
"""


def changed(old: str, new: str) -> str:
    assert NET.count(old) == 1, old
    return NET.replace(old, new)


def refused(text: str) -> str:
    return refusal(lambda: Net(parse(text, "m.yaml"), "TRAIN", device="cpu"))


@pytest.mark.parametrize(
    ("rule", "state", "holds"),
    [
        ({}, {}, True),
        ({"min_level": 1}, {}, False),
        ({"min_level": 0, "max_level": 0}, {}, True),
        ({"min_level": 2, "max_level": 3}, {"level": 3}, True),
        ({"max_level": -1}, {"level": 0}, False),
        ({"stage": ("a", "b")}, {"stage": ("b", "c", "a")}, True),
        ({"stage": ("a", "b")}, {"stage": ("a",)}, False),
        ({"not_stage": ("a", "b")}, {"stage": ("b",)}, False),
        ({"not_stage": ("a",), "phase": "TEST"}, {"stage": ("b",), "phase": "TEST"}, True),
        ({"phase": "TEST", "stage": ("b",)}, {"stage": ("b",), "phase": "TRAIN"}, False),
    ],
)
def test_a_rule_holds_if_all_of_it_does(rule, state, holds):
    """Caffe's Net::StateMeetsRule."""
    assert Rule(**rule).holds(State(**state)) is holds


STAGED = """
state: {level: 2, stage: deploy}
layers:
  - {name: data, type: Input, shape: {dim: [2, 3]}}
  - {name: low, type: ReLU, include: {max_level: 1}}
  - {name: high, type: ReLU, bottom: data, include: [{min_level: 2, not_stage: fast}, {stage: all}]}
  - {name: loss, type: Flatten, bottom: data, exclude: {stage: deploy}}
"""


def test_a_net_is_built_for_its_state_unless_told_otherwise():
    def names(**state):
        return list(Net(parse(STAGED), device="cpu", **state).layers)

    assert names() == ["data", "high"]
    assert names(level=0) == ["data", "low"]
    assert names(stages=["fast"]) == ["data"]
    assert names(stages=["fast", "all"]) == ["data", "high"]
    assert names(phase="TEST") == ["data", "high"]
    spec = parse("state: TEST\n" + NET)
    assert Net(spec, device="cpu").phase == "TEST"
    assert Net(spec, "TRAIN", device="cpu").phase == "TRAIN"
    with pytest.raises(SpecError, match="takes no part in the phase TRAIN, level 1, stage deploy"):
        Net(parse(STAGED + "  - {name: x, type: ReLU, bottom: high}\n"), device="cpu", level=1)


NAMES = {  # of what stands in the table
    "{NET}": NET,
    "{INPUT}": "type: Input\n    top: [data, label]\n    shape: [{dim: [2, 1, 8, 8]}, {dim: [2]}]",
    "{CONV}": "layer 'conv1' (Convolution)",
    "{POOL}": "layer 'pool1' (Pooling)",
    "{IP}": "layer 'ip1' (InnerProduct)",
    "{LOSS}": "layer 'loss' (SoftmaxWithLoss)",
    "{KINDS}": ", ".join(KINDS),
}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        *rows(r"""
        # the file as a whole
        {NET} | | 1:1: is empty; expected a mapping with 'name' and 'layers'
        {NET} | [] | 1:1: expected a mapping, got an empty list
        {NET} | {} | 1:1: missing key 'layers' (the list of layers)
        {NET} | layers: | 1:8: layers: expected a list, got nothing
        {NET} | layers: {a: 1} | 1:9: layers: expected a list, got a mapping
        {NET} | layers: [] | 1:9: layers: expected at least one layer
        {NET} | layers: [5] | 1:10: layer 1: expected a mapping, got 5
        {NET} | layers: [{}] | 1:10: layer 1: missing key 'type' (the layer's class)
        name: small | nmae: small | 1:1: unknown key 'nmae'; did you mean 'name'?
        name: small | name: 5 | 1:7: name: expected text, got 5; quote it to make it text
        solver: | solvr: | 26:1: unknown key 'solvr'; did you mean 'solver'?
        # a layer's keys
        num_output: 4 | num_ouput: 4 | 10:5: {CONV}: unknown key 'num_ouput'; did you mean 'num_output'?
        \n    num_output: 4 | | 7:5: {CONV}: missing key 'num_output' (number of filters)
        num_output: 4 | num_output: four | 10:17: {CONV}: num_output: expected an integer, got 'four'
        num_output: 4 | num_output: 0 | 10:17: {CONV}: num_output: expected at least 1, got 0
        kernel_size: 3 | kernel_size: [1, 2, 3] | 7:5: {CONV}: kernel_size: expected one number or [h, w], got 3 numbers
        kernel_size: 3 | kernel_h: 3 | 7:5: {CONV}: needs both kernel_h and kernel_w
        kernel_size: 3 | kernel_size: 3\n    kernel_h: 3 | 7:5: {CONV}: give either kernel_size or kernel_h and kernel_w, not both
        kernel_size: 3 | kernel_size: 3\n    group: 3 | 7:5: {CONV}: channels 1 cannot be divided into group 3
        - name: conv1\n    type | - type | 7:5: layer 2 (Convolution): missing key 'name' (the layer's name, unique in its phase)
        name: conv1 | name: '' | 7:11: layer '' (Convolution): name: expected printable text, got ''
        name: conv1 | name: '@x' | 7:11: layer '@x' (Convolution): name: expected text not led by '@', got '@x'
        name: conv1 | name: 7 | 7:11: layer 2 (Convolution): name: expected text, got 7; quote it to make it text
        type: Convolution | type: 5 | 8:11: layer 'conv1': type: expected text, got 5; quote it to make it text
        type: Convolution | type: convolution | 8:11: layer 'conv1': unknown type 'convolution'; did you mean 'Convolution'?
        type: Convolution | type: Zebra | 8:11: layer 'conv1': unknown type 'Zebra'; see minicaffe layers, or --import FILE
        {type: xavier} | {type: xavior} | 12:27: {CONV}: weight_filler: type: expected one of constant, gaussian, uniform, xavier, msra, positive_unitball, bilinear, got 'xavior'; did you mean 'xavier'?
        {type: xavier} | {type: uniform, min: 2} | 12:20: {CONV}: weight_filler: expected min <= max, got min 2.0 and max 1.0
        {type: xavier} | {type: gaussian, std: -1} | 12:42: {CONV}: weight_filler: std: expected at least 0, got -1.0
        {type: xavier} | bilinear\n    stride: [1, 1]\n    kernel_w: 3 | 7:5: {CONV}: give either kernel_size or kernel_h and kernel_w, not both
        pool: MAX | pool: max | 15:11: {POOL}: pool: expected one of MAX, AVE, STOCHASTIC, got 'max'; did you mean 'MAX'?
        {lr_mult: 1}, {lr_mult: 2} | {lr_mult: 1}, {decay_mult: -2} | 21:40: {IP}: param: decay_mult: expected at least 0, got -2.0
        {lr_mult: 1}, {lr_mult: 2} | {}, {}, {lr_mult: 2} | 21:21: {IP}: param: 3 entries for 2 parameter(s)
        {lr_mult: 1}, {lr_mult: 2} | {name: w}, {name: w} | 21:24: {IP}: param 'w' has shape (5,) here, (5, 36) in {IP} at line 18
        {lr_mult: 1}, {lr_mult: 2} | {name: ''} | 21:20: {IP}: param: name: expected printable text, got ''
        # blobs
        bottom: data | bottom: dta | 9:13: {CONV}: unknown bottom 'dta'; did you mean 'data'?
        bottom: [ip1, label] | bottom: [ip1, zebra] | 24:19: {LOSS}: unknown bottom 'zebra'
        bottom: data | bottom: conv1 | 9:13: {CONV}: reads its own top 'conv1' before anything wrote it
        bottom: data | bottom: ip1 | 9:13: {CONV}: bottom 'ip1' is written below, by layer 'ip1' at line 18; a layer reads only what stands above it
        bottom: data | bottom: [''] | 9:14: {CONV}: bottom: expected printable text, got ''
        bottom: data | bottom: [] | 7:5: {CONV}: takes at least 1 bottom(s), got 0
        bottom: data | bottom: [data, label] | 7:5: {CONV}: needs bottoms of one shape, got (2, 1, 8, 8) and (2,)
        bottom: data | bottom: label | 7:5: {CONV}: needs a bottom with 1 to 3 axes after the channels' axis 1, got (2,)
        pool: MAX | top: conv1\n    pool: MAX\n    bottom: data | 15:10: {POOL}: top 'conv1' is already written by layer 'conv1' at line 7; to work in place, name it as a bottom too
        pool: MAX | top: [a, a]\n    pool: MAX | 15:14: {POOL}: top 'a' is already written by layer 'pool1' at line 13; to work in place, name it as a bottom too
        pool: MAX | top: [a, b, c]\n    pool: MAX | 15:11: {POOL}: top: expected 2 name(s), got 3
        pool: MAX | top: []\n    pool: MAX | 15:10: {POOL}: top: expected 1 name(s), got 0
        name: pool1 | name: conv1 | 13:11: layer 'conv1' (Pooling): the name is taken by the layer at line 7
        bottom: [ip1, label] | bottom: [ip1, label]\n    loss_weight: [1, 2] | 25:19: {LOSS}: loss_weight: expected 1 number(s), got 2
        bottom: [ip1, label] | bottom: [ip1, label]\n    propagate_down: true | 25:21: {LOSS}: propagate_down: expected 2 value(s), got 1
        # phases
        bottom: data | bottom: data\n    include: {phase: TRAINING} | 10:22: {CONV}: include: phase: expected one of TRAIN, TEST, got 'TRAINING'; did you mean 'TRAIN'?
        bottom: data | bottom: data\n    include: TRAIN\n    exclude: TEST | 11:5: {CONV}: give either include or exclude, not both
        type: Input | type: Input\n    include: TEST | 10:13: {CONV}: bottom 'data' is written by layer 'data' at line 3, which takes no part in the phase TRAIN
        {NET} | layers:\n- {name: a, type: Input, shape: {dim: 1}, include: TEST} | 2:3: no layer takes part in the phase TRAIN
        # the solver
        max_iter: 10 | max_iters: 10 | 28:3: solver: unknown key 'max_iters'; did you mean 'max_iter'?
        base_lr: 0.01 | base_lr: -1 | 27:12: solver: base_lr: expected at least 0, got -1.0
        max_iter: 10 | max_iter: 10\n  momentum: 1 | 29:13: solver: momentum: expected below 1, got 1.0
        max_iter: 10 | max_iter: 10\n  lr_policy: exp\n  gamma: -1 | 30:10: solver: gamma: expected at least 0, got -1.0
        max_iter: 10 | max_iter: 10\n  lr_policy: multistep\n  gamma: 0.1 | 29:14: solver: lr_policy 'multistep' needs the key 'stepvalue'
        max_iter: 10 | max_iter: 10\n  stepvalue: [2, 2]\n  lr_policy: multistep\n  gamma: 1 | 29:14: solver: stepvalue: expected rising iterations
        max_iter: 10 | max_iter: 10\n  stepvalue: [2] | 29:14: solver: stepvalue goes with lr_policy multistep, not with 'fixed'
        max_iter: 10 | max_iter: 10\n  rms_decay: 0.9 | 29:14: solver: rms_decay goes with type RMSProp, not with 'SGD'
        max_iter: 10 | max_iter: 10\n  type: AdaGrad\n  momentum: 0.9 | 30:13: solver: momentum goes with type SGD, Nesterov, AdaDelta, Adam or AdamW, not with 'AdaGrad'
        max_iter: 10 | max_iter: 10\n  test_interval: 5\n  test_iter: [3, 0] | 30:14: solver: test_iter: expected numbers above 0, got [3, 0]
        max_iter: 10 | max_iter: 10\n  test_interval: 5\n  test_iter: [3, 1]\n  test_state: TEST | 31:15: solver: test_state: 1 states for 2 test_iter
        max_iter: 10 | max_iter: 10\ntest_nets: [{layers: [{name: a, type: Input, shape: {dim: 1}}]}] | 29:12: test_nets: 1 nets for 0 test_iter of the solver
        max_iter: 10 | max_iter: 10\n  test_interval: 5\n  test_iter: 0 | 29:18: solver: test_interval needs a test_iter above 0, or none: the whole test set
        max_iter: 10 | max_iter: 10\n  test_state: TEST | 29:15: solver: test_state needs the key 'test_interval'
        solver:\n  base_lr: 0.01\n  max_iter: 10 | solver: | 26:8: solver: expected a mapping, got nothing
        max_iter: 10 | max_iter: 10\n  type: Zebra | 29:9: solver: type: expected one of {KINDS}, got 'Zebra'; --import FILE brings rules of one's own
        # what Caffe aborts on, too
        max_iter: 10 | max_iter: 10\n  lr_policy: cosin | 29:14: solver: lr_policy: expected one of fixed, step, multistep, exp, inv, poly, sigmoid, cosine, plateau, got 'cosin'; did you mean 'cosine'?
        max_iter: 10 | max_iter: 10\n  lr_policy: step\n  gamma: 0.1 | 29:14: solver: lr_policy 'step' needs the key 'stepsize'
        max_iter: 10 | max_iter: 10\n  test_iter: 5 | 29:14: solver: test_iter needs the key 'test_interval' (0: one test, at the end)
        \n    type: InnerProduct | | 18:5: layer 'ip1': missing key 'type' (the layer's class)
        bottom: [ip1, label] | bottom: ip1 | 22:5: {LOSS}: takes 2 bottom(s), got 1
        \n    kernel_size: 3 | | 7:5: {CONV}: missing key 'kernel_size'
        kernel_size: 3 | kernel_size: 50 | 7:5: {CONV}: a kernel of extent 50 does not fit an image of 8 padded by 0
        - name: loss\n | - {name: e, type: Eltwise, bottom: [pool1, ip1]}\n  - name: loss\n | 22:5: layer 'e' (Eltwise): needs bottoms of one shape, got (2, 4, 3, 3) and (2, 5)
        bottom: [ip1, label] | bottom: [conv1, label] | 22:5: {LOSS}: needs 72 labels, one a prediction, got a bottom of shape (2,)
        {INPUT} | type: Data\n    top: [data, label]\n    source: digits | 3:5: layer 'data' (Data): missing key 'batch_size' (images in a batch)
    """),
        ("name: conv1", 'name: "a\\nb"',
         "7:11: layer 'a\\nb' (Convolution): name: expected printable text, got 'a\\nb'"),
        ("max_iter: 10", "max_iter: 10\n  test_iter: 1\n  test_interval: 5\ntest_nets:\n"
         "- layers: [{name: a, type: Input, shape: {dim: 1}}]\n  solver: {base_lr: 1, max_iter: 1}",
         "32:1: test_nets: a net to test with has no solver of its own"),
        ("{INPUT}", "type: Data\n    top: [data, label]\n    source: nodb\n    batch_size: 4",
         "3:5: layer 'data' (Data): data set 'nodb' not found, looked in nodb, data/nodb;"
         " known by name: mnist, fashion-mnist, cifar10, digits"),
    ],
)  # fmt: skip
def test_mistakes(old, new, message, monkeypatch):
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    for name, text in NAMES.items():
        old, message = old.replace(name, text), message.replace(name, text)
    assert refused(changed(old, new)) == f"m.yaml:{message}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("num_output: 4", "num_output: 1000000000000000"),
        ("num_output: 5", "num_output: 2000000000"),
        ("num_output: 4", "num_output: 2147483647\n    pad: 1000"),
        ("kernel_size: 3", "kernel_size: 1000000000"),
        ("kernel_size: 3", "kernel_size: 1000000000\n    pad: 600000000"),
        ("kernel_size: 3", "kernel_size: 3\n    pad: 1000000000"),
        ("kernel_size: 3", "kernel_size: 3\n    pad: 1000000000000"),
        ("kernel_size: 3", "kernel_size: 3\n    dilation: 2000000000"),
        ("kernel_size: 3", "kernel_size: 3\n    stride: 9223372036854775807"),
        ("dim: [2, 1, 8, 8]", "dim: [2, 1, 100000000, 100000000]"),
        ("dim: [2, 1, 8, 8]", "dim: [1000000000000, 1, 8, 8]"),
        ("dim: [2, 1, 8, 8]", f"dim: [{'9999, ' * 30}9999]"),
        ("dim: [2, 1, 8, 8]", f"dim: [{'1, ' * 32}1]"),
        ("shape: [{dim: [2, 1, 8, 8]}, {dim: [2]}]",
         "source: digits\n    batch_size: 1000000000000"),
        ("shape: [{dim: [2, 1, 8, 8]}, {dim: [2]}]", "source: digits\n    batch_size: 2000000000"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_absurd_sizes_are_refused_before_memory_is_taken(old, new):
    text = changed(old, new)
    text = text.replace("type: Input", "type: Data") if "batch_size" in new else text
    tracemalloc.start()
    try:
        assert refused(text).isprintable()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


BLOCKS = """\
layers:
  - {name: x, type: Input, shape: {dim: [1, 1, 8, 8]}}
  - &conv {name: conv1, type: Convolution, num_output: 4, kernel_size: 3, weight_filler: msra}
  - {<<: *conv, name: conv2, num_output: 6}
  - <<: *conv
    name: conv3
    kernel_size: 9
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    rows(r"""
        kernel_size: 9 | kernel_size: 9 | 5:5: layer 'conv3' (Convolution): a kernel of extent 9 does not fit an image of 4 padded by 0
        \n    name: conv3 | | 5:5: layer 'conv1' (Convolution): the name is taken by the layer at line 3
        num_output: 4 | num_ouput: 4 | 3:44: layer 'conv1' (Convolution): unknown key 'num_ouput'; did you mean 'num_output'?
        <<: *conv\n | <<: conv\n | 5:9: <<: expected a mapping or a list of them, got 'conv'
    """),
)
def test_mistakes_in_merged_layers_are_told_where_they_stand(old, new, message):
    assert BLOCKS.count(old) == 1
    assert refused(BLOCKS.replace(old, new)) == f"m.yaml:{message}"


def test_of_a_model_twice_as_large_the_work_is_twice_as_much():
    def build(count):
        layers = "".join(f"- {{name: r{i}, type: ReLU}}\n" for i in range(count))
        text = "layers:\n- {name: x, type: Input, shape: {dim: 1}}\n" + layers
        assert len(Net(parse(text), device="cpu", shapes_only=True).steps) == count + 1

    build(2000)
    assert calls(build, 400) < 2.2 * calls(build, 200)
