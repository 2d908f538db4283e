"""The gate between ops and their backends: what its tables say, and what ops say of themselves."""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path

import numpy as np
import pytest
from core.layers.test_every_layer import Stretched
from core.solver.every_layer import Every

import minicaffe
from minicaffe.backends import cpu
from minicaffe.backends.cpu import slices
from minicaffe.backends.cpu.command import arrays
from minicaffe.backends.dispatch import by_backend, op, table
from minicaffe.core.layers import REGISTRY

OPS = Path(minicaffe.__file__).parent / "core" / "ops"


def of(name):
    """An op by its name in a table."""
    family, _, function = name.rpartition(".")
    room = "conv." if (OPS / "conv" / f"{family}.py").exists() else ""
    home = importlib.import_module(f"minicaffe.core.ops.{room}{family}")
    engines = [
        kind for kind in vars(home).values() if getattr(kind, "__module__", "") == home.__name__
    ]
    return next(getattr(one, function) for one in (home, *engines) if hasattr(one, function))


@pytest.mark.parametrize(
    ("table", "name"), [(t, n) for t in map(table, ("cpu", "cuda")) for n in t.rows]
)
def test_a_row_names_an_op_and_arguments_of_it(table, name):
    made = getattr(of(name), "op", None)
    assert table.row(made) is not None if made else callable(of(name))


@pytest.fixture
def checked(monkeypatch):
    """The ops that NumPy computed, and those that a replay may call that write more than they say."""
    called, wrong, by_numpy = set(), set(), slices.by_numpy

    def check(op, args, kwargs):
        named = op.named(args, kwargs)
        read = [
            (array, array.copy())
            for name, value in named.items()
            if name not in op.writes
            for array in arrays((value,))
        ]
        written = list(arrays(tuple(named[name] for name in op.writes)))
        by_numpy(op, args, kwargs)
        called.add(op.key)
        for array, before in read:
            if not any(np.may_share_memory(array, out) for out in written):
                same = not op.replays or array.tobytes() == before.tobytes()
                wrong.update([] if same else [op.key])

    monkeypatch.setattr(slices, "by_numpy", check)
    return called, wrong


def test_an_op_writes_what_it_says(checked, here):
    """Else a replay might call two of NumPy's calls at a time where one reads what the other writes."""
    before = dict(REGISTRY)
    minicaffe.register(Stretched)
    with cpu.by_numpy():
        Every(True, base_lr=1e-7, momentum=0.9)().step(1)
    REGISTRY.clear()
    REGISTRY.update(before)
    called, wrong = checked
    assert len(called) > 50
    assert wrong == set()


def test_without_a_backend_an_op_is_its_numpy_function(monkeypatch):
    calls = []

    @op(entries="x out")
    def doubled(x, out):
        calls.append(len(x))
        np.add(x, x, out=out)

    x = np.arange(6.0)
    assert not by_backend(doubled, x, np.empty(6))
    assert doubled(x, out=np.empty(6)).tolist() == [0, 2, 4, 6, 8, 10]
    monkeypatch.setattr("minicaffe.backends.dispatch.module", lambda name: None)
    assert doubled(x, np.empty(6)).tolist() == [0, 2, 4, 6, 8, 10]
    assert calls == [6, 6]


def written_otherwise(function, home):
    """What a function, and those of its module that it calls, write without NumPy's functions."""
    lines, todo, seen = [], [function], set()
    while todo:
        one = todo.pop()
        seen.add(one.__name__)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one)))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            filled = isinstance(node, ast.Attribute) and node.attr == "fill"
            if (
                isinstance(node, ast.AugAssign)
                or filled
                or any(isinstance(t, ast.Subscript) for t in targets)
            ):
                lines.append(ast.unparse(node))
            called = getattr(home, node.id, None) if isinstance(node, ast.Name) else None
            if inspect.isfunction(called) and called.__module__ == home.__name__:
                todo += [called] * (called.__name__ not in seen and not hasattr(called, "op"))
    return lines


def test_what_is_traced_by_its_calls_writes_by_calls():
    """An `x += y` would be done while a trace is taken, and in no replay."""
    count = 0
    for file in Path(minicaffe.__file__).parent.glob("core/ops/**/*.py"):
        name = ".".join(file.with_suffix("").parts[-len(file.parts) :]).partition("minicaffe.core")[
            2
        ]
        home = importlib.import_module(f"minicaffe.core{name}".removesuffix(".__init__"))
        for function in vars(home).values():
            made = getattr(function, "op", None)
            if getattr(made, "by_calls", False) and function.__module__ == home.__name__:
                assert written_otherwise(made.function, home) == [], made.name
                count += 1
    assert count > 12
