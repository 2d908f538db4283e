"""Nets and solvers in Caffe's text as specs: against Caffe's own cases, old forms, defaults, mistakes."""

import dataclasses
import json

import caffe_cases as cases
import caffe_nets
import numpy as np
import pytest
from kit import layer_text, refusal

from minicaffe.cli import main
from minicaffe.core.config.declare import Filler, LayerSpec, State
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net
from minicaffe.errors import SpecError
from minicaffe.interop.caffe import parse, read
from minicaffe.interop.caffe.layer import DROPPED, IN_CODE, OTHER_NAMES, ZERO, assumed
from minicaffe.interop.caffe.model import TESTS
from minicaffe.interop.caffe.model import TRAINED as NET_KEYS
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.caffe.upgrade import V0_TYPES

SCHEMA = schema()
DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'


def layer(text, **more):
    """The last layer of a net behind an Input."""
    return parse(DATA + text, "n.prototxt", **more).layers[-1]


OF_NO_BLOCK = "AbsVal", "BNLL", "Filter", "LSTMUnit", "Silence", "Split"
FIXTURES = cases.names("Net", "Solver", *SCHEMA.layers, *OF_NO_BLOCK)


@pytest.mark.parametrize("name", FIXTURES)
def test_caffes_own_texts_say_what_their_json_says(name):
    case = cases.load(name)
    whole = "layer_prototxt" not in case
    text, given = (case[f"{'net' if whole else 'layer'}_{kind}"] for kind in ("prototxt", "json"))
    text, given = str(text), cases.from_json(given)
    wanted = cases.as_model(given)
    spec = parse(text, name)
    assert len(spec.layers) == len(wanted["layers"])
    for one, raw in zip(spec.layers, wanted["layers"], strict=True):
        plain = {"name": one.name, "type": one.type}
        plain |= {"bottom": list(one.bottom), "top": list(one.tops)}
        own = keys_of(REGISTRY[one.type])
        for key, value in raw.items():
            if key in plain:
                assert plain[key] == (value if key in ("name", "type") else cases.listed(value))
            elif key not in own and key not in keys_of(LayerSpec):
                assert key in DROPPED or value == SCHEMA.keys(one.type)[key][1].default
            elif isinstance(value, (int, float, str)) and key in own and key != "engine":
                got = one.options.get(key, own[key].default)
                got = got[0] if isinstance(got, tuple) and len(got) == 1 else got
                if key != "source":  # the texts name a file of the machine they were run on
                    assert got == pytest.approx(value), key


def test_v0_and_v1_become_what_they_were_meant_to_be():
    now, v1, v0 = (read(caffe_nets.NETS / f"lenet{age}.prototxt") for age in ("", "_v1", "_v0"))
    for old in (v1, v0):
        first = dataclasses.replace(old.layers[0], name="data")  # Caffe calls it `input`
        old = dataclasses.replace(old, layers=(first, *old.layers[1:]))
        assert caffe_nets.resolved(old) == caffe_nets.resolved(now)


@pytest.mark.parametrize("name", ["mnist_lenet", "cifar10_cifar10_quick", "bvlc_alexnet_deploy"])
def test_shapes_of_stock_nets_are_caffes(name):
    wanted = json.loads((cases.FIXTURES / f"Shapes_{name}.json").read_text())
    file = {"mnist_lenet": "lenet", "cifar10_cifar10_quick": "cifar10_quick"}.get(name, name)
    net = Net(read(caffe_nets.NETS / f"{file}.prototxt"), "TEST", device="cpu", shapes_only=True)
    shapes = {value.name: list(value.shape) for step in net.steps for value in step.tops}
    assert shapes == dict(wanted["blobs"])
    assert [
        [s.spec.name, s.spec.type, [list(p.shape) for p in s.layer.params]] for s in net.steps
    ] == wanted["layers"]


