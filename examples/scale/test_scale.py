"""examples/scale: the page against the results, and the program once."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

from tools.parallel import mpi

ROOT = Path(__file__).parents[2]
SCALE = ROOT / "examples" / "scale"


def test_the_page_shows_what_the_results_say(monkeypatch):
    """Each table is made from the result files."""
    monkeypatch.syspath_prepend(str(SCALE))
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    for name, table in importlib.import_module("scale_tables").tables().items():
        (shown,) = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.S)
        assert shown == table, name


@mpi.needs_mpi
def test_the_measurements_run(tmp_path):
    """Once, small."""
    ranks = [sys.executable, str(SCALE / "ranks.py"), "--no-torch", "--rounds", "1", "--block", "1"]
    ranks += ["--anew", "1", "--nets", "lenet:4", "--into", str(tmp_path)]
    done = subprocess.run(
        mpi.launched(2, *ranks),
        cwd=ROOT,
        env=mpi.environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "ranks_2.json").read_text("utf-8"))
    assert found["ranks"] == 2 and "one rank / all ranks" in found["nets"]["lenet:4"]["ratios"]
