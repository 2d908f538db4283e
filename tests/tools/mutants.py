"""Mistakes put into the code one at a time, to see whether a test fails: mutation testing.

    pip install -e '.[test-all,branches]'
    python tests/tools/branches.py --data /tmp/branches                 which tests reach which line
    python tests/tools/mutants.py --data /tmp/branches --count 500
    python tests/tools/mutants.py --data /tmp/branches --again --ask tests/core/net/test_new.py     those that survived, once more

A mutant is one change of an operator, a comparison, a number, a truth value, a condition, a returned value or a
statement, drawn from all that the files of FOLDERS hold. It is killed if tests fail that reach its line, or an example
of its file; they run in a process of their own, with Numba off and on, in the STAGES below, until one stage has failed:
first what is not slow (see costs.py), and what is slow only if that finds nothing. mutants.json has of each mutant the
tests that failed; what it knows already is not tried again. Who looks at one that survived writes the reason there. A
slow test that finds what no other does is put into "alone" of slow.json, and from then on it is not left out.
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT, SLOW = Path("mutants.json"), HERE.parent / "slow.json"
FOLDERS = ("core", "backends/cpu", "backends/replay", "tools/data")
COMPILED = re.compile(
    "backends/cpu/(kernels/|atomics|microkernel|thread_pool_loops)"
)  # no line of it is seen
LIMIT = 90  # seconds beyond those of a stage; a mutant whose tests do not end is killed
# With Numba or without; of the tests that reach the line, those first that reach little, from which on to which;
# and the seconds after which no further one is begun
STAGES = (
    ("0", 0, 4, 4),
    ("1", 0, 10, 6),
    ("0", 4, 60, 8),
    ("1", 10, 60, 12),
    ("0", 60, None, 12),
    ("1", 60, None, 12),
)
PATIENCE = 5  # times as many seconds for those that survived once
IMPORTS = "numpy numba yaml tqdm pytest h5py onnx google.protobuf jsonschema"
SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass
class Mutant:
    """A change: its file and line, what it is, and what became of it."""

    file: str
    line: int
    change: str
    outcome: str = ""
    killers: Sequence[str] = ()  # the tests that failed

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line} {self.change}"


class Sites(ast.NodeVisitor):
    """All places of a module that can be changed, in order; annotations and docstrings are none."""

    def __init__(self) -> None:
        self.sites: list[tuple[ast.AST, str]] = []

    def visit(self, node: ast.AST) -> None:
        for kind in kinds(node):
            self.sites.append((node, kind))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not is_docstring(child) and not is_types(child):
                    self.visit(child)


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_types(node: ast.AST) -> bool:
    """Whether a statement is only read by who checks types."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def kinds(node: ast.AST) -> list[str]:
    """The changes that a node can have."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        return ["operator"] if type(node.op) in SWAPPED else []
    if isinstance(node, ast.Compare):
        return ["comparison"] if type(node.ops[0]) in SWAPPED else []
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return ["constant"]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return ["condition"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return ["sign"]
    if isinstance(node, ast.Return) and node.value is not None:
        return (
            [] if isinstance(node.value, ast.Constant) and node.value.value is None else ["return"]
        )
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ["statement"]
    return []


def changed(node: ast.AST, kind: str) -> None:
    """Change a node in its place."""
    if kind == "operator":
        node.op = SWAPPED[type(node.op)]()  # type: ignore[attr-defined]
    elif kind == "comparison":
        node.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[attr-defined]
    elif kind == "constant":
        value = node.value  # type: ignore[attr-defined]
        node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[attr-defined]
    elif kind == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]
    elif kind == "sign":
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op  # type: ignore[attr-defined]
        if isinstance(node.op, ast.Not):  # type: ignore[attr-defined]
            node.operand = ast.UnaryOp(ast.Not(), node.operand)  # type: ignore[attr-defined]
    else:
        node.value = ast.Constant(None)  # type: ignore[attr-defined]


def sites(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """Where a module can be changed, and how."""
    visitor = Sites()
    visitor.visit(tree)
    return visitor.sites


def mutated(path: Path, number: int) -> tuple[Mutant, str]:
    """The mutant of a file that has such a number, and the file's text with it."""
    tree = ast.parse(path.read_text())
    place, kind = sites(tree)[number]
    before = ast.unparse(place).splitlines()[0]
    changed(place, kind)
    after = ast.unparse(place).splitlines()[0]
    change = f"{kind}: {before[:80]} -> {after[:80]}"
    line: int = place.lineno  # type: ignore[attr-defined]
    return Mutant(str(path.relative_to(ROOT)), line, change), ast.unparse(tree)


