"""The wiring of a net: names, phases, memory, shared parameters, the gradient's way."""

from __future__ import annotations

import numpy as np
import pytest

from minicaffe.core.net import Net, parse
from minicaffe.errors import ShapeError, SpecError

HEAD = """
layers:
  - {name: in, type: Input, top: [data, label], shape: [{dim: [4, 3]}, {dim: [4]}]}
"""


def net(text: str, phase: str = "TRAIN", head: str = HEAD, **options) -> Net:
    rows = "".join(f"  - {{{row.strip()}}}\n" for row in text.strip().splitlines())
    return Net(parse(head + rows, "m.yaml"), phase, device="cpu", **options)


def step(net: Net, name: str):
    return next(step for step in net.steps if step.spec.name == name)


def wiring(net: Net) -> dict[str, tuple]:
    return {s.spec.name: (s.layer.bottom, s.layer.top) for s in net.steps}


def backwards(net: Net) -> dict[str, list[bool]]:
    """For each layer that runs backward: which bottoms get a gradient."""
    return {s.spec.name: s.layer.needs_gradient for s in net.steps if s.layer.runs_backward}


# Names


def test_bottom_is_the_first_top_above_and_top_the_layers_name():
    got = net("""
        name: ip, type: InnerProduct, num_output: 2
        name: relu, type: ReLU, top: ip
        name: flat, type: Flatten, axis: 0
        """)
    assert wiring(got) == {
        "in": ((), ("data", "label")),
        "ip": (("data",), ("ip",)),
        "relu": (("ip",), ("ip",)),
        "flat": (("ip",), ("flat",)),
    }
    assert got.outputs == ["label", "flat"]


def test_a_layer_without_bottoms_takes_none_by_default():
    got = net("""
        name: ip, type: InnerProduct, num_output: 2
        name: more, type: Input, shape: {dim: 5}
        name: relu, type: ReLU
        """)
    assert wiring(got)["more"] == ((), ("more",))
    assert wiring(got)["relu"] == (("more",), ("relu",))


def test_the_layer_above_is_the_one_of_the_same_phase():
    text = """
        name: a, type: ReLU, bottom: data
        name: b, type: ReLU, bottom: data, include: TEST
        name: c, type: Softmax
        """
    assert wiring(net(text, "TRAIN"))["c"] == (("a",), ("c",))
    assert wiring(net(text, "TEST"))["c"] == (("b",), ("c",))


def test_phases_choose_layers_and_may_use_one_name_twice():
    text = """
        name: a, type: ReLU, bottom: data, include: {phase: TRAIN}
        name: a, type: Softmax, bottom: data, include: {phase: TEST}
        name: b, type: Flatten, bottom: a, exclude: TRAIN
        """
    train, test = net(text, "TRAIN"), net(text, "TEST")
    assert {name: type(layer).__name__ for name, layer in train.layers.items()} == {
        "in": "Input",
        "a": "ReLU",
    }
    assert {name: type(layer).__name__ for name, layer in test.layers.items()} == {
        "in": "Input",
        "a": "Softmax",
        "b": "Flatten",
    }


def test_a_name_twice_in_one_phase_is_refused():
    text = "name: a, type: ReLU, bottom: data\nname: a, type: ReLU, bottom: data, include: TEST"
    assert list(net(text, "TRAIN").layers) == ["in", "a"]
    with pytest.raises(SpecError) as caught:
        net(text, "TEST")
    assert str(caught.value) == (
        "m.yaml:5:12: layer 'a' (ReLU): the name is taken by the layer at line 4"
    )


def test_a_bottom_is_the_latest_of_its_name():
    got = net("""
        name: ip, type: InnerProduct, bottom: data, num_output: 2
        name: relu, type: ReLU, bottom: ip, top: ip
        name: soft, type: Softmax, bottom: ip
        """)
    assert step(got, "soft").bottoms[0].producer is step(got, "relu").layer
    assert step(got, "ip").tops[0].readers == 1


def test_what_has_too_many_axes_is_refused():
    head = f"layers:\n  - {{name: in, type: Input, shape: {{dim: [{', '.join('1' * 33)}]}}}}\n"
    with pytest.raises(ShapeError) as caught:
        Net(parse(head, "m.yaml"), device="cpu")
    assert str(caught.value) == (
        "m.yaml:2:5: layer 'in' (Input): top 'in' would have 33 axes; a blob has at most 32"
    )


