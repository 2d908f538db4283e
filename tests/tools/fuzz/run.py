"""Fuzz the readers of files for some minutes each, guided by coverage, and write down how far that came.

    pip install 'minicaffe[fuzz]'
    python tests/tools/fuzz/run.py --minutes 60
    python tests/tools/fuzz/run.py --minutes 1 --only yaml onnx --into /tmp/fuzz

What a fuzzer finds is minimised and kept in tests/tools/fuzz/finds/READER, which test_fuzzed.py reads again. The inputs
that reached something new stay in INTO/corpus, and the next run goes on from them. INTO/results.json has a
row a reader: how many inputs were read, the edges of minicaffe's and PyYAML's byte code that they reached, the finds.
"""

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/")  # libFuzzer's report
LIMITS = ["-rss_limit_mb=4096", "-timeout=30"]  # of one input: MiB, seconds
MOST = 5  # finds of a reader, after which it is left
MINIMISING = 60  # seconds


def main() -> None:
    from fuzz.fuzzed import READERS

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="for each reader; default: 60")
    parser.add_argument("--only", nargs="+", choices=sorted(READERS), metavar="READER")
    parser.add_argument("--jobs", type=int, default=2, help="readers at a time; default: 2")
    parser.add_argument("--into", type=Path, default=HERE / "corpus", help="the folder of inputs")
    args = parser.parse_args()
    names = args.only or list(READERS)
    args.into.mkdir(parents=True, exist_ok=True)
    results = args.into / "results.json"
    found = json.loads(results.read_text()) if results.exists() else {}
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = pool.map(lambda name: (name, fuzzed(name, args.minutes, args.into / name)), names)
        for name, row in rows:
            found[name] = row
            print(f"{name}: {row}", flush=True)
            ordered = {one: found[one] for one in READERS if one in found}
            results.write_text(json.dumps(ordered, indent=1) + "\n")


def fuzzed(name: str, minutes: float, corpus: Path) -> dict[str, object]:
    """Fuzz one reader."""
    start, executions, edges, inputs, finds = time.monotonic(), 0, 0, 0, []
    while (left := 60 * minutes - (time.monotonic() - start)) > 1 and len(finds) < MOST:
        with tempfile.TemporaryDirectory(prefix="finds-") as folder:
            report = harness(
                name, corpus, f"-max_total_time={int(left)}", f"-artifact_prefix={folder}/"
            )
            lines = LINE.findall(report)
            if not lines:
                raise SystemExit(f"{name}: the fuzzer did not begin:\n{report[-2000:]}")
            executions += int(lines[-1][0])
            edges, inputs = int(lines[-1][1]), int(lines[-1][3])
            finds += [kept(name, path) for path in Path(folder).iterdir()]
    return {
        "minutes": round((time.monotonic() - start) / 60, 1),
        "executions": executions,
        "edges": edges,
        "inputs": inputs,
        "finds": sorted(set(finds)),
        "date": f"{datetime.date.today()}",
    }


def kept(name: str, path: Path) -> str:
    """Minimise what was found, and keep it; gives the name of its file."""
    smaller = path.with_name("smaller")
    limits = f"-max_total_time={MINIMISING}", f"-exact_artifact_path={smaller}"
    harness(name, path, "-minimize_crash=1", *limits)
    data = (smaller if smaller.exists() else path).read_bytes()
    to = HERE / "finds" / name / hashlib.sha256(data).hexdigest()[:12]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(data)
    return to.name


def harness(name: str, corpus: Path, *options: str) -> str:
    """What a process of the fuzzer says."""
    command = [sys.executable, str(HERE / "harness.py"), name, str(corpus), *LIMITS, *options]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace").stderr


if __name__ == "__main__":
    sys.path[:0] = map(str, HERE.parents[:3])
    main()
