"""What the scripts of examples/benchmarks measure with: taking turns, and an environment without pins."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent


def test_contenders_take_turns(scripts, monkeypatch):
    """Every round runs every contender, with a call that is not timed, and begins with another one."""
    calls, now = [], [0.0]

    def contender(name: str, ms: float):
        def call() -> None:
            calls.append(name)
            now[0] += ms

        return call

    def timer():
        start = now[0]
        return lambda: now[0] - start

    measure = scripts("measure")
    monkeypatch.setattr(measure, "REST", 0)
    both = {"a": contender("a", 1.0), "b": contender("b", 2.0)}
    times = measure.interleaved(both, timer, 2, 2.0, warm_up=1)
    assert times == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert "".join(calls) == "aabb" + "aaabb" + "bbaaa"
    assert measure.ratios(times["b"], times["a"])["median"] == 2


def test_measurements_run_without_the_pins(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, sys; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import machine; machine.free_process()\n"
        "print(sys.argv[1:], [name in os.environ for name in machine.PINS])\n"
    )
    pinned = os.environ | {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "262144"}
    command = [sys.executable, str(script), "an argument"]
    done = subprocess.run(command, env=pinned, capture_output=True, text=True, check=True)
    assert done.stdout == "['an argument'] [False, False]\n"


def test_a_result_says_what_was_measured(scripts, tmp_path):
    """The commit, and whether the code differs from it; a result that was written does not count."""
    machine = scripts("machine")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    assert machine.commit(tmp_path) is None
    for name in ("code.py", "result.json"):
        (tmp_path / name).write_text("1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = machine.commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "result.json").write_text("2")
    assert machine.commit(tmp_path) == commit
    (tmp_path / "code.py").write_text("2")
    assert machine.commit(tmp_path) == f"{commit}-dirty"
