"""Protobuf's text format: what it means, and what is refused, in one line; against Google's own reader in tools/fuzz."""

import math

import pytest
from calls import calls
from kit import plain, refusal

from minicaffe.errors import SpecError
from minicaffe.interop.caffe import text as limits
from minicaffe.interop.caffe.schema import PARSERS, schema
from minicaffe.interop.caffe.text import parse
from minicaffe.interop.caffe.typed import typed

SCHEMA = schema()


def read(text, kind="NetParameter"):
    return plain(typed(parse(text, "f")[0], kind))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("name: 'a' \"b\"\n 'c' # d\n", {"name": "abc"}),
        (r'name: "\101\x42\n\\\"\u00e9\U0001F600\303\251"', {"name": 'AB\n\\"é😀é'}),
        ("name: 'it is \"so\"'", {"name": 'it is "so"'}),
        ("\ufeff# only\nname: '#'", {"name": "#"}),
        ("input: ['a', 'b'], input: 'c';", {"input": ["a", "b", "c"]}),
        ("input: []", {"input": []}),
        ("input_dim: 010 input_dim: 0x1F input_dim: 0", {"input_dim": [8, 31, 0]}),
        ("force_backward: t debug_info: 0", {"force_backward": True, "debug_info": False}),
        ("state < phase: 1 level: - 3 >", {"state": {"phase": "TEST", "level": -3}}),
        ("layer: { name: 'x' } layer {}", {"layer": [{"name": "x"}, {}]}),
        ("layer: [{name: 'x'}, <>]", {"layer": [{"name": "x"}, {}]}),
        ("layers { type: 4 }", {"layers": [{"type": "CONVOLUTION"}]}),
        ("minicaffe_param { a: 1 a: x b { c: [] } d: true e: -.5f }",
         {"minicaffe_param": {"a": [1, "x"], "b": {"c": []}, "d": True, "e": -0.5}}),
    ],
)  # fmt: skip
def test_what_a_text_means(text, wanted):
    assert read(text) == wanted


def test_numbers_of_every_spelling():
    text = "base_lr: 1.f gamma: .5 power: 1e-3F momentum: -Infinity weight_decay: nan delta: 010"
    found = read(text, "SolverParameter")
    assert math.isnan(found.pop("weight_decay"))
    wanted = {"base_lr": 1.0, "gamma": 0.5, "power": 1e-3, "momentum": -math.inf, "delta": 8.0}
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name: "x', "f:1:7: the text in quotes does not end in its line"),
        ("name: 'a\n'", "f:1:7: the text in quotes does not end in its line"),
        ("layer {\n  name: 'x'\n", "f:1:7: the '{' here has no '}'"),
        ("layer { name: 'x' >", "f:1:19: expected the name of a field or '}', got '>'"),
        ("name: 1", "f:1:7: name: expected text in quotes, got 1; put it in quotes"),
        ("name 'x'", "f:1:6: expected ':' and a value, or '{', after 'name', got \"'x'\""),
        ("input_dim: 1x", "f:1:12: '1x' is not a number"),
        ("input_dim: 09", "f:1:12: input_dim: expected an integer, got 09"),
        ("input_dim: 1.5", "f:1:12: input_dim: expected an integer, got 1.5"),
        ("input_dim: [1 2]", "f:1:15: expected ',' or ']', got '2'"),
        (r'name: "\q"', r"f:1:7: the escape '\\q' is not understood"),
        (r'name: "\377"', "f:1:7: the text in quotes is not UTF-8"),
        ("name: 'a' name: 'b'", "f:1:11: name: is given twice, first at line 1"),
        ("}", "f:1:1: expected the name of a field, got '}'"),
        ("[a.b]: 1", "f:1:1: expected the name of a field, got '['"),
        ("layer: 3", "f:1:8: layer: expected { fields of LayerParameter }, got 3"),
        ("name {}", "f:1:6: name: expected text in quotes, got a message in braces"),
        ("force_backward: 2", "f:1:17: force_backward: expected true or false, got 2"),
        ("layer {\n name: 'c' pooling_param { pool: AV }}",
         "f:2:34: layer 'c': pooling_param: pool: expected one of MAX, AVE, STOCHASTIC, got AV; did you mean 'AVE'?"),
        ("layer { pooling_param { pool: 'MAX' } }", "one of MAX, AVE, STOCHASTIC, got 'MAX'; without quotes"),
        ("layer { pooling_param { pool: 7 } }", "expected one of MAX, AVE, STOCHASTIC, got 7"),
        ("layer { convolution_param { num_output: -1 } }", "expected an integer from 0, got -1"),
        ("layers { type: 'Convolu tion' }", "expected a word such as CONVOLUTION, got 'Convolu tion'"),
        ("layer { name: 'c' convolution_param { num_outpt: 1 } }",
         "f:1:39: layer 'c': convolution_param: unknown key 'num_outpt': neither BVLC Caffe's"
         " ConvolutionParameter has it nor what is read of its forks; did you mean 'num_output'?"),
        ("layer { yolo_loss_param { } }", "unknown key 'yolo_loss_param': neither BVLC"),
        ("layer { num_output: 1 }", "it is a key of ConvolutionParameter"),
        ("\x00", "f:1:1: '\\x00' is not understood"),
        pytest.param(" " * (limits.MAX_BYTES + 1), "f: is larger than 4 MiB; no prototxt is", id="large"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(text, told):
    line = refusal(read, text, error=SpecError)
    assert told in line and line.isprintable()


def test_what_is_too_large_is_refused(request, monkeypatch):
    """With --long at the true limit of values, else at a lower one."""
    assert limits.MAX_VALUES == 1_000_000
    many = 1_000_000 if request.config.getoption("--long") else 30_000
    monkeypatch.setattr(limits, "MAX_VALUES", many)
    for text, told in [
        ("layer {" * 3000, "nested too deeply"),
        ("a: 1 " * 1_010_000, "larger than 4 MiB|more than 1000000 values"),
        (f"input_dim: [{'1,' * (many + 1)} 1]", f"more than {many} values"),
        ("#" * (5 << 20), "larger than 4 MiB"),
    ]:
        with pytest.raises(SpecError, match=told):
            read(text)
    with pytest.raises(SpecError, match="expected an integer"):
        read("input_dim: " + "9" * 5000)
    assert len(read("input_dim: 1 " * (many // 9))["input_dim"]) == many // 9
    one, two = (calls(read, "input_dim: 1 " * count) for count in (1000, 2000))
    assert two < 2.2 * one  # nothing takes its square


def test_comments_know_where_they_stood():
    _, comments = parse("# one\nname: 'x' # two\n  # three\n#\n")
    found = [(c.line, c.column, c.text, c.alone) for c in comments]
    wanted = [(1, 1, "one", True), (2, 11, "two", False), (3, 3, "three", True), (4, 1, "", True)]
    assert found == wanted


def test_the_schema_holds_together():
    known = {*SCHEMA.messages, *PARSERS, "Any"}
    for name, fields in SCHEMA.messages.items():
        numbers = [field.number for field in fields.values() if field.number]
        assert len(set(numbers)) == len(numbers), name
        for field in fields.values():
            assert field.words or field.type in known, field
            assert None in (field.default, field.words) or field.default in field.words, field
    homes = {home for homes in SCHEMA.layers.values() for home in homes}
    params = {key for key in SCHEMA.messages["LayerParameter"] if key.endswith("_param")}
    assert homes == params - {"minicaffe_param"}
