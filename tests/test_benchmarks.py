"""The scripts of examples/ that measure: they run, and README shows what they wrote."""

from __future__ import annotations

import doctest
import functools
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from minicaffe.backends import cpu
from minicaffe.storage import caches

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = (
    "bridges",
    "bridges_tables",
    "checkouts",
    "claims",
    "fma",
    "forms",
    "inference_memory",
    "ladder",
    "lenet_step",
    "machine",
    "measure",
    "mnist_parts",
    "newcomer",
    "opencv_tables",
    "peer_tables",
    "peers",
    "photographs",
    "photos",
    "readme",
    "sentences",
    "served",
    "zoo",
    "zoo_cuda",
    "zoo_layers",
    "zoo_names",
    "zoo_nets",
    "zoo_ours",
    "zoo_peers",
    "zoo_recipes",
    "zoo_runtimes",
    "zoo_sizes",
    "zoo_step",
    "zoo_tables",
    "zoo_torch",
    "zoo_turns",
)
SCRIPTS += ("onnx_tables", "zoo_onnx", "chart", "run", "tables")


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    """Imports a script of examples/ by name, and forgets it afterwards."""
    for folder in (EXAMPLES / "benchmarks", EXAMPLES / "paper_tables"):
        monkeypatch.syspath_prepend(str(folder))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "loops").symlink_to(caches.folder() / "loops")
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path / "cache"))
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def spread(median: float) -> dict:
    return {"median": median, "low": median - 0.5, "high": median + 0.5, "repeats": 3}


def test_pages_show_what_the_result_files_say(scripts):
    readme = scripts("readme")
    shown = {}
    for page in readme.PAGES:
        text = (ROOT / page).read_text("utf-8")
        shown |= readme.sections(text)
        assert readme.filled(text) == text, f"python examples/benchmarks/readme.py fills {page}"
    assert set(shown) == set(readme.SECTIONS)
    files = {
        "paper_tables": "paper_tables/results/{}.json",
        "inference_memory": "benchmarks/results/inference_memory_{}.json",
        "lenet_mnist": "benchmarks/results/lenet_mnist_{}.json",
        "mnist_parts": "benchmarks/results/mnist_parts_{}.json",
        "peers": "benchmarks/results/peers_{}.json",
        "photos": "benchmarks/results/photos_{}.json",
        "kernels": "benchmarks/results/kernels_{}.json",
        "ladder": "benchmarks/results/ladder_{}.json",
        "ladder_means": "benchmarks/results/ladder_{}.json",
        "zoo": "benchmarks/results/zoo_{}.json",
        "onnx": "benchmarks/results/bridges.json",
        "zoo_before": "benchmarks/results/zoo_{}.json",
        "after_opencv": "after_opencv_5/results/opencv_{}.json",
        "zoo_rates": "benchmarks/results/xeon/zoo_{}.json",
        "zoo_means": "benchmarks/results/zoo_{}.json",
        "zoo_layers": "benchmarks/results/zoo_{}.json",
        "zoo_slower": "benchmarks/results/zoo_{}.json",
    }
    shown.pop("zoo_nets")  # counted from the models, not measured
    assert shown.pop("claims").count("\n") > 10  # of several files, each of which must be there
    for name in scripts("sentences").SENTENCES:
        assert "Not yet measured" not in shown.pop(name)
    for name, text in shown.items():
        what, device = name.rsplit("_", 1)
        measured = (EXAMPLES / files[what].format(device)).exists()
        assert (text == "Not yet measured.") == (not measured), name


