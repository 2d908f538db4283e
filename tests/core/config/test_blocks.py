"""Blocks: what they become, against YAML written out; every mistake with both its places."""

import pytest
import yaml
from caffe_nets import resolved
from kit import refusal, rows

from minicaffe.core.config import settings as blocks_module
from minicaffe.core.config import tree
from minicaffe.core.config.settings import expanded
from minicaffe.core.net import Net, parse, read
from minicaffe.errors import SpecError

MODEL = """\
blocks:
  conv:
    layers:
      - {name: conv<n>, type: Convolution, bottom: <from>, num_output: <width>, kernel_size: <k>, param: <param>}
      - {name: relu<n>, type: ReLU, top: conv<n>}
    defaults: {k: 3, from: null, param: [{lr_mult: 1}, {lr_mult: 2}]}
  pair:
    layers:
      - {block: conv, n: <n>a, width: <width>}
      - {block: conv, n: <n>b, width: <width>, k: [1, 3]}
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 16, 16]}}
  - {block: conv, n: 1, width: 4}
  - {block: pair, n: 2, width: 8}
  - {block: conv, n: 3, width: 5, from: conv1, param: {decay_mult: 0}}
"""
WRITTEN_OUT = """\
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 16, 16]}}
  - {name: conv1, type: Convolution, num_output: 4, kernel_size: 3, param: [{lr_mult: 1}, {lr_mult: 2}]}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: conv2a, type: Convolution, num_output: 8, kernel_size: 3, param: [{lr_mult: 1}, {lr_mult: 2}]}
  - {name: relu2a, type: ReLU, top: conv2a}
  - {name: conv2b, type: Convolution, num_output: 8, kernel_size: [1, 3], param: [{lr_mult: 1}, {lr_mult: 2}]}
  - {name: relu2b, type: ReLU, top: conv2b}
  - {name: conv3, type: Convolution, bottom: conv1, num_output: 5, kernel_size: 3, param: {decay_mult: 0}}
  - {name: relu3, type: ReLU, top: conv3}
"""


def test_a_model_of_blocks_is_the_model_written_out():
    assert resolved(parse(MODEL)) == resolved(parse(WRITTEN_OUT))
    assert resolved(parse(yaml.safe_load(MODEL))) == resolved(parse(WRITTEN_OUT))
    net = Net(parse(MODEL), device="cpu", shapes_only=True)
    assert [value.shape for step in net.steps[-2:] for value in step.tops] == 2 * [(1, 5, 12, 12)]


def test_a_key_of_null_is_as_if_it_were_not_there():
    _, *layers = parse("""
blocks:
  inner: {layers: [{name: y<n>, type: Power, shift: <s>}], defaults: {s: 3}}
  outer:
    layers:
      - {name: x<n>, type: Power, power: 2, shift: <s>, include: <rule>}
      - {block: inner, n: <n>, s: <s>}
    defaults: {s: null, rule: null}
layers:
  - {name: d, type: Input, shape: {dim: 2}}
  - {block: outer, n: 1}
  - {block: outer, n: 2.5, s: 4, rule: {phase: TEST}}
""").layers
    assert [layer.name for layer in layers] == ["x1", "y1", "x2.5", "y2.5"]
    assert [layer.options.get("shift") for layer in layers] == [None, 3, 4, 4]
    assert [len(layer.include) for layer in layers] == [0, 0, 1, 0]


