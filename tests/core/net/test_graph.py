"""The wiring of a net: names, phases, memory, shared parameters, the gradient's way."""

import itertools

import numpy as np
import pytest
from kit import model_of, refusal

from minicaffe.core.net import Net, parse
from minicaffe.errors import SpecError

HEAD = model_of({"data": [4, 3], "label": [4]}).replace("name: data", "name: in")


def net(text: str, phase: str = "TRAIN", head: str = HEAD, **options) -> Net:
    rows = "".join(f"  - {{{row.strip()}}}\n" for row in text.strip().splitlines())
    return Net(parse(head + rows, "m.yaml"), phase, **{"device": "cpu"} | options)


def step(net: Net, name: str):
    return next(step for step in net.steps if step.spec.name == name)


def wiring(net: Net) -> dict[str, tuple]:
    return {s.spec.name: (s.layer.bottom, s.layer.top) for s in net.steps}


def backwards(net: Net) -> dict[str, list[bool]]:
    """For each layer that runs backward: which bottoms get a gradient."""
    return {s.spec.name: s.layer.needs_gradient for s in net.steps if s.layer.runs_backward}


# Names


BY_PHASE = """
    name: a, type: ReLU, bottom: data
    name: b, type: ReLU, bottom: data, include: TEST
    name: c, type: Softmax
    """


def test_bottom_is_the_first_top_above_and_top_the_layers_name():
    """But of a layer that may be without bottoms; and the layer above is one of the same phase."""
    got = net("""
        name: ip, type: InnerProduct, num_output: 2
        name: relu, type: ReLU, top: ip
        name: flat, type: Flatten, axis: 0
        name: more, type: Input, shape: {dim: 5}
        name: last, type: ReLU
        """)
    assert wiring(got) == {
        "in": ((), ("data", "label")), "ip": (("data",), ("ip",)), "relu": (("ip",), ("ip",)),
        "flat": (("ip",), ("flat",)), "more": ((), ("more",)), "last": (("more",), ("last",)),
    }  # fmt: skip
    assert got.outputs == ["label", "flat", "last"]
    for phase, above in (("TRAIN", "a"), ("TEST", "b")):
        assert wiring(net(BY_PHASE, phase))["c"] == ((above,), ("c",))


def reuses(net: Net, name: str) -> bool:
    top, bottom = step(net, name).tops[0], step(net, name).bottoms[0]
    assert (top.blob is bottom.blob) == (top.reuses is bottom)
    assert (top.blob.data is bottom.blob.data) == (top.reuses is bottom)
    return top.reuses is bottom


IP = "name: ip, type: InnerProduct, bottom: data, num_output: 2\n"
LOSS = IP.replace("\n", ", loss_weight: 1\n")
RELU = "name: relu, type: ReLU, bottom: ip, top: ip"
DROP = "name: drop, type: Dropout, bottom: ip, top: ip"


@pytest.mark.parametrize(
    ("text", "in_place"),
    [
        (IP + RELU, "relu"),
        (IP + "name: relu, type: ReLU, bottom: ip", ""),  # it has a name of its own
        (IP + "name: soft, type: Softmax, bottom: ip, top: ip", ""),  # it cannot
        (f"{IP}{RELU}, negative_slope: 0.1", "relu"),
        (f"{IP}{RELU}, negative_slope: -0.1", ""),  # what is below 0 comes back above
        (IP + "name: soft, type: Softmax, top: ip\n" + RELU, ""),  # the layer below needs its top
        ("name: relu, type: ReLU, bottom: data, top: data", ""),  # the user fills it
        (LOSS + RELU, ""),  # it is a loss
        (f"{IP}{DROP}\n{RELU}", "drop relu"),
        (f"{IP}{RELU}\n{DROP}", "relu"),
    ],
    ids=itertools.count(),
)
def test_which_layers_take_over_their_bottom(text, in_place):
    built = net(text)
    kinds = [
        one.spec.name for one in built.steps if one.spec.type in ("ReLU", "Softmax", "Dropout")
    ]
    assert [name for name in kinds if reuses(built, name)] == in_place.split()
    assert built.blobs[built.steps[-1].tops[0].name] is built.steps[-1].tops[0].blob


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


