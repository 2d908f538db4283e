"""Which tests are slow: records what each costs, and writes slow.json, which conftest.py reads.

    PYTHONPATH=tests/tools python -m pytest -p costs --full    anew
    PYTHONPATH=tests/tools python -m pytest -p costs           adds what is slow once others are left out

The first run of a checkout compiles loops and kernels, which count for the test that needs one first: the second run
is the one to keep. A function is slow if its cases, the processes that they start and their fixtures included, take
more than LIMIT seconds of a processor, and more than EACH of them (or MOST in all); unless it is in "alone", where
mutants.py notes what finds a mistake that nothing else does. A new one is not slow, until it is measured.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

RESULT = Path(__file__).resolve().parent.parent / "slow.json"
LIMIT, EACH, MOST = 0.3, 0.02, 15.0
SECONDS: dict[str, float] = defaultdict(float)  # of a processor, by function
CASES: dict[str, int] = defaultdict(int)


def used() -> float:
    """Seconds of a processor that this process and those that it waited for have used."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = used()
    try:
        return (yield)
    finally:
        function = item.nodeid.partition("[")[0]
        SECONDS[function] += used() - before
        CASES[function] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # of pytest-xdist
        session.config.workeroutput["costs"] = dict(SECONDS), dict(CASES)
        return
    known = json.loads(RESULT.read_text())
    most = {name: max(LIMIT, min(EACH * CASES[name], MOST)) for name in sorted(SECONDS)}
    slow = [name for name in most if SECONDS[name] > most[name]]
    costs = {name: round(SECONDS[name], 1) for name in slow if name not in known["alone"]}
    known["slow"] = costs if session.config.getoption("full") else {**known["slow"], **costs}
    RESULT.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def pytest_testnodedown(node: Any) -> None:
    for here, there in zip((SECONDS, CASES), node.workeroutput["costs"], strict=True):
        for name, value in there.items():
            here[name] += value
