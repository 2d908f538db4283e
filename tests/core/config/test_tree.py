"""YAML text to a tree: places, scalars, and what is refused."""

import itertools
import math
from pathlib import Path

import pytest
import yaml
from kit import plain, refusal, rows

from minicaffe.core.config import tree
from minicaffe.errors import SpecError


def read(path):
    file, text = tree.load(path)
    return tree.parse(text, file)


def refused(text: str) -> str:
    return refusal(tree.parse, text, "m.yaml", error=SpecError)


TEXT = """\
# a comment
name: é net
layers:
  - {name: a, size: [1,
      22]}
  - name:   b
    top:
"""


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), "\ufeff" + TEXT])
def test_places_count_from_1(text):
    root = tree.parse(text, "m.yaml")
    first, second = root.value["layers"].value
    sizes = first.value["size"]
    places = [
        root.mark, root.keys["name"], root.value["name"].mark, root.value["layers"].mark, first.mark,
        first.keys["size"], sizes.mark, sizes.value[1].mark, second.keys["name"],
        second.value["name"].mark, second.value["top"].mark,
    ]  # fmt: skip
    assert [(p.line, p.column) for p in places] == [
        (2, 1), (2, 1), (2, 7), (4, 3), (4, 5), (4, 15), (4, 21), (5, 7), (6, 5), (6, 13), (7, 9)
    ]  # fmt: skip
    assert str(second.mark) == "m.yaml:6:5"


SCALARS = {
    **{word: word for word in ["no", "yes", "on", "NO", "12:30", "2026-11-20", "1_000", "0o17", "=", "<<"]},
    "'5'": "5", '"true"': "true", "!!str 5": "5", "! 5": 5, "010": 10, "-0": 0, "+7": 7, "0x1F": 31,
    "true": True, "FALSE": False, "~": None, "null": None, "1e-4": 1e-4, "1.": 1.0, ".5": 0.5,
    "-1.5E+3": -1500.0, "!!float 1": 1.0, "1e999": math.inf, "-.INF": -math.inf, "9" * 400: int("9" * 400),
    "[]": [], "{}": {}, "--- 1\n...\n": 1, "%YAML 1.2\n--- 1": 1, "": None, "# only\n": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=itertools.count())
def test_scalars(text, value):
    got = tree.parse(text).value
    assert got == value and type(got) is type(value)


MERGES = """\
a: &a {x: 1, y: {z: 2}}
b: &b {x: 3, w: 4}
one: {x: 5, <<: *a}
two:
  <<: [*b, *a, {v: 6, w: 7}]
  y: {}
chain: &chain {<<: *a, u: 8}
end: {<<: *chain, x: 9}
none: {<<: [], x: 1}
text: {'<<': 1}
here: {<<: {x: 1}}
again: [*b, {it: *b}]
"""