# Memory


def reuses(net: Net, name: str) -> bool:
    top, bottom = step(net, name).tops[0], step(net, name).bottoms[0]
    assert (top.blob is bottom.blob) == (top.reuses is bottom)
    assert (top.blob.data is bottom.blob.data) == (top.reuses is bottom)
    return top.reuses is bottom


IP = "name: ip, type: InnerProduct, bottom: data, num_output: 2\n"


def test_a_layer_that_works_in_place_takes_over_its_bottom():
    assert reuses(net(IP + "name: relu, type: ReLU, bottom: ip, top: ip"), "relu")


def test_without_the_bottoms_name_there_is_a_blob_of_its_own():
    assert not reuses(net(IP + "name: relu, type: ReLU, bottom: ip"), "relu")


def test_a_layer_that_cannot_work_in_place_gets_a_blob_of_its_own():
    got = net(IP + "name: soft, type: Softmax, bottom: ip, top: ip")
    assert not reuses(got, "soft")
    assert got.blobs["ip"] is step(got, "soft").tops[0].blob


def test_a_relu_needs_its_bottom_if_what_is_below_0_comes_back_above():
    text = IP + "name: relu, type: ReLU, bottom: ip, top: ip, negative_slope: "
    assert reuses(net(text + "0.1"), "relu")
    assert not reuses(net(text + "-0.1"), "relu")


def test_a_bottom_that_another_layer_reads_is_kept():
    got = net(
        IP
        + """name: soft, type: Softmax, bottom: ip
        name: relu, type: ReLU, bottom: ip, top: ip
        name: sum, type: Eltwise, bottom: [soft, ip]
        """
    )
    assert not reuses(got, "relu")
    before = got.forward(end="ip", data=np.eye(4, 3))["ip"].copy()
    got.forward()
    assert (step(got, "ip").tops[0].blob.data == before).all() and before.min() < 0
    assert (got.blobs["ip"].data == np.maximum(before, 0)).all()


def test_a_top_that_its_layer_needs_is_kept():
    text = IP + "name: soft, type: Softmax, top: s\nname: relu, type: ReLU, bottom: s, top: s"
    assert step(net(text), "soft").layer.traits.keeps_top
    assert not reuses(net(text), "relu")


def test_what_the_user_fills_is_kept():
    assert not reuses(net("name: relu, type: ReLU, bottom: data, top: data"), "relu")


def test_a_bottom_that_is_a_loss_is_kept():
    text = IP.replace("\n", ", loss_weight: 1\n") + "name: relu, type: ReLU, bottom: ip, top: ip"
    assert not reuses(net(text), "relu")


def test_dropout_then_relu_share_one_blob_but_not_the_reverse():
    drop = "name: drop, type: Dropout, bottom: ip, top: ip\n"
    relu = "name: relu, type: ReLU, bottom: ip, top: ip\n"
    got = net(IP + drop + relu)
    assert reuses(got, "drop") and reuses(got, "relu")
    got = net(IP + relu + drop)
    assert reuses(got, "relu") and not reuses(got, "drop")


# Shared parameters

SHARED = """
    name: a, type: InnerProduct, bottom: data, num_output: 2, param: [{{name: w, {}}}, {{}}]
    name: b, type: InnerProduct, bottom: data, num_output: {}, param: [{{name: w, {}}}, {{}}]
    name: sum, type: Concat, bottom: [a, b]
    """


def test_parameters_of_one_name_are_one():
    got = net(SHARED.format("lr_mult: 2", 2, "lr_mult: 2"))
    (wa, ba), (wb, bb) = got.params["a"], got.params["b"]
    assert wb.owner is wa and bb.owner is bb
    assert got.learnable == [wa, ba, bb]
    assert np.shares_memory(wa.data, wb.data) and np.shares_memory(wa.diff, wb.diff)
    assert not np.shares_memory(ba.data, bb.data)
    assert [p.lr_mult for p in (wa, ba, wb, bb)] == [2, 1, 2, 1]
    got.forward(data=np.ones((4, 3)))
    got.backward(sum=np.ones((4, 4)))
    assert (wa.diff == 8).all()  # 4 samples, 2 layers


