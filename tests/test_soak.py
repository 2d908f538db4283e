"""The script for an evening, for some seconds: what it counts does not grow."""

from pathlib import Path

import pytest
import soak


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "part", ["resumes", *(pytest.param(one, marks=pytest.mark.long) for one in ("iterations",))]
)
def test_nothing_grows(part, monkeypatch, few_digits):
    monkeypatch.setattr(soak, "ROWS", 4)
    row = soak.soaked(part, 0.0008)
    assert row["grown"] == [] and row["last"]["done"] == row["count"] >= 4