SHARED = """
    name: a, type: InnerProduct, bottom: data, num_output: 2, param: [{{name: w, {}}}, {{}}]
    name: b, type: InnerProduct, bottom: data, num_output: {}, param: [{{name: w, {}}}, {{}}]
    name: sum, type: Concat, bottom: [a, b]
    """


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a, type: ReLU, bottom: data\nname: a, type: ReLU, bottom: data",
         "m.yaml:4:12: layer 'a' (ReLU): the name is taken by the layer at line 3"),
        (f"name: x, type: Input, shape: {{dim: [{', '.join('1' * 33)}]}}",
         "m.yaml:3:5: layer 'x' (Input): top 'x' would have 33 axes; a blob has at most 32"),
        ("name: x, type: Input, top: [a, b, c], shape: [{dim: 2}, {dim: 3}]",
         "m.yaml:3:5: layer 'x' (Input): shape: expected 1 or 3, one a top, got 2"),
        (SHARED.format("lr_mult: 1", 5, "lr_mult: 1"),
         "m.yaml:4:72: layer 'b' (InnerProduct): param 'w' has shape (5, 3) here,"
         " (2, 3) in layer 'a' (InnerProduct) at line 3"),
        *((SHARED.format(f"{key}: 1", 2, f"{key}: 3"),
           f"m.yaml:4:72: layer 'b' (InnerProduct): param 'w' has another {key}"
           " than in layer 'a' (InnerProduct) at line 3") for key in ("lr_mult", "decay_mult")),
    ],
)  # fmt: skip
def test_what_cannot_be_wired_is_refused(text, said):
    assert refusal(net, text) == said


def test_parameters_of_one_name_are_one(device):
    got = net(SHARED.format("lr_mult: 2", 2, "lr_mult: 2"), device=device)
    (wa, ba), (wb, bb) = got.params["a"], got.params["b"]
    assert wb.owner is wa and bb.owner is bb
    assert got.learnable == [wa, ba, bb]
    assert [p.lr_mult for p in (wa, ba, wb, bb)] == [2, 1, 2, 1]
    wa.data[...], ba.data[...] = 7, 5
    assert device.to_host(wb.data).min() == 7 and device.to_host(bb.data).max() < 5
    got.forward(data=np.ones((4, 3)))
    got.backward(sum=np.ones((4, 4)))
    assert (device.to_host(wa.diff) == 8).all()  # 4 samples, 2 layers
    assert (device.to_host(wb.diff) == 8).all()


@pytest.mark.parametrize(
    ("owners", "sharers", "multipliers"),
    [("lr_mult: 2", "decay_mult: 0", (2, 0)), ("lr_mult: 0, decay_mult: 3", "", (0, 3))],
)
def test_multipliers_are_the_owners_and_its_the_sharers(owners, sharers, multipliers):
    """Where one alone gives them."""
    got = net(SHARED.format(owners, 2, sharers).replace("w, }", "w}"))
    for weight, bias in (got.params["a"], got.params["b"]):
        assert (weight.lr_mult, weight.decay_mult) == multipliers
        assert (bias.lr_mult, bias.decay_mult) == (1, 1) and weight.learns is (multipliers[0] > 0)


# The gradient's way

TWO = """
    name: ip1, type: InnerProduct, bottom: data, num_output: 5{}
    name: ip2, type: InnerProduct, num_output: 3{}
    name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]{}
    """
FROZEN = ", param: [{lr_mult: 0}, {lr_mult: 0}]"


SIDE = "    name: side, type: InnerProduct, bottom: ip1, num_output: 2"
FORCED = "force_backward: true\n" + HEAD
ALL = {"ip1": [False], "ip2": [True], "loss": [True, False]}  # none to the data, and no label


