"""There and back between YAML and prototxt: the same model, readable, comments where they stood."""

import dataclasses
import random
from pathlib import Path
from typing import Literal, get_args, get_origin

import caffe_nets
import numpy as np
import pytest
from kit import refusal
from test_fuzz import texts

from minicaffe.cli import main
from minicaffe.core.config import tree
from minicaffe.core.config.declare import SolverSpec, with_settings
from minicaffe.core.config.model import model, parse_model
from minicaffe.core.config.types import Among, keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import comments_of, yaml_text
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.model import Text, text_of
from minicaffe.interop.caffe.prototxt import prototxt

BUILT_IN = sorted(name for name, cls in REGISTRY.items() if cls.__module__.startswith("minicaffe."))


def as_text(text, file="a.prototxt"):
    return text_of(text, file, REGISTRY)


def from_yaml(text, file="a.yaml"):
    return Text(tree.parse(text, file), {file: comments_of(text)})


def written(found, write):
    return write(model(found.root, REGISTRY), REGISTRY, found.comments)


def check_there_and_back(spec):
    """The model is the same as prototxt, as YAML, and as what either becomes; a second time, the same text."""
    wanted = caffe_nets.resolved(spec)
    text, yaml = prototxt(spec, REGISTRY), yaml_text(spec, REGISTRY)
    for one, read, write in ((text, as_text, prototxt), (yaml, from_yaml, yaml_text)):
        back = model(read(one).root, REGISTRY)
        assert caffe_nets.resolved(back) == wanted, one
        other = {prototxt: yaml_text, yaml_text: prototxt}[write]
        crossed = {prototxt: as_text, yaml_text: from_yaml}[other](other(back, REGISTRY))
        assert caffe_nets.resolved(model(crossed.root, REGISTRY)) == wanted, one
        assert write(back, REGISTRY) == written(read(one), write)


@pytest.mark.parametrize("name", texts())
def test_our_models_there_and_back(name):
    """The models of models/, and those that hold every layer."""
    check_there_and_back(parse_model(texts()[name], REGISTRY))


@pytest.mark.parametrize("name", caffe_nets.STOCK)
def test_stock_nets_there_and_back(name):
    import minicaffe.interop.caffe

    check_there_and_back(minicaffe.interop.caffe.read(caffe_nets.NETS / name))


TEXTS = "a", "b c", 'say "x"', "null", "1", "#", "é\n", "path/to-it.txt", "{}"


def value(rng, kind, checks=()):
    """Some value of a declared type, as a model file gives it."""
    origin, args = get_origin(kind), get_args(kind)
    if type(None) in args:
        return value(rng, next(arg for arg in args if arg is not type(None)), checks)
    if origin is tuple:
        return [value(rng, args[0], checks) for _ in range(rng.randrange(1, 4))]
    if origin is Literal:
        return rng.choice(args)
    for check in checks:
        if isinstance(check, Among):
            return rng.choice([*check.words()])
    if dataclasses.is_dataclass(kind):
        return mapped(rng, kind, 0.6)
    for _ in range(50):
        found = {
            bool: rng.random() < 0.5,
            int: rng.choice((-1, 0, 1, 2, 3, 100)),
            float: rng.choice((-2.5, 0.0, 0.5, 1.0, 1e-7, 123456.0)),
            str: rng.choice(TEXTS),
        }[kind]
        if not any(check.problem(found) for check in checks):
            return found
    raise AssertionError(f"no value of {kind} passes {checks}")


def mapped(rng, cls, share, names=None):
    return {
        name: value(rng, key.type, key.checks)
        for name, key in keys_of(cls).items()
        if key.required or rng.random() < share
    }


def net(rng):
    """Some layers of the types that are registered, their keys drawn from the declarations."""
    layers = []
    for number in range(rng.randrange(1, 6)):
        kind = rng.choice(BUILT_IN)
        layer = {"name": f"layer{number}", "type": kind} | mapped(rng, REGISTRY[kind], 0.4)
        for key, some in {
            "bottom": [["a"], ["a", "b"], [], ["layer0"]],
            "top": [["a"], [f"layer{number}"], ["x y", "z"], []],
            "include": [["TRAIN"], [{"phase": "TEST", "stage": ["s"]}], [{"min_level": 1, "not_stage": "s"}]],
            "loss_weight": [[0.5]],
            "propagate_down": [[True, False]],
            "param": [[{"name": "w", "lr_mult": 0}, {"decay_mult": 2, "share_mode": "PERMISSIVE"}], [{}]],
        }.items():  # fmt: skip
            if rng.random() < 0.3:
                layer[key] = rng.choice(some)
        layers.append(layer)
    found = {"layers": layers}
    if rng.random() < 0.3:
        found |= {"name": rng.choice(("n", "a: b", "")), "dtype": "float64"}
        found |= {"state": {"stage": ["s", "t"]}}
    if rng.random() < 0.5:
        found["solver"] = {"base_lr": 0.1, "max_iter": 3} | mapped(rng, SolverSpec, 0.2)
    return found


