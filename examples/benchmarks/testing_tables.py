"""Markdown of how minicaffe is tested, made from the result files of the scripts under tests/.

python examples/benchmarks/testing_tables.py fuzzed | branches | mutants | promises | soak
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from peer_tables import NOT_YET
from tables import lay_out

TESTS = Path(__file__).resolve().parents[2] / "tests"
CORE = ("layers", "net", "ops", "solver", "spec", "backend.py", "communicator.py")
SOAKED = {
    "iterations": "iterations of LeNet",
    "resumes": "snapshots, each with a new solver that goes on from it",
    "ranks": "iterations by two ranks",
    "cuda_iterations": "iterations of LeNet on CUDA (an H200)",
    "cuda_resumes": "snapshots, each with a new solver that goes on from it, on CUDA",
}


def read(name: str) -> Any:
    """What a script wrote; nothing where it has not been run."""
    path = TESTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def fuzzed() -> str:
    """By tests/fuzz/run.py: a row a reader."""
    rows = [
        [
            name,
            f"{row['minutes']:g}",
            f"{row['executions']:,}",
            f"{row['edges']:,}",
            f"{row['inputs']:,}",
            str(len(row["finds"])),
        ]
        for name, row in read("fuzz/results.json").items()
    ]
    return table(["reader", "minutes", "files read", "edges", "files kept", "finds"], rows)


def branches() -> str:
    """By tests/branches.py: a row a room, those of the core first."""
    rooms = read("branches.json").get("rooms", {})
    named = [room for room in rooms if rooms[room]["num_branches"] and not room.endswith(".py")]
    ordered = sorted(named, key=lambda room: (room not in CORE, room))
    rows = [taken(room, rooms[room]) for room in ordered]
    if rows:
        core = {key: sum(rooms[room][key] for room in CORE) for key in rooms["net"]}
        rows.insert(0, taken("**core**", core))
    return table(["room", "branches", "taken", "%"], rows)


def taken(room: str, sums: dict[str, int]) -> list[str]:
    """A room, its branches, how many were taken, and per cent."""
    every, some = sums["num_branches"], sums["covered_branches"]
    return [room, f"{every:,}", f"{some:,}", f"{100 * some / every:.1f}"]


def mutants() -> str:
    """By tests/mutants.py: how many mistakes a test found."""
    found = read("mutants.json")
    if not found:
        return NOT_YET
    failed, endless = len(found["killed"]), len(found["timeout"])
    same = sum(1 for reason in found["survived"].values() if reason)  # that speak of no result
    missed, seen = len(found["survived"]) - same, failed + endless
    counts = seen + same + missed, failed, endless, same, missed
    shares = [f"{100 * seen / (seen + missed + more):.1f}" for more in (same, 0)]
    head = ["mistakes", "a test failed", "tests did not end", "no result changes", "not found"]
    head += ["% found", "% of those that change a result"]
    return lay_out(head, [[*map(str, counts), *shares]])


def promises() -> str:
    """By tests/promises.py: how often each test was run under load."""
    rows = [
        [
            f"`{name.rpartition('::')[2]}`",
            f"{row['times']:,}",
            f"{row['minutes']:g}",
            f"{row['failed']}",
        ]
        for name, row in read("promises.json").items()
    ]
    return table(["test", "times", "minutes", "failed"], rows)


def soak() -> str:
    """By tests/soak.py: what grew between a twentieth of each part and its end."""
    head = ["", "minutes", "MiB", "MiB of the GPU", "files", "threads", "temporary files"]
    rows = [
        [
            f"{row['count']:,} {SOAKED[part]}",
            f"{row['minutes']:g}",
            *(
                f"{row['first'][key]:g} to {row['last'][key]:g}" if key in row["first"] else ""
                for key in ("mib", "gpu_mib", "files", "threads", "left")
            ),
        ]
        for part, row in read("soak.json").items()
    ]
    return table(head, rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    return lay_out(head, rows) if rows else NOT_YET


TABLES = {one.__name__: one for one in (fuzzed, branches, mutants, promises, soak)}

if __name__ == "__main__":
    print(TABLES[sys.argv[1]]())
