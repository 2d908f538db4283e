"""Markdown of how far tests/fuzz/run.py came, made from its result file.

python examples/benchmarks/fuzz_tables.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from peer_tables import NOT_YET
from tables import lay_out

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "fuzz" / "results.json"


def fuzzed() -> str:
    """A row a reader."""
    if not RESULTS.exists():
        return NOT_YET
    found = json.loads(RESULTS.read_text())
    rows = [
        [
            name,
            f"{row['minutes']:g}",
            f"{row['executions']:,}",
            f"{row['edges']:,}",
            f"{row['inputs']:,}",
            str(len(row["finds"])),
        ]
        for name, row in found.items()
    ]
    return lay_out(["reader", "minutes", "files read", "edges", "files kept", "finds"], rows)


if __name__ == "__main__":
    print(fuzzed())
