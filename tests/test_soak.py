"""The script for an evening, for some seconds: what it counts does not grow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent / "soak.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "part",
    ["resumes", *(pytest.param(one, marks=pytest.mark.long) for one in ("iterations", "samples"))],
)
def test_nothing_grows(part, tmp_path):
    command = [
        sys.executable,
        SOAK,
        "--share",
        "0.002",
        "--only",
        part,
        "--into",
        tmp_path / "x.json",
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    row = json.loads((tmp_path / "x.json").read_text())[part]
    assert row["grown"] == [] and row["last"]["done"] == row["count"] >= 20
