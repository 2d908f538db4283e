"""The course of on_a_gpu.py: phases that fail, hang or are not there end no other; its steps on the stand-in."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu import HAS_GPU, STAND_IN

from minicaffe import Solver, parse

BENCHMARKS = Path(__file__).parent


SMALL = """
name: small
layers:
  - {name: d, type: Input, top: [data, label], shape: [{dim: [2, 2, 4, 4]}, {dim: [2]}]}
  - {name: conv, type: Convolution, bottom: data, num_output: 3, kernel_size: 4, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [conv, label]}
solver: {base_lr: 0.01, max_iter: 1000}
"""
WRITES = "echo '[1]' > {name}.json; echo begun; "  # a row
ENDS = {  # what a phase does then, and what the report says of it
    "works": ("true", "ok"),
    "fails": ("exit 3", "failed: exit code 3"),
    "hangs": ("sleep 600", "cut off after 0 s"),
    "loses its context": ("kill -ABRT $$", "failed: exit code -6"),
}


class Begun(subprocess.Popen):
    """A process whose seconds begin when it has said something, however busy the machine."""

    def __init__(self, command, stdout, **how):
        super().__init__(command, stdout=stdout, **how)
        while self.poll() is None and not os.fstat(stdout.fileno()).st_size:
            time.sleep(0.01)


@pytest.fixture
def script(scripts, monkeypatch):
    """on_a_gpu.py, whose phases are such processes."""
    script = scripts("on_a_gpu")
    own = SimpleNamespace(**{**vars(subprocess), "Popen": Begun})
    monkeypatch.setattr(script, "subprocess", own)
    return script


def says(script, name, text, seconds=600):
    return script.Phase(name, seconds, 3, [sys.executable, "-c", text])


def report(folder):
    return json.loads((folder / "on_a_gpu.json").read_text())["phases"]


def test_it_starts_where_minicaffe_is_not_installed():
    code = ["-c", "import sys; sys.modules['minicaffe'] = None; import on_a_gpu"]
    assert not subprocess.run([sys.executable, *code], cwd=BENCHMARKS).returncode


def test_phases_that_fail_hang_or_are_not_there_end_no_other(script, tmp_path, capsys):
    hangs = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    course = [
        says(script, "gate", "print('works')"),
        says(script, "bad", "print('a'); print('b'); raise SystemExit(3)"),
        says(script, "slow", f"print('begun', flush=True); {hangs}", seconds=2),
        script.Phase("tool", 30, 3, ["no-such-tool"]),
        says(script, "last", "import os; print(os.environ['MINICAFFE_OFFLINE'])"),
    ]
    assert not script.run(course, tmp_path, time.monotonic() + 10_000)
    found = report(tmp_path)
    assert found["bad"]["state"] == "failed: exit code 3" and found["bad"]["lines"] == ["a", "b"]
    assert found["slow"]["state"] == "cut off after 2 s" and found["slow"]["lines"] == ["begun"]
    assert found["tool"] == {"state": "left out: no-such-tool is not installed"}
    assert [found[name]["state"] for name in ("gate", "last")] == ["ok", "ok"]
    assert found["gate"]["lines"] + found["last"]["lines"] == ["works", "1"]
    assert (tmp_path / "bad.log").read_text() == "a\nb\n"
    said = capsys.readouterr().out
    assert "[slow] cut off after 2 s\n    begun\n" in said and said.endswith(f"-> {tmp_path}\n")


def will(phase, how, folder):
    """A phase of the course with another command."""
    command = f"cd {folder}; {WRITES.format(name=phase.name)}{ENDS[how][0]}"
    seconds = 0.2 if how == "hangs" else 600
    return dataclasses.replace(phase, command=["sh", "-c", command], seconds=seconds)


@pytest.mark.parametrize("turn", range(len(ENDS)))
def test_the_whole_course_whatever_becomes_of_each_phase(turn, script, tmp_path, capsys):
    """Each phase ends in each way, its neighbours in others: all are begun, and all rows are there."""
    ways = list(ENDS)
    gate, *others = script.phases("cuda", tmp_path)
    wanted = [(one, ways[(i + turn) % len(ways)]) for i, one in enumerate(others)]
    course = [will(one, how, tmp_path) for one, how in ((gate, "works"), *wanted)]
    assert not script.run(course, tmp_path, time.monotonic() + 10_000)
    found = report(tmp_path)
    assert list(found) == [one.name for one in course]
    for one, how in wanted:
        assert found[one.name]["state"] == ENDS[how][1] and found[one.name]["lines"] == ["begun"]
        assert json.loads((tmp_path / f"{one.name}.json").read_text()) == [1]


@pytest.mark.parametrize("how", ["fails", "hangs", "loses its context"])
def test_a_gate_in_which_cuda_does_not_work_is_the_only_phase(how, script, tmp_path, capsys):
    gate, *others = script.phases("cuda", tmp_path)
    course = [will(gate, how, tmp_path), *(will(one, "works", tmp_path) for one in others)]
    assert not script.run(course, tmp_path, time.monotonic() + 10_000)
    assert {name: one["state"] for name, one in report(tmp_path).items()} == {"gate": ENDS[how][1]}
    assert "CUDA does not work here: nothing else is run" in capsys.readouterr().out


SMI = """#!/bin/sh
case "$*" in *-lms*) ;; *) exit 2 ;; esac
echo "$$, $*"
exec sleep 600
"""


@pytest.mark.parametrize("ends", ["by itself", "by Ctrl-C", "by a signal"])
def test_what_the_gpu_is_like_is_written_down_while_phases_run(
    ends, script, tmp_path, monkeypatch, capsys
):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["on_a_gpu.py", "--into", str(tmp_path), "--only", "gate"])

    def run(*_):
        pid = int((tmp_path / "gpu.csv").read_text().partition(",")[0])
        os.kill(pid, 0)  # it is there
        if ends == "by Ctrl-C":
            raise KeyboardInterrupt
        if ends == "by a signal":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return True

    monkeypatch.setattr(script, "run", run)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit if ends == "by itself" else KeyboardInterrupt):
            script.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    pid, _, words = (tmp_path / "gpu.csv").read_text().partition(", ")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    fields = "timestamp,index,clocks.sm,power.draw,temperature.gpu"
    assert words == f"--query-gpu={fields} --format=csv,noheader -lms 1000\n"


def test_without_nvidia_smi_phases_run_as_well(script, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with script.sampled(tmp_path):
        assert script.run([says(script, "one", "print(1)")], tmp_path, time.monotonic() + 10_000)
    assert not (tmp_path / "gpu.csv").exists()
    assert time.strptime(report(tmp_path)["one"]["began"], script.CLOCK)


def test_the_gate_as_a_process(cuda, script, tmp_path, monkeypatch, capsys):
    if not HAS_GPU:
        monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    (gate,) = (one for one in script.phases("cuda", tmp_path) if one.name == "gate")
    assert script.run([dataclasses.replace(gate, seconds=600)], tmp_path, time.monotonic() + 10_000)
    assert report(tmp_path)["gate"]["lines"][-1] == "a product in a graph, 64: 64.0"


def test_a_phase_for_which_no_time_remains_is_left_out(script, tmp_path):
    assert script.run([says(script, "next", "print(1)")], tmp_path, time.monotonic() + 9)
    assert report(tmp_path) == {"next": {"state": "left out: no time remains"}}


def test_phases_have_names_that_are_known(script, tmp_path, monkeypatch, capsys):
    names = [phase.name for phase in script.phases("cuda", tmp_path)]
    assert len(set(names)) == len(names) and names[0] == "gate"
    monkeypatch.setattr(sys, "argv", ["on_a_gpu.py", "--into", str(tmp_path), "--only", "gates"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert "unknown phase 'gates'; there are gate, compile, " in capsys.readouterr().err


def test_the_gate_and_compiling_side_by_side(cuda, scripts, tmp_path, monkeypatch, capsys):
    steps = scripts("on_a_gpu_steps")
    steps.gate("cuda", tmp_path)
    assert "a product in a graph, 64: 64.0" in capsys.readouterr().out
    monkeypatch.setattr(
        steps, "instances", lambda: [("average.cu", "float"), ("average.cu", "no_type")]
    )
    steps.compile_all("cuda", tmp_path)
    refusal, last = capsys.readouterr().out.splitlines()
    assert refusal.startswith("average.cu<no_type>: ") and last.startswith("2 modules in ")


def test_replays_are_compared_with_ordinary_steps(cuda, scripts, tmp_path, monkeypatch, capsys):
    steps = scripts("on_a_gpu_steps")

    def small(device, graph, **settings):  # instead of LeNet
        solver = Solver(parse(SMALL), device=device, graph=graph, keep=None, **settings)
        if spoilt and graph:
            solver.net.learnable[0].data[...] += 1
        return solver

    monkeypatch.setattr(steps, "STEPS", 1)
    monkeypatch.setattr(steps, "lenet", small)
    for spoilt in (False, True):
        with pytest.raises(SystemExit) as ended:
            steps.replay("cuda", tmp_path)
        lines = capsys.readouterr().out.splitlines()
        assert bool(ended.value.code) == spoilt and len(lines) == 3
        assert spoilt or all("the same bits" in line for line in lines)
    assert any("float32, implicit: OTHER bits: loss " in line for line in lines)


def test_norms_are_timed_both_ways(cuda, scripts, tmp_path, monkeypatch, capsys):
    steps = scripts("on_a_gpu_steps")
    monkeypatch.setattr(steps, "NORMS", [(2, 3, 4, 5)])
    monkeypatch.setattr(steps, "STEPS", 1)
    steps.norms("cuda", tmp_path)
    us = json.loads((tmp_path / "norms_cuda.json").read_text())["us"]
    assert list(us) == ["2 x 3 x 4 x 5, there", "2 x 3 x 4 x 5, back"]
    assert all(time > 0 for one in us.values() for time in one.values())
    line = r"2 x 3 x 4 x 5, (there|back): in shared memory [\d.]+ us, \d+ GB/s; as before .* GB/s"
    assert all(re.fullmatch(line, said) for said in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("way", ["train", "infer"])
def test_a_net_of_the_zoo_on_cuda(way, cuda, scripts, tmp_path):
    nets, contenders = scripts("nets"), scripts("contenders")
    nets.write(tmp_path, "logistic_regression", way, 2, for_others=False)
    one = contenders.minicaffe(tmp_path, way, "cuda", 1, deterministic=True)
    answer = contenders.timed(one, 2, 0.0001)
    assert len(answer["ms"]) == 2 and min(answer["ms"]) > 0
    assert answer["found"] == 2 if way == "infer" else answer["found"] > 1
    pytest.importorskip("torch")
    theirs = contenders.torchs(tmp_path, way, "cpu", 1, mode="channels_last")
    found = contenders.timed(theirs, 1, 0.0001)["found"]
    assert found == pytest.approx(answer["found"], rel=1e-2)


def test_who_computes_a_net_on_cuda(scripts):
    whos = list(scripts("contenders").CONTENDERS["cuda"])
    assert whos[:4] == [
        "minicaffe, by rule", "minicaffe, by rule, TF32", "minicaffe, by rule, float16",
        "minicaffe, by rule, highest",
    ]  # fmt: skip
    assert whos[8:] == [
        "torch, graph", "torch", "torch, channels_last, graph", "torch, channels_last",
        "torch, TF32, graph", "torch, TF32",
        "torch, TF32, channels_last, graph", "torch, TF32, channels_last",
        "torch, compile, graph", "torch, compile", "torch, TF32, compile, graph", "torch, TF32, compile",
    ]  # fmt: skip
    assert set(scripts("zoo").STEP_ON_CUDA) <= set(whos)


def test_a_contender_that_fails_ends_no_other_and_a_lost_context_ends_all(
    cuda, scripts, monkeypatch, capsys
):
    zoo, contenders, numpy = scripts("zoo"), scripts("contenders"), scripts("numpy")

    def lost(*_):
        raise RuntimeError("cudaErrorIllegalAddress")

    def fails(files, *settings):
        assert settings == ("train", "cuda", 1)
        raise ValueError("not\nso")

    def loses(*_):
        monkeypatch.setattr(type(cuda), "synchronize", lost)
        lost()

    finds = lambda *_: contenders.Contender(int, lambda: [numpy.ones(3)])  # noqa: E731
    diverges = lambda *_: contenders.Contender(int, lambda: [numpy.array([numpy.nan])])  # noqa: E731
    course = {"a": fails, "b": finds, "c": diverges, "d": loses, "e": finds}
    plugs = {who: contenders.Plug(make, "minicaffe") for who, make in course.items()}
    monkeypatch.setitem(contenders.CONTENDERS, "cuda", plugs)
    settings = {"name": "logistic_regression", "way": "train", "batch": 2, "device": "cuda"}
    settings |= {"threads": 1, "whos": list(course), "rounds": 1, "seconds": 0.00001}
    with pytest.raises(SystemExit, match="the CUDA context is lost"):
        zoo.one_after_the_other(settings)
    answers = {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("{"):
            answers |= json.loads(line)
    assert answers["a"] == {"failed": "ValueError: not so"} and answers["b"]["found"] == 3
    assert answers["c"] == {"failed": "ArithmeticError: it found nan"}
    assert answers["d"] == {"failed": "RuntimeError: cudaErrorIllegalAddress"}
    assert "e" not in answers


@pytest.fixture
def on_cuda(scripts, tmp_path, monkeypatch):
    """The driver as on CUDA: its arguments, and who was asked for what; a process of LeNet ends early."""
    zoo, course = scripts("zoo"), []
    machine = {"gpu": "NVIDIA G", "torch": "2", "numpy": "3", "cupy": "4"}

    def answers(script, settings):
        name, way, whos = (settings[key] for key in ("name", "way", "whos"))
        course.append((name, way, settings["batch"], whos))
        yield {whos[0]: {"ms": [2.0], "found": 1.0, "engines": ["implicit"]}}
        if name == "lenet" and settings["batch"] in (1, 32):
            raise subprocess.CalledProcessError(1, ["zoo.py"])
        yield {whos[1]: {"ms": [3.0], "found": 1.0, "engines": []}}
        yield {whos[2]: {"failed": "Error: no"}}

    monkeypatch.setattr(zoo, "answers", answers)
    words = ["zoo.py", "--device", "cuda", "--quick", "--into", str(tmp_path)]
    words += ["--only", "lenet", "resnet50", "--with", "minicaffe, auto", "torch", "torch, graph"]
    monkeypatch.setattr(sys, "argv", [*words, "--batches", "64", "1", "256"])
    args = zoo.arguments()
    args.head = {"quick": True, "machine": machine}
    return zoo, args, course


def test_the_zoo_on_cuda_keeps_every_row(on_cuda, scripts, tmp_path, capsys):
    """One net's process ends early; the others are measured, training first, what is compiled last."""
    zoo, args, course = on_cuda
    args.whos += [f"{who}, compile" for who in args.whos]
    assert zoo.all_nets(args) == [
        "lenet, train", "lenet, infer", "lenet, train", "lenet, infer",
    ]  # fmt: skip
    stages = [("train", 32, 0), ("infer", 1, 0), ("train", 32, 3), ("infer", 1, 3)]
    assert course == [
        (name, way, batch, args.whos[first : first + 3])
        for way, batch, first in stages
        for name in args.only
    ]
    assert "resnet50, train: 32: torch, graph: Error: no\n" in capsys.readouterr().out
    report = json.loads((tmp_path / "zoo_cuda.json").read_text())
    lines = scripts("result_tables").zoo_cuda(report | {"commit": "0123456789"}).splitlines()
    assert lines[0] == "| a training step | LeNet, 32 | ResNet-50, 32 |"
    assert "| **minicaffe : PyTorch, float32** | - | **1.50x** |" in lines
    assert "| minicaffe, float32 | 2 | 2 |" in lines
    assert "| PyTorch, float32 | - | 3 |" in lines
    assert "| inference | LeNet, 1 | ResNet-50, 1 |" in lines
    assert "| GPU | G | G |" in lines
    assert ", 01234567; PyTorch 2, NumPy 3, CuPy 4; ms. TF32" in lines[-1]
    course.clear()
    args.until, args.only = time.monotonic(), ["alexnet", "vgg16"]
    assert zoo.all_nets(args) == [] and [one[:3] for one in course] == [("alexnet", "train", 128)]
    kept = json.loads((tmp_path / "zoo_cuda.json").read_text())["nets"]
    assert list(kept) == ["lenet", "alexnet", "resnet50"]  # in the order of the tables
    assert list(kept["alexnet"]["train"]["ms"]) == ["minicaffe, auto"]


