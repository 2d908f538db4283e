"""The course of on_a_gpu.py: phases that fail, hang or are not there end no other; its steps on the stand-in."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu import HAS_GPU, STAND_IN

from minicaffe import Solver, parse

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
    assert found["gate"]["state"] == "ok" and found["gate"]["lines"] == ["works"]
    assert found["bad"]["state"] == "failed: exit code 3" and found["bad"]["lines"] == ["a", "b"]
    assert found["slow"]["state"] == "cut off after 2 s" and found["slow"]["lines"] == ["begun"]
    assert found["tool"] == {"state": "left out: no-such-tool is not installed"}
    assert found["last"]["state"] == "ok" and found["last"]["lines"] == ["1"]
    assert (tmp_path / "bad.log").read_text() == "a\nb\n"
    said = capsys.readouterr().out
    assert "[slow] cut off after 2 s\n    begun\n" in said and said.endswith(f"-> {tmp_path}\n")


def will(phase, how, folder):
    """A phase of the course with another command."""
    command = f"cd {folder}; {WRITES.format(name=phase.name)}{ENDS[how][0]}"
    return dataclasses.replace(
        phase, command=["sh", "-c", command], seconds=0.2 if how == "hangs" else 600
    )


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


def test_the_gate_as_a_process(cuda, script, tmp_path, monkeypatch, capsys):
    if not HAS_GPU:
        monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    (gate,) = (one for one in script.phases("cuda", tmp_path) if one.name == "gate")
    course = [dataclasses.replace(gate, seconds=600)]
    assert script.run(course, tmp_path, time.monotonic() + 10_000)
    assert report(tmp_path)["gate"]["lines"][-1] == "a product in a graph, 64: 64.0"


def test_without_the_gate_nothing_else_is_run(script, tmp_path, capsys):
    course = [says(script, "gate", "raise SystemExit(1)"), says(script, "next", "print(1)")]
    assert not script.run(course, tmp_path, time.monotonic() + 10_000)
    assert list(report(tmp_path)) == ["gate"]
    assert "CUDA does not work here: nothing else is run" in capsys.readouterr().out


def test_a_phase_for_which_no_time_remains_is_left_out(script, tmp_path):
    assert script.run([says(script, "next", "print(1)")], tmp_path, time.monotonic() + 9)
    assert report(tmp_path) == {"next": {"state": "left out: no time remains"}}


def test_phases_have_names_that_are_known(script, tmp_path, monkeypatch, capsys):
    names = [phase.name for phase in script.phases("cuda", tmp_path)]
    assert len(set(names)) == len(names) and names[0] == "gate"
    words = ["on_a_gpu.py", "--into", str(tmp_path), "--only", "gates"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert "unknown phase 'gates'; there are gate, compile, " in capsys.readouterr().err


def test_the_gate_and_compiling_side_by_side(cuda, scripts, tmp_path, monkeypatch, capsys):
    steps = scripts("on_a_gpu_steps")
    steps.gate("cuda", tmp_path)
    assert "a product in a graph, 64: 64.0" in capsys.readouterr().out
    asked = [("average.cu", "float"), ("average.cu", "no_type")]
    monkeypatch.setattr(steps, "instances", lambda: asked)
    steps.compile_all("cuda", tmp_path)
    refusal, last = capsys.readouterr().out.splitlines()
    assert refusal.startswith("average.cu<no_type>: ") and last.startswith("2 modules in ")


def test_replays_are_compared_with_ordinary_steps(cuda, scripts, tmp_path, monkeypatch, capsys):
    steps, spoilt = scripts("on_a_gpu_steps"), False

    def small(device, graph, **settings):  # instead of LeNet
        solver = Solver(parse(SMALL), device=device, graph=graph, keep=None, **settings)
        if spoilt and graph:
            solver.net.learnable[0].data[...] += 1
        return solver

    monkeypatch.setattr(steps, "STEPS", 1)
    monkeypatch.setattr(steps, "lenet", small)
    with pytest.raises(SystemExit) as ended:
        steps.replay("cuda", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert not ended.value.code and len(lines) == 3 and all("the same bits" in x for x in lines)
    spoilt = True
    with pytest.raises(SystemExit) as ended:
        steps.replay("cuda", tmp_path)
    assert ended.value.code and "float32, implicit: OTHER bits: loss " in capsys.readouterr().out


@pytest.mark.parametrize("way", ["train", "infer"])
def test_a_net_of_the_zoo_on_cuda(way, cuda, scripts):
    nets = scripts("zoo_cuda")
    told = "logistic_regression", way, 2
    found = nets.measured(nets.ours(*told, "cuda", deterministic=True), 2, 0.1)
    assert found["ms"]["median"] > 0 and found["ms"]["repeats"] == 2
    assert found["found"] == 2 if way == "infer" else found["found"] > 1
    pytest.importorskip("torch")
    theirs = nets.torchs(*told, "cpu", tf32=False, mode="channels_last", graph=False)
    assert nets.measured(theirs, 1, 0.1)["found"] == pytest.approx(found["found"], rel=1e-2)


def test_who_computes_a_net_on_cuda(scripts):
    nets = scripts("zoo_cuda")
    first, last = (list(nets.contenders(compiled)) for compiled in (False, True))
    assert first[:3] == [
        "minicaffe, by rule", "minicaffe, by rule, TF32", "minicaffe, by rule, float16",
    ]  # fmt: skip
    assert first[6:] == [
        "torch, graph", "torch", "torch, channels_last, graph", "torch, channels_last",
        "torch, TF32, graph", "torch, TF32",
        "torch, TF32, channels_last, graph", "torch, TF32, channels_last",
    ]  # fmt: skip
    assert last == [
        "torch, compile, graph", "torch, compile", "torch, TF32, compile, graph", "torch, TF32, compile",
    ]  # fmt: skip


def test_a_contender_that_fails_ends_no_other_and_a_lost_context_ends_all(
    cuda, scripts, monkeypatch, capsys
):
    nets = scripts("zoo_cuda")

    def lost(*_):
        raise RuntimeError("cudaErrorIllegalAddress")

    def fails(*told):
        assert told == ("lenet", "train", 2, "cuda")
        raise ValueError("not\nso")

    def loses(*told):
        monkeypatch.setattr(type(cuda), "synchronize", lost)
        lost()

    finds = lambda *_: (int, int, lambda: [scripts("numpy").ones(3)])  # noqa: E731
    diverges = lambda *_: (int, int, lambda: [scripts("numpy").array([float("nan")])])  # noqa: E731
    course = {"a": fails, "b": finds, "c": diverges, "d": loses, "e": finds}
    monkeypatch.setattr(
        nets, "contenders", lambda _: {who: (make, {}) for who, make in course.items()}
    )
    told = {"name": "lenet", "way": "train", "batch": 2, "device": "cuda", "compiled": False}
    with pytest.raises(SystemExit, match="the CUDA context is lost"):
        nets.main(told | {"rounds": 1, "block_ms": 0.01})
    answers = {}
    for line in capsys.readouterr().out.splitlines():
        answers |= json.loads(line)
    assert answers["a"] == {"failed": "ValueError: not so"} and answers["b"]["found"] == 3
    assert answers["c"] == {"failed": "ArithmeticError: it found nan"}
    assert (
        answers["d"] == {"failed": "RuntimeError: cudaErrorIllegalAddress"} and "e" not in answers
    )


def spread(median):
    return {"median": median, "low": median, "high": median, "repeats": 1}


def test_the_zoo_on_cuda_keeps_every_row(scripts, tmp_path, monkeypatch, capsys):
    """One net's process ends early; the others are measured, training first, what is compiled last."""
    zoo, course = scripts("zoo"), []
    machine = {"gpu": "G", "torch": "2", "numpy": "3", "cupy": "4"}
    monkeypatch.setattr(zoo, "report", lambda args: {"quick": True, "machine": machine})

    def answers(script, settings):
        name, way, compiled = (settings[key] for key in ("name", "way", "compiled"))
        course.append((name, way, compiled))
        assert script == "zoo_cuda.py" and settings["batch"] == (1 if way == "infer" else 32)
        yield {f"minicaffe, auto{', TF32' * compiled}": {"ms": spread(2.0), "found": 1.0}}
        if name == "lenet":
            raise subprocess.CalledProcessError(1, ["zoo_cuda.py"])
        yield {f"torch{', TF32, compile' * compiled}": {"ms": spread(3.0), "found": 1.0}}
        yield {f"torch, graph{compiled}": {"failed": "Error: no"}}

    monkeypatch.setattr(zoo, "answers", answers)
    args = SimpleNamespace(only=["lenet", "resnet50"], into=tmp_path, quick=True, device="cuda")
    args.until = time.monotonic() + 10_000
    assert zoo.cuda(args) == [
        "lenet, train", "lenet, infer", "lenet, train", "lenet, infer",
    ]  # fmt: skip
    stages = [("train", False), ("infer", False), ("train", True), ("infer", True)]
    assert course == [(name, *stage) for stage in stages for name in args.only]
    assert "resnet50, train, 32: torch, graphTrue: Error: no\n" in capsys.readouterr().out
    text = scripts("zoo_tables").cuda(json.loads((tmp_path / "zoo_cuda.json").read_text()))
    lines = text.splitlines()
    assert lines[0] == "| a training step | LeNet, 32 | ResNet-50, 32 |"
    assert "| **minicaffe : PyTorch, float32** | - | **1.50x** |" in lines
    assert "| minicaffe, auto, TF32 | 2 (16,000) | 2 (16,000) |" in lines
    assert "| PyTorch, TF32, compile | - | 3 (10,667) |" in lines
    assert "| inference | LeNet, 1 | ResNet-50, 1 |" in lines
    assert "| GPU | G | G |" in lines
    assert lines[-1].startswith("torch 2, numpy 3, cupy 4; ms, ")
    course.clear()
    args.until, args.only = time.monotonic(), ["alexnet", "vgg16"]
    monkeypatch.setattr(zoo, "cuda_batch_of", lambda name, way: 32)
    assert zoo.cuda(args) == [] and course == [("alexnet", "train", False)]
    kept = json.loads((tmp_path / "zoo_cuda.json").read_text())["nets"]
    assert list(kept) == ["lenet", "alexnet", "resnet50"]  # in the order of the tables
    assert list(kept["alexnet"]["train"]["ms"]) == ["minicaffe, auto"]


