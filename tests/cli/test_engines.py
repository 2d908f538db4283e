"""Engines on the command line: --conv-engine, --workspace, --deterministic, and `minicaffe explain`."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from kit import CPU, arrays

from minicaffe.backends import cpu
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune, autotune_cache
from minicaffe.core.ops.conv import problem as case
from minicaffe.core.ops.conv.implicit import IMPLICIT

pytestmark = pytest.mark.usefixtures("folder", "no_plans")
LARGE = ("num_output: 4, kernel_size: 5, stride: 2", "num_output: 8, kernel_size: 5")


def explain(cli, *words) -> str:
    """What `explain` prints of a model."""
    ran = cli("explain", *words, *CPU)
    assert ran.code == 0, ran
    return ran.out


@pytest.mark.parametrize("command", ["train", "test", "time", "explain"])
def test_every_command_that_computes_takes_an_engine(mistake, cli, command, model):
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "1").code == 0
    more = ("--weights", "tiny_iter_1.npz") if command == "test" else ()
    line = mistake(command, "tiny.yaml", *CPU, *more, "--conv-engine", "bached")
    told = "minicaffe: unknown engine 'bached'; expected one of auto, direct, caffe, "
    assert line.startswith(told) and line.endswith("; did you mean 'batched'?")
    apart = model(("stride: 2", "stride: 5"))
    line = mistake(command, apart, *CPU, *more, "--conv-engine", "winograd")
    assert f"{apart}:4:5: layer 'conv1' (Convolution): engine 'winograd' cannot take" in line
    line = mistake(command, "tiny.yaml", *CPU, *more, "--workspace", "0")
    assert "expected an integer of at least 1, got '0'" in line


@pytest.mark.parametrize("engine", ["caffe", "batched"])
def test_training_by_an_engine(cli, folder, engine):
    """As the engine that the fixed rule takes: the fastest may round a ReLU's entry to the other side of 0."""
    given = ("--deterministic", "--snapshot-prefix", "rule")
    assert cli("train", "tiny.yaml", *CPU, *given).code == 0
    assert cli("train", "tiny.yaml", *CPU, "--conv-engine", engine).code == 0
    first, second = arrays("rule_iter_12.npz"), arrays("tiny_iter_12.npz")
    np.testing.assert_allclose(second["conv1__0"], first["conv1__0"], atol=1e-4)


def test_the_command_that_goes_on_keeps_the_engine(cli, interrupt):
    given = ("--conv-engine", "caffe", "--workspace", "32", "--deterministic")
    interrupt(3)
    words = shlex.split(cli("train", "tiny.yaml", *CPU, *given).last.split("to go on: ")[1])
    assert all(word in words for word in given)
    assert cli(*words[1:]).code == 0


def test_deterministic_training_asks_no_clock(cli, folder, model, monkeypatch):
    net = model(LARGE)
    for prefix in ("a", "b"):
        monkeypatch.setenv("MINICAFFE_CACHE", str(folder / f"plans {prefix}"))
        assert cli("train", net, *CPU, "--deterministic", "--snapshot-prefix", prefix).code == 0
        assert not list((folder / f"plans {prefix}").glob("plans-*"))
    first, second = arrays("a_iter_12.npz"), arrays("b_iter_12.npz")
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_explain_lenet(cli):
    lines = explain(cli, "models/lenet.yaml").splitlines()
    assert max(map(len, lines[:-1])) <= 100
    assert len(lines) < 50
    assert lines[0] == "LeNet, phase TRAIN, float32, on cpu"
    window = "stride 1x1, pad 0x0, dilation 1x1, group 1"
    one = lines.index(f"conv2: 64x20x12x12 -> 64x50x8x8, weight 50x20x5x5, {window}")
    assert lines[one + 1 : one + 3] == [
        "  102,400,000 multiply-adds, 1.6 MiB moved (x, weight and y), 123.6 flop/byte",
        "  column matrix 7.8 MiB, each entry of x 11.1 times",
    ]
    assert lines[one + 3].split("  ")[1] == "engine"
    for name in conv.ENGINES:
        assert any(re.match(rf"  {name}(:|  )", line) for line in lines[one:]), name
    rows = [line for line in lines[one:] if re.match(r"  (implicit|packed) ", line)]
    assert all(re.search(r"(?:  | )\de-\d\d \de-\d\d \de-\d\d  +\d\.\d MiB$", row) for row in rows)
    for way in ("forward", "input gradient", "weight gradient"):
        chosen = [line for line in lines if line.startswith(f"  {way}: ")]
        assert len(chosen) == 2
        for line in chosen:
            name, why = re.fullmatch(rf"  {way}: (\w+) \((.*)\)", line).groups()
            assert name in conv.ENGINES
            assert re.fullmatch(r"fastest of \d+, measured now", why)
    assert sum(line.count("* ") for line in lines) == 6  # a choice for each direction
    assert lines[-1].startswith("measurements: ")


