"""The types of keys: each conversion, each message, and the JSON schema of each."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from kit import refusal, rows

from minicaffe.core.config import tree
from minicaffe.core.config.types import (
    AtLeast,
    Below,
    Printable,
    build,
    convert,
    json_schema_of_keys,
    keys_of,
)
from minicaffe.errors import SpecError

Pool = Literal["MAX", "AVE"]


@dataclass(frozen=True, kw_only=True)
class Fill:
    """How to fill."""

    word = "type"
    type: Annotated[Literal["constant", "xavier"], "the distribution"]
    value: Annotated[float, "the value"] = 0.0

    def __post_init__(self) -> None:
        if self.type == "xavier" and self.value:
            raise SpecError("value goes with constant")


@dataclass(frozen=True, kw_only=True)
class Dim:
    """A size."""

    dim: Annotated[tuple[int, ...], "sizes", AtLeast(1)]


@dataclass(frozen=True, kw_only=True)
class Everything:
    """One key of each type."""

    count: Annotated[int, "how many", AtLeast(0)]
    rate: Annotated[float, "how fast", AtLeast(0), Below(1)] = 0.5
    flag: Annotated[bool, "whether"] = False
    name: Annotated[str, "what it is called", Printable()] = "x"
    pool: Pool = "MAX"
    maybe: Annotated[int | None, "perhaps", AtLeast(2)] = None
    sizes: Annotated[tuple[int, ...], "one or more", AtLeast(1)] = ()
    names: tuple[str, ...] | None = None
    fill: Annotated[Fill, "how to fill"] = Fill(type="constant")
    dims: tuple[Dim, ...] = ()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", int, 5),
        ("-2147483647", int, -(2**31) + 1),
        ("010", int, 10),
        ("5", float, 5.0),
        ("1e-4", float, 1e-4),
        ("1e299", float, 1e299),
        ("true", bool, True),
        ("no", str, "no"),
        ("''", str, ""),
        ("MAX", Pool, "MAX"),
        ("~", int | None, None),
        ("3", int | None, 3),
        ("3", tuple[int, ...], (3,)),
        ("[3, 4]", tuple[int, ...], (3, 4)),
        ("[]", tuple[int, ...], ()),
        ("a", tuple[str, ...] | None, ("a",)),
        ("~", tuple[str, ...] | None, None),
        ("[true, false]", tuple[bool, ...], (True, False)),
        ("xavier", Fill, Fill(type="xavier")),
        ("{type: constant, value: 2}", Fill, Fill(type="constant", value=2.0)),
        ("{dim: 3}", tuple[Dim, ...], (Dim(dim=(3,)),)),
        ("[{dim: [3, 4]}, {dim: []}]", tuple[Dim, ...], (Dim(dim=(3, 4)), Dim(dim=()))),
    ],
)
def test_conversions(text, kind, value):
    got = convert(tree.parse(text), kind)
    assert got == value and type(got) is type(value)


def test_a_negative_zero_is_zero():
    assert math.copysign(1, convert(tree.parse("-0.0"), float)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *rows("""
        count: x | :1:8: thing: count: expected an integer, got 'x'
        count: 1.0 | :1:8: thing: count: expected an integer, got 1.0
        count: 1e3 | :1:8: thing: count: expected an integer, got 1000.0
        count: 0o17 | :1:8: thing: count: expected an integer, got '0o17'
        count: 1_000 | :1:8: thing: count: expected an integer, got '1_000'
        count: true | :1:8: thing: count: expected an integer, got true
        count: | :1:7: thing: count: expected an integer, got nothing
        count: [1] | :1:8: thing: count: expected an integer, got a list
        count: {a: 1} | :1:8: thing: count: expected an integer, got a mapping
        count: -1 | :1:8: thing: count: expected at least 0, got -1
        count: 2147483648 | :1:8: thing: count: expected an integer below 2^31, got 2147483648
        count: -2147483648 | :1:8: thing: count: expected an integer below 2^31, got -2147483648
        {count: 1, rate: x} | :1:18: thing: rate: expected a number, got 'x'
        {count: 1, rate: true} | :1:18: thing: rate: expected a number, got true
        {count: 1, rate: 1} | :1:18: thing: rate: expected below 1, got 1.0
        {count: 1, rate: -1e-9} | :1:18: thing: rate: expected at least 0, got -1e-09
        {count: 1, rate: 1e999} | :1:18: thing: rate: expected a finite number, got inf
        {count: 1, rate: -.inf} | :1:18: thing: rate: expected a finite number, got -inf
        {count: 1, rate: .nan} | :1:18: thing: rate: expected a finite number, got nan
        {count: 1, rate: 1e300} | :1:18: thing: rate: expected a finite number, got 1e+300
        {count: 1, flag: yes} | :1:18: thing: flag: expected true or false, got 'yes'
        {count: 1, flag: 1} | :1:18: thing: flag: expected true or false, got 1
        {count: 1, name: 5} | :1:18: thing: name: expected text, got 5; quote it to make it text
        {count: 1, name: true} | :1:18: thing: name: expected text, got true; quote it to make it text
        {count: 1, name: ~} | :1:18: thing: name: expected text, got nothing
        {count: 1, name: ''} | :1:18: thing: name: expected printable text, got ''
        {count: 1, pool: max} | :1:18: thing: pool: expected one of MAX, AVE, got 'max'; did you mean 'MAX'?
        {count: 1, pool: 3} | :1:18: thing: pool: expected one of MAX, AVE, got 3
        {count: 1, pool: [MAX]} | :1:18: thing: pool: expected one of MAX, AVE, got a list
        {count: 1, maybe: 1} | :1:19: thing: maybe: expected at least 2, got 1
        {count: 1, maybe: x} | :1:19: thing: maybe: expected an integer, got 'x'
        {count: 1, sizes: [1, 0]} | :1:23: thing: sizes: expected at least 1, got 0
        {count: 1, sizes: [1, x]} | :1:23: thing: sizes: expected an integer, got 'x'
        {count: 1, sizes: [[1], 2]} | :1:20: thing: sizes: expected an integer, got a list
        {count: 1, sizes: } | :1:18: thing: sizes: expected an integer, got nothing
        {count: 1, names: [a, 5]} | :1:23: thing: names: expected text, got 5; quote it to make it text
        {count: 1, fill: 5} | :1:18: thing: fill: expected a word or a mapping, got 5
        {count: 1, fill: []} | :1:18: thing: fill: expected a word or a mapping, got an empty list
        {count: 1, fill: xavior} | :1:18: thing: fill: type: expected one of constant, xavier, got 'xavior'; did you mean 'xavier'?
        {count: 1, fill: {}} | :1:18: thing: fill: missing key 'type' (the distribution)
        {count: 1, fill: {type: xavier, value: 1}} | :1:18: thing: fill: value goes with constant
        {count: 1, fill: {type: xavier, valu: 1}} | :1:33: thing: fill: unknown key 'valu'; did you mean 'value'?
        {count: 1, dims: 5} | :1:18: thing: dims: expected a mapping, got 5
        {count: 1, dims: [{dim: 1}, {dim: 0}]} | :1:35: thing: dims: dim: expected at least 1, got 0
        {count: 1, dims: [{dim: 1}, {}]} | :1:29: thing: dims: missing key 'dim' (sizes)
        {rate: 0.1} | :1:1: thing: missing key 'count' (how many)
        {cuont: 1} | :1:2: thing: unknown key 'cuont'; did you mean 'count'?
        {count: 1, COUNT: 1} | :1:12: thing: unknown key 'COUNT'; did you mean 'count'?
        {count: 1, zebra: 1} | :1:12: thing: unknown key 'zebra'
        {count: 1, '<<': {rate: 0}} | :1:12: thing: unknown key '<<'
        [1] | :1:1: thing: expected a mapping, got a list
        5 | :1:1: thing: expected a mapping, got 5
    """),
        ("count: 0x" + "f" * 5000,
         ":1:8: thing: count: expected an integer below 2^31, got a very long number"),
        ("{count: 1, rate: 1" + "0" * 400 + "}",
         ":1:18: thing: rate: expected a finite number, got a very long number"),
        ('{count: 1, name: "a\\nb"}',
         ":1:18: thing: name: expected printable text, got 'a\\nb'"),
    ],
    ids=lambda value: value[:60],
)  # fmt: skip
def test_refusals(text, message):
    assert refusal(build, tree.parse(text, "m.yaml"), Everything, "thing") == "m.yaml" + message


VALID = [
    {"count": 0},
    {"count": 1, "rate": 0.5, "sizes": [1, 2], "names": None, "maybe": None},
    {"count": 1, "sizes": 3, "fill": "xavier", "dims": {"dim": 3}},
    {"count": 1, "fill": {"type": "constant", "value": 3}, "dims": [{"dim": [3]}]},
]
INVALID = [{}, {"count": -1}, {"count": "1"}]
INVALID += [{"count": 1, key: value} for key, value in [
    ("cuont", 1), ("rate", 1), ("rate", -0.1), ("flag", "yes"), ("name", ""), ("pool", "max"), ("maybe", 1), ("sizes", [1, 0]),
    ("sizes", 0), ("names", [5]), ("fill", "xavior"), ("fill", {"value": 3}), ("dims", [{"dim": 0}]),
]]  # fmt: skip


@pytest.mark.parametrize(("instance", "valid"), [(one, one in VALID) for one in [*VALID, *INVALID]])
def test_the_json_schema_says_the_same(instance, valid):
    def define(kind):
        return json_schema_of_keys(keys_of(kind), define)

    schema = json_schema_of_keys(keys_of(Everything), define)
    jsonschema = pytest.importorskip("jsonschema")
    assert jsonschema.Draft202012Validator(schema).is_valid(instance) is valid
