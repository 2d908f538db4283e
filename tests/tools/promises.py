"""The tests of docs/testing.md's promises, again and again, while other processes take the cores and the caches.

    python tests/tools/promises.py --times 1000
    python tests/tools/promises.py --times 1000 --minutes 2     at most two minutes each
    python tests/tools/promises.py --only seed same_bits        those with such a word in their names

promises.json has a row a test: how often it was run, and how often it failed. A test with parameters, or of
several processes, counts once for all of them.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT = Path("promises.json")
BUSY = "import numpy as np; a = np.ones((2000, 2000), np.float32)\nwhile True: a = (a + a.T) * 0.5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=1000, help="of each test; default: 1000")
    parser.add_argument("--minutes", type=float, default=1e9, help="at most, for each test")
    parser.add_argument("--into", type=Path, default=RESULT, help="the file of the result")
    parser.add_argument("--only", nargs="+", default=[""], help="words of which a name has one")
    args = parser.parse_args()
    results = json.loads(args.into.read_text("utf-8")) if args.into.exists() else {}
    for name in promised((ROOT / "docs" / "testing.md").read_text("utf-8")):
        if not any(word in name for word in args.only):
            continue
        with load():
            results[name] = repeated(name, args.times, 60 * args.minutes)
        print(name, results[name], flush=True)
        args.into.write_text(json.dumps(results, indent=1) + "\n")
    if failed := [name for name, row in results.items() if row["failed"]]:
        sys.exit(f"not kept: {failed}")


def promised(page: str) -> list[str]:
    """The tests that the page's table of promises names.

    >>> promised("| one seed, one net | `tests/core/net/test_net.py::test_the_same_seed` |")
    ['tests/core/net/test_net.py::test_the_same_seed']
    """
    return re.findall(r"`(tests/\S+\.py::\w+)`", page)


@contextlib.contextmanager
def load() -> Iterator[None]:
    """As many processes as there are cores, which compute and fill the caches."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def repeated(name: str, times: int, seconds: float) -> dict[str, float]:
    """Run a test so often, or for so long."""
    code = f"import promises; promises.run_here({name!r}, {times}, {seconds})"
    paths = os.pathsep.join(map(str, (ROOT, HERE.parent, HERE)))
    environment = {**os.environ, "PYTHONPATH": paths}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if not (said := re.search(r"^ran (\d+), failed (\d+)$", done.stdout, re.M)):
        raise SystemExit(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
    minutes = round((time.monotonic() - start) / 60, 1)
    return {"times": int(said[1]), "failed": int(said[2]), "minutes": minutes}


class Above:
    """What is to run next is no test, but what stands above one: its own fixtures end with it."""

    def __init__(self, item: Any):
        self.item = item

    def listchain(self) -> list[Any]:
        return self.item.listchain()[:-1]


def run_here(name: str, times: int, seconds: float) -> None:
    """Run a test in this process, and print how often it ran and failed."""
    import pytest
    from _pytest.runner import runtestprotocol

    class Again:
        """Runs what was collected again and again, until the time is up."""

        def __init__(self) -> None:
            self.each, self.ran, self.failed = 1, 0, 0

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            self.each, self.end = max(1, len(items)), time.monotonic() + seconds
            items[:] = items * times

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            self.failed += report.failed

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Any) -> bool:
            """As pytest's own, whose test would keep its fixtures if it is the next one, too."""
            runtestprotocol(item, nextitem=Above(item) if nextitem is item else nextitem)
            self.ran += 1
            if self.ran % self.each == 0 and time.monotonic() > self.end:
                item.session.shouldstop = "no more time"
            return True

    again = Again()
    pytest.main(["-q", "-n0", "-p", "no:cacheprovider", name], [again])
    print(f"\nran {again.ran // again.each}, failed {again.failed}")


if __name__ == "__main__":
    main()