@pytest.mark.parametrize("options", [("--all",), ("--conv-engine", "caffe"), ()])
def test_explain_times_what_is_asked_for(cli, options):
    """--all: every engine that takes the shape; by name: that one beside the candidates."""
    out = explain(cli, "tiny.yaml", *options)
    row = r"^  (\w+)(?:  +(?:(?:\* )?\d+\.\d{3}|inaccurate)){3}  +\de-\d\d"
    timed, told = re.findall(row, out, re.M), dict(re.findall(r"^  (\w+): (.*)", out, re.M))
    assert not set(timed) & set(told)
    assert set(timed) | set(told) >= set(conv.ENGINES)
    if "--all" in options:
        assert {"direct", "caffe", "loopfree", "batched", "implicit"} <= set(timed)
        assert not any("by name" in why or "candidate" in why for why in told.values())
    assert ("caffe" in timed) == (bool(options) or not IMPLICIT.is_compiled(np.float32))
    chosen = "caffe" if "caffe" in options else None
    assert chosen is None or re.findall(r"^  (\w+) .*\* ", out, re.M) == [chosen]


def test_explain_remembers(cli, model, monkeypatch):
    net = model(LARGE)
    first = explain(cli, net)
    monkeypatch.setattr(autotune_cache, "_known", {})
    measure = autotune_cache.measure
    again = pytest.fail  # but not of the test net, which only runs forward
    only = lambda case: measure(case) if case.infers else again("measured again")  # noqa: E731
    monkeypatch.setattr(autotune_cache, "measure", only)
    again = explain(cli, net)
    assert re.sub("remembered from [-0-9]*", "measured now", again) == first
    assert cli("train", net, *CPU, "--max-iter", "1").code == 0


@pytest.mark.parametrize(
    "options, why",
    [
        (("--batch", "5"), "fixed rule: too small to measure"),
        (("--batch", "2000", "--deterministic"), "fixed rule: deterministic"),
        (("--conv-engine", "loopfree"), "asked for by name"),
    ],
)
def test_explain_measures_and_tells_what_would_be_used(cli, options, why):
    out = explain(cli, "tiny.yaml", "--phase", "TEST", *options)
    rule = "implicit" if IMPLICIT.is_compiled(np.float32) else "batched"
    name = "loopfree" if "loopfree" in options else rule
    assert f"  forward: {name} ({why})\n" in out
    assert re.search(r"\n  implicit  [ *]+\d+\.\d{3}  ", out)
    batch = options[1] if "--batch" in options else "20"
    assert f"conv1: {batch}x1x28x28 -> {batch}x4x12x12" in out


def test_explain_tells_what_exceeds_the_cap(cli, model):
    net = model((LARGE[0], "num_output: 16, kernel_size: 27, pad: 13"))
    told = r"\n  caffe: needs [\d.]+ MiB of workspace, the cap is 1.0 MiB\n"
    assert re.search(told, explain(cli, net, "--workspace", "1"))


@pytest.mark.skipif(not cpu.available(), reason="needs Numba")
def test_explain_shows_what_is_inexact(cli, monkeypatch):
    monkeypatch.setattr(case, "ROUNDS", 0)
    assert "inaccurate" in explain(cli, "tiny.yaml")


PRODUCT = (
    "type: Convolution, bottom: data, num_output: 4, kernel_size: 5, stride: 2",
    "type: InnerProduct, bottom: data, num_output: 4",
)


def test_explain_of_other_layers(cli, folder, model):
    assert "no convolution" in explain(cli, model(PRODUCT))
    (folder / "others.yaml").write_text(
        "layers:\n"
        "  - {name: x, type: Input, shape: {dim: [2, 3, 8, 8]}}\n"
        "  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3}\n"
        "  - {name: norm, type: BatchNorm}\n"
        "  - {name: up, type: Deconvolution, bottom: x, num_output: 4, kernel_size: 4, stride: 2, pad: 1}\n"
    )
    out = explain(cli, "others.yaml")
    assert "\nconv: 2x3x8x8" in out and "\nnorm:" not in out
    assert "\nup: the adjoint of 2x4x16x16 -> 2x3x8x8, weight 3x4x4x4, stride 2x2, pad 1x1" in out


def test_explain_of_an_inner_product_on_cuda(cli, cuda, model):
    """Our kernel or cuBLAS; with --all how our kernel errs in each precision."""
    ran = cli("explain", model(PRODUCT), "--device", "cuda", "--batch", "80")
    assert ran.code == 0
    rows = ran.out.splitlines()
    one = next(i for i, row in enumerate(rows) if row.startswith("conv1: 80x784x1 -> 80x4x1"))
    assert [row.split()[0] for row in rows[one + 4 : one + 6]] == ["batched", "implicit"]
    chosen = [row for row in rows[one:] if "gradient: " in row or row.startswith("  forward: ")]
    assert all(re.search(r": (implicit|batched) \(fastest of 2", row) for row in chosen[:3])
    few = cli("explain", model(PRODUCT), "--device", "cuda", "--batch", "1", "--all").out
    errors = [row.split(": ")[1].split() for row in few.splitlines() if " with precision " in row]
    high, highest, tf32 = (float(row[0].strip(",")) for row in errors[:3])
    assert max(high, highest) < 1e-6 and (tf32 > 1e-5) == cuda.has_tf32