def test_rows_of_lenet_remain_when_the_next_one_fails(scripts, tmp_path, monkeypatch, capsys):
    peers = scripts("peers")
    rates = {"minicaffe": spread(2.0), "torch graph": spread(1.0)}

    def child(script, settings):
        if settings["batch"] == 256:
            raise subprocess.CalledProcessError(1, ["lenet_step.py"])
        return {"rates": rates, "ratios": {"torch graph": spread(2.0)}}

    monkeypatch.setattr(peers, "child", child)
    args = SimpleNamespace(into=tmp_path, kind="cuda", forms=["cuda"], only=["lenet"], quick=False)
    args.head, args.batches, args.until = {"device": "cuda"}, (64, 1, 256), time.monotonic() + 9999
    args.device, args.threads = "cuda", 1
    with pytest.raises(subprocess.CalledProcessError):
        peers.lenet(args)
    assert list(json.loads((tmp_path / "peers_cuda.json").read_text())["lenet"]["cuda"]) == [
        "64",
        "1",
    ]
    args.until = time.monotonic()
    peers.lenet(args)
    assert list(json.loads((tmp_path / "peers_cuda.json").read_text())["lenet"]["cuda"]) == ["64"]
    assert "no time remains for 2 of 3, from 1 on\n" in capsys.readouterr().out