@pytest.mark.parametrize("kind", sorted(set(SCHEMA.layers) & set(REGISTRY)))
def test_every_default_is_caffes(kind):
    """What a text does not give has caffe.proto's value, by the layer's own default or said for it."""
    declared, said = keys_of(REGISTRY[kind]), assumed(kind, keys_of(REGISTRY[kind]))
    for name, (_, field) in SCHEMA.keys(kind).items():
        key = declared.get(name)
        if key is None or field.repeated or (kind, name) in IN_CODE or name in DROPPED:
            continue
        own = said.get(key.name, None if key.required else key.default)
        if name in ("weight_filler", "bias_filler"):
            assert own in ("constant", ZERO, None), name
        elif field.default is not None and own not in (None, ()):
            assert own == field.default, name
        elif not key.required and own in (None, ()) and field.default:
            assert name in NONE_MEANS, f"{name}: {field.default} in Caffe, which None is to mean"


# Keys of which a layer must know whether they were given; where they were not, it goes by Caffe's default.
NONE_MEANS = {"axis", "concat_dim", "slice_dim", "stride", "normalization", "zoom_factor"}
NONE_MEANS |= {"shrink_factor"}


@pytest.mark.parametrize("kind", sorted(set(SCHEMA.layers) & set(REGISTRY)))
def test_every_key_of_caffes_is_known_or_named(kind):
    """Keys of caffe.proto that a layer does not declare are refused, or change nothing."""
    declared = keys_of(REGISTRY[kind])
    for name, (home, field) in SCHEMA.keys(kind).items():
        if name in declared or home in ("transform_param", "loss_param"):
            continue
        if field.words and field.default is not None:
            text = next(word for word in field.words if word != field.default)
        else:
            text = {"bool": str(not field.default).lower(), "string": '"s"'}.get(field.type, "77")
        if field.is_message:
            text = "{}"
        if name in (*DROPPED, *OTHER_NAMES, "ceil_mode"):
            continue
        given = layer_text(kind, f"{home} {{ {name}: {text} }}")
        if (kind, name) == ("Pooling", "dilation"):
            assert layer(given).type == "DilatedPooling"
        else:
            assert name in refusal(layer, given, error=SpecError)


@pytest.mark.parametrize(
    "kind", [kind for kind in SCHEMA.layers if "loss_param" in SCHEMA.layers[kind]]
)
def test_keys_of_loss_param_are_obeyed_or_warned_of(kind, caplog):
    """Caffe has them in every loss, and looks at them in few."""
    given = {"ignore_label": "3", "normalization": "FULL", "normalize": "false"}
    given |= {"pre_fixed_normalizer": "2", "class_weighting": "3"}
    told_apart = {"weight_by_label_freqs"}  # whose loss is a type of its own
    assert given.keys() | told_apart == SCHEMA.messages["LossParameter"].keys()
    for name, text in given.items():
        caplog.clear()
        more = 'python_param { module: "m" layer: "l" }' if kind == "Python" else ""
        more = "multibox_loss_param { num_classes: 3 }" if kind == "MultiBoxLoss" else more
        weight = "class_weighting: 1" if kind == "WeightedSoftmaxWithLoss" else ""
        one = layer(layer_text(kind, f"{more} loss_param {{ {name}: {text} {weight} }}"))
        told = f"{name} has no effect: {kind} does not look at it"
        assert (name in one.options) == (name in keys_of(REGISTRY[kind]))
        assert (told in caplog.text) == (name not in one.options)


@pytest.mark.parametrize(
    ("kind", "block", "own"),
    [
        ("Softmax", "loss_param { ignore_label: 255 normalize: true }", "; its own keys stand in softmax_param"),
        ("Softmax", "transform_param { scale: 2 }", "; its own keys stand in softmax_param"),
        ("AbsVal", "pooling_param { pool: AVE }", ""),
    ],
)  # fmt: skip
def test_a_block_of_another_type_has_no_effect_as_in_caffe(kind, block, own, caplog):
    """One line of each type and block says so, however many layers have it."""
    text = DATA + layer_text(kind, "%s", "a") + layer_text(kind, "%s", "b")
    spec, name = parse(text % (block, block), "n.prototxt"), block.partition(" ")[0]
    column = layer_text(kind, "%s", "a").index("%s") + 1
    told = f"n.prototxt:2:{column}: {kind}: {name} has no effect, as in Caffe{own}"
    assert caplog.messages == [told]
    plain = parse(text % ("", ""))
    assert [one.options for one in spec.layers] == [one.options for one in plain.layers]


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        ("Data", 'data_param { source: "x" batch_size: 4 } image_data_param { shuffle: true }'),
        ("Data", 'input_param { shape { dim: 4 } } data_param { source: "x" batch_size: 4 }'),
        ("DummyData", "dummy_data_param { shape { dim: 2 } } transform_param { scale: 0.5 }"),
    ],
)
def test_a_data_layer_may_have_blocks_of_another(kind, blocks, caplog):
    parse(f'layer {{ name: "d" type: "{kind}" top: "d" {blocks} }}')
    assert len(caplog.messages) == 1 and "has no effect, as in Caffe" in caplog.messages[0]


