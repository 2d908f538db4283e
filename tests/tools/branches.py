"""Which branches of minicaffe the tests take: coverage.py over the whole suite with Numba off, then some with it on.

    pip install -e '.[test-all,branches]'
    python tests/tools/branches.py --data /tmp/branches                   half an hour on two cores
    python tests/tools/branches.py --data /tmp/branches --numba tests/core/ops and, with Numba on, what calls its loops
    python tests/tools/branches.py --data /tmp/branches --read            the table of runs that were kept

Loops that Numba compiles are beyond coverage.py: with it off their twins in NumPy are seen; with it on, who chooses
and calls them. The rooms of loops are no part of the table. branches.json has a row a room and, for rooms of
the core and for interop/onnx, each branch that no test took; the page docs/testing.md says why. FILE of --data keeps
which test reached which line, as mutants.py asks.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT = Path("branches.json")
SETTINGS = """
[run]
branch = true
source_pkgs = minicaffe
parallel = true
data_file = {data}
patch = subprocess, _exit
concurrency = thread, multiprocessing
dynamic_context = test_function
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""
COMPILED = re.compile("minicaffe/backends/cpu/(kernels/|atomics|microkernel|thread_pool_loops)")
OWN_TRACER = ["--ignore=tests/core/solver/test_interrupt.py"]  # it takes the place of coverage.py's
LISTED = re.compile("minicaffe/(core|interop/onnx)/|minicaffe/[a-z_]+[.]py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="coverage.py's data"
    )
    parser.add_argument("--read", action="store_true", help="run no tests, but read FILE")
    parser.add_argument("--numba", action="store_true", help="Numba on; adds to what FILE holds")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time; default: 2")
    parser.add_argument("--into", type=Path, default=RESULT, help="the file of the result")
    parser.add_argument("tests", nargs="*", help="default: all")
    args = parser.parse_args()
    runs = json.loads(args.into.read_text())["runs"] if args.read or args.numba else []
    with tempfile.TemporaryDirectory(prefix="branches-") as folder:
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS.format(data=args.data.resolve()))
        if not args.read:
            os.environ.update(MINICAFFE_NUMBA=str(int(args.numba)), PYTHONPATH=str(ROOT))
            tests = ["-q", "--full", f"-n{args.jobs}", *OWN_TRACER, *args.tests]
            said = coverage(settings, "run", "-m", "pytest", *tests)
            print(said[-3000:])
            coverage(settings, "combine", "--quiet", *["--append"] * args.numba)
            last = said.strip().splitlines()[-1]
            runs.append({"numba": args.numba, "tests": args.tests, "outcome": last})
        report = Path(folder, "report.json")
        coverage(settings, "json", "--ignore-errors", "--quiet", "-o", str(report))
        files = json.loads(report.read_text())["files"]
    result = {
        "runs": runs,
        "rooms": rooms(files),
        "missing": {
            name: rest
            for name, file in sorted(files.items())
            if LISTED.match(name) and (rest := [f"{a}->{b}" for a, b in file["missing_branches"]])
        },
    }
    args.into.write_text(json.dumps(result, indent=1) + "\n")


def coverage(settings: Path, verb: str, *words: str) -> str:
    """What coverage.py says; its tests may fail, since the figures are of those that were run."""
    quiet = [sys.executable, "-W", "ignore", "-m", "coverage"]
    command = [*quiet, verb, f"--rcfile={settings}", *words]
    return subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout


def rooms(files: dict[str, dict]) -> dict[str, dict[str, int]]:
    """Statements and branches by room, and how many of them the tests reached."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, file in files.items():
        if not name.startswith("minicaffe/") or COMPILED.match(name):
            continue
        for key in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
            sums[name.split("/")[1]][key] += file["summary"][key]
    return {room: dict(sums[room]) for room in sorted(sums)}


if __name__ == "__main__":
    main()