@pytest.mark.parametrize(
    ("text", "head", "wanted"),
    [
        (TWO.format("", "", ""), HEAD, ALL),
        (TWO.format("", FROZEN, ""), HEAD, ALL),  # a frozen layer between passes it on
        (TWO.format(FROZEN, "", ""), HEAD, {"ip2": [False], "loss": [True, False]}),
        (TWO.format(FROZEN, FROZEN, ""), HEAD, {}),
        (TWO.format("", ", propagate_down: false", ""), HEAD, {"ip2": [False], "loss": [True, False]}),
        (TWO.format("", "", ", propagate_down: [false, false]"), HEAD, {}),
        (TWO.format(", propagate_down: true", "", ""), HEAD, {**ALL, "ip1": [True]}),
        (TWO.format(FROZEN, FROZEN, ""), FORCED, {**ALL, "ip1": [True]}),
        (TWO.format("", "", "") + SIDE, HEAD, ALL),  # there is no loss at the side
        # Without any loss the outputs get it; a weight makes one, and unmakes it
        (IP + "name: relu, type: ReLU", HEAD, {"ip": [False], "relu": [True]}),
        (TWO.format(", loss_weight: 0.5", "", ", loss_weight: 0"), HEAD, {"ip1": [False]}),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_where_the_gradient_goes(text, head, wanted):
    assert backwards(net(text, head=head)) == wanted


def test_which_values_get_a_gradient():
    got = net(TWO.format("", "", "") + SIDE)
    gets = [value.gets_gradient for one in got.steps for value in one.tops]
    assert gets == [False, False, True, True, True, False]
    frozen = net(TWO.format("", FROZEN, ""))
    forced = net(TWO.format(FROZEN, FROZEN, ""), head=FORCED)
    for one in (frozen, forced):
        one.forward(data=np.arange(12).reshape(4, 3), label=np.zeros(4))
        one.backward()
    assert not frozen.params["ip2"][0].diff.any() and frozen.params["ip1"][0].diff.any()
    assert forced.blobs["data"].diff.any() and not forced.blobs["label"].diff.any()


LEARN = """
    name: a, type: InnerProduct, bottom: data, num_output: 3
    name: b, type: InnerProduct, bottom: data, num_output: 3
    name: l, """
LABEL = "propagate_down: no gradient can flow into bottom 'label'"
LEARNS = "no gradient flows into bottom 'b', which depends on parameters that learn"


@pytest.mark.parametrize(
    ("layer", "mended", "said"),
    [
        ("type: SoftmaxWithLoss, bottom: [a, label], propagate_down: [true, true]", "true, false]", LABEL),
        ("type: Filter, bottom: [a, label], loss_weight: 1, propagate_down: [false, true]", "false, false]", LABEL),
        ("type: SmoothL1Loss, bottom: [a, data, b, data]", "", LEARNS),
        ("type: SmoothL1Loss, bottom: [a, data, data, b]", "", LEARNS),
        ("type: SigmoidCrossEntropyLoss, bottom: [a, b]", "a, b], propagate_down: [true, false]", LEARNS),
    ],
)  # fmt: skip
def test_what_learns_or_is_no_number_gets_no_gradient_from_a_loss(layer, mended, said):
    told = refusal(net, LEARN + layer, error=SpecError)
    assert told.startswith("m.yaml:5:") and "layer 'l'" in told and said in told
    if mended:
        built = net(LEARN + layer[: layer.rindex("[") + 1] + mended)
        assert built.layers["l"].needs_gradient[1] is False
    if "Sigmoid" in layer:
        net(LEARN + layer, head="force_backward: true\n" + HEAD)


def test_an_input_may_have_one_shape_for_all_tops():
    built = net("name: x, type: Input, top: [a, b, c], shape: [{dim: [2, 3]}]")
    assert [built.blobs[name].shape for name in "abc"] == [(2, 3)] * 3


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
