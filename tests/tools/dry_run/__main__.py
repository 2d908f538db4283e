"""Walk all cases and print what is wrong with each, as JSON; or show a step of one model.

python -m dry_run                                   a line of JSON a case
python -m dry_run kernels                           the kernels that the cases launch: files, template arguments
python -m dry_run MODEL [ENGINE [TYPE]]             the operations of a step, counted
"""

import json
import sys
from collections import Counter
from pathlib import Path

from dry_run import faults
from dry_run.cases import MODELS, cases
from dry_run.kernels import asked
from dry_run.record import Operation, counts
from dry_run.script import script
from dry_run.walk import GIVEN, UNTESTED, Quiet, install, repeated, seen, walk
from minicaffe import Solver
from minicaffe.backends.device import Device


def main(words: list[str]) -> None:
    """Run as the words say."""
    device = install()
    if words == ["kernels"]:
        for case in cases().values():
            walk(case, device)
        print(json.dumps(sorted(asked)))
        return
    if words:
        shown, _ = steps_of(device, *words)
        for (kind, name), times in Counter((op.kind, op.name) for op in shown).items():
            print(f"{times:6} {kind:12} {name}")
        print(json.dumps(counts(shown)))
        return
    for name, case in cases().items():
        print(json.dumps({"case": name, "wrong": walk(case, device)}))
    print(json.dumps({"case": "kernels", "asked": sorted(asked)}))
    for name, case in faults.cases().items():
        expected = faults.FAULTS[name]
        print(json.dumps({"case": name, "wrong": walk(case, device), "expected": expected}))
    for name, model, engine in (
        ("LeNet", "lenet_paper", "implicit"),
        ("LeNet", "lenet_paper", "batched"),
        ("LeNet", "lenet_paper", "caffe"),
        ("ResNet-50", "resnet50", "implicit"),
    ):
        step, replayed = steps_of(device, MODELS / f"{model}.yaml", engine)
        told = {"counts": counts(step), "replayed": counts(replayed), "graph": held(replayed)}
        print(json.dumps({"case": f"{name}, {engine}", **told}))
    print(json.dumps({"case": "all", "layers": sorted(seen)}))
    print(json.dumps({"case": "a script", "wrong": script(device)}))


def held(step: list[Operation]) -> dict[str, int]:
    """What the graphs of a step hold, counted."""
    return dict(Counter(part.kind for op in step if op.kind == "graph" for part in op.given))


def steps_of(
    device: Device, model: str | Path, engine: str = "auto", dtype: str | None = None
) -> list[list[Operation]]:
    """The operations of one step of training, of one batch, and of one that is replayed."""
    given = {"device": device, "engine": engine, "dtype": dtype, "iter_size": 1, **GIVEN}
    solver = Solver(model, report=Quiet(), **UNTESTED, **given)
    step = repeated(lambda: solver.step(1))[-1]
    solver.step(3)
    return [step, repeated(lambda: solver.step(1))[-1]]


if __name__ == "__main__":
    main(sys.argv[1:])