def test_no_ratio_is_written_by_hand():
    """What sums up a table stands between marks, which begin no line that goes on: that would end the paragraph."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"^```.*?^```|^\|.*?$", "", page.read_text("utf-8"), flags=re.S | re.M)
        by_hand = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", "", text, flags=re.S)
        ratios = re.findall(r".*\d\.\d+x\b.*|.*\d to \d\S* times as (?:fast|long).*", by_hand)
        assert not ratios, page
        assert not re.findall(r"^<!-- \w+ -->.", text, re.M), page


def test_sentences_say_what_the_tables_say(scripts):
    sentences = scripts("sentences")
    rates = lambda *values: {  # noqa: E731
        str(n): {
            "rates": {"minicaffe": spread(value)},
            "ratios": {"torch eager": spread(value / 50), "torch compile": spread(value / 40)},
        }
        for n, value in enumerate(values)
    }
    peers = {"lenet": {"numba": rates(200.0, 150.0), "numpy": rates(100.0, 50.0)}}
    assert sentences.numba_gain(peers) == "2.0 to 3.0"
    assert sentences.beside_torch(peers, "numpy") == "1.00x to 2.00x"
    way = {"ms": {"minicaffe": spread(10.0), "torch eager": spread(8.0)}, "ratio": spread(0.8)}
    rungs = {"conv": {"gflop": 1.0, "forward": way, "backward": way | {"ratio": spread(1.2)}}}
    assert sentences.ladder_slower({"rungs": rungs}) == (
        "Below 0.9 of PyTorch: conv forward (0.80x: 100 GFLOP/s, PyTorch's at 125)."
    )
    rungs["conv"]["forward"] = way | {"ratio": spread(0.9)}
    assert sentences.ladder_slower({"rungs": rungs}) == "None is below 0.9 of PyTorch."
    nets = {name: {"train": {"ms": {}, "ratios": {}}} for name in ("lenet", "alexnet")}
    for net, ratio in zip(nets.values(), (0.9, 1.5), strict=True):
        net["train"] = {
            "ms": {"minicaffe": spread(9.0), "torch eager": spread(8.0)},
            "ratios": {"torch eager": spread(ratio)},
        }
    assert sentences.training_slower({"nets": nets}) == "Slower than by PyTorch: LeNet (0.90x)."
    nets["lenet"]["train"]["ratios"] = {"torch eager": spread(1.1)}
    assert sentences.training_slower({"nets": nets}) == "No net trains slower."
    assert sentences.joined(["a"]) == "a"
    assert doctest.testmod(sentences).failed == 0


def test_result_files_are_no_quick_looks():
    for path in EXAMPLES.glob("*/results/*.json"):
        found = json.loads(path.read_text("utf-8"))
        assert not found.get("quick"), path
        assert found["machine"]["processor"]
        assert "OPENBLAS_CORETYPE" in found["machine"]["note"]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_papers_tables_can_be_measured(kind, scripts, request, tmp_path, capsys, monkeypatch):
    """A tiny run on each device (CUDA: the stand-in, where there is no GPU), and the tables made of it."""
    if kind == "cuda":
        request.getfixturevalue("cuda")
    run = scripts("run")
    monkeypatch.setattr(run, "interleaved", functools.partial(run.interleaved, warm_up=0))
    if kind == "cuda":
        small = (
            run.MODEL.read_text("utf-8")
            .replace("output: 500", "output: 9")
            .replace("output: 50", "output: 6")
        )
        (tmp_path / "small.yaml").write_text(small)
        monkeypatch.setattr(run, "MODEL", tmp_path / "small.yaml")
    *rows, report = run.measured(kind, 1, 0.1, batches=(2,), batch=2, copied=1 << 12)
    assert len(rows) == 1 + len(run.PASSES) + 1
    assert set(report["table3"]["2"]["rates"]) == {"caffe", "loopfree", "auto"}
    forms = {row["form"].partition(",")[0] for row in report["im2col"]["rows"]}
    assert forms == ({"caffe", "loopfree"} if kind == "cuda" else {"caffe"})
    report["table3"] = dict.fromkeys(("32", "64", "128", "256"), report["table3"]["2"])
    text = scripts("tables").markdown(json.loads(json.dumps(report)))
    assert "Table 3" in text and "Table 4" in text
    assert ("the same loops" in text) == (kind == "cpu")
    first = {key: one for key, one in report.items() if key not in ("table4", "plan", "im2col")}
    cut_off = scripts("tables").markdown(first)
    assert "Table 3" in cut_off and "Table 4" not in cut_off
    pytest.importorskip("matplotlib")
    for name in ("chart.svg", "chart.png"):
        scripts("chart").draw(report, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000


def test_the_papers_numbers_and_ours_stand_where_they_belong(scripts):
    tables = scripts("tables")
    engines = ("caffe", "loopfree", "auto")
    rates = dict(zip(engines, map(spread, (100.0, 120.0, 250.0)), strict=True))
    ratios = {"loopfree": spread(1.2), "auto": spread(2.5)}
    row = {"rates": rates, "ratios": ratios}
    text = tables.table3({"table3": dict.fromkeys(("32", "64", "128", "256"), row)}).split("\n")
    assert text[0] == "| Table 3: iterations/s, batch | 32 | 64 | 128 | 256 |"
    assert text[2] == "| **loop-free lowering : Caffe's** " + "| **1.20x** " * 4 + "|"
    assert text[4] == "| the paper's ratio, K80 | 1.17x | 1.20x | 1.19x | 1.18x |"
    assert text[7] == "| our fastest (`auto`) " + "| 250.0 ± 0.5 " * 4 + "|"
    assert text[8] == "| paper, K80: Caffe's lowering | 85.2 | 44.3 | 22.8 | 11.6 |"
    assert text[9] == "| paper, K80: loop-free lowering | 100.1 | 53.3 | 27.2 | 13.7 |"
    row = {"ms": rates, "ratios": ratios}
    passes = dict.fromkeys(tables.PAPER_MS["caffe"], row)
    text = tables.table4({"table4": passes, "batch": 128}).split("\n")
    assert text[-2] == "| paper, K80: Caffe's lowering | 6.01 | 11.49 | 10.90 | 14.00 |"
    assert text[-1] == "| paper, K80: loop-free lowering | 4.63 | 10.26 | 9.54 | 10.94 |"


def test_lenet_in_memory_is_lenet(scripts):
    from minicaffe import parse, read

    measure = scripts("measure")
    path = ROOT / "models" / "lenet.yaml"
    made = parse(measure.in_memory(path, 16, engine="caffe", base_lr=0.5))
    wanted = [layer for layer in read(path).layers if layer.type not in ("Data", "Accuracy")]
    assert [layer.name for layer in made.layers[1:]] == [layer.name for layer in wanted]
    assert made.solver.base_lr == 0.5
    assert not made.solver.test_iter and made.solver.display == made.solver.snapshot == 0
    mine, solver = scripts("lenet_step").ours(16, "cpu")
    losses = []
    for _ in range(30):
        mine.step()
        losses.append(mine.loss())
    assert losses[-1] < losses[0] / 2
    assert solver.net.blobs["conv1"].shape == (16, 20, 24, 24)


def test_two_checkouts_side_by_side(scripts, monkeypatch, tmp_path):
    """Both of them this one."""
    checkouts = scripts("checkouts")
    monkeypatch.setenv("MINICAFFE_CACHE", f"{tmp_path}/")
    monkeypatch.setenv("MINICAFFE_NUMBA", "0")
    roots = dict.fromkeys(("this", "other"), EXAMPLES.parent)
    for found in (
        checkouts.steps(roots, "numpy", 1, 1, 1),
        checkouts.starts(roots, checkouts.STARTS["minicaffe --help"], 1),
    ):
        assert found["ms"]["this"]["median"] > 0 and found["ratio"]["median"] > 0


def test_a_detectors_body_becomes_a_net(scripts, monkeypatch):
    """A small picture of it; what is refused has its reason, without the file and the node."""
    bridges = scripts("bridges")
    assert doctest.testmod(bridges).failed == 0
    one = {"right": 2, "wrong": ["test_add"], "later_opset": 1, "refused": {"a": 3, "b": 1}}
    sums = {"right": 4, "refused": 8, "wrong": 2, "later_opset": 2}
    assert bridges.totals({"Add": one, "Sub": one}) == sums
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(bridges, "SIZES", {"yolo": 64})
    monkeypatch.setattr(bridges, "torchvision", lambda: torch)
    monkeypatch.setattr(bridges, "version", lambda package: None)
    told = bridges.measured("yolo")
    assert told["worst"] < 1e-4 and told["blobs"] > 100


def test_help_imports_nothing_heavy():
    code = "import sys; from minicaffe.cli import main; main(['--help']); print(*sys.modules)"
    given = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    heavy = {
        "numpy",
        "yaml",
        "tqdm",
        "numba",
        "cupy",
        "PIL",
        "minicaffe.core.net",
        "minicaffe.core.solver",
    }
    assert not heavy & set(done.stdout.splitlines()[-1].split())


def test_a_newcomer_trains_on_pictures_of_their_own(scripts, monkeypatch, capsys):
    """In short; the row of the table says what was measured of the whole."""
    pytest.importorskip("PIL")
    newcomer = scripts("newcomer")
    assert [one[:2] for one in newcomer.commands()] == [
        ["minicaffe", "train"], ["minicaffe", "predict"], ["minicaffe", "report"],
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["newcomer.py", "--quick"])
    newcomer.main()
    found = json.loads(capsys.readouterr().out)
    assert (found["held_out"], found["never_seen"]) == (4, 6)
    assert not newcomer.agree((0.97, 0.80), (99, 100)) and newcomer.agree((1.0, 1.0), (4, 6))


def test_lenet_beside_pytorch(scripts, monkeypatch):
    pytest.importorskip("torch")
    step = scripts("lenet_step")
    monkeypatch.setattr(step, "MODES", step.MODES[:2])  # torch.compile takes its time
    found = step.compare(8, "cpu", 1, 1.0)
    assert found["losses_apart"] < 1e-4
    assert set(found["ratios"]) == {"torch eager", "torch channels_last"}


def test_a_rung_beside_pytorch(scripts):
    pytest.importorskip("torch")
    found = scripts("ladder").rung("ResNet-50 1x1, 2048-512", 1, "cpu", 1, 1.0)
    assert max(found["error"].values()) < 1e-5
    assert found["forward"]["ms"]["torch channels_last"]["median"] > 0


def test_peers_are_told_from_a_result(scripts):
    tables = scripts("peer_tables")
    machine = {"processor": "P", "torch": "2", "numpy": "3", "numba": "4"}
    one = {
        "rates": {"minicaffe": spread(300.0), "torch eager": spread(50.0)}
        | {"torch channels_last": spread(100.0)},
        "ratios": {"torch eager": spread(6.0), "torch channels_last": spread(3.0)},
    }
    found = {"device": "cpu", "threads": 2, "machine": machine}
    peak = {"32": {"peak": 150.2, "imports": 50.1}}
    text = tables.peers(
        found | {"lenet": {"numba": {"32": one}}, "memory": {"torch": peak, "numba": peak}}
    )
    assert "| **minicaffe[cpu] (Numba) : PyTorch** | **3.00x** ± 0.50 |" in text
    assert "| PyTorch, beside minicaffe[cpu] (Numba), iter/s | 100 ± 0 channels_last |" in text
    assert (
        "| PyTorch, peak memory, MiB | 150 |\n| PyTorch, of that beyond its imports | 100 |" in text
    )
    ms = {"minicaffe": spread(2.0), "torch eager": spread(4.0), "torch channels_last": spread(3.0)}
    way = {"ratio": spread(1.5), "ms": ms}
    rung = {
        "shape": "S",
        "error": {"y": 2e-7, "dx": 4e-7},
        "workspace_mib": 1.0,
        "columns_mib": 8.0,
    }
    rung |= {"forward": way, "backward": way}
    rung["memory_mib"] = {"minicaffe": 30.4, "torch": 40.0}
    rung["plan"] = {"forward": "batched", "input_gradient": "caffe", "weight_gradient": "places"}
    means = {"forward": 1.5, "backward": 1.5}
    text = tables.ladder(found | {"rungs": {"R": rung}, "geometric_means": means})
    assert "forward **1.50x**" in text and "no higher than PyTorch's in 1 of 1." in text
    row = "| R (S) | **1.50x** | **1.50x** | 2 + 2, 3 channels_last + 3 channels_last | 4e-07 | 30, 40 | 1.0 MiB | 8.0 MiB | batched, caffe, places |"
    assert row in text.split("\n")
    rung["fma"] = {"gflops": 310.0, "forward": 0.834, "dx": 0.7, "dweight": 0.66}
    text = tables.ladder(found | {"rungs": {"R 1x1": rung}, "geometric_means": means})
    assert "| 30, 40 | 83 %, 70 %, 66 % | 1.0 MiB |" in text
    assert "310 to 310 GFLOP/s, the 1 x 1 convolutions reach forward 83 to 83 %, dx 70" in text


@pytest.mark.skipif(not cpu.available(), reason="needs Numba: loops are compiled")
def test_a_rungs_share_of_the_multiply_adds_of_the_cores(scripts, monkeypatch):
    from minicaffe.backends import device as backend

    ladder = scripts("ladder")
    g = ladder.geometry("ResNet-50 1x1, 2048-512", 1)
    mine = ladder.Ours(g, ladder.given(g), backend.device("cpu"), "places")
    assert ladder.fma.rate(2) > 0
    monkeypatch.setattr(ladder.fma, "rate", lambda threads: 100.0)

    def interleaved(ways, *_, **__):
        for run in ways.values():
            run()
        return dict(zip(ways, ([1.0], [2.0], [4.0]), strict=True))

    monkeypatch.setattr(ladder, "interleaved", interleaved)
    parts = ladder.of_the_cores(mine, 1, 1.0)
    assert parts == {"gflops": 100.0, "forward": 1.0276, "dx": 0.5138, "dweight": 0.2569}
    mine.dweight.fill(0)
    mine.weight_gradient()
    mine.input_gradient()
    of_dy = np.einsum("nfhw,nchw->fc", mine.dy, mine.x)
    assert ladder.error(mine.dweight[:, :, 0, 0], of_dy) < 1e-5
    assert (
        ladder.error(mine.dx, np.einsum("nfhw,fc->nchw", mine.dy, mine.weight[:, :, 0, 0])) < 1e-5
    )


def test_the_ladders_convolutions_are_those_of_the_nets(scripts):
    from minicaffe.backends import device as backend
    from minicaffe.core.ops.conv import ENGINES
    from minicaffe.core.ops.geometry import ConvGeometry, Window

    ladder = scripts("ladder")
    out = {}
    for name, (c, size, f, *window, group) in ladder.LADDER.items():
        parts = ((k, k) for k in window)
        out[name] = ConvGeometry(1, c, (size, size), f, Window(*parts), group).out[0]
    assert (out["LeNet conv2"], out["AlexNet conv1"], out["AlexNet conv2"]) == (8, 55, 27)
    assert (out["strided 3x3 by 2, 128"], out["dilated 3x3 by 2, 256"]) == (28, 28)
    assert all(n == 224 for name, n in out.items() if "VGG-16 conv1" in name)

    g = ConvGeometry(3, 2, (6, 6), 4, Window((3, 3)))
    rng = np.random.default_rng(0)
    shapes = {"x": g.x_shape, "weight": g.weight_shape, "bias": (4,), "dy": g.y_shape}
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    ours = ladder.Ours(g, arrays, backend.device("cpu"))
    ours.forward()
    ours.backward()
    ours.backward()  # gradients are those of one pass, not added up
    x, weight, bias, dy = (array.astype(np.float64) for array in arrays.values())
    direct, work = ENGINES["direct"], np.empty(10_000)
    wanted = direct.forward(x, weight, bias, g, np.empty(g.y_shape), work)
    assert ladder.error(ours.y, wanted) < 1e-6
    wanted = direct.weight_gradient(x, dy, g, np.zeros(g.weight_shape), work)
    assert ladder.error(ours.dweight, wanted) < 1e-6
    assert ladder.error(ours.dbias, dy.sum((0, 2, 3))) < 1e-6


def test_the_memory_of_a_rung(scripts):
    """At least what a pass leaves: y, dx and what they are computed from."""
    from minicaffe.backends import device as backend

    ladder = scripts("ladder")
    g = ladder.geometry("AlexNet conv2", 4)
    ladder.planned(g, backend.device("cpu"))  # by whom the speed was measured
    least = 4 * 2 * (np.prod(g.x_shape) + np.prod(g.y_shape)) / 2**20
    code = "import json, ladder; print(ladder.memory('AlexNet conv2', 4, 'cpu', 'minicaffe'))"
    folders = [EXAMPLES / "benchmarks", EXAMPLES / "paper_tables", EXAMPLES.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert least < float(done.stdout) < 40 * least


def test_photographs_are_drawn_predicted_and_counted(scripts, tmp_path, few_digits):
    """Each condition, by a net that knows nothing."""
    pytest.importorskip("PIL")
    from minicaffe import Net
    from minicaffe.tools.data.digits import draw

    photos, readme = scripts("photos"), scripts("readme")
    images, labels = draw(10, seed=2)
    drawn = photos.draw(tmp_path, images[:, None], labels, 1)
    assert sum(condition in scripts("photographs").UNSEEN for condition, _ in drawn) == 4
    (tmp_path / "net.yaml").write_text(photos.MODEL.read_text("utf-8").replace("mnist", "digits"))
    Net(str(tmp_path / "net.yaml"), "TEST", device="cpu").save(str(tmp_path / "net.npz"))
    counts = photos.count(drawn, photos.predict(ROOT, tmp_path / "net.npz", drawn))
    assert list(counts) == list(dict.fromkeys(condition for condition, _ in drawn))
    assert counts["blank paper"] == {
        "pictures": 1, "right": 0, "unsure": 1, "wrong_unsaid": 0, "sure_and_wrong": 0,
    }  # fmt: skip
    runs = {name: {"revision": name, "conditions": counts} for name in ("before", "now")}
    text = readme.photos({"runs": runs})
    assert "| blank paper (1) | 0 | 1 | 0 | 0 | 0 | 1 | 0 | 0 |" in text.split("\n")


def test_wrong_answers_without_a_word_are_counted(scripts):
    pytest.importorskip("PIL")
    photos = scripts("photos")
    drawn = [("a sheet", Path(f"7-{i}.png")) for i in range(5)]
    ends = ("7 (60.00 %)", "1 (93.10 %)", "1 (70.00 %)", "1 (99.00 %) [unsure: faint ink]")
    ends += ("1 (99.00 %) [inverted, nothing in it]",)
    lines = [f"{path}: {end}" for (_, path), end in zip(drawn, ends, strict=True)]
    assert photos.count(drawn, lines)["a sheet"] == {
        "pictures": 5, "right": 1, "unsure": 2, "wrong_unsaid": 2, "sure_and_wrong": 1,
    }  # fmt: skip


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_there_is_no_peer(tmp_path):
    command = [sys.executable, str(EXAMPLES / "benchmarks" / "peers.py"), "--into", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "PyTorch is not installed here: there is no peer to measure against\n"


def test_the_zoo_is_compared_with_onnxruntime_blob_by_blob(scripts):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    found = scripts("zoo_onnx").measured("lstm")
    assert found["input"] == {"data": [1, 1], "cont": [1, 1]}
    assert found["blobs"] == 5 and found["outputs"] <= found["worst"] < 1e-5


def test_the_zoo_is_measured_as_it_is(scripts):
    """Every net of models/ but the paper's variant and three of our own; to infer, without labels and losses."""
    names, nets = scripts("zoo_names"), scripts("zoo_nets")
    assert {path.stem for path in (ROOT / "models").glob("*.yaml")} == {
        *names.NETS,
        *("lenet_paper", "digits", "segment", "small", "ssd_small"),
    }
    from minicaffe import Net

    shapes = {"lenet": (1, 10), "mnist_autoencoder": (1, 784), "lstm": (1, 1, 128)}
    for name, shape in shapes.items():
        net = Net(nets.spec_of(name, "infer"), "TEST", device="cpu", shapes_only=True)
        assert [value.shape for value in net.graph.outputs.values()] == [shape]
        assert not net.graph.losses and "label" not in net.steps[0].layer.top
        net = Net(nets.spec_of(name, "train"), "TRAIN", device="cpu", shapes_only=True)
        assert net.graph.losses
        axis = name in names.STREAMS
        assert {value.shape[axis] for value in net.steps[0].tops} == {8}
        given = nets.inputs_of(net)
        assert {key: array.shape for key, array in given.items()} == {
            value.name: value.shape for step in net.steps if not step.bottoms for value in step.tops
        }
    assert not given["cont"][0].any() and given["cont"][1:].all()
    assert given["data"].max() > 1 and (given["data"] % 1 == 0).all()  # codes of characters


