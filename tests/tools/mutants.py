"""Mistakes put into the code one at a time, to see which tests fail: mutation testing.

    pip install -e '.[test-all,branches]'
    python tests/tools/branches.py --data /tmp/branches                 which tests reach which line
    python tests/tools/mutants.py --data /tmp/branches --count 500
    python tests/tools/mutants.py --data /tmp/branches --again --ask tests/core/net/test_new.py     those that survived, once more

A mutant is one change of an operator, a comparison, a number, a truth value, a condition, a returned value or a
statement, drawn from all that functions of the files of FOLDERS hold. All tests are collected once; each mutant is a
fork of that process in which the functions of its file have the changed code, so what runs only while a module is
imported is not asked. Of the tests that reach its line, and the examples of its file, those that reach little come
first, for SECONDS or until ENOUGH have failed: what is not slow (see costs.py), then, if nothing of it failed, what
is. That goes on with Numba off, and for those that survive with it on. mutants.json has of each mutant the tests that
failed, and what it knows already is not tried again. Who looks at one that survived writes the reason there. A slow test that
finds what no other does is put into "alone" of slow.json, and from then on it is not left out.
"""

import argparse
import ast
import contextlib
import gc
import itertools
import json
import os
import random
import re
import signal
import sqlite3
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT, SLOW = Path("mutants.json"), HERE.parent / "slow.json"
FOLDERS = ("core", "backends/cpu", "backends/replay", "tools/data")
# No line of it is seen
COMPILED = re.compile("backends/cpu/(kernels/|atomics|microkernel|thread_pool_loops)")
SECONDS, ENOUGH = 10, 12  # of the tests of a tier; of functions that failed
LIMIT = 60  # seconds beyond; a mutant whose tests do not end is killed
PATIENCE = 5  # times as many seconds for those that survived once
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
    """A change: its file and line, what it is, and the functions of the file that have it."""

    file: str
    line: int
    change: str
    codes: dict[tuple[str, int], CodeType] = field(repr=False)

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line} {self.change}"

    def put_into(self, functions: list[FunctionType]) -> None:
        """Give those of its file that it changes their changed code."""
        for one in functions:
            key = one.__code__.co_name, one.__code__.co_firstlineno
            if key in self.codes and one.__code__.co_filename == str(ROOT / self.file):
                with contextlib.suppress(ValueError):  # it has other variables of its outer one
                    one.__code__ = self.codes[key]


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
                if isinstance(child, ast.AST) and not is_read_only(child):
                    self.visit(child)


def is_read_only(node: ast.AST) -> bool:
    """Whether a statement is a docstring, or read only by who checks types."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
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


def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """A module's code and that of all its functions, by name and first line."""
    yield (code.co_name, code.co_firstlineno), code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def mutated(path: Path, number: int) -> Mutant:
    """The mutant of a file that has such a number."""
    text = path.read_text()
    tree = ast.parse(text)
    place, kind = sites(tree)[number]
    before = ast.unparse(place).splitlines()[0]
    changed(place, kind)
    after = ast.unparse(place).splitlines()[0]
    sound = dict(codes(compile(text, path, "exec")))
    new = dict(codes(compile(ast.fix_missing_locations(tree), path, "exec")))
    differ = {key: code for key, code in new.items() if key[0] != "<module>" and code != sound[key]}
    change = f"{kind}: {before[:80]} -> {after[:80]}"
    return Mutant(str(path.relative_to(ROOT)), place.lineno, change, differ)  # type: ignore[attr-defined]


def drawn(paths: list[Path], count: int, seed: int) -> list[Mutant]:
    """So many mutants of all that there are, by chance; of modules, not their functions, none."""
    places = [(path, i) for path in paths for i in range(len(sites(ast.parse(path.read_text()))))]
    random.Random(seed).shuffle(places)
    mutants = (mutated(path, number) for path, number in places)
    return list(itertools.islice((one for one in mutants if one.codes), count))


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
        names = sorted((row[0] for row in rows), key=lambda name: (self.sizes[name], name))
        return [node(name) for name in names]


def node(context: str) -> str:
    """A test's name for pytest.

    >>> node("tests.core.config.test_tree.test_positions")
    'tests/core/config/test_tree.py::test_positions'
    """
    module, _, function = context.rpartition(".")
    return f"{module.replace('.', '/')}.py::{function}"


def function(name: str) -> str:
    """A test's name without its parameters."""
    return name.partition("[")[0]