def test_merge_keys_fill_the_gaps():
    """What a mapping says itself counts, wherever it stands; of a list the earlier; not into the depth."""
    assert plain(tree.parse(MERGES)) == yaml.safe_load(MERGES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *rows(r"""
        a: 1\nb: 2\na: 3 | m.yaml:3:1: duplicate key 'a', first given at line 1
        {x: {b: 1, b: 1}} | m.yaml:1:12: duplicate key 'b', first given at line 1
        a: 1\n5: 2 | m.yaml:2:1: expected a key that is a word, got 5
        true: 2 | m.yaml:1:1: expected a key that is a word, got true
        ~: 2 | m.yaml:1:1: expected a key that is a word, got nothing
        ? [a, b]\n: 2 | m.yaml:1:3: expected a key that is a word, got a sequence
        {{a: 1}: 2} | m.yaml:1:2: expected a key that is a word, got a mapping
        a: &x [1, *x] | m.yaml:1:4: an alias refers to what contains it
        a: &x\n  b: *x | m.yaml:1:4: an alias refers to what contains it
        a: *x | m.yaml:1:4: *x refers to an anchor &x, which is not above it
        a: !!python/object:os.system {} | m.yaml:1:4: the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed here
        a: !!python/name:os.system | m.yaml:1:4: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed here
        a: !mine 5 | m.yaml:1:4: the tag '!mine' is not allowed here
        a: !!seq {} | m.yaml:1:4: the tag 'tag:yaml.org,2002:seq' is not allowed here
        a: !!set {x} | m.yaml:1:4: the tag 'tag:yaml.org,2002:set' is not allowed here
        a: !!map 5 | m.yaml:1:4: the tag 'tag:yaml.org,2002:map' is not allowed here
        a: !!bool yes | m.yaml:1:4: 'yes' is not of the type that its tag names
        a: !!null x | m.yaml:1:4: 'x' is not of the type that its tag names
        a: !!int 1_000 | m.yaml:1:4: '1_000' is not of the type that its tag names
        a: !!float x | m.yaml:1:4: 'x' is not of the type that its tag names
        a: "\uD800" | m.yaml:1:4: '\ud800' holds half a character (a surrogate)
        a: "\U00110000" | m.yaml:1:7: the number is too large
        a: "\UFFFFFFFF" | m.yaml:1:7: the number is too large
        %YAML 2.0\n--- a | m.yaml:1:1: expected YAML 1.x, found a directive of another version
        a: 1\n---\nb: 2 | m.yaml:2:1: expected one model in a file, found a second one behind '---'
        a: [1, 2 | m.yaml:1:9: expected ',' or ']' in what the bracket at 1:4 opens, found the end of the text
        a: 1\n  b: 2 | m.yaml:2:4: a ':' is not expected here; put a space behind that of each key, indent the keys of one mapping alike, and quote text that holds ': '
        a: 'x | m.yaml:1:6: the quote at 1:4 is not closed
        a: b\nc\nd: e | m.yaml:3:1: expected 'key: value' in the line at 2:1
        - a\nb: 1 | m.yaml:2:1: expected a key or entry indented as the one at 1:1, found a key
        a: {b: 1}} | m.yaml:1:10: '}' closes no bracket that is open
        a: * | m.yaml:1:5: expected a name behind '*' or '&'; text that begins so needs quotes
        a: |x | m.yaml:1:5: expected a new line behind '|' or '>'; text that begins so needs quotes
        a: @b | m.yaml:1:4: text that begins with @ needs quotes
        a: "\d" | m.yaml:1:6: d behind a backslash means nothing in double quotes; use single quotes
        a: &x 1\nb: &x 2 | m.yaml:2:4: two anchors have one name; the first is at 1:4
        a: - b | m.yaml:1:4: a '-' is not expected here; begin each entry of a list on a line of its own, indented alike
        a: {b: 1 | m.yaml:1:9: expected ',' or '}' in what the bracket at 1:4 opens, found the end of the text
        a:\n   - b\n  - c | m.yaml:3:3: expected a key or entry indented as the one at 1:1, found an entry of a list that is indented in another way
        a: {<<: 5} | m.yaml:1:9: <<: expected a mapping or a list of them, got 5
        a: {<<: } | m.yaml:1:8: <<: expected a mapping or a list of them, got nothing
        a: &a [1]\nb: {<<: *a} | m.yaml:1:8: <<: expected a mapping or a list of them, got 1
        a: &a {}\nb:\n  <<: [*a, x] | m.yaml:3:12: <<: expected a mapping or a list of them, got 'x'
        a: &a {}\nb:\n  <<: *a\n  <<: *a | m.yaml:4:3: duplicate key '<<', first given at line 3
        a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3} | m.yaml:2:19: duplicate key 'x', first given at line 2
        a: &x {<<: *x} | m.yaml:1:4: an alias refers to what contains it
        a: {!!merge x: {}} | m.yaml:1:5: 'x' is not of the type that its tag names
    """),
        ("a: " + "9" * 5000, "m.yaml:1:4: '" + "9" * 56 + "... is too long a number"),
        ("%YAML 1." + "9" * 5000 + "\n--- a", "m.yaml:1:9: the number is too large"),
        ("a: 1\nb: x\0y", "m.yaml:2:5: the character U+0000 is not allowed"),
        ("a: \x07", "m.yaml:1:4: the character U+0007 is not allowed"),
        ("a:\n\tb: 1",
         "m.yaml:2:1: a tab is not allowed here; indent with spaces"),
        ("[" * 102 + "]" * 102, "m.yaml:1:102: nested too deeply"),
    ],
    ids=lambda value: value[:60],
)  # fmt: skip
def test_refusals(text, message):
    assert refused(text) == message