def test_drawn_models_there_and_back(request):
    count, done = 3000 if request.config.getoption("--long") else 300, 0
    for number in range(count):
        given = net(random.Random(number))
        try:
            spec = model(tree.from_mapping(given), REGISTRY)
        except SpecError:  # such as a filler whose keys are of two types
            continue
        try:
            check_there_and_back(spec)
        except SpecError as error:  # it reads another blob in each phase
            assert "give a bottom" in str(error), (number, given)
            continue
        except AssertionError:
            print(number, given)
            raise
        done += 1
    assert done > count // 4


COMMENTED = """\
# LeNet, as it was
# in two lines
name: "LeNet"  # its name

# the data
layer {
  name: "data"
  type: "Input"
  top: "data"
  input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } }
}
layer {
  # five by five
  name: "conv"
  type: "Convolution"
  bottom: "data"
  top: "conv"
  convolution_param {
    num_output: 3  # filters
    kernel_size: 5
    # from Glorot
    weight_filler { type: "xavier" }
  }
}
# the end
"""
AS_YAML = """\
# LeNet, as it was
# in two lines
name: LeNet  # its name

layers:
  # the data
  - {name: data, type: Input, shape: {dim: [1, 1, 8, 8]}}
  # five by five
  - name: conv
    type: Convolution
    num_output: 3  # filters
    kernel_size: 5
# the end
"""


AS_PROTOTXT = COMMENTED.replace("its name\n\n", "its name\n").replace("    # from Glorot\n", "")
AS_PROTOTXT = AS_PROTOTXT.replace("  # five by five\n", "").replace(
    'layer {\n  name: "conv"', '# five by five\nlayer {\n  name: "conv"'
)


def test_comments_stay_where_they_stood():
    left = "# from Glorot\n# the end\n"  # the filler is what ours is anyway
    assert written(as_text(COMMENTED), yaml_text) == AS_YAML.replace("# the end\n", left)
    assert written(from_yaml(AS_YAML), prototxt) == AS_PROTOTXT


OF_BLOCKS = """\
# head
blocks:
  # a pair
  pair:
    layers:
      - {name: conv<n>, type: Convolution, num_output: 4, kernel_size: <k>}
      # in place
      - {name: relu<n>, type: ReLU, top: conv<n>}
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 9, 9]}}
  # small, then large
  - {block: pair, n: 1, k: 3}
  - {block: pair, n: 2, k: 5}  # last
"""
WITHOUT_BLOCKS = """\
# head
# a pair
# in place
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 9, 9]}}
  # small, then large
  - {name: conv1, type: Convolution, num_output: 4, kernel_size: 3}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: conv2, type: Convolution, num_output: 4, kernel_size: 5}
  - {name: relu2, type: ReLU, top: conv2}  # last
"""


def test_blocks_are_written_out_and_comments_kept(here):
    Path("a.yaml").write_text(OF_BLOCKS)
    assert main(["convert", "a.yaml", "b.yaml"]) == main(["convert", "a.yaml", "b.prototxt"]) == 0
    assert Path("b.yaml").read_text() == WITHOUT_BLOCKS
    assert '# small, then large\nlayer {\n  name: "conv1"' in Path("b.prototxt").read_text()
    check_there_and_back(parse_model(OF_BLOCKS, REGISTRY))


@pytest.mark.parametrize("write", [yaml_text, prototxt])
def test_every_comment_is_kept_in_its_order(write):
    head = (caffe_nets.NETS / "lenet_solver.prototxt").read_text().replace("net:", "# net:")
    found = as_text(f"{head} net_param {{ {(caffe_nets.NETS / 'lenet_v1.prototxt').read_text()} }}")
    comments = [comment.text for comment in found.comments["a.prototxt"]]
    out = written(found, write)
    assert [line.partition("#")[2].strip() for line in out.splitlines() if "#" in line] == comments