class Trials:
    """The plugin that tries mutants in place of running the tests that pytest has collected."""

    def __init__(self, args: argparse.Namespace, results: dict[str, Any], numba: str):
        self.args, self.results, self.numba = args, results, numba
        self.seconds = SECONDS * (PATIENCE if args.again else 1)
        self.slow = json.loads(SLOW.read_text())["slow"]
        self.sound: dict[str, bool] = {}  # whether a test passes without a mutant
        self.failed: list[str] = []  # in a fork

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(function(report.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reached = Reached(self.args.data)
        items, examples = defaultdict(list), defaultdict(list)
        for item in session.items:
            file, _, _ = item.nodeid.partition("::")
            items[function(item.nodeid)].append(item)
            examples[file].append(item.nodeid)
        more = [name for name in items if name.startswith(tuple(self.args.ask or ["-"]))]
        gc.unfreeze()
        functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.freeze()
        for mutant in self.waiting():
            names = [*more, *examples[mutant.file], *reached.tests(mutant.file, mutant.line)]
            names = [name for name in dict.fromkeys(names) if name in items]
            outcome, killers = self.outcome(mutant, [items[name] for name in names], functions)
            if outcome == "survived" and self.numba == "1" and mutant.key in self.results[outcome]:
                continue  # as before; somebody may have written why
            self.results[outcome][mutant.key] = killers
            if outcome != "survived":
                self.results["survived"].pop(mutant.key, None)
            print(outcome, mutant.key, *killers, file=sys.__stderr__, flush=True)
            self.args.into.write_text(json.dumps(self.results, indent=1) + "\n")
        return True

    def waiting(self) -> list[Mutant]:
        """Those to be tried."""
        known = {key: outcome for outcome, keys in self.results.items() for key in keys}
        survived = {key for key, reason in self.results["survived"].items() if not reason}
        chosen = drawn(sources(), self.args.count, self.args.seed)[
            self.args.part :: self.args.parts
        ]
        if self.args.again or self.numba == "1":
            return [mutant for mutant in chosen if mutant.key in survived]
        return [mutant for mutant in chosen if mutant.key not in known]

    def outcome(
        self, mutant: Mutant, tests: list[list[Any]], functions: list[FunctionType]
    ) -> tuple[str, list[str]]:
        """`killed`, `timeout` or `survived`, and the tests that failed, each of which passes without the mutant."""
        for slow in (False, True):
            tier = [some for some in tests if (function(some[0].nodeid) in self.slow) is slow]
            failed = self.fork(tier, mutant, functions)
            if failed == ["timeout"]:
                return "timeout", []
            for name in {*failed} - {*self.sound}:
                alike = [some for some in tier if function(some[0].nodeid) == name]
                self.sound[name] = not self.fork(alike)
            if killers := [name for name in failed if self.sound[name]]:
                return "killed", killers
        return "survived", []

    def fork(
        self,
        tests: list[list[Any]],
        mutant: Mutant | None = None,
        functions: list[FunctionType] | None = None,
    ) -> list[str]:
        """The functions of tests that fail in a fork of this process with a mutant, or `timeout`."""
        if not tests:
            return []
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._child(tests, mutant, functions or [], writing)
        os.close(writing)
        end = time.monotonic() + self.seconds + LIMIT
        pid = status = 0
        while not pid and time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):  # and what its tests may have left running
            os.killpg(child, signal.SIGKILL)
        with open(reading) as said:
            failed = said.read().split() if pid else ["timeout"]
        if not pid:
            os.waitpid(child, 0)
        return failed or [function(tests[0][0].nodeid)] * (status != 0)  # of all, say

    def _child(
        self,
        tests: list[list[Any]],
        mutant: Mutant | None,
        functions: list[FunctionType],
        writing: int,
    ) -> NoReturn:
        """Run tests in this process, which ends."""
        said = [function(tests[0][0].nodeid)]  # if something ends the run of them all
        try:
            os.setpgid(0, 0)
            if mutant:
                mutant.put_into(functions)
            end, self.failed = time.monotonic() + self.seconds, []
            session = tests[0][0].session
            session.config.pluginmanager.unregister(name="terminalreporter")
            for some, after in zip(tests, [*tests[1:], [None]], strict=True):
                for item, following in zip(some, [*some[1:], after[0]], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if time.monotonic() > end or function(item.nodeid) in self.failed:
                        break
                # Of a function that was not run to its end
                session._setupstate.teardown_exact(after[0])
                if time.monotonic() > end or len({*self.failed}) >= ENOUGH:
                    break
            said = list(dict.fromkeys(self.failed))
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os.write(writing, " ".join(said).encode())
            os._exit(0)


def sources() -> list[Path]:
    """The files that mutants are of."""
    every = [path for folder in FOLDERS for path in (ROOT / "minicaffe" / folder).rglob("*.py")]
    return sorted(path for path in every if not COMPILED.search(path.as_posix()))


def alone(killed: dict[str, list[str]], known: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Of the mutants that only slow tests kill, the one of them that costs least, and the mutant."""
    costs, found = known["slow"] | dict.fromkeys(known["alone"], 0), dict(known["alone"])
    for key, killers in killed.items():
        names = {*killers}
        if names and names <= {*costs} and not names & {*found}:
            found[min(names, key=lambda name: costs[name])] = key
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the file that branches.py wrote")
    parser.add_argument("--count", type=int, default=500, help="of mutants; default: 500")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=0, help="which of several processes this is")
    parser.add_argument(
        "--parts", type=int, default=1, help="of how many; each has a file of its own"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived before")
    parser.add_argument("--ask", nargs="+", default=[], help="tests that FILE knows nothing of")
    parser.add_argument("--into", type=Path, default=RESULT, help="the file of the result")
    args = parser.parse_args()
    args.data, args.into = args.data.resolve(), args.into.resolve()
    os.chdir(ROOT)
    for numba in "01":
        results: dict[str, Any] = {"killed": {}, "timeout": {}, "survived": {}}
        if args.into.exists():
            results = json.loads(args.into.read_text())
        child = os.fork()
        if not child:
            os.environ.update(MINICAFFE_NUMBA=numba, PYTHONPATH=str(ROOT))
            options = ["-q", "-n0", "-p", "no:cacheprovider", "--full"]
            os._exit(int(pytest.main(options, [Trials(args, results, numba)])))
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"pytest has ended with an error, with MINICAFFE_NUMBA={numba}")
    results, known = json.loads(args.into.read_text()), json.loads(SLOW.read_text())
    known["alone"] = alone(results["killed"], known)
    known["slow"] = {name: s for name, s in known["slow"].items() if name not in known["alone"]}
    SLOW.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