def test_rows_of_lenet_remain_when_one_fails(on_cuda, scripts, tmp_path, capsys):
    zoo, args, _ = on_cuda
    assert zoo.lenet_step(args) == ["cuda, batch 1"]
    report = json.loads((tmp_path / "lenet_step_cuda.json").read_text())
    assert list(report["lenet"]["cuda"]) == ["64", "256"]
    assert report["lenet"]["cuda"]["64"]["ratios"]["torch eager"]["median"] == 1.5
    table = scripts("result_tables").lenet_step(report | {"commit": "0123456789"})
    assert "| **minicaffe, CUDA : PyTorch** | **1.50x** ± 0.00 | **1.50x** ± 0.00 |" in table
    args.until = time.monotonic()
    zoo.lenet_step(args)
    assert "no time remains for 2 of 3, from ('cuda', 1) on\n" in capsys.readouterr().out


def test_the_papers_tables_in_their_time(scripts, tmp_path, monkeypatch, capsys):
    run, out = scripts("run"), tmp_path / "cuda.json"
    monkeypatch.setattr(run, "measured", lambda *_: iter([{"table3": 1}, {"table3": 2}]))
    for minutes, last in (("0", 1), ("1", 2)):
        words = ["run.py", "--minutes", minutes, "--quick", "--out", str(out)]
        monkeypatch.setattr(sys, "argv", words)
        run.main()
        report = json.loads(out.read_text())
        assert report["table3"] == last and report["quick"]
    assert capsys.readouterr().out.count("no time remains") == 1