def test_the_memory_of_inference_is_measured(scripts):
    found = [scripts("inference_memory").measure("cifar10_full", 4, way) for way in (False, True)]
    assert found[1]["blobs_mib"] < 0.8 * found[0]["blobs_mib"]
    assert all(one["loaded_mib"] <= one["peak_mib"] for one in found)


SMALL = """
name: many layers
layers:
  - {name: d, type: Input, top: [data, label], shape: [{dim: [4, 6, 17, 17]}, {dim: [4]}]}
  - {name: c1, type: Convolution, bottom: data, num_output: 8, kernel_size: 3, group: 2, pad: 1, param: [{}, {lr_mult: 2}]}
  - {name: b1, type: BatchNorm, top: c1}
  - {name: s1, type: Scale, bottom: c1, top: c1, bias_term: true}
  - {name: r1, type: ReLU, bottom: c1, top: c1}
  - {name: n1, type: LRN, alpha: 0.1}
  - {name: n2, type: LRN, local_size: 3, alpha: 0.1, norm_region: WITHIN_CHANNEL}
  - {name: p1, type: Pooling, kernel_size: 3, stride: 2}
  - {name: p2, type: Pooling, bottom: n2, pool: AVE, kernel_size: 3, stride: 2}
  - {name: cat, type: Concat, bottom: [p1, p2]}
  - {name: dc, type: Deconvolution, num_output: 4, kernel_size: 4, stride: 2, group: 4, bias_term: false, param: {lr_mult: 0}}
  - {name: cr, type: Crop, bottom: [dc, data], offset: 0}
  - {name: e, type: Eltwise, bottom: [cr, cr], operation: PROD}
  - {name: t, type: TanH}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""


@pytest.mark.parametrize("name", ["small", "lstm", "mnist_siamese"])
def test_a_net_of_the_zoo_is_the_same_in_pytorch(name, scripts, monkeypatch):
    pytest.importorskip("torch")
    from minicaffe import Net, parse

    nets, step = scripts("zoo_nets"), scripts("zoo_step")
    if name == "small":
        spec = {way: nets.prepared(parse(SMALL), way, 3) for way in ("infer", "train")}
        monkeypatch.setattr(step, "spec_of", lambda name, way, batch=None: spec[way])
    found = step.gradients(name, 3)
    assert max(found.values()) < (1e-3 if name == "mnist_siamese" else 1e-9)
    net = Net(step.spec_of(name, "infer"), "TEST", device="cpu")
    nets.begin(net)
    given = nets.inputs_of(net)
    wanted = [array.copy() for array in net.forward(**given).values()]
    for call in step.torch_inference(net, given, modes=step.MODES[:2]).values():
        for ours, theirs in zip(wanted, call(), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_zoo_is_told_from_a_result(scripts):
    tables = scripts("zoo_tables")
    ms = {"minicaffe": spread(10.0), "torch eager": spread(30.0), "torch compile": spread(20.0)}
    infer = {
        "ms": ms | {"onnxruntime": spread(5.0)},
        "ratios": {"torch eager": spread(3.0), "torch compile": spread(2.0), "onnxruntime": spread(0.5)}
        | {"minicaffe, one thread": spread(1.5)},
        "refused": {"opencv": "why"},
        "apart": {"onnxruntime": 2e-7},
        "memory": {"minicaffe": {"peak": 100.0}, "torch compile": {"peak": 200.0}},
    }  # fmt: skip
    train = {
        "ms": ms,
        "ratios": {"torch eager": spread(3.0), "torch compile": spread(2.0)},
        "apart": {"gradients": 1e-13},
        "memory": {"minicaffe": {"peak": 5000.0}, "torch compile": {"peak": 200.0}},
    }
    kinds = {
        "convolution": {"forward": 6.0, "backward": 12.0, "torch": 4.0, "multiply_adds": 3e9},
        "LRN": {"forward": 2.0, "backward": 0.0, "torch": 0.5, "multiply_adds": 0},
    }
    net = {
        "parameters": 1000,
        "multiply_adds": 2_500_000,
        "batch": {"infer": 1, "train": 8},
        "infer": infer,
        "train": train,
        "layers": {
            "infer": {kind: row | {"backward": 0.0} for kind, row in kinds.items()},
            "train": kinds,
        },
    }
    machine = dict.fromkeys(("processor", "torch", "opencv", "onnxruntime", "numpy", "numba"), "1")
    found = {"threads": 2, "machine": machine, "nets": {"alexnet": net}}
    text = tables.zoo(found).split("\n")
    row = "| AlexNet | 1,000 | 2.50 M | 10 ± 0.5 | **2.00x** ± 0.50, 20 compile | - | **0.50x** ± 0.50, 5 |"
    assert row in text
    assert "| AlexNet | 8 | 10 ± 0.5 | **2.00x** ± 0.50, 20 compile |" in text
    assert "| AlexNet | 100 | 200 | - | - | 5,000 | 200 |" in text
    assert "OpenCV 4 does not take AlexNet." in text
    assert "AlexNet 4.88 GiB: all under 6 GiB." in tables.means(found)
    assert "| AlexNet | convolution 75%, LRN 25% | convolution 90%, LRN 10% |" in tables.layers(
        found
    )
    slower = tables.slower(found).split("\n")
    assert "one sample takes 1.50x the time" in slower[-1]
    assert "| AlexNet | onnxruntime 0.50x | convolution 6 (4), LRN 2 (0.5) |" in slower
    assert tables.zoo(None) == tables.layers(None) == tables.before(None) == "Not yet measured."
    assert tables.before(found) == "Not measured beside another checkout."
    for one in (infer, train):
        one["ratios"] |= {"before": spread(1.5)}
        one["ms"] |= {"before": spread(15.0)}
    row = "| AlexNet | **1.50x** ± 0.50 | 10 | 15 | **1.50x** ± 0.50 | 10 | 15 |"
    assert row in tables.before(found).split("\n")
