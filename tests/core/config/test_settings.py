"""`--set PATH=VALUE`: what a path means, and the one line that each mistake gets."""

from pathlib import Path

import pytest
from kit import refusal, rows

from minicaffe.core import net
from minicaffe.core.config.declare import Filler, ParamSpec, Rule
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.errors import SpecError

LENET = Path(__file__).resolve().parents[3] / "models" / "lenet.yaml"
NET = {
    "name": "n",
    "layers": [
        {"name": "x", "type": "Input", "shape": {"dim": [1, 1, 8, 8]}},
        {"name": "a", "type": "Convolution", "num_output": 2, "kernel_size": 3,
         "weight_filler": "gaussian", "param": [{"lr_mult": 1}, {"lr_mult": 2}]},
        {"name": "a.b", "type": "InnerProduct", "num_output": 3, "include": "TRAIN"},
        {"name": "a.b", "type": "InnerProduct", "num_output": 4, "include": "TEST"},
    ],
}  # fmt: skip


def read(*settings: str):
    return net.read(NET, *settings)


def options(*settings: str, layer: int = 1) -> dict:
    return read(*settings).layers[layer].options


def test_the_layer_is_meant_whose_name_is_spelt_out():
    spec = read("layers.a.b.num_output=9", "layers.a.num_output=8")
    assert [layer.options.get("num_output") for layer in spec.layers] == [None, 8, 9, 9]


def test_later_settings_see_what_earlier_ones_did():
    spec = read("layers.a.name=c", "layers.c.num_output=5", "layers.c.num_output=6")
    assert (spec.layers[1].name, spec.layers[1].options["num_output"]) == ("c", 6)


def test_entries_of_lists():
    assert read("layers.a.param[0].lr_mult=0").layers[1].param == (
        ParamSpec(lr_mult=0.0), ParamSpec(lr_mult=2.0),
    )  # fmt: skip
    assert read("layers.a.param[2].name=w").layers[1].param[2] == ParamSpec(name="w")
    assert options("layers.a.kernel_size[1]=5")["kernel_size"] == (3, 5)
    assert options("layers.a.kernel_size[0]=5")["kernel_size"] == (5,)
    assert options("layers.a.stride[0]=2")["stride"] == (2,)
    assert options("layers.x.shape[0].dim[0]=4", layer=0)["shape"] == (BlobShape(dim=(4, 1, 8, 8)),)
    assert read("layers[4]={name: r, type: ReLU}").layers[4].type == "ReLU"


def test_a_word_that_stands_for_a_mapping_becomes_one():
    for setting, filler in (
        ("std=0.5", Filler(type="gaussian", std=0.5)), ("type=xavier", Filler(type="xavier")),
    ):  # fmt: skip
        assert options(f"layers.a.weight_filler.{setting}")["weight_filler"] == filler
    assert read("layers[2].include.phase=TEST").layers[2].include == (Rule(phase="TEST"),)


def test_what_is_not_there_is_made():
    solver = read("solver.base_lr=1", "solver.max_iter=5").solver
    assert (solver.base_lr, solver.max_iter) == (1.0, 5)
    assert options("layers.a.bias_filler={type: constant, value: 2}")["bias_filler"].value == 2.0
    assert read("layers.a.bottom=[x]").layers[1].bottom == ("x",)
    assert read("layers.a.bottom=[x]", "layers.a.bottom=").layers[1].bottom is None


def test_the_mapping_given_stays_as_it_was():
    read("layers.a.param[0].lr_mult=0", "layers.a.weight_filler.std=0.5", "name=other")
    assert NET["layers"][1]["param"] == [{"lr_mult": 1}, {"lr_mult": 2}]
    assert (NET["name"], NET["layers"][1]["weight_filler"]) == ("n", "gaussian")


