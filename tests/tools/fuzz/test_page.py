"""docs/testing.md names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_names_tests_that_there_are():
    named = re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "testing.md").read_text("utf-8")
    )
    assert len(named) > 10
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text("utf-8"), re.M), (path, name)
