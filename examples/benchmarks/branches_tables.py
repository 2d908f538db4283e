"""Markdown of the branches that the tests take, made from the result file of tests/branches.py.

python examples/benchmarks/branches_tables.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from peer_tables import NOT_YET
from tables import lay_out

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "branches.json"
CORE = ("layers", "net", "ops", "solver", "spec", "backend.py", "communicator.py")


def branches() -> str:
    """A row a room, those of the core first."""
    if not RESULTS.exists():
        return NOT_YET
    rooms = json.loads(RESULTS.read_text())["rooms"]
    named = [room for room in rooms if rooms[room]["num_branches"] and not room.endswith(".py")]
    ordered = sorted(named, key=lambda room: (room not in CORE, room))
    rows = [row(room, rooms[room]) for room in ordered]
    core = {key: sum(rooms[room][key] for room in CORE) for key in rooms["net"]}
    return lay_out(["room", "branches", "taken", "%"], [row("**core**", core), *rows])


def row(room: str, sums: dict[str, int]) -> list[str]:
    """A room, its branches, how many were taken, and per cent."""
    every, taken = sums["num_branches"], sums["covered_branches"]
    return [room, f"{every:,}", f"{taken:,}", f"{100 * taken / every:.1f}"]


if __name__ == "__main__":
    print(branches())