def drawn(paths: list[Path], count: int, seed: int) -> list[tuple[Mutant, str]]:
    """So many mutants of all that there are, by chance."""
    places = [(path, i) for path in paths for i in range(len(sites(ast.parse(path.read_text()))))]
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    return [mutated(path, number) for path, number in chosen]


class Reached:
    """Which tests reach which line, as coverage.py has noted it."""

    def __init__(self, data: Path):
        self.connection = sqlite3.connect(data)
        rows = self.connection.execute(
            "select context.context, count(*) from arc join context on context.id = context_id group by context_id"
        )
        self.sizes = dict(rows)

    def tests(self, file: str, line: int) -> list[str]:
        """The tests that reach a line, those first that reach the least; of a line that none does, the file's."""
        query = (
            "select distinct context.context from arc join context on context.id = context_id join file"
            " on file.id = file_id where file.path like ? and context.context like 'tests.%'"
        )
        like = f"%/{file}"
        rows = self.connection.execute(query + " and abs(tono) = ?", (like, line)).fetchall()
        rows = rows or self.connection.execute(query, (like,)).fetchall()
        return sorted((row[0] for row in rows), key=lambda name: (self.sizes[name], name))


def node(context: str) -> str:
    """A test's name for pytest; '' for one that is no function of a module any more.

    >>> node("tests.core.config.test_tree.test_positions")
    'tests/core/config/test_tree.py::test_positions'
    """
    module, _, function = context.rpartition(".")
    path = Path(*module.split(".")).with_suffix(".py")
    return f"{path}::{function}" if (ROOT / path).exists() else ""


class Checkout:
    """A copy of the repository in which mutants are tried."""

    def __init__(self, folder: Path, patience: int):
        kept = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        for name in filter(None, kept):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        self.folder = folder
        self.patience, self.budget, self.written = patience, 0, 0
        self.sound: dict[str, bool] = {}  # whether a test passes without a mutant

    def outcome(self, mutant: Mutant, text: str, names: list[str]) -> str:
        """`killed`, `timeout` or `survived`. A test that fails without a mutant, too, is not asked."""
        slow = json.loads(SLOW.read_text())["slow"]
        for tier in ([n for n in names if n not in slow], [n for n in names if n in slow]):
            for numba, first, last, seconds in STAGES:
                self.budget = self.patience * seconds
                os.environ["MINICAFFE_NUMBA"] = numba
                some = tier[first:last]
                if some and (outcome := self._outcome(mutant, text, some)):
                    return outcome
        return "survived"

    def _outcome(self, mutant: Mutant, text: str, names: list[str]) -> str:
        """As `outcome`, but '' if it survives these tests."""
        file = self.folder / mutant.file
        before = file.read_text()
        while names := [name for name in names if self.sound.get(name, True)]:
            self.write(file, text)
            try:
                failed = self.failed(names)
            finally:
                self.write(file, before)
            if failed in ([], ["timeout"]):
                return "".join(failed)
            for name in {one.partition("[")[0] for one in failed} - {*self.sound}:
                asked = [name] if name in names else names  # an error of a file, or of none
                self.sound[name] = not self.failed(asked)
            if sound := [one for one in failed if self.sound[one.partition("[")[0]]]:
                mutant.killers = sound
                return "killed"
        return ""

    def write(self, file: Path, text: str) -> None:
        """Write a file, of a time of its own: byte code that is kept counts by a file's time and size."""
        file.write_text(text)
        self.written += 1
        os.utime(file, (self.written, self.written))

    def failed(self, names: list[str]) -> list[str]:
        """Those of some tests that fail, or `timeout`; they run in a process of their own."""
        said = self.folder / "failed"
        said.write_text("")
        child = os.fork()
        if not child:
            self._test(names, said)
        end = time.monotonic() + self.budget + LIMIT
        while time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return said.read_text().splitlines() or [f"exit status {code}"] * (code != 0)
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return ["timeout"]

    def _test(self, names: list[str], said: Path) -> None:
        """Run tests in this process, which ends with their exit status."""
        code, budget = 1, self.budget

        class Failed:
            """Notes the tests that fail, and files that cannot be imported; ends what takes long."""

            stopped = False

            @pytest.hookimpl(tryfirst=True)
            def pytest_configure(self, config: Any) -> None:
                """No step before all tests: its loops are compiled since the first mutant."""
                for plugin in config.pluginmanager.get_plugins():
                    if hasattr(plugin, "STEP"):
                        plugin.STEP = ""

            def pytest_sessionstart(self, session: Any) -> None:
                self.session, self.end = session, time.monotonic() + budget

            def pytest_collection_modifyitems(self, items: list[Any]) -> None:
                """Of the files' tests those that are asked, in their order; some are not there without Numba."""
                places = {name: place for place, name in enumerate(names)}

                def place(item: Any) -> int | None:
                    name = item.nodeid.partition("[")[0]
                    return places.get(name, places.get(name.partition("::")[0]))

                items[:] = sorted((item for item in items if place(item) is not None), key=place)

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    self.note(report.nodeid)
                if time.monotonic() > self.end:
                    self.stopped, self.session.shouldstop = True, "no more time"

            def pytest_collectreport(self, report: Any) -> None:
                if report.failed:
                    self.note(report.nodeid)

            def note(self, name: str) -> None:
                with said.open("a") as file:
                    file.write(name + "\n")

        try:
            os.setpgid(0, 0)
            os.chdir(self.folder)
            sys.path[:1] = [str(self.folder)]  # in place of this file's folder
            os.environ.update(PYTHONPATH=str(self.folder))
            quiet, noted = io.StringIO(), Failed()
            options = ["-q", "-n0", "-p", "no:cacheprovider", "--full"]
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                files = dict.fromkeys(name.partition("::")[0] for name in names)
                code = int(pytest.main([*options, *files], [noted]))
            none = code == pytest.ExitCode.NO_TESTS_COLLECTED
            code = 0 if (noted.stopped or none) and not said.read_text() else code
            if code and not said.read_text():
                print(quiet.getvalue()[-2000:], file=sys.__stderr__)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)


