"""The JSON Schema: itself valid, and of one mind with the parser."""

import random
import re
from pathlib import Path

import pytest
import test_fuzz
import yaml

from minicaffe.core.config.model import schema
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import parse
from minicaffe.errors import MinicaffeError

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[3]
MODELS = sorted((ROOT / "models").glob("*.yaml"))
SCHEMA = schema(REGISTRY)
CHECK = jsonschema.Draft202012Validator(SCHEMA)

NET = """\
name: n
layers:
  - {name: data, type: Input, shape: {dim: [2, 1, 8, 8]}}
  - {name: conv, type: Convolution, bottom: data, num_output: 4, kernel_size: [3, 3],
     weight_filler: msra, bias_filler: {type: constant, value: 1}, param: {lr_mult: 2}}
  - {name: pool, type: Pooling, pool: AVE, kernel_h: 2, kernel_w: 2, include: TRAIN}
  - {name: drop, type: Dropout, top: pool, dropout_ratio: 0.5, exclude: [{phase: TEST}]}
solver: {base_lr: 0.1, max_iter: 10}
"""


BLOCKS = """\
blocks:
  one:
    layers:
      - {name: conv<n>, type: Convolution, num_output: <width>, kernel_size: [<k>, 3], param: [{lr_mult: <m>}]}
      - {name: r<n>, type: <kind>, bottom: <from>}
      - {block: two, n: <n>}
    defaults: {k: 3, m: 1, from: null, kind: ReLU}
  two: {layers: [{name: e<n>, type: Exp, include: {phase: <phase>}}], defaults: {phase: TRAIN}}
layers:
  - {name: data, type: Input, shape: {dim: [2, 1, 8, 8]}}
  - {block: one, n: 1, width: 4}
"""


def test_the_schema_is_valid(request):
    """Without --long of some layers: that of all takes long."""
    layers = sorted(name for name in SCHEMA["$defs"] if name.startswith("layer "))
    every = 1 if request.config.getoption("--long") else 10
    left_out = {*layers} - {*layers[::every]}
    definitions = {name: one for name, one in SCHEMA["$defs"].items() if name not in left_out}
    jsonschema.Draft202012Validator.check_schema({**SCHEMA, "$defs": definitions})
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_layer_has_its_own_keys():
    for name in REGISTRY:
        keys = SCHEMA["$defs"][f"layer {name}"]["properties"]
        assert keys["type"] == {"const": name}
        assert all(key.get("description") for word, key in keys.items() if word != "type")
    assert "dropout_ratio" in SCHEMA["$defs"]["layer Dropout"]["properties"]
    assert "dropout_ratio" not in SCHEMA["$defs"]["layer ReLU"]["properties"]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_every_model_validates(path):
    CHECK.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("text", [NET, BLOCKS])
def test_the_models_of_these_tests_validate(text):
    CHECK.validate(yaml.safe_load(text))
    assert len(parse(text).layers) == 4


def test_there_are_models():
    assert ROOT / "models" / "lenet.yaml" in MODELS


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("num_output: <", "num_ouput: <", "'num_ouput' was unexpected"),
        ("num_output: <width>", "num_output: width", "'width' is not valid under any"),
        ("type: Exp", "type: Exq", "'Exq' is not valid under any"),
        ("name: e<n>, ", "", "'name' is a required property"),
        ("defaults: {k", "default: {k", "'default' was unexpected"),
        ("defaults: {phase: TRAIN}", "defaults: 3", "3 is not of type 'object'"),
        ("block: one", "block: 1", "1 is not of type 'string'"),
        ("{block: one", "{blok: one", "'type' is a required property"),
        ("blocks:", "block:", "'block' was unexpected"),
    ],
)
def test_mistakes_in_blocks_do_not_validate(old, new, expected):
    assert old in BLOCKS
    messages = [one.message for one in CHECK.iter_errors(yaml.safe_load(BLOCKS.replace(old, new)))]
    assert any(expected in message for message in messages), messages


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda net: net.update(nmae="x"), "'nmae' was unexpected"),
        (lambda net: net.update(name=5), "5 is not of type 'string'"),
        (lambda net: net.pop("layers"), "'layers' is a required property"),
        (lambda net: net.update(layers=[]), "[] should be non-empty"),
        (lambda net: net.update(layers={}), "{} is not of type 'array'"),
        (lambda net: net["layers"][1].update(num_ouput=5), "'num_ouput' was unexpected"),
        (lambda net: net["layers"][1].pop("num_output"), "'num_output' is a required property"),
        (lambda net: net["layers"][1].pop("name"), "'name' is a required property"),
        (lambda net: net["layers"][1].pop("type"), "'type' is a required property"),
        (lambda net: net["layers"][1].update(num_output="4"), "'4' is not of type 'integer'"),
        (lambda net: net["layers"][1].update(num_output=4.5), "4.5 is not of type 'integer'"),
        (lambda net: net["layers"][1].update(num_output=0), "0 is less than the minimum of 1"),
        (lambda net: net["layers"][1].update(kernel_size=[3, 0]), "[3, 0] is not valid"),
        (lambda net: net["layers"][1].update(bias_term="no"), "'no' is not of type 'boolean'"),
        (lambda net: net["layers"][1].update(type="Convolutoin"), "'Convolutoin' is not one of"),
        (lambda net: net["layers"][1].update(weight_filler="xavior"), "'xavior' is not valid"),
        (lambda net: net["layers"][1].update(bias_filler={"value": 1}), "{'value': 1} is not valid"),
        (lambda net: net["layers"][1].update(param=[{"lr": 1}]), "[{'lr': 1}] is not valid"),
        (lambda net: net["layers"][1].update(bottom=[1]), "[1] is not valid"),
        (lambda net: net["layers"][2].update(pool="max"),
         "'max' is not one of ['MAX', 'AVE', 'STOCHASTIC']"),
        (lambda net: net["layers"][2].update(include="TRAINING"), "'TRAINING' is not valid"),
        (lambda net: net["layers"][2].update(include=[None]), "[None] is not valid"),
        (lambda net: net["layers"][3].update(dropout_ratio=1), "1 is greater than or equal to"),
        (lambda net: net["solver"].pop("base_lr"), "'base_lr' is a required property"),
        (lambda net: net["solver"].update(lr_policy="cosin"), "'cosin' is not one of"),
        (lambda net: net["solver"].update(momentum=1), "1 is greater than or equal to the maximum"),
        (lambda net: net["solver"].update(solver_mode="GPU"), "'solver_mode' was unexpected"),
    ],
)  # fmt: skip
def test_common_mistakes_do_not_validate(change, expected):
    net = yaml.safe_load(NET)
    change(net)
    messages = [error.message for error in CHECK.iter_errors(net)]
    assert any(expected in message for message in messages), messages


class Editors(yaml.SafeLoader):
    """YAML 1.2's numbers and words, which editors read: 1e3 is a number, 12:30 and yes are none."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for tag, pattern in {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    Editors.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)


def test_what_the_parser_takes_the_schema_takes(request):
    """Models with mistakes: an editor that goes by the schema marks nothing that minicaffe takes."""
    chance, whole = random.Random(7), list(test_fuzz.texts().values())
    taken = refused = 0
    for _ in range(6000 if request.config.getoption("--long") else 120):
        text = test_fuzz.mutated(chance.choice(whole), chance)
        try:
            parse(text)
            values = yaml.load(text, Editors)
        except (MinicaffeError, yaml.YAMLError, ValueError):
            refused += 1
            continue
        taken += 1
        if "<<" not in text:
            assert not [one.message for one in CHECK.iter_errors(values)], text
    assert taken > 20 and refused > 20
