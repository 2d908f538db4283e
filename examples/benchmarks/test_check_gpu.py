"""examples/benchmarks/check_gpu.py, whole, on a GPU or the stand-in; and faults that it is to find."""

import os
import re
import sys
from pathlib import Path

import pytest

from minicaffe.backends.cuda import launch
from minicaffe.backends.replay.replay import CudaGraph
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops import softmax
from minicaffe.core.ops.conv import problem
from minicaffe.errors import DeviceError

sys.path.append(str(Path(__file__).parent))
import check_gpu
import check_gpu_layers
import machine


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Sizes for a device that runs one thread after the other."""
    sizes = {"MATRIX": 32, "COPIED": 2**12, "LARGE": (1, 4, 6), "BATCH": 2, "REPLAYS": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(check_gpu, name, size)
    nets = {}
    for name, text in check_gpu.NETS.items():
        for many, few in ((20, 2), (50, 3), (500, 9), (2048, 9)):
            text = re.sub(rf"output: {many}(?=[,}}])", f"output: {few}", text)
        nets[name] = text.replace("32, 32", "6, 6").replace("1024", "20")
    monkeypatch.setattr(problem, "OWN", 100)  # multiply-adds
    monkeypatch.setattr(check_gpu, "NETS", nets)


@pytest.fixture
def one_net(monkeypatch):
    """LeNet alone is replayed."""
    monkeypatch.setattr(check_gpu, "NETS", {"LeNet": check_gpu.NETS["LeNet"]})


def test_all_is_well(cuda, monkeypatch, capsys, request):
    types = ("float16", "float64") if request.config.getoption("--long") else ("float16",)
    monkeypatch.setattr(check_gpu, "TYPES", types)
    check_gpu.check(cuda)
    said = capsys.readouterr().out
    for what in ("layers in float16", "weights after them", "the paper's two"):
        assert what in said
    assert f"convolutions in {types[-1]}" in said
    assert "wrong" not in said and said.count("1 CUDA graphs") == 3


def test_without_a_gpu_it_says_so(capsys):
    assert check_gpu.main(["--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("check_gpu: this check is for a GPU; here is cpu")


def test_rates_are_of_random_numbers(cuda, monkeypatch):
    """On zeros a GPU draws less power, and may clock higher."""
    spans = []

    def least(device, work):
        arrays = [device.to_host(a) for a in work.args if hasattr(a, "dtype")]
        spans.append([len({*a.ravel().tolist()}) for a in arrays])
        return 1.0

    monkeypatch.setattr(check_gpu, "least", least)
    list(check_gpu.rates(cuda))
    copied, *others = spans
    assert copied[1] == 256 and len(others) == len(check_gpu.TYPES) + 5
    assert all(min(numbers[:2]) > 30 for numbers in others)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("sleep 0.2; echo 1980 MHz, 650.10 W, 61", "1980 MHz, 650.10 W, 61 C"),
        ("echo No devices were found; exit 6", ""),
        ("echo what is this", ""),
        ("exec sleep 600", ""),
    ],
)
def test_what_the_gpu_is_like_stands_beside_a_rate(cuda, tmp_path, monkeypatch, does, told):
    """While it works, and where nvidia-smi is there and says it."""
    calls, tool = [], tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\n{does}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    seconds = 1 if "600" in does else 60
    assert machine.gpu_at_work(cuda, lambda: calls.append(1), seconds) == told
    assert calls or not told
    fields, *_, which, device = (tmp_path / "asked").read_text().split()
    assert fields == "--query-gpu=clocks.sm,power.draw,temperature.gpu"
    assert which == "-i" and device
    monkeypatch.setattr(check_gpu, "gpu_at_work", lambda *_: told)
    rows = {what: found for what, found, _ in check_gpu.rates(cuda)}
    assert rows["copy on the device"].endswith(f" GB/s ({told})" if told else " GB/s")


def test_without_nvidia_smi_a_rate_stands_alone(cuda, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpu_at_work(cuda, lambda: pytest.fail("for nothing")) == ""


def test_a_kernel_that_computes_something_else_is_found(cuda, one_net, monkeypatch, capsys):
    real = launch.source

    def spoilt(file, template):
        code, names = real(file, template)
        return code.replace("half > 0; half /= 2", "half > 1; half /= 2"), names

    launch.kernels.cache_clear()
    monkeypatch.setattr(launch, "source", spoilt)
    monkeypatch.setattr(check_gpu, "TYPES", ("float32",))
    few = {name: REGISTRY[name] for name in ("ReLU", "Softmax")}
    monkeypatch.setattr(check_gpu_layers, "REGISTRY", few)
    monkeypatch.setattr(check_gpu_layers, "ENGINES", ("implicit",))
    monkeypatch.setattr(check_gpu, "rates", lambda device: iter(()))
    try:
        with pytest.raises(DeviceError, match="checks failed; the first: layer Softmax: "):
            check_gpu.check(cuda)
    finally:
        launch.kernels.cache_clear()
    said = capsys.readouterr().out
    assert "layer Softmax " in said and "layer ReLU " not in said


def test_a_replay_that_computes_something_else_is_found(cuda, one_net, monkeypatch):
    make = CudaGraph.__init__

    def faulty(self, parts, device):
        make(self, parts[:-1], device)

    monkeypatch.setattr(CudaGraph, "__init__", faulty)
    rows = list(check_gpu.replay("LeNet", check_gpu.NETS["LeNet"], cuda))
    assert "a replay gave another" in rows[0][2]


def test_memory_that_each_iteration_takes_is_found(cuda, one_net, monkeypatch):
    real, kept = softmax.softmax_loss, []

    def taking(*given):
        kept.append(cuda.xp.empty(1000))
        return real(*given)

    monkeypatch.setattr(softmax, "softmax_loss", taking)
    found = check_gpu.replay("LeNet", check_gpu.NETS["LeNet"], cuda)
    rows = {what: wrong for what, _, wrong in found}
    assert rows["LeNet: memory taken meanwhile"] == "it grows"
    reasons = "cudaErrorStreamCaptureUnsupported", "bytes of memory taken in a capture"
    assert any(reason in rows["LeNet: iteration"] for reason in reasons)


def test_a_part_that_fails_is_a_row_and_the_next_is_checked(cuda, one_net, monkeypatch, capsys):
    """Rows come as they are known; a part is named, the others are not run."""
    seen = []

    def failing(name, text, device):
        yield f"{name}: first", "", "ok"
        seen.append(capsys.readouterr().out)
        raise RuntimeError("CUDA is\nout of patience")

    monkeypatch.setattr(check_gpu, "replay", failing)
    monkeypatch.setattr(check_gpu, "layers", lambda *_: pytest.fail("it was not asked for"))
    with pytest.raises(DeviceError, match="1 of .* checks failed; the first: LeNet: replayed: Run"):
        check_gpu.check(cuda, ("replays", "rates"))
    assert seen == ["LeNet: first                        ok\n"]
    said = capsys.readouterr().out
    wrong = "WRONG  RuntimeError: CUDA is out of patience\n"
    assert f"LeNet: replayed                     {wrong}" in said
    assert "the paper's two" in said and "layers" not in said


def test_a_lost_context_ends_the_check(cuda, one_net, monkeypatch, capsys):
    few = {name: REGISTRY[name] for name in ("ReLU", "Softmax", "TanH")}
    monkeypatch.setattr(check_gpu_layers, "REGISTRY", few)
    monkeypatch.setattr(check_gpu, "TYPES", ("float32",))
    real, calls = check_gpu_layers.passes, []

    def passes(keys, arrays, top, device, *rest):
        if device == "cpu" or keys["type"] == "ReLU":
            return real(keys, arrays, top, device, *rest)
        calls.append(keys["type"])
        monkeypatch.setattr(type(cuda), "synchronize", passes)
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(check_gpu_layers, "passes", passes)
    with pytest.raises(DeviceError, match="2 of 2 checks failed; the first: layers in float32: "):
        check_gpu.check(cuda, ("layers", "replays"))
    assert calls == ["Softmax"]  # and not TanH
    first, lost, last = capsys.readouterr().out.splitlines()
    why = "DeviceError: layer Softmax: RuntimeError: cudaErrorIllegalAddress"
    assert first.endswith(f"WRONG  {why}")
    assert lost.startswith("the CUDA context ") and lost.endswith("WRONG  is lost")
    assert last == "not checked: LeNet: replayed"


def test_a_check_ends_when_its_time_is_up(cuda, one_net, monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(check_gpu.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(check_gpu, "TYPES", ("float32",))

    def layers(device, dtype):
        for i in range(9):
            clock[0] += 50
            yield check_gpu_layers.Finding(f"layer {i}", 0.0, "bad" * (i == 1))

    monkeypatch.setattr(check_gpu, "layers", layers)
    with pytest.raises(DeviceError, match="1 of 1 checks failed; the first: layer 1: bad"):
        check_gpu.check(cuda, ("layers", "replays"), minutes=2)
    assert clock[0] == 150
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1] == "not checked: layers in float32, LeNet: replayed"


def test_parts_and_time_on_the_command_line(cuda, monkeypatch):
    asked = []
    monkeypatch.setattr(check_gpu, "check", lambda *given: asked.append(given[1:]))
    for words in ([], ["layers", "rates", "--minutes", "3"]):
        assert check_gpu.main(words) == 0
    assert asked == [(check_gpu.PARTS, float("inf")), (["layers", "rates"], 3)]
    with pytest.raises(SystemExit):
        check_gpu.main(["ratse"])