def test_shared_parameters_need_equal_shapes():
    with pytest.raises(ShapeError) as caught:
        net(SHARED.format("lr_mult: 1", 5, "lr_mult: 1"))
    assert str(caught.value) == (
        "m.yaml:5:72: layer 'b' (InnerProduct): param 'w' has shape (5, 3) here,"
        " (2, 3) in layer 'a' (InnerProduct) at line 4"
    )


@pytest.mark.parametrize("key", ["lr_mult", "decay_mult"])
def test_shared_parameters_need_equal_multipliers(key):
    with pytest.raises(SpecError) as caught:
        net(SHARED.format(f"{key}: 1", 2, f"{key}: 3"))
    assert str(caught.value) == (
        f"m.yaml:5:72: layer 'b' (InnerProduct): param 'w' has another {key}"
        " than in layer 'a' (InnerProduct) at line 4"
    )


def test_a_multiplier_given_by_the_sharer_alone_is_the_owners_too():
    got = net(SHARED.format("lr_mult: 2", 2, "decay_mult: 0"))
    (wa, _), (wb, _) = got.params["a"], got.params["b"]
    assert [(w.lr_mult, w.decay_mult) for w in (wa, wb)] == [(2, 0), (2, 0)]


def test_a_sharer_that_gives_no_multipliers_has_the_owners():
    got = net(SHARED.format("lr_mult: 0, decay_mult: 3", 2, "").replace("w, }", "w}"))
    assert [(p.lr_mult, p.decay_mult) for p in got.params["b"]] == [(0, 3), (1, 1)]
    assert not got.params["b"][0].learns


# The gradient's way

TWO = """
    name: ip1, type: InnerProduct, bottom: data, num_output: 5{}
    name: ip2, type: InnerProduct, num_output: 3{}
    name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]{}
    """
FROZEN = ", param: [{lr_mult: 0}, {lr_mult: 0}]"


def test_the_first_learning_layer_computes_no_input_gradient():
    got = net(TWO.format("", "", ""))
    assert backwards(got) == {"ip1": [False], "ip2": [True], "loss": [True, False]}
    assert [v.gets_gradient for s in got.steps for v in s.tops] == [False, False, True, True, True]


def test_frozen_layers_below_end_the_gradient():
    assert backwards(net(TWO.format(FROZEN, "", ""))) == {"ip2": [False], "loss": [True, False]}
    assert backwards(net(TWO.format(FROZEN, FROZEN, ""))) == {}


def test_a_frozen_layer_between_passes_the_gradient_on():
    got = net(TWO.format("", FROZEN, ""))
    assert backwards(got) == {"ip1": [False], "ip2": [True], "loss": [True, False]}
    label = np.zeros(4)
    got.forward(data=np.ones((4, 3)), label=label)
    got.backward()
    assert not got.params["ip2"][0].diff.any() and got.params["ip1"][0].diff.any()


@pytest.mark.parametrize(
    "kind, flags", [("SoftmaxWithLoss", "[true, true]"), ("Filter", "[false, true]")]
)
def test_propagate_down_into_labels_is_refused(kind, flags):
    text = (
        "layers: [{name: d, type: Input, top: [x, label], shape: [{dim: [4, 3]}, {dim: 4}]},\n"
        f"{{name: l, type: {kind}, bottom: [x, label], loss_weight: 1, propagate_down: {flags}}}]"
    )
    with pytest.raises(
        SpecError,
        match=r"2:\d+: layer 'l' .*propagate_down: no gradient can flow into bottom 'label'",
    ):
        Net(parse(text))
    Net(parse(text.replace("true]", "false]")))


@pytest.mark.parametrize("bottoms", ["[a, y, b, y]", "[a, y, y, b]"])
def test_weights_of_boxes_that_learn_are_refused(bottoms):
    text = f"""layers:
  - {{name: d, type: Input, top: [x, y], shape: [{{dim: [4, 3]}}, {{dim: [4, 3]}}]}}
  - {{name: a, type: InnerProduct, bottom: x, num_output: 3}}
  - {{name: b, type: InnerProduct, bottom: x, num_output: 3}}
  - {{name: loss, type: SmoothL1Loss, bottom: {bottoms}}}
"""
    with pytest.raises(
        SpecError, match=r"5:\d+: layer 'loss' .*: no gradient flows into bottom 'b'"
    ):
        Net(parse(text))