def test_the_papers_tables_in_their_time(scripts, tmp_path, monkeypatch, capsys):
    run, out = scripts("run"), tmp_path / "cuda.json"
    monkeypatch.setattr(run, "measured", lambda *_: iter([{"table3": 1}, {"table3": 2}]))
    for minutes, last in (("0", 1), ("1", 2)):
        words = ["run.py", "--minutes", minutes, "--quick", "--out", str(out)]
        monkeypatch.setattr(sys, "argv", words)
        run.main()
        assert json.loads(out.read_text()) == {"table3": last, "quick": True}
    assert capsys.readouterr().out.count("no time remains") == 1


def test_results_go_to_where_the_pages_take_them_from(scripts, tmp_path, monkeypatch, capsys):
    """All that a page can show of CUDA; a quick look is no result."""
    readme, found = scripts("readme"), tmp_path / "found"
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    paper, others = tmp_path / "paper", tmp_path / "examples" / "benchmarks" / "results"
    monkeypatch.setattr(readme.tables, "RESULTS", paper)
    names = ["peers_cuda.json", "lenet_mnist_cuda.json", "zoo_cuda.json", "cuda.json"]
    for folder in (paper, others, found):
        folder.mkdir(parents=True)
    for name in names:
        (found / name).write_text('{"quick": false}')
    (found / "ladder_cuda.json").write_text('{"quick": true}')
    readme.keep(found)
    assert os.listdir(paper) == ["cuda.json"] and set(os.listdir(others)) == set(names[:3])


def test_a_mean_of_several_trainings_on_cuda_is_told(scripts, monkeypatch):
    claims = scripts("claims")
    run = {"accuracy": 0.99, "seconds": 60.0, "device": "cuda:0 (asked for: NVIDIA H9 80GB)"}
    found = {"mean_accuracy": 0.991, "machine": {"processor": "P", "cores": 2}}
    found["runs"] = [run, run | {"seconds": 61.0}]
    monkeypatch.setattr(claims, "read", lambda what, device: found)
    assert claims.lenet()[1][1:] == ["**0.9910**, in 61.0 s", "", "H9"]


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
    for one in ours:
        words = [*one.command[3:], "--device", "cpu"]
        done = subprocess.run(
            [sys.executable, "-m", "minicaffe", *words], capture_output=True, text=True
        )
        assert "would use" in done.stdout, done.stderr