SHAPE = "expected keys with dots between them, entries of a list as [0]"
WANTED = "expected PATH=VALUE, such as solver.base_lr=0.02 or layers.conv1.num_output=50"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *rows("""
        name | --set 'name': {WANTED}
         | --set '': {WANTED}
        =5 | --set : {SHAPE}
        .name=5 | --set .name: {SHAPE}
        a..b=5 | --set a..b: {SHAPE}
        layers.=5 | --set layers.: {SHAPE}
        layers[x]=5 | --set layers[x]: {SHAPE}
        layers.a[=5 | --set layers.a[: {SHAPE}
        nmae=x | --set nmae: unknown key 'nmae'; did you mean 'name'?
        name=5 | --set name: name: expected text, got 5; quote it to make it text
        name= | --set name: name: expected text, got nothing
        solvr.base_lr=1 | --set solvr.base_lr: unknown key 'solvr'; did you mean 'solver'?
        layers.a.num_output.x=5 | --set layers.a.num_output.x: layer 'a' (Convolution): num_output: expected an integer, got a mapping
        solver.base_lr=fast | --set solver.base_lr: solver: base_lr: expected a number, got 'fast'
        solver.max_iter=1 | --set solver.max_iter: solver: missing key 'base_lr' (the learning rate at the start)
        solver=5 | --set solver: solver: expected a mapping, got 5
        layers.a=5 | --set layers.a: layer 2: expected a mapping, got 5
        layers.a.num_ouput=5 | --set layers.a.num_ouput: layer 'a' (Convolution): unknown key 'num_ouput'; did you mean 'num_output'?
        layers.a.weight_filler.tpye=msra | --set layers.a.weight_filler.tpye: layer 'a' (Convolution): weight_filler: unknown key 'tpye'; did you mean 'type'?
        layers.a.weight_filler={type: gaussian | --set layers.a.weight_filler:1:16: expected ',' or '}' in what the bracket at 1:1 opens, found the end of the text
        layers.a.param.lr_mult=0 | --set layers.a.param.lr_mult: 'lr_mult' is looked for in a list of 2; name the entry too, as [0].lr_mult
        layers.a.param[3].lr_mult=0 | --set layers.a.param[3].lr_mult: the list has 2 entries, no [3]
        layers[9].name=x | --set layers[9].name: the list has 4 entries, no [9]
        layers.ab.num_output=5 | --set layers.ab.num_output: there is no layer 'ab'; did you mean 'a.b'?
        layers.zebra.num_output=5 | --set layers.zebra.num_output: there is no layer 'zebra'
    """),
        ("a\nb=5", "--set 'a\\nb': unknown key 'a\\nb'"),
        ("a." * 5000 + "a=5", f"--set {'a.' * 5000}a: {SHAPE}"),
        ("layers.a.weight_filler={type: gauss}",
         "--set layers.a.weight_filler:1:8: layer 'a' (Convolution): weight_filler: type: expected one of"
         " constant, gaussian, uniform, xavier, msra, positive_unitball, bilinear, got 'gauss'"
         "; did you mean 'gaussian'?"),
    ],
    ids=lambda value: value[:60],
)  # fmt: skip
def test_mistakes(setting, message):
    assert refusal(read, setting) == message.replace("{SHAPE}", SHAPE).replace("{WANTED}", WANTED)


@pytest.mark.parametrize("model", [{}, {"layers": 5}, {"layers": [5]}, {"name": "x"}])
def test_a_model_that_is_wrong_itself_is_refused_for_that(model):
    with pytest.raises(SpecError, match=r"^<mapping>"):
        net.read(model, "name=y")


def test_a_layer_without_a_name_hides_no_other():
    said = refusal(net.read, {"layers": [{"type": "Exp"}, *NET["layers"]]}, "kernel_size=5")
    assert "no key 'kernel_size'; did you mean 'layers.a.kernel_size'" in said


def test_another_policy_or_type_takes_out_the_files_keys_that_it_does_not_use():
    found = net.read(LENET, "solver.lr_policy=cosine", "solver.type=AdaGrad").solver
    assert found.gamma is None and found.power is None and found.momentum == 0
    both = ["solver.lr_policy=cosine", "solver.gamma=0.5"]
    for settings in (both, both[::-1]):
        with pytest.raises(SpecError, match=r"^--set solver.gamma: solver: gamma goes with"):
            net.read(LENET, *settings)
    alone = {**NET, "solver": {"base_lr": 1, "max_iter": 1, "gamma": 0.5}}
    with pytest.raises(SpecError, match="gamma goes with"):  # a mistake before
        net.read(alone, "solver.lr_policy=cosine")
    with pytest.raises(SpecError, match="missing key"):
        read("solver.lr_policy=cosine")