@pytest.mark.parametrize(
    "deep", ["[" * 20_000, "{a: " * 20_000, "- " * 50_000, "? " * 50_000], ids=itertools.count()
)
def test_endless_nesting_is_refused(deep):
    assert refused(deep).startswith("m.yaml:1:")
    assert refused(deep).endswith(": nested too deeply")


@pytest.mark.parametrize(
    ("first", "of"), [("[x, x, x, x, x, x, x, x, x]", "[{}]"), ("{k: {x: 1}}", "{{<<: [{}]}}")]
)
def test_a_bomb_of_aliases_or_of_merges_is_refused(first, of):
    rows = [f"a0: &a0 {first}"]
    rows += [f"a{i}: &a{i} {of.format(', '.join([f'*a{i - 1}'] * 9))}" for i in range(1, 30)]
    assert refused("\n".join(rows)).endswith(": aliases repeat more than 100000 values")


def test_a_chain_of_aliases_is_refused_as_too_deep():
    rows = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
    assert refused("\n".join(rows)).endswith(": nested too deeply")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff", ":2:4: is not UTF-8 text (byte 8)"),
        ("\ufeffa: \u00e9".encode() + b"\xc3", ":1:5: is not UTF-8 text (byte 8)"),
        ("a: 1".encode("utf-16"), ": is no model file: it is in UTF-16, not UTF-8"),
        (b"a: \xed\xa0\x80", ":1:4: is not UTF-8 text (byte 3)"),
        (b"\0", ":1:1: the character U+0000 is not allowed"),
        ("\ufeffa: \0".encode(), ":1:4: the character U+0000 is not allowed"),
        (b"#" * ((4 << 20) + 1), ": is larger than 4 MiB; no model file is"),
    ],
    ids=itertools.count(),
)
def test_files_that_are_no_text(tmp_path, data, message):
    path = tmp_path / "m.yaml"
    path.write_bytes(data)
    assert refusal(read, path) == f"{path}{message}"


def test_files_that_cannot_be_read(tmp_path):
    for path, message in [
        (tmp_path, f"{tmp_path}: cannot be read: Is a directory"),
        (tmp_path / "no.yaml", f"{tmp_path}/no.yaml: no such file"),
        ("x" * 300, f"{'x' * 300}: cannot be read: File name too long"),
        ("a\0b", "a\\x00b: is not a whole model file: embedded null byte"),
        ("a\nb", "a\\nb: no such file"),
        ("/dev/zero", "/dev/zero: is larger than 4 MiB; no model file is"),
    ]:
        assert refusal(read, path) == message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ({}, "a mapping"),
        ([], "an empty list"),
        ([1], "a list"),
        (1e-4, "0.0001"),
        ("a\nb", r"'a\nb'"),
        ("x" * 10**6, "'" + "x" * 56 + "..."),
        (10**10000, "a very long number"),
    ],
    ids=itertools.count(),
)
def test_shown(value, text):
    assert tree.shown(value) == text


def test_a_list_may_be_as_long_as_a_file_holds(monkeypatch):
    """Only what aliases repeat is counted."""
    monkeypatch.setattr(tree, "MAX_NODES", 1000)
    assert len(tree.parse(f"dim: [{'1, ' * 1000}1]", "m.yaml").value["dim"].value) == 1001


@pytest.mark.parametrize("text", [None, 5, b"a: 1", Path("m.yaml"), {"a": 1}])
def test_what_is_no_text_is_refused(text):
    told = "^expected a YAML text or a mapping, got .*; `read` takes a path$"
    with pytest.raises(SpecError, match=told):
        tree.parse(text)
