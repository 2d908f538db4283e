"""Walk all cases and print what is wrong with each, as JSON; or show a step of one model.

python -m dry_run                                   a line of JSON a case
python -m dry_run MODEL [ENGINE [TYPE]]             the operations of a step, counted
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from dry_run import faults
from dry_run.cases import cases
from dry_run.record import QUEUED, counts
from dry_run.walk import GIVEN, UNTESTED, Quiet, install, repeated, seen, walk
from minicaffe import Solver


def main(words: list[str]) -> None:
    """Run as the words say."""
    device = install()
    if words:
        model, engine, dtype = [*words, *(["auto", None])[len(words) - 1 :]]
        solver = Solver(
            model, device=device, engine=engine, dtype=dtype, report=Quiet(), **UNTESTED, **GIVEN
        )
        step = repeated(lambda: solver.step(1))[-1]
        for kind, name in (names := Counter((op.kind, op.name) for op in step)):
            print(f"{names[kind, name]:6} {kind:12} {name}")
        print(json.dumps({kind: n for kind, n in counts(step).items() if n or kind in QUEUED}))
        return
    for name, case in (faults.cases() | cases()).items():
        expected = faults.FAULTS.get(name)
        print(json.dumps({"case": name, "wrong": walk(case, device), "expected": expected}))
    print(json.dumps({"case": "all", "layers": sorted(seen)}))


if __name__ == "__main__":
    main(sys.argv[1:])