def test_settings_reach_the_layers_of_blocks(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text(MODEL)
    model = read(file, "layers.conv2a.num_output=7")
    assert [layer.options["num_output"] for layer in model.layers if "num_output" in layer.options] == [
        4, 7, 8, 5
    ]  # fmt: skip
    with pytest.raises(SpecError, match="^--set blocks.conv: blocks: stand beside the layers"):
        read(file, "blocks.conv=1")


def test_the_blocks_of_a_model_serve_its_test_nets():
    tests = "test_nets: [{layers: [{name: x, type: Input, shape: {dim: 1}}, {block: one, n: 2}]}]"
    text = f"""
blocks: {{one: {{layers: [{{name: e<n>, type: Exp}}]}}}}
layers: [{{name: x, type: Input, shape: {{dim: 1}}}}]
solver: {{base_lr: 1, max_iter: 1, test_iter: 1, test_interval: 1}}
{tests}
"""
    assert [layer.name for layer in parse(text).test_nets[0].layers] == ["x", "e2"]
    told = "blocks: stand beside the layers at the top of a model file"
    with pytest.raises(SpecError, match=told):
        parse(text.replace("[{layers:", "[{blocks: {}, layers:"))
    second = text.replace("layers: [{name: x,", "layers: [{block: one, n: 1}, {name: x,", 1)
    for wrong, said in (("3", "expected a mapping"), ("{}", "missing key 'layers'")):
        with pytest.raises(SpecError, match=f"^m.yaml:5:13: {said}"):
            parse(second.replace(tests, f"test_nets: [{wrong}]"), "m.yaml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    rows(r"""
        k: 3, | k: x, | 4:94: in a block used at m.yaml:6:19: in a block used at m.yaml:13:5: layer 'conv1' (Convolution): kernel_size: expected an integer, got 'x'
        width: 4} | width: wide} | 4:72: in a block used at m.yaml:13:32: layer 'conv1' (Convolution): num_output: expected an integer, got 'wide'
        param: {decay_mult: 0} | param: {decay_mul: 0} | 4:106: in a block used at m.yaml:15:56: layer 'conv3' (Convolution): param: unknown key 'decay_mul'; did you mean 'decay_mult'?
        num_output: < | num_ouput: < | 4:60: in a block used at m.yaml:13:5: layer 'conv1' (Convolution): unknown key 'num_ouput'; did you mean 'num_output'?
        k: [1, 3] | k: [1, 0] | 4:94: in a block used at m.yaml:10:55: in a block used at m.yaml:14:5: layer 'conv2b' (Convolution): kernel_size: expected at least 1, got 0
        from: conv1, | from: cov1, | 4:52: in a block used at m.yaml:15:41: layer 'conv3' (Convolution): unknown bottom 'cov1'; did you mean 'conv1'?
        k: 3, | k: 20, | 4:9: in a block used at m.yaml:13:5: layer 'conv1' (Convolution): a kernel of extent 20 does not fit
        conv, n: 3 | conv, n: 1 | 4:16: in a block used at m.yaml:15:5: layer 'conv1' (Convolution): the name is taken by the layer at line 4, in a block used at line 13
        pair, n: 2 | pear, n: 2 | 14:13: there is no block 'pear'; did you mean 'pair'?
        block: pair, n: 2 | block: [pair], n: 2 | 14:13: block: expected text, got a list
        blocks: | block: | 13:13: there is no block 'conv'; the model has no `blocks` beside its layers
        n: 1, width: 4 | n: 1, widht: 4 | 13:25: block 'conv': unknown argument 'widht'; did you mean 'width'?
        n: 1, width: 4 | n: 1, width: 4, zebra: 4 | 13:35: block 'conv': unknown argument 'zebra'; no text in the block holds '<zebra>'
        n: 1, width: 4 | n: 1 | 13:5: block 'conv': missing argument 'width', for the <width> at line 4
        n: 1, width: 4 | n: [1], width: 4 | 4:16: in a block used at m.yaml:13:5: <n> in a text: expected text or a number, got a list
        block: conv, n: <n>a | block: pair, n: <n>a | 9:17: in a block used at m.yaml:14:5: block 'pair' is used by itself: 'pair' > 'pair'
        {k: 3, | {kk: 3, k: 3, | 6:16: block 'conv': defaults: unknown argument 'kk'
        {k: 3, from: null, param: [{lr_mult: 1}, {lr_mult: 2}]} | k | 6:15: block 'conv': defaults: expected a mapping, got 'k'
        defaults: | default: | 6:5: block 'conv': unknown key 'default'; did you mean 'defaults'?
        pair: | none: {layers: []}\n  pair: | 7:18: block 'none': expected at least one layer
        pair: | none: 3\n  pair: | 7:9: block 'none': expected a mapping, got 3
        pair: | idle: {layers: [{name: x, type: Exp}]}\n  pair: | 7:3: block 'idle' is never used
        blocks: | blocks: 3\nblokcs: | 1:9: blocks: expected a mapping, got 3
    """),
)
def test_a_mistake_is_told_with_both_its_places(old, new, said):
    text = MODEL.replace(old, new, 1)
    assert text != MODEL
    refused = refusal(lambda: Net(parse(text, "m.yaml"), device="cpu", shapes_only=True))
    assert refused.startswith(f"m.yaml:{said}")


def test_blocks_in_blocks_do_not_grow_without_end(monkeypatch):
    """Each of 20 blocks uses the next ten times; or doubles a text, or wraps a list around a list."""
    monkeypatch.setattr(blocks_module, "MAX_NODES", 10_000)
    laughs = {f"b{i}": {"layers": [{"block": f"b{i + 1}"}] * 10} for i in range(20)}
    doubled = {f"b{i}": {"layers": [{"block": f"b{i + 1}", "x": "<x><x>"}]} for i in range(60)}
    wrapped = {f"b{i}": {"layers": [{"block": f"b{i + 1}", "x": [[["<x>"]]]}]} for i in range(60)}
    chain = {f"b{i}": {"layers": [{"block": f"b{i + 1}"}]} for i in range(500)}
    for blocks, x, said in (
        (laughs, None, "more than 10000 values when blocks are written out"),
        (doubled, "ab", "more than 4 MiB of text in written out blocks"),
        (wrapped, "ab", "nested too deeply when blocks are written out"),
        (chain, None, "blocks are nested too deeply"),
    ):
        last = {"layers": [{"name": "x", "type": "Exp"} | ({"top": "<x>"} if x else {})]}
        model = {"blocks": {**blocks, f"b{len(blocks)}": last}}
        model["layers"] = [{"block": "b0"} | ({"x": x} if x else {})]
        with pytest.raises(SpecError, match=said):
            expanded(tree.from_mapping(model))


def test_what_is_as_deep_as_may_be_is_written_out(monkeypatch):
    """A layer, its lists of lists and the value in them: each is a level."""
    layer = {"name": "x", "type": "Exp", "top": [[["y"]]]}
    model = {"blocks": {"one": {"layers": [layer]}}, "layers": [{"block": "one"}]}
    monkeypatch.setattr(blocks_module, "MAX_DEPTH", 4)
    expanded(tree.from_mapping(model))
    monkeypatch.setattr(blocks_module, "MAX_DEPTH", 3)
    with pytest.raises(SpecError, match="nested too deeply when blocks are written out"):
        expanded(tree.from_mapping(model))