def test_what_the_command_does(tmp_path, capsys, here):
    Path("a.prototxt").write_text(COMMENTED)
    assert main(["convert", "a.prototxt", "a.yaml"]) == 0
    assert capsys.readouterr().err == "a.yaml: 2 layers\n"
    assert main(["convert", "a.yaml", "b.prototxt"]) == 0
    assert main(["convert", "a.prototxt", "a.yaml"]) == 2
    assert "a.yaml: is there already; --force writes over it" in capsys.readouterr().err
    assert main(["convert", "b.prototxt", "a.yaml", "--force"]) == 0
    assert main(["summary", "a.yaml"]) == main(["summary", "b.prototxt"]) == 0
    first, second = capsys.readouterr().out.split("LeNet, phase")[1:]
    assert first == second
    assert main(["convert", "a.yaml", "c.yam"]) == 2
    told = "c.yam: expected a name that ends in .yaml or .prototxt; did you mean '.yaml'?"
    assert told in capsys.readouterr().err
    names = ["a.prototxt", "a.yaml", "b.prototxt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    np.savez("w.npz", conv__0=np.ones((3, 1, 5, 5), np.float32))
    for words in (["w.npz", "w.caffemodel"], ["w.caffemodel", "v.npz"]):
        assert main(["convert", *words]) == 0
    assert main(["convert", "w.npz", "w.caffemodel"]) == 2
    assert "w.caffemodel: is there already" in capsys.readouterr().err
    assert (np.load("v.npz")["conv__0"] == 1).all()
    Path("d.prototxt").write_text("layer { name: 'x' type: 'Nope' }")
    assert main(["convert", "d.prototxt", "d.yaml"]) == 0
    assert "d.yaml: 1 layers" in capsys.readouterr().err  # and a warning, of which test_wild.py
    Path("e.prototxt").write_text("layer { name: 'x' type: 'ReLU' nope: 1 }")
    assert main(["convert", "e.prototxt", "e.yaml"]) == 2
    assert not Path("e.yaml").exists()


def test_what_caffe_has_no_place_for_stands_in_minicaffe_param():
    spec = parse_model(
        "dtype: float64\n"
        "layers:\n"
        "- {name: x, type: Input, shape: {dim: [1, 3, 8, 8]}}\n"
        "- {name: c, type: Convolution, num_output: 2, kernel_size: 3, engine: direct}\n"
        "solver: {base_lr: 1, max_iter: 2, loss_scale: 8, device: 'cuda:1'}",
        REGISTRY,
    )
    text = prototxt(spec, REGISTRY)
    own = 'minicaffe_param { engine: "direct" }'
    for wanted in ('dtype: "float64"', own, "loss_scale: 8", "device_id: 1"):
        assert wanted in text
    check_there_and_back(spec)


def test_a_layer_that_reads_another_blob_in_each_phase_is_refused_as_prototxt():
    spec = parse_model(
        "layers:\n"
        "- {name: a, type: Input, shape: {dim: 1}, include: TRAIN}\n"
        "- {name: b, type: Input, shape: {dim: 1}, include: TEST}\n"
        "- {name: r, type: ReLU}\n",
        REGISTRY,
        "m.yaml",
    )
    told = "m.yaml:4:3: layer 'r' (ReLU): reads a or b, by the phase; in a prototxt it reads one"
    assert told in refusal(prototxt, spec, REGISTRY, error=SpecError)
    again = model(from_yaml(yaml_text(spec, REGISTRY)).root, REGISTRY)
    assert caffe_nets.resolved(again) == caffe_nets.resolved(spec)


def test_schedules_and_stops_go_both_ways():
    spec = parse_model(
        "layers:\n"
        "- {name: x, type: DummyData, shape: {dim: [1, 3]}}\n"
        "- {name: s, type: Reduction, loss_weight: 1}\n"
        "solver: {base_lr: 1, max_iter: 2, lr_policy: plateau, gamma: 0.5, patience: 2, min_lr: 0.25,\n"
        "  plateau: {output: s, mode: min, min_delta: 0.125}, warmup_iter: 3, warmup_start_lr: 0.5,\n"
        "  best: {output: s, mode: max}, early_stopping: 4, ema_decay: 0.75, test_iter: 1, test_interval: 1,\n"
        "  snapshot_keep: 3}",
        REGISTRY,
    )
    text = prototxt(spec, REGISTRY)
    assert 'lr_policy: "plateau"' in text and 'snapshot_format: "NPZ"' in text
    assert 'plateau { output: "s" mode: "min" min_delta: 0.125 }' in text
    check_there_and_back(spec)
    cosine = {"lr_policy": "cosine", "patience": None, "plateau": None, "gamma": None}
    check_there_and_back(dataclasses.replace(spec, solver=with_settings(spec.solver, cosine)))