def test_results_go_to_where_the_pages_take_them_from(scripts, tmp_path, monkeypatch, capsys):
    """All that a page can show of CUDA; a quick look is no result."""
    readme, found = scripts("readme"), tmp_path / "found"
    paper, others = tmp_path / "paper", tmp_path / "others"
    monkeypatch.setattr(readme.tables, "RESULTS", paper)
    monkeypatch.setattr(readme, "RESULTS", others)
    monkeypatch.setattr(readme, "commit", lambda: "here")
    names = ["lenet_step_cuda.json", "lenet_mnist_cuda.json", "zoo_cuda.json", "cuda.json"]
    for folder in (paper, others, found):
        folder.mkdir(parents=True)
    for name in names:
        (found / name).write_text('{"quick": false, "commit": null}')
    (found / "ladder_cuda.json").write_text('{"quick": true}')
    readme.keep(found)
    assert os.listdir(paper) == ["cuda.json"] and set(os.listdir(others)) == set(names[:3])
    assert json.loads((paper / "cuda.json").read_text())["commit"] == "here"


def test_every_kernel_that_is_compiled_at_once_has_its_file(scripts):
    steps = scripts("on_a_gpu_steps")
    asked = steps.instances()
    assert len(asked) > 200
    sources = BENCHMARKS.parent.parent / "minicaffe" / "backends" / "cuda" / "kernels"
    assert all((sources / file).is_file() and template for file, template in asked)


def test_the_commands_of_phases_are_commands_of_ours(script, tmp_path):
    """`doctor` ends with the words of its phases only where it reaches the device that is not here."""
    ours = [one for one in script.phases("cpu", tmp_path) if "minicaffe" in one.command]
    assert [one.name for one in ours] == ["doctor"]
    command = [sys.executable, "-m", "minicaffe", *ours[0].command[3:], "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "would use" in done.stdout, done.stderr