def test_what_was_measured_on_a_busy_machine_is_measured_anew(cli, folder, monkeypatch):
    (folder / "large.yaml").write_text((folder / "tiny.yaml").read_text().replace(*LARGE))
    found = {}

    def measure(case):
        found["ms"] = found.get("ms", 0.0) + 1.0
        ms = dict.fromkeys(case.candidates, found["ms"])
        one = autotune.Finding(ms, dict.fromkeys(ms, 0.0), "2000-01-01")
        return dict.fromkeys(autotune.DIRECTIONS, one)

    monkeypatch.setattr(autotune_cache, "measure", measure)
    shown = [explain(cli, "large.yaml", *more) for more in ((), (), ("--measure",), ())]
    assert [text.count(" 1.000 ") > 0 for text in shown] == [True, True, False, False]
    assert [text.count(" 2.000 ") > 0 for text in shown] == [False, False, True, True]
    assert ["measured now" in text for text in shown] == [True, False, True, False]
    assert found["ms"] == 2.0


@pytest.mark.skipif(not cpu.available(), reason="needs Numba")
def test_explain_the_rows_of_an_iteration(cli):
    """Each row with what it is of; what Python does between them, and why; nothing is left behind."""
    head, *lines = explain(cli, "tiny.yaml", "--step").splitlines()
    told = r"Tiny, an iteration of SGD, float32, on cpu, \d+ threads: \d+\.\d{3} ms"
    assert re.fullmatch(told, head)
    assert lines[0].split() == ["of", "loop", "slices", "us", "share", "%", "MiB", "GFLOP/s"]
    shown = [re.split("  +", line) for line in lines[1:-2]]
    of = [row[0] for row in shown]
    first = "conv1 to relu1" if cpu.available() else "conv1"  # computed as one
    for layer, forward in (("conv1", first), ("ip1", "ip1"), ("loss", "loss")):
        assert f"{forward} forward" in of and f"{layer} backward" in of
    products = [row for row in shown if row[0] in (f"{first} forward", "ip1 forward")]
    assert len(products) == 2 and all(float(row[-1]) > 0 for row in products)  # GFLOP/s
    assert re.fullmatch(r"\d+ rows .* ms, Python between them .* ms,", lines[-2])
    assert int(lines[-2].split()[0]) == sum("." in row[1].partition(":")[0] for row in shown)
    assert not list(Path().glob("*_iter_*"))


def test_explain_the_rows_of_a_pass(cli):
    head, *lines = explain(cli, "tiny.yaml", "--step", "--phase", "TEST").splitlines()
    assert head.startswith("Tiny, a forward pass of the phase TEST, float32, on cpu, ")
    if cpu.available():
        of = [re.split("  +", line)[0] for line in lines[1:-2]]
        assert "ip1 forward" in of and not [name for name in of if name.endswith("backward")]
        assert re.fullmatch(r"\d+ rows .* ms, Python between them .* ms,", lines[-2])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--step --batch 2", "--step is of the net as it is"),
        ("--step --measure", "--step is of the net as it is"),
        ("--step --all", "--step is of the net as it is"),
        ("--net --all", "--net is of the net as it is"),
        ("--net --step", "--net is of inference"),
        ("--net --phase TRAIN", "--net is of inference"),
    ],
)
def test_what_goes_not_together(mistake, words, told):
    assert told in mistake("explain", "tiny.yaml", *CPU, *words.split())


JOINED = """
name: Joined
layers:
  - {name: x, type: Input, shape: {dim: [1, 3, 12, 12]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3}
  - {name: bn, type: BatchNorm, top: conv}
  - {name: scale, type: Scale, top: conv, bias_term: true}
  - {name: drop, type: Dropout, top: conv}
  - {name: other, type: Convolution, bottom: x, num_output: 4, kernel_size: 3}
  - {name: orelu, type: ReLU, top: other}
  - {name: sum, type: Eltwise, bottom: [conv, other]}
  - {name: relu, type: ReLU, top: sum}
  - {name: ip, type: InnerProduct, num_output: 2}
"""


def test_explain_what_is_computed_as_one(cli):
    Path("joined.yaml").write_text(JOINED)
    head, *lines = explain(cli, "joined.yaml", "--net").splitlines()
    assert head == "Joined, inference, float32, on cpu"
    if not cpu.available():
        return
    rows = {line.split()[0]: re.split("  +", line)[-1] for line in lines[1:-1]}
    assert list(rows) == ["x", "conv", "bn", "scale", "drop", "other", "orelu", "sum", "relu", "ip"]
    assert rows["scale"] == "with bn" and rows["orelu"] == "with other"
    assert rows["x"] == rows["drop"] == "-" and "." in rows["ip"]
    assert lines[-1].startswith("2 layers compute nothing; blobs: 0.0 MiB")