def sources() -> list[Path]:
    """The files that mutants are of."""
    every = [path for folder in FOLDERS for path in (ROOT / "minicaffe" / folder).rglob("*.py")]
    return sorted(path for path in every if not COMPILED.search(path.as_posix()))


def alone(killed: dict[str, list[str]], known: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Of the mutants that only slow tests kill, the one of them that costs least, and the mutant."""
    costs, found = known["slow"] | dict.fromkeys(known["alone"], 0), dict(known["alone"])
    for key, killers in killed.items():
        names = {killer.partition("[")[0] for killer in killers}
        if names and names <= {*costs} and not names & {*found}:
            found[min(names, key=lambda name: costs[name])] = key
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the file that branches.py wrote")
    parser.add_argument("--count", type=int, default=500, help="of mutants; default: 500")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time; default: 2")
    parser.add_argument("--again", action="store_true", help="only those that survived before")
    parser.add_argument("--ask", nargs="+", default=[], help="tests that FILE knows nothing of")
    parser.add_argument("--into", type=Path, default=RESULT, help="the file of the result")
    args = parser.parse_args()
    for name in IMPORTS.split():  # so that each process need not
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    results: dict[str, Any] = {"killed": {}, "timeout": {}, "survived": {}}
    if args.into.exists():
        results = json.loads(args.into.read_text())
    known = {key for keys in results.values() for key in keys}
    again = {key for key, reason in results["survived"].items() if not reason}
    chosen = drawn(sources(), args.count, args.seed)
    given = str(args.data), args.ask, PATIENCE if args.again else 1
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        multiprocessing.get_context("fork").Pool(args.jobs, Job.begin, (folder, *given)) as pool,
    ):
        tried = [
            (mutant, text)
            for mutant, text in chosen
            if (mutant.key in again if args.again else mutant.key not in known)
        ]
        for mutant in pool.imap_unordered(Job.tried, tried):
            results["survived"].pop(mutant.key, None)
            results[mutant.outcome][mutant.key] = mutant.killers
            print(mutant.outcome, mutant.key, *mutant.killers, flush=True)
            args.into.write_text(json.dumps(results, indent=1) + "\n")
    known = json.loads(SLOW.read_text())
    known["alone"] = alone(results["killed"], known)
    known["slow"] = {name: s for name, s in known["slow"].items() if name not in known["alone"]}
    SLOW.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


class Job:
    """A process that tries mutants, in a checkout of its own."""

    checkout: Checkout
    reached: Reached
    more: list[str]  # tests that are asked of all

    @classmethod
    def begin(cls, folder: str, data: str, more: list[str], patience: int) -> None:
        own = Path(folder, str(os.getpid()))
        own.mkdir()
        cls.checkout, cls.reached, cls.more = Checkout(own, patience), Reached(Path(data)), more

    @classmethod
    def tried(cls, given: tuple[Mutant, str]) -> Mutant:
        """The mutant, with what became of it."""
        mutant, text = given
        names = [name for name in map(node, cls.reached.tests(mutant.file, mutant.line)) if name]
        examples = [mutant.file] * (">>>" in (ROOT / mutant.file).read_text())
        names = [*cls.more, *examples, *names]
        mutant.outcome = cls.checkout.outcome(mutant, text, names)
        return mutant


if __name__ == "__main__":
    main()
