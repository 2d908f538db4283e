"""examples/scale: the simulation against what must hold of it, the page against the results, the programs once."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.parallel import mpi

ROOT = Path(__file__).parent.parent
SCALE = ROOT / "examples" / "scale"


@pytest.fixture(scope="module")
def simulate():
    return module("simulate")


def module(name):
    sys.path.insert(0, str(SCALE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCALE))


def test_the_simulations_examples(simulate):
    assert doctest.testmod(simulate).failed == 0


STEPS = st.lists(st.tuples(st.floats(0.1, 9), st.integers(0, 2**22)), min_size=1, max_size=8)


@given(
    STEPS,
    st.floats(0.1, 9),
    st.floats(0, 0.1),
    st.floats(1e4, 1e8),
    st.integers(1, 64),
    st.booleans(),
)
def test_a_step_takes_what_it_must(steps, forward, latency, rate, ranks, apart):
    """No less than its work, nor than its sums behind the first bucket; no more than both one after the other."""
    simulate = module("simulate")
    backward, sizes = zip(*steps, strict=True)
    network = simulate.Network("", latency, rate, "", apart)
    found = simulate.simulated(simulate.Step(forward, backward, sizes, 0.5), network, ranks)
    work = forward + sum(backward) + 0.5
    assert found["compute"] == pytest.approx(work)
    assert max(work, found["sums"] + forward) <= found["ms"] + 1e-9
    assert found["ms"] <= work + found["sums"] + 1e-9
    if not apart or ranks == 1:
        assert found["ms"] == pytest.approx(work + found["sums"])
    everything = simulate.Network("", 0.0, rate, "").sum_ms(sum(sizes), ranks)
    messages = simulate.Network("", latency, rate, "").sum_ms(sum(sizes), ranks)
    assert everything - 1e-9 <= found["sums"] <= messages * (len(steps) + 1) + 1e-9


def test_the_page_shows_what_the_results_say():
    """Each table is made from the result files."""
    model = module("model")
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    for name, table in model.tables(*model.load()).items():
        (shown,) = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.S)
        assert shown == table, name


@mpi.needs_mpi
def test_the_measurements_run(tmp_path, request):
    """Once, small; with --long that of each batch, too."""
    ranks = [sys.executable, str(SCALE / "ranks.py"), "--no-torch", "--rounds", "1", "--block", "1"]
    ranks += ["--anew", "1", "--nets", "lenet:4", "--into", str(tmp_path)]
    compute = [
        sys.executable,
        str(SCALE / "compute.py"),
        "--ms",
        "1",
        "--nets",
        "lenet",
        "--into",
        str(tmp_path),
    ]
    both = request.config.getoption("--long")
    for command in (mpi.launched(2, *ranks), *[compute] * both):
        done = subprocess.run(
            command, cwd=ROOT, env=mpi.environment(), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "ranks_2.json").read_text("utf-8"))
    assert found["ranks"] == 2 and "one rank / all ranks" in found["nets"]["lenet:4"]["ratios"]
    if both:
        computed = json.loads((tmp_path / "compute.json").read_text("utf-8"))
        assert set(computed["nets"]["lenet"]["1"]["backward_ms"])
