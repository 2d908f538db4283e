"""What is wrong with a text that is no YAML, as a user of model files would say it."""

from __future__ import annotations

import re

import yaml

MISTAKES = (  # what PyYAML says, and what that means; {begin} is where the part that it was reading begins
    (
        r"mapping values are not allowed here",
        "a ':' is not expected here; put a space behind that of each key, indent the keys of one mapping"
        " alike, and quote text that holds ': '",
    ),
    (
        r"sequence entries are not allowed here",
        "a '-' is not expected here; begin each entry of a list on a line of its own, indented alike",
    ),
    (r"could not find expected ':'", "expected 'key: value' in the line at {begin}"),
    (r"expected <block end>, but found '([]}])'", "'{0}' closes no bracket that is open"),
    (
        r"expected <block end>, but found (.+)",
        "expected a key or entry indented as the one at {begin}, found {0}",
    ),
    (
        r"expected ',' or '(.)', but got (.+)",
        "expected ',' or '{0}' in what the bracket at {begin} opens, found {1}",
    ),
    (r"expected the node content, but found (.+)", "expected a value, found {0}"),
    (r"found character '\\t' that .*", "a tab is not allowed here; indent with spaces"),
    (r"found character '(.+)' that .*", "text that begins with {0} needs quotes"),
    (
        r"expected alphabetic or numeric character, but found .*",
        "expected a name behind '*' or '&'; text that begins so needs quotes",
    ),
    (
        r"expected chomping or indentation indicators, but found .*",
        "expected a new line behind '|' or '>'; text that begins so needs quotes",
    ),
    (r"found unexpected end of stream", "the quote at {begin} is not closed"),
    (
        r"found unknown escape character '(.+)'",
        "{0} behind a backslash means nothing in double quotes; use single quotes",
    ),
    (r"found undefined alias '?([^']+)'?", "*{0} refers to an anchor &{0}, which is not above it"),
    (r"second occurrence", "two anchors have one name; the first is at {begin}"),
    (
        r"but found another document",
        "expected one model in a file, found a second one behind '---'",
    ),
    (
        r"found incompatible YAML document.*",
        "expected YAML 1.x, found a directive of another version",
    ),
)
FOUND = {
    "'<stream end>'": "the end of the text",
    "'<document start>'": "'---'",
    "'<block end>'": "the end of the block",
    "'<block sequence start>'": "an entry of a list that is indented in another way",
    "'<block mapping start>'": "a key that is indented in another way",
    "'<block entry>'": "an entry of a list",
    "'<scalar>'": "text",
    "'?'": "a key",
}


def in_words(error: yaml.MarkedYAMLError) -> str:
    """What a mistake is, without its place."""
    problem, begin = str(error.problem or "").strip(), error.context_mark or error.problem_mark
    for pattern, meaning in MISTAKES:
        if match := re.fullmatch(pattern, problem):
            where = f"{begin.line + 1}:{begin.column + 1}" if begin is not None else "?"
            words = [FOUND.get(word, word) for word in match.groups()]
            return meaning.format(*words, begin=where)
    return ", ".join(part.lstrip(", ") for part in (error.context, error.problem) if part)
