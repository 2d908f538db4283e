"""`minicaffe doctor --check`, whole, on a GPU or the stand-in; and faults that it is to find."""

from __future__ import annotations

import pytest

from minicaffe.cli import check_layers, doctor_check
from minicaffe.cuda import launch
from minicaffe.errors import DeviceError
from minicaffe.layers import REGISTRY
from minicaffe.ops import softmax
from minicaffe.ops.conv import problem
from minicaffe.replay.replay import Graph


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Sizes for a device that runs one thread after the other."""
    for name, size in (
        ("MATRIX", 32),
        ("COPIED", 2**12),
        ("LARGE", (1, 4, 6)),
        ("BATCH", 2),
        ("REPLAYS", 3),
    ):
        monkeypatch.setattr(doctor_check, name, size)
    nets = {}
    for name, text in doctor_check.NETS.items():
        for many, few in (
            ("output: 20", "output: 2"),
            ("output: 50", "output: 3"),
            ("output: 500", "output: 9"),
            ("output: 2048", "output: 9"),
        ):
            text = text.replace(f"{many},", f"{few},").replace(f"{many}}}", f"{few}}}")
        nets[name] = text.replace("32, 32", "6, 6").replace("1024", "20")
    monkeypatch.setattr(problem, "OWN", 100)  # multiply-adds
    monkeypatch.setattr(doctor_check, "NETS", nets)


@pytest.fixture
def one_net(monkeypatch):
    """LeNet alone is replayed."""
    monkeypatch.setattr(doctor_check, "NETS", {"LeNet": doctor_check.NETS["LeNet"]})


def test_all_is_well(cuda, monkeypatch, capsys, request):
    types = ("float16", "float64") if request.config.getoption("--long") else ("float16",)
    monkeypatch.setattr(doctor_check, "TYPES", types)
    doctor_check.check(cuda)
    said = capsys.readouterr().out
    for what in (
        "layers in float16",
        f"convolutions in {types[-1]}",
        "weights after them",
        "the paper's two",
    ):
        assert what in said
    assert "wrong" not in said and said.count("1 CUDA graphs") == 3


@pytest.mark.parametrize("device", ["cpu"])
def test_without_a_gpu_it_says_so(cli, device):
    ran = cli("doctor", "--check", "--device", device)
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == "minicaffe: --check is for a GPU; here is cpu (asked for)"


def test_a_kernel_that_computes_something_else_is_found(cuda, one_net, monkeypatch, capsys):
    real = launch.source

    def spoilt(file, template):
        code, names = real(file, template)
        return code.replace("half > 0; half /= 2", "half > 1; half /= 2"), names

    launch.kernels.cache_clear()
    monkeypatch.setattr(launch, "source", spoilt)
    monkeypatch.setattr(doctor_check, "TYPES", ("float32",))
    few = {name: REGISTRY[name] for name in ("ReLU", "Softmax")}
    monkeypatch.setattr(check_layers, "REGISTRY", few)
    monkeypatch.setattr(check_layers, "ENGINES", ("implicit",))
    monkeypatch.setattr(doctor_check, "rates", lambda device: iter(()))
    try:
        with pytest.raises(DeviceError, match="checks failed; the first: layer Softmax: "):
            doctor_check.check(cuda)
    finally:
        launch.kernels.cache_clear()
    said = capsys.readouterr().out
    assert "layer Softmax " in said and "layer ReLU " not in said


def test_a_replay_that_computes_something_else_is_found(cuda, one_net, monkeypatch):
    make = Graph.__init__

    def faulty(self, parts, device):
        make(self, parts[:-1], device)

    monkeypatch.setattr(Graph, "__init__", faulty)
    rows = list(doctor_check.replay("LeNet", doctor_check.NETS["LeNet"], cuda))
    assert "a replay gave another" in rows[0][2]


def test_memory_that_each_iteration_takes_is_found(cuda, one_net, monkeypatch):
    real, kept = softmax.softmax_loss, []

    def taking(*given):
        kept.append(cuda.xp.empty(1000))
        return real(*given)

    monkeypatch.setattr(softmax, "softmax_loss", taking)
    rows = {
        what: wrong
        for what, _, wrong in doctor_check.replay("LeNet", doctor_check.NETS["LeNet"], cuda)
    }
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

    monkeypatch.setattr(doctor_check, "replay", failing)
    monkeypatch.setattr(doctor_check, "layers", lambda *_: pytest.fail("it was not asked for"))
    with pytest.raises(
        DeviceError, match="1 of [0-9]+ checks failed; the first: LeNet: replayed: Run"
    ):
        doctor_check.check(cuda, ("replays", "rates"))
    assert seen == ["LeNet: first                        ok\n"]
    said = capsys.readouterr().out
    assert (
        "LeNet: replayed                     WRONG  RuntimeError: CUDA is out of patience\n" in said
    )
    assert "the paper's two" in said and "layers" not in said


def test_a_lost_context_ends_the_check(cuda, one_net, monkeypatch, capsys):
    few = {name: REGISTRY[name] for name in ("ReLU", "Softmax", "TanH")}
    monkeypatch.setattr(check_layers, "REGISTRY", few)
    monkeypatch.setattr(doctor_check, "TYPES", ("float32",))
    real, calls = check_layers.passes, []

    def passes(keys, arrays, top, device, *rest):
        if device == "cpu" or keys["type"] == "ReLU":
            return real(keys, arrays, top, device, *rest)
        calls.append(keys["type"])
        monkeypatch.setattr(type(cuda), "synchronize", passes)
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(check_layers, "passes", passes)
    with pytest.raises(DeviceError, match="2 of 2 checks failed; the first: layers in float32: "):
        doctor_check.check(cuda, ("layers", "replays"))
    assert calls == ["Softmax"]  # and not TanH
    first, lost, last = capsys.readouterr().out.splitlines()
    assert first.endswith(
        "WRONG  DeviceError: layer Softmax: RuntimeError: cudaErrorIllegalAddress"
    )
    assert lost.startswith("the CUDA context ") and lost.endswith("WRONG  is lost")
    assert last == "not checked: LeNet: replayed"


def test_a_check_ends_when_its_time_is_up(cuda, one_net, monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(doctor_check.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(doctor_check, "TYPES", ("float32",))

    def layers(device, dtype):
        for i in range(9):
            clock[0] += 50
            yield check_layers.Finding(f"layer {i}", 0.0, "bad" * (i == 1))

    monkeypatch.setattr(doctor_check, "layers", layers)
    with pytest.raises(DeviceError, match="1 of 1 checks failed; the first: layer 1: bad"):
        doctor_check.check(cuda, ("layers", "replays"), minutes=2)
    assert clock[0] == 150
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1] == "not checked: layers in float32, LeNet: replayed"


def test_parts_and_time_on_the_command_line(cli, cuda, mistake, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "minicaffe.cli.doctor_command.check", lambda *given: asked.append(given[1:])
    )
    for words in ((), ("layers,rates", "--minutes", "3")):
        assert cli("doctor", "--device", "cuda", "--check", *words).code == 0
    assert asked == [(doctor_check.PARTS, float("inf")), (("layers", "rates"), 3)]
    line = mistake("doctor", "--check", "layers,ratse")
    assert "expected some of layers, convolutions, replays, rates, got 'ratse'" in line
    assert "did you mean 'rates'?" in line
    assert "--minutes is for --check" in mistake("doctor", "--minutes", "3")
