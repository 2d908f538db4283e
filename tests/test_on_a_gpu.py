"""The course of on_a_gpu.py: phases that fail, hang or are not there end no other; its steps on the stand-in."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "examples" / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """Imports a script of the benchmarks by name; all of them are forgotten afterwards."""
    paths = [str(BENCHMARKS), str(BENCHMARKS.parent / "paper_tables")]
    monkeypatch.setattr(sys, "path", [*paths, *sys.path])
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(paths)):
            del sys.modules[name]


def says(script, name, text, seconds=30):
    return script.Phase(name, seconds, 3, [sys.executable, "-c", text])


def report(folder):
    return json.loads((folder / "on_a_gpu.json").read_text())["phases"]


def test_phases_that_fail_hang_or_are_not_there_end_no_other(scripts, tmp_path, capsys):
    script = scripts("on_a_gpu")
    hangs = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    course = [
        says(script, "gate", "print('works')"),
        says(script, "bad", "print('a'); print('b'); raise SystemExit(3)"),
        says(script, "slow", f"print('begun', flush=True); {hangs}", seconds=2),
        script.Phase("tool", 30, 3, ["no-such-tool"]),
        says(script, "last", "import os; print(os.environ['MINICAFFE_OFFLINE'])"),
    ]
    start = time.monotonic()
    assert not script.run(course, tmp_path, start + 100)
    assert time.monotonic() - start < 60
    found = report(tmp_path)
    assert found["gate"]["state"] == "ok" and found["gate"]["lines"] == ["works"]
    assert found["bad"]["state"] == "failed: exit code 3" and found["bad"]["lines"] == ["a", "b"]
    assert found["slow"]["state"] == "cut off after 2 s" and found["slow"]["lines"] == ["begun"]
    assert found["tool"] == {"state": "left out: no-such-tool is not installed"}
    assert found["last"]["state"] == "ok" and found["last"]["lines"] == ["1"]
    assert (tmp_path / "bad.log").read_text() == "a\nb\n"
    said = capsys.readouterr().out
    assert "[slow] cut off after 2 s\n    begun\n" in said and said.endswith(f"-> {tmp_path}\n")


def test_without_the_gate_nothing_else_is_run(scripts, tmp_path, capsys):
    script = scripts("on_a_gpu")
    course = [says(script, "gate", "raise SystemExit(1)"), says(script, "next", "print(1)")]
    assert not script.run(course, tmp_path, time.monotonic() + 100)
    assert list(report(tmp_path)) == ["gate"]
    assert "CUDA does not work here: nothing else is run" in capsys.readouterr().out


def test_a_phase_for_which_no_time_remains_is_left_out(scripts, tmp_path):
    script = scripts("on_a_gpu")
    assert script.run([says(script, "next", "print(1)")], tmp_path, time.monotonic() + 9)
    assert report(tmp_path) == {"next": {"state": "left out: no time remains"}}


def test_phases_have_names_that_are_known(scripts, tmp_path, monkeypatch, capsys):
    script = scripts("on_a_gpu")
    names = [phase.name for phase in script.phases("cuda", tmp_path)]
    assert len(set(names)) == len(names) and names[0] == "gate"
    words = ["on_a_gpu.py", "--into", str(tmp_path), "--only", "gates"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert "unknown phase 'gates'; there are gate, compile, " in capsys.readouterr().err


def test_the_gate_and_a_step_of_a_net_of_the_zoo(cuda, scripts, tmp_path, capsys):
    steps = scripts("on_a_gpu_steps")
    steps.gate("cuda", tmp_path)
    assert "a product in a graph, 64: 64.0" in capsys.readouterr().out
    assert steps.compile_one(("average.cu", "float"), "cuda") == ""
    assert steps.compile_one(("average.cu", "no_type"), "cuda").startswith("average.cu<no_type>: ")
    step, finish = steps.ours("lenet", 2, "cuda", deterministic=True)
    step()
    finish()


def test_every_kernel_that_is_compiled_at_once_has_its_file(scripts):
    steps = scripts("on_a_gpu_steps")
    asked = steps.instances()
    assert len(asked) > 200
    sources = BENCHMARKS.parent.parent / "minicaffe" / "cuda" / "kernels"
    assert all((sources / file).is_file() and template for file, template in asked)