def test_labels_that_learn_are_refused_unless_propagate_down_says_so():
    text = """layers:
  - {name: d, type: Input, top: [x, y], shape: [{dim: [4, 3]}, {dim: [4, 3]}]}
  - {name: a, type: InnerProduct, bottom: x, num_output: 3}
  - {name: b, type: InnerProduct, bottom: y, num_output: 3}
  - {name: loss, type: SigmoidCrossEntropyLoss, bottom: [a, b]}
"""
    told = r"5:\d+: layer 'loss' .*: no gradient flows into bottom 'b', which depends on parameters that learn"
    with pytest.raises(SpecError, match=told):
        Net(parse(text))
    net = Net(parse(text.replace("[a, b]}", "[a, b], propagate_down: [true, false]}")))
    assert net.layers["loss"].needs_gradient == [True, False]
    Net(parse("force_backward: true\n" + text))


def test_an_input_has_a_shape_for_each_top_or_one_for_all():
    row = "name: x, type: Input, top: [a, b, c], shape: [SHAPES]"
    built = net(row.replace("SHAPES", "{dim: [2, 3]}"))
    assert [built.blobs[name].shape for name in "abc"] == [(2, 3)] * 3
    with pytest.raises(
        ShapeError, match=r"layer 'x' \(Input\): shape: expected 1 or 3, one a top, got 2$"
    ):
        net(row.replace("SHAPES", "{dim: 2}, {dim: 3}"))


def test_propagate_down_stops_the_gradient():
    got = backwards(net(TWO.format("", ", propagate_down: false", "")))
    assert got == {"ip2": [False], "loss": [True, False]}
    assert backwards(net(TWO.format("", "", ", propagate_down: [false, false]"))) == {}


def test_force_backward_reaches_the_data_but_no_label():
    got = net(TWO.format(FROZEN, FROZEN, ""), head="force_backward: true" + HEAD)
    assert backwards(got) == {"ip1": [True], "ip2": [True], "loss": [True, False]}
    got.forward(data=np.arange(12).reshape(4, 3), label=np.zeros(4))
    got.backward()
    assert got.blobs["data"].diff.any() and not got.blobs["label"].diff.any()


def test_no_gradient_where_no_loss_is():
    text = TWO.format("", "", "") + "    name: side, type: InnerProduct, bottom: ip1, num_output: 2"
    assert "side" not in backwards(net(text))
    assert not step(net(text), "side").tops[0].gets_gradient


def test_without_any_loss_the_outputs_get_the_gradient():
    got = net("name: ip, type: InnerProduct, bottom: data, num_output: 2\nname: relu, type: ReLU")
    assert backwards(got) == {"ip": [False], "relu": [True]}


def test_loss_weight_makes_and_unmakes_a_loss():
    got = net(TWO.format(", loss_weight: 0.5", "", ", loss_weight: 0"))
    assert backwards(got) == {"ip1": [False]}
    assert step(got, "ip1").tops[0].loss_weight == 0.5
    assert step(got, "loss").tops[0].loss_weight == 0
    assert step(net(TWO.format("", "", "")), "loss").tops[0].loss_weight == 1


def test_fan_out_counts_every_reader():
    got = net(
        IP
        + """name: r, type: ReLU, bottom: ip
        name: sum, type: Eltwise, bottom: [ip, r, ip]
        """
    )
    value = step(got, "ip").tops[0]
    assert value.readers == 3
    assert [s.spec.name for s in got.steps for v in s.bottoms if v is value] == ["r", "sum", "sum"]
    x = np.array([[1.0, 2, 3]] * 4)
    got.params["ip"][0].data[...] = [[1, 1, 1], [-1, -1, -1]]
    got.forward(data=x)
    got.backward(sum=np.ones((4, 2)))
    assert value.blob.diff.tolist() == [[3, 2]] * 4  # relu passes the positive one only
    assert got.params["ip"][1].diff.tolist() == [12, 8]