def test_a_solver_may_do_without_max_iter(tmp_path, here, capsys):
    """Scripts step so often as they like; what trains to the end asks for it, and leaves nothing behind."""
    from minicaffe.core.solver import Solver

    net = layer_text("InnerProduct", "inner_product_param { num_output: 1 }", "ip")
    net = DATA + net + layer_text("Reduction", "loss_weight: 1", "sum", "ip")
    (tmp_path / "net.prototxt").write_text(net)
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed"')
    assert main(["convert", "solver.prototxt", "solver.yaml"]) == 0
    assert "max_iter" not in (tmp_path / "solver.yaml").read_text()
    before = {path.name for path in tmp_path.iterdir()}
    solver = Solver(read("solver.prototxt"), device="cpu")
    solver.step(3)
    assert solver.iteration == 3
    told = "solver.prototxt:1:1: solver: missing key 'max_iter' (iterations in all); --max-iter N, or Solver(..., max_iter=N), sets it"
    assert refusal(solver.solve).startswith(told)
    capsys.readouterr()
    assert main(["train", "solver.prototxt", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith(f"minicaffe: {told}")
    assert {path.name for path in tmp_path.iterdir()} == before
    rule = 'base_lr: 0.1 lr_policy: "poly" power: 1'
    (tmp_path / "solver.prototxt").write_text(f'net: "net.prototxt" {rule}')
    told = "missing key 'max_iter' of lr_policy 'poly'"
    assert told in refusal(Solver, read("solver.prototxt"), device="cpu")
    assert Solver(read("solver.prototxt"), device="cpu", max_iter=5).rate == 0.1


def test_caffes_fillers_are_constant_unless_they_say_so(caplog):
    size = "num_output: 1 kernel_size: 1"
    conv = layer(
        layer_text("Convolution", f"convolution_param {{ {size} bias_filler {{ value: 2 }} }}")
    )
    assert conv.options["weight_filler"] == ZERO
    assert conv.options["bias_filler"] == Filler(type="constant", value=2.0)
    filler = 'weight_filler { type: "xavier" std: 0.1 mean: 0 }'
    conv = layer(
        layer_text("Convolution", f"convolution_param {{ engine: CUDNN {size} {filler} }}")
    )
    assert conv.options["weight_filler"] == Filler(type="xavier")
    told = "n.prototxt:2:154: std has no effect: it goes with gaussian, not with xavier"
    assert caplog.messages == [told]


def test_blobs_are_what_the_text_says():
    r = layer_text("ReLU", "", "r", "x", "x")
    spec = parse(f'{DATA}{r}layer {{ type: "ReLU" bottom: "x" }}')
    assert [(one.name, one.bottom, one.top) for one in spec.layers] == [
        ("x", (), ("x",)),
        ("r", ("x",), ("x",)),
        ("ReLU_line_3", ("x",), ()),
    ]
    assert refusal(Net, spec, device="cpu").startswith("<text>:3:1: layer 'ReLU_line_3' (ReLU): ")
    for name, top in (("l", "l"), ("x", "x_loss")):
        loss = f'layer {{ name: "{name}" type: "SoftmaxWithLoss" bottom: "x" bottom: "x" }}'
        assert layer(loss).top == (top,)
    assert [one.name for one in parse(DATA + r + r).layers] == ["x", "r", "r_2"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('layer { name: "r" type: "Relu" bottom: "x" top: "r" }', "n.prototxt:2:25: layer 'r': unknown type 'Relu'; did you mean 'ReLU'?"),
        ('layer { name: "r" type: "ReLU" bottom: "y" top: "r" }', "n.prototxt:2:40: layer 'r' (ReLU): unknown bottom 'y'"),
        ('layer { name: "r" bottom: "x" top: "r" }', "n.prototxt:2:1: layer 'r': missing key 'type'"),
        ('layer { name: "c" type: "Convolution" bottom: "x" top: "c" }', "n.prototxt:2:1: layer 'c' (Convolution): missing key 'num_output'"),
        ('layer { name: "r" type: "ReLU" blobs { data: 1 } }', "layer 'r' (ReLU): blobs: a text does not hold weights"),
        ('layer { name: "p" type: "Concat" bottom: "x" top: "p" concat_param { axis: 1 concat_dim: 1 } }',
         "give either axis or concat_dim, which is its old name, not both"),
        ('layer { name: "r" type: "ReLU" minicaffe_param { bottom: "x" } }', "(ReLU): bottom stands in the layer itself"),
        ('layer { name: "r" type: "ReLU" minicaffe_param: 1 }', "minicaffe_param: expected { fields of Any }, got 1"),
        ('minicaffe_param { solver { } }', "minicaffe_param: solver does not belong here"),
        ('layer { name: "p" type: "Pooling" bottom: "x" top: "p" pooling_param { ceil_mode: false round_mode: CEIL } }',
         "round_mode is another name of 'round_mode', which is given too"),
        ('layers { name: "r" type: RELU }', "the net has `layers` too, of an older Caffe"),
        (layer_text("Dropout", "transform_param { speed: 3 }"), "unknown key 'speed'"),
        (layer_text("Dropout", "yolo_loss_param { }"), "unknown key 'yolo_loss_param': neither BVLC Caffe's LayerParameter"),
        (layer_text("HDF5Data", "transform_param { scale: 2 }"), "transform_param: rows are taken as they are"),
        (layer_text("Data", "data_param { mirror: true }"), "this type does not take 'mirror'; it belongs into transform_param"),
    ],
)  # fmt: skip
def test_mistakes_have_their_place(text, told):
    assert told in refusal(lambda: Net(parse(DATA + text, "n.prototxt"), device="cpu"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('layers { layer { name: "a" type: "cnv" } }', "f:1:34: layer 'a': unknown type 'cnv'; did you mean 'conv'?"),
        ('layers { layer { name: "a" type: "relu" stride: 2 } }', "f:1:41: layer 'a': stride is not of the type 'relu'"),
        ('layers { layer { name: "a" type: "relu" } name: "b" }', "beside `layer` stand only bottom and top"),
        ('layers { layer { type: "relu" } } layers { name: "b" type: RELU }', "expected `layer { ... }` in it"),
        ('layers { name: "b" type: RELU } layers { layer { name: "a" type: "relu" } }', "expected `layer { ... }` in it"),
        ('input: "x" input: "y" input_dim: 1 layer {}', "f:1:23: input_dim: expected 8 numbers for 2 inputs, got 1"),
        ('input: "x" input: "y" input_shape {} layer {}', "input_shape: expected 2 shapes for 2 inputs, got 1"),
        ('layers { layer { name: "p" type: "padding" pad: 1 } bottom: "x" top: "p" }'
         ' layers { layer { type: "relu" } bottom: "p" top: "r" }', "a padding layer belongs above one conv or pool layer"),
        ("", "f:1:1: is empty"),
        ('name: "x"', "f:1:1: the net has no layer"),
    ],
)  # fmt: skip
def test_mistakes_in_old_nets_have_their_place(text, told):
    assert told in refusal(parse, text, "f", error=SpecError)


def test_what_the_first_caffe_could_say():
    """Each of its types, with the padding layers and the transformations that moved since."""
    conv, drop, concat, data = parse(
        'input: "x" input_dim: [1, 1, 8, 8]'
        ' layers { layer { name: "p" type: "padding" pad: 2 } bottom: "x" top: "p" }'
        ' layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 5 biasterm: false group: 1'
        ' blobs_lr: 1 weight_decay: 3 weight_filler { type: "gaussian" std: 0.5 } } bottom: "p" top: "c" }'
        ' layers { layer { name: "d" type: "dropout" dropout_ratio: 0.25 } bottom: "c" top: "c" }'
        ' layers { layer { name: "cat" type: "concat" concat_dim: 1 } bottom: "c" bottom: "c" top: "cat" }'
        ' layers { layer { name: "data" type: "data" source: "s" batchsize: 3 scale: 0.5 cropsize: 4'
        ' mirror: true } top: "data" top: "label" }'
    ).layers[1:]
    assert conv.bottom == ("x",) and conv.options["pad"] == (2,) and not conv.options["bias_term"]
    assert conv.options["weight_filler"] == Filler(type="gaussian", std=0.5)
    assert conv.param[0].lr_mult == 1 and conv.param[0].decay_mult == 3
    assert drop.options["dropout_ratio"] == 0.25 and concat.options["concat_dim"] == 1
    transform = data.options["transform"]
    assert (transform.scale, transform.crop_size, transform.mirror) == (0.5, 4, True)
    assert data.options["batch_size"] == 3 and data.options["shuffle"] is False
    words = SCHEMA.messages["V1LayerParameter"]["type"].words
    assert {(kind.partition(":")[2] or kind.upper()) for kind in V0_TYPES.split()} <= set(words)


def test_a_solver_names_its_nets(tmp_path, here):
    (tmp_path / "there").mkdir()
    (tmp_path / "net.prototxt").write_text('name: "here"\n' + DATA)
    (tmp_path / "there" / "net.prototxt").write_text('name: "there"\n' + DATA)
    (tmp_path / "there" / "other.prototxt").write_text('name: "other"\n' + DATA)
    rest = " base_lr: 1 max_iter: 2 "

    def solver(text):
        (tmp_path / "there" / "solver.prototxt").write_text(text + rest)
        return read("there/solver.prototxt")

    # From the current folder, as Caffe takes it, then beside the solver
    assert solver('net: "net.prototxt"').name == "here"
    assert solver('net: "a/b/other.prototxt"').name == "other"
    two = 'train_net: "net.prototxt" test_net: "%s" test_iter: 3 test_interval: 1'
    spec = solver(two % "other.prototxt")
    assert (spec.name, [net.name for net in spec.test_nets]) == ("here", ["other"])
    spec = solver(
        'net: "net.prototxt" test_net: "other.prototxt" test_net_param { name: "in" ' + DATA + "}"
        " test_iter: [1, 2, 3] test_interval: 1 test_state {} test_state { stage: 's' } test_state { level: 2 }"
    )
    # In Caffe's order; the third is the net
    assert [net.name for net in spec.test_nets] == ["in", "other"]
    assert spec.solver.test_iter == (1, 2, 3) and spec.solver.test_state[1].stage == ("s",)
    spec = solver(two % "net.prototxt")
    assert spec.name == "here" and not spec.test_nets  # one net with both phases
    (tmp_path / "there" / "net2.prototxt").write_text("layer { top: }")
    for text, told in [
        ('net: "no.prototxt"', "there/solver.prototxt:1:6: there is no file 'no.prototxt'; looked for no.prototxt, there/no.prototxt"),
        ("", "there/solver.prototxt:1:1: solver: expected one of net, net_param, train_net, train_net_param, got none"),
        ('net: "net.prototxt" train_net: "net.prototxt"', "got net and train_net"),
        ('net: "net.prototxt" test_net: "net.prototxt"', "expected a test_iter for each test net: there are 1 nets and 0 test_iter"),
        ('train_net: "net.prototxt" test_iter: 1 test_interval: 1', "there are 0 nets and 1 test_iter"),
        ('net: "net.prototxt" solver_type: ADAM type: "Adam"', "give either type or solver_type, not both"),
        ('net: "net.prototxt" type: "Sgd"', "there/solver.prototxt:1:27: solver: type: expected one of SGD"),
        ('net: "net2.prototxt"', "there/net2.prototxt:1:14: expected a value of 'top', got '}'"),
    ]:  # fmt: skip
        assert told in refusal(solver, text, error=SpecError)


def test_a_solvers_keys(caplog):
    def solver(text):
        return parse(f"base_lr: 1 max_iter: 2 net_param {{ {DATA} }} {text}", "s").solver

    plain = solver("random_seed: -1 solver_mode: GPU lr_policy: 'fixed'")
    assert (plain.type, plain.random_seed) == ("SGD", 1)
    assert (plain.device, plain.lr_policy) == (None, "fixed")
    for text, key, wanted in [
        ("solver_type: NESTEROV", "type", "Nesterov"),
        ("solver_type: 4", "type", "AdaDelta"),
        ("solver_type: ADAM", "momentum", 0.0),  # Caffe's default, which ours asks for
        ("solver_mode: CPU device_id: 3", "device", "cpu"),
        ("device_id: 3", "device", "cuda:3"),
        ("random_seed: 1701", "random_seed", 1701),
        ("lr_policy: 'multistep' gamma: .1 stepvalue: 1 stepvalue: 5", "stepvalue", (1, 5)),
        ("weights: 'a.caffemodel'", "weights", ("a.caffemodel",)),
        ("train_state { level: 1 stage: 'x' }", "train_state", State(level=1, stage=("x",))),
        ("minicaffe_param { loss_scale: 4 }", "loss_scale", 4.0),
        ("type: 'AdamW' momentum: 0.5 momentum2: 0.75", "momentum2", 0.75),
    ]:  # fmt: skip
        assert getattr(solver(text), key) == wanted, text
    assert not caplog.messages
    rule = "lr_policy: 'fixed' gamma: 0.5 type: 'SGD' delta: 1e-3 snapshot_diff: true stepsize: 0"
    found = solver(rule)
    assert found.gamma is None and found.delta == 1e-8 and found.stepsize is None
    told = [text.partition("solver: ")[2] for text in caplog.messages]
    assert told[0] == "snapshot_diff has no effect: snapshots hold no gradients"
    assert [text.partition(" has")[0] for text in told] == ["snapshot_diff", "delta", "gamma"]


OF_NETS = {*NET_KEYS, *TESTS, "minicaffe_param"}  # see test_a_solver_names_its_nets
AS_ANOTHER = {"solver_type": "type", "solver_mode": "device", "device_id": "device"}


@pytest.mark.parametrize("name", sorted(SCHEMA.messages["SolverParameter"].keys() - OF_NETS))
def test_no_key_of_a_solver_is_ignored(name, caplog):
    """Another value than Caffe's default is in the spec, or is warned of, or is an error that names it."""
    field = SCHEMA.messages["SolverParameter"][name]
    if field.words:
        text = next(word for word in field.words if word != (field.default or "SGD"))
    else:
        numbers = {"float": "0.375", "int32": "3", "int64": "3", "string": '"x"'}
        text = {**numbers, "bool": str(not field.default).lower()}.get(field.type, "{ level: 3 }")
    given = {"base_lr": "1", "max_iter": "2", name: text}
    if name in ("test_iter", "test_interval", "test_state"):
        given |= {"test_iter": "3", "test_interval": "3"}

    def solver(given):
        words = " ".join(f"{key}: {value}" for key, value in given.items())
        return parse(f"{words} net_param {{ {DATA} }}", "s").solver

    plain = solver({"base_lr": "2", "max_iter": "4"})
    try:
        found = solver(given)
    except SpecError as error:
        assert name in str(error)
        return
    own = AS_ANOTHER.get(name, name)
    if own in keys_of(type(found)) and getattr(found, own) != getattr(plain, own):
        return
    # What layer_wise_reduce chooses makes no difference here: when gradients of GPUs are added up
    assert name == "layer_wise_reduce" or f"{name} has no effect" in caplog.text


def test_a_test_of_the_whole_set_is_not_caffes(tmp_path, caplog):
    net = f"net_param {{ {DATA} }} base_lr: 0.1 lr_policy: 'fixed' max_iter: 9 "
    (tmp_path / "caffes.prototxt").write_text(net + "test_interval: 3")
    spec = read(tmp_path / "caffes.prototxt")
    assert spec.solver.tests(0) == () and spec.solver.test_interval is None
    assert "test_interval has no effect: there is no test_iter" in caplog.text
    whole = dataclasses.replace(spec, solver=dataclasses.replace(spec.solver, test_interval=3))
    (tmp_path / "ours.prototxt").write_text(prototxt(whole, REGISTRY))
    again = read(tmp_path / "ours.prototxt").solver
    assert again.tests(0) == (None,) and again.test_interval == 3


def test_the_fixtures_solvers_are_read():
    for name in cases.names("Solver"):
        case = cases.load(name)
        given = cases.from_json(case["solver_json"])
        rest = "" if "max_iter" in given else "max_iter: 10"
        spec = parse(f"{case['solver_prototxt']} {rest} net_param {{ {DATA} }}")
        for key, value in given.items():
            if hasattr(spec.solver, key):
                got = getattr(spec.solver, key)
                same = (
                    np.allclose(got, value)
                    if isinstance(value, float)
                    else got in (value, (value,))
                )
                assert same, (name, key)


def test_commands_take_a_prototxt(tmp_path, command):
    path = tmp_path / "deploy.prototxt"
    path.write_text(DATA + layer_text("ReLU", "", "r"))
    assert "2x3x8x8" in command("summary", path, "--set", "layers.r.negative_slope=0.5")
    told = command("summary", path, "--set", "layers.r.negative_slop=0.5", code=2)
    assert "did you mean 'negative_slope'?" in told
    assert read(path).layers[1].name == "r"
    assert str(Net(read(path), device="cpu"))


@pytest.mark.parametrize("kind", ["ConvolutionDepthwise", "DepthwiseConvolution"])
@pytest.mark.parametrize("group", ["", "group: 4"])
def test_depthwise_convolutions_of_forks_are_convolutions_in_groups(kind, group):
    text = 'input: "x" input_shape { dim: [2, 4, 6, 6] } layer { name: "dw" type: "%s" bottom: "x" top: "y" '
    text += "convolution_param { num_output: 4 kernel_size: 3 bias_term: false engine: CAFFE %s } }"
    net = Net(parse(text % (kind, group)), device="cpu")
    x, weight = np.random.default_rng(1).random((2, 4, 6, 6)), net.weights()["dw__0"]
    assert weight.shape == (4, 1, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,cij->nchw", windows, weight[:, 0])
    np.testing.assert_allclose(net.forward(x=x)["y"], wanted, rtol=1e-5)


def test_a_detector_of_ssd_runs():
    net = Net(read(caffe_nets.NETS / "ssd_deploy.prototxt"), "TEST", device="cpu")
    assert net.forward()["out"].shape[1::2] == (1, 7)


@pytest.mark.parametrize(
    ("kind", "param", "options"),
    [
        ("ROIPooling", "roi_pooling_param { pooled_w: 7 pooled_h: 6 spatial_scale: 0.5 }", {"pooled_h": 6, "spatial_scale": 0.5}),
        ("SmoothL1Loss", "smooth_l1_loss_param { sigma: 3.0 }", {"sigma": 3.0}),
        ("Python", "python_param { module: 'm' layer: 'L' param_str: \"'feat': 16\" }", {"param_str": "'feat': 16"}),
        ("Pooling", "pooling_param { kernel_size: 3 ceil_mode: false }", {"round_mode": "FLOOR"}),
        ("BatchNorm", "batch_norm_param { scale_bias: true scale_filler { value: 2 } engine: CUDNN }",
         {"scale_bias": True, "scale_filler": Filler(type="constant", value=2.0)}),
        ("Interp", "interp_param { zoom_factor: 8 }", {"zoom_factor": 8}),
        ("Upsample", "upsample_param { scale: 2 }", {"scale": 2}),
        ("ShuffleChannel", "shuffle_channel_param { group: 3 }", {"group": 3}),
        ("ReLU6", "", {}),
        ("Axpy", "", {}),
        ("Dropout", "dropout_param { scale_train: true }", {}),
        ("Dropout", "dropout_param { scale_train: false }", {"scale_train": False}),
        ("Data", "data_param { source: 's' batch_size: 2 shuffle: true }", {"shuffle": True}),
    ],
)  # fmt: skip
def test_what_forks_add_is_read(kind, param, options):
    assert options.items() <= dict(layer(layer_text(kind, param)).options).items()
