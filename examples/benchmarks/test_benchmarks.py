"""The scripts of examples/ that measure: they run, and the pages show what they wrote."""

import doctest
import functools
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from minicaffe.storage import caches

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = EXAMPLES / "benchmarks", EXAMPLES / "paper_tables"
# Packages without which a script cannot even be imported
NEEDED = {"photographs": "PIL", "photos": "PIL", "torch_nets": "torch"}
COMMANDS = "digits_net inference_memory kernels ladder lenet_mnist mnist_parts onnx_nets photos zoo on_a_gpu"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "loops").symlink_to(caches.folder() / "loops")
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path / "cache"))


def run(script: str, *words: str) -> str:
    """What a script prints, as a process, without Numba's compiling."""
    command = [sys.executable, str(EXAMPLES / "benchmarks" / f"{script}.py"), *words]
    environment = os.environ | {"MINICAFFE_NUMBA": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spread(median: float) -> dict:
    return {"median": median, "low": median - 0.5, "high": median + 0.5, "repeats": 3}


STAMP = {"date": "2026-11-27", "commit": "0123456789"}
PLACE = STAMP | {"threads": 2, "machine": {"processor": "P", "torch": "2", "numpy": "3"}}


@pytest.mark.parametrize(
    "name",
    sorted(
        {path.stem for path in FOLDERS[0].glob("*.py")}
        - {path.stem for path in FOLDERS[0].glob("test_*.py")}
    ),
)
def test_every_script_can_be_imported(name, scripts, monkeypatch, capsys):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    assert doctest.testmod(scripts(name)).failed == 0
    if name in COMMANDS.split():
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
        with pytest.raises(SystemExit) as ended:
            scripts(name).main()
        assert not ended.value.code and "usage: " in capsys.readouterr().out


no_torch = pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
WITHOUT = "torch is not installed here:"


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("measure", "--quick", "--quick makes no result to keep: say with --into where"),
        ("zoo", "--with torhc", "unknown contender 'torhc'; there are minicaffe; "),
        ("zoo", "--with opencv", "all are compared with 'minicaffe': name it, too"),
        pytest.param("zoo", "--into .", f"{WITHOUT} name the other contenders by", marks=no_torch),
        pytest.param("ladder", "--into .", f"{WITHOUT} there is no peer", marks=no_torch),
    ],
)
def test_what_no_script_measures(script, words, says, scripts, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *words.split()])
    made = scripts(script)
    with pytest.raises(SystemExit) as ended:
        made.parsed(made.parser("a script")) if script == "measure" else made.main()
    assert ended.value.code == 2 or says in str(ended.value.code)
    assert says in capsys.readouterr().err + str(ended.value.code)


# the pages


def test_pages_show_what_the_result_files_say(scripts):
    readme, shown = scripts("readme"), {}
    for page in readme.PAGES:
        text = (ROOT / page).read_text("utf-8")
        shown |= readme.sections(text)
        assert readme.filled(text) == text, f"python examples/benchmarks/readme.py fills {page}"
    assert set(shown) == set(readme.SECTIONS)


def test_no_ratio_is_written_by_hand():
    """What sums up a table stands between marks, which begin no line that goes on: that would end the paragraph."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"^```.*?^```|^\|.*?$", "", page.read_text("utf-8"), flags=re.S | re.M)
        by_hand = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", "", text, flags=re.S)
        ratios = re.findall(r".*\d\.\d+x\b.*|.*\d to \d\S* times as (?:fast|long).*", by_hand)
        assert not ratios, page
        assert not re.findall(r"^<!-- \w+ -->.", text, re.M), page


def test_result_files_are_no_quick_looks_and_say_what_was_measured():
    for path in EXAMPLES.glob("*/results/**/*.json"):
        report = json.loads(path.read_text("utf-8"))
        if isinstance(report, list):  # of a GPU's minutes, whose README says so
            continue
        assert not report.get("quick"), path
        assert report["machine"]["processor"]
        assert "OPENBLAS_CORETYPE" in report["machine"]["note"]
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", report["date"])
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", report["commit"])


def test_a_claim_needs_engines_of_today_a_date_and_a_commit(scripts):
    claims = scripts("claims")
    rows = claims.claims().splitlines()[2:]
    assert len(rows) == 5
    assert all(re.search(r", 2026-\d\d-\d\d, [0-9a-f]{8} \|$", row) for row in rows)
    report = STAMP | {"plan": {"conv1": {"forward": "winograd", "input_gradient": "lanes"}}}
    with pytest.raises(ValueError, match="of 2026-11-27 names engines that are gone: lanes"):
        claims.of_today(report)
    report = STAMP | {"nets": {"lenet": {"engines": ["winograd", "mec"]}}}
    with pytest.raises(ValueError, match="gone: mec"):
        claims.of_today(report)


def test_sentences_say_what_the_tables_say(scripts):
    made = scripts("result_tables")

    def rates(*values):
        peers = ("torch eager", 50), ("torch compile", 40)
        return {
            str(n): {
                "rates": {"minicaffe": spread(value)},
                "ratios": {name: spread(value / other) for name, other in peers},
            }
            for n, value in enumerate(values)
        }

    report = {"lenet": {"numba": rates(200.0, 150.0), "numpy": rates(100.0, 50.0)}}
    assert made.numba_gain(report) == "2.0 to 3.0"
    assert made.beside_torch(report, "numpy") == "1.00x to 2.00x"
    assert made.joined(["a"]) == "a"


def test_lenets_step_and_convolutions_are_told_from_a_result(scripts):
    made = scripts("result_tables")
    one = {
        "rates": {"minicaffe": spread(300.0), "torch eager": spread(50.0)}
        | {"torch channels_last": spread(100.0)},
        "ratios": {"torch eager": spread(6.0), "torch channels_last": spread(3.0)},
    }
    peak = {"32": {"peak": 150.2}}
    memory = {"torch": peak, "numba": peak}
    text = made.lenet_step(PLACE | {"lenet": {"numba": {"32": one}}, "memory": memory})
    assert "| **minicaffe[cpu] (Numba) : PyTorch** | **3.00x** ± 0.50 |" in text
    assert "| PyTorch, peak memory, MiB | 150 |" in text
    assert "\n\nP, 2 cores, 2026-11-27, 01234567; PyTorch 2, NumPy 3; medians, ±" in text
    ms = {"minicaffe": spread(2.0), "torch eager": spread(4.0), "torch channels_last": spread(3.0)}
    way = {"ratio": spread(1.5), "ms": ms}
    rung = {"shape": "S", "error": {"y": 2e-7, "dx": 4e-7}, "workspace_mib": 1.0}
    rung |= {"forward": way, "backward": way, "memory_mib": {"minicaffe": 30.4, "torch": 40.0}}
    rung["plan"] = {"forward": "batched", "input_gradient": "caffe", "weight_gradient": "packed"}
    means = {"forward": 1.5, "backward": 1.5}
    report = PLACE | {"rungs": {"R": rung}, "geometric_means": means}
    text = made.ladder(report, report | {"rungs": {"other": rung}})
    assert "forward **1.50x**" in text and "no higher than PyTorch's in 1 of 1." in text
    row = "| R (S) | **1.50x** | **1.50x** | 2 + 2 | batched, caffe, packed | - | - | - | - |"
    assert row in text.split("\n")


def test_the_zoo_is_told_from_a_result(scripts):
    made = scripts("result_tables")
    ms = {"minicaffe": spread(10.0), "torch eager": spread(30.0), "torch compile": spread(20.0)}
    ratios = {"torch eager": spread(3.0), "torch compile": spread(2.0)}
    memory = {"minicaffe": {"peak": 100.0}, "torch compile": {"peak": 200.0}}
    infer = {
        "ms": ms | {"onnxruntime": spread(5.0)},
        "ratios": ratios | {"onnxruntime": spread(0.5), "minicaffe, one thread": spread(1.5)},
        "refused": {"opencv": "why"},
        "apart": {"onnxruntime": 2e-7},
        "memory": memory,
    }
    train = {"ms": ms, "ratios": ratios, "apart": {"gradients": 1e-13}, "memory": memory}
    net = {"parameters": 1000, "multiply_adds": 2_500_000, "batch": {"infer": 1, "train": 8}}
    report = PLACE | {"nets": {"alexnet": net | {"infer": infer, "train": train}}}
    text = made.zoo(report).split("\n")
    fast, slow = ("**2.00x** ± 0.50", "**0.50x** ± 0.50")
    assert f"| AlexNet | 10 ± 0.5 | {fast} | {slow} | 10 ± 0.5 | {fast} |" in text
    assert "| AlexNet | 100 | 200 | - | 100 | 200 |" in text
    assert "OpenCV 4 does not take AlexNet." in text
    assert made.zoo_behind(report) == (
        "Inference is slower than by the fastest of the others in AlexNet (0.50x). "
        "Training is slower than by the fastest of the others in none."
    )


# the paper's tables


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_papers_tables_can_be_measured(kind, scripts, request, tmp_path, capsys, monkeypatch):
    """A tiny run on each device (CUDA: the stand-in, where there is no GPU), and the tables made of it."""
    if kind == "cuda":
        request.getfixturevalue("cuda")
    run = scripts("run")
    monkeypatch.setattr(run, "interleaved", functools.partial(run.interleaved, warm_up=0))
    if kind == "cuda":
        text = run.MODEL.read_text("utf-8").replace("output: 500", "output: 9")
        (tmp_path / "small.yaml").write_text(text.replace("output: 50", "output: 6"))
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


# the zoo


def test_a_net_is_measured_beside_onnxruntime_and_another_checkout(tmp_path):
    """The other checkout is this one."""
    pytest.importorskip("onnxruntime")
    words = ["--quick", "--into", str(tmp_path), "--only", "logistic_regression", "--form", "numpy"]
    said = run("zoo", *words, "--with", "minicaffe", "onnxruntime", "--before", str(ROOT))
    assert "logistic_regression, infer: " in said and "of the speed before" in said
    report = json.loads((tmp_path / "zoo_cpu.json").read_text("utf-8"))
    net = report["nets"]["logistic_regression"]
    assert set(net["infer"]["ms"]) == {"minicaffe", "onnxruntime", "before"}
    assert set(net["train"]["ratios"]) == {"before"} and net["parameters"] == 7850
    assert net["infer"]["apart"]["onnxruntime"] < 1e-5 and net["train"]["apart"] == {"losses": 0.0}
    assert net["infer"]["memory"]["minicaffe"]["peak"] > 10


def test_lenets_step_is_measured_batch_by_batch(tmp_path):
    words = ["--quick", "--into", str(tmp_path), "--step", "--form", "numpy", "--batches", "1", "2"]
    run("zoo", *words, "--with", "minicaffe")
    report = json.loads((tmp_path / "lenet_step_cpu.json").read_text("utf-8"))
    assert set(report["lenet"]["numpy"]) == set(report["memory"]["numpy"]) == {"1", "2"}
    assert report["lenet"]["numpy"]["2"]["rates"]["minicaffe"]["median"] > 0
    assert report["lenet"]["numpy"]["2"]["engines"]


def test_numbers_that_are_far_apart_end_a_measurement(scripts, tmp_path):
    zoo = scripts("zoo")
    (tmp_path / "net.yaml").write_text("layers: []")
    losses = {"minicaffe": {"losses": [1.0, 0.5]}, "torch eager": {"losses": [1.0, 0.6]}}
    with pytest.raises(SystemExit, match="lenet: other losses than minicaffe's"):
        zoo.compared("lenet", "train", tmp_path, losses)
    for who, value in (("minicaffe", 1.0), ("opencv", 1.0005), ("openvino", 1.0005)):
        np.savez(tmp_path / f"{who}.npz", np.full(3, value))
    apart = zoo.compared("lenet", "infer", tmp_path, {key: {} for key in ("minicaffe", "opencv")})
    assert apart["opencv"] == pytest.approx(5e-4)
    with pytest.raises(SystemExit, match="lenet: openvino is 5.0e-04 away from minicaffe"):
        zoo.compared("lenet", "infer", tmp_path, {key: {} for key in ("minicaffe", "openvino")})


def test_the_zoo_is_measured_as_it_is(scripts):
    """Every net of models/ but the paper's variant and four of our own; to infer, without labels and losses."""
    nets, titles = scripts("nets"), scripts("measure").NETS
    of_our_own = {"lenet_paper", "digits", "segment", "small", "ssd_small"}
    assert {path.stem for path in (ROOT / "models").glob("*.yaml")} == {*titles, *of_our_own}
    from minicaffe import Net

    shapes = {"lenet": (1, 10), "mnist_autoencoder": (1, 784), "lstm": (1, 1, 128)}
    for name, shape in shapes.items():
        net = Net(nets.spec_of(name, "infer"), "TEST", device="cpu", shapes_only=True)
        assert [value.shape for value in net.graph.outputs.values()] == [shape]
        assert not net.graph.losses and "label" not in net.steps[0].layer.top
        net = Net(nets.spec_of(name, "train"), "TRAIN", device="cpu", shapes_only=True)
        assert net.graph.losses
        axis = name in nets.STREAMS
        assert {value.shape[axis] for value in net.steps[0].tops} == {8}
        arrays = nets.inputs_of(net)
        assert {key: array.shape for key, array in arrays.items()} == {
            value.name: value.shape for step in net.steps if not step.bottoms for value in step.tops
        }
    assert not arrays["cont"][0].any() and arrays["cont"][1:].all()
    assert arrays["data"].max() > 1 and (arrays["data"] % 1 == 0).all()  # codes of characters


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
  - {name: e, type: Eltwise, bottom: [cr, cr]}
  - {name: t, type: Sigmoid}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""


@pytest.mark.parametrize("name", ["small", "lstm", "mnist_siamese"])
def test_a_net_of_the_zoo_is_the_same_in_pytorch(name, scripts, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from minicaffe import parse

    nets, zoo, contenders = scripts("nets"), scripts("zoo"), scripts("contenders")
    if name == "small":
        spec = {way: nets.prepared(parse(SMALL), way, 3) for way in ("infer", "train")}
        monkeypatch.setattr(nets, "spec_of", lambda name, way, batch=None: spec[way])
    differences = zoo.gradients(name, 3)
    assert max(differences.values()) < (1e-3 if name == "mnist_siamese" else 1e-9)
    nets.write(tmp_path, name, "infer", 1, for_others=False)
    ours = contenders.minicaffe(tmp_path, "infer", "cpu", 2)
    for mode in contenders.MODES[:2]:
        one = contenders.torchs(tmp_path, "infer", "cpu", 2, mode)
        one.call()
        for mine, theirs in zip(ours.results(), one.results(), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)


# other scripts


def test_the_memory_of_inference_is_measured(scripts):
    both = [scripts("inference_memory").measure("cifar10_full", 4, way) for way in (False, True)]
    assert both[1]["blobs_mib"] < 0.8 * both[0]["blobs_mib"]
    assert all(one["loaded_mib"] <= one["peak_mib"] for one in both)


def test_the_zoo_is_compared_with_onnxruntime_blob_by_blob(scripts):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    onnx_nets = scripts("onnx_nets")
    row = onnx_nets.measured("export", "lstm")
    assert row["input"] == {"data": [1, 1], "cont": [1, 1]}
    assert row["blobs"] == 5 and row["outputs"] <= row["worst"] < 1e-5


def test_a_rung_beside_pytorch(scripts):
    pytest.importorskip("torch")
    row = scripts("ladder").rung("ResNet-50 1x1, 2048-512", 1, "cpu", 1, 1.0)
    assert max(row["error"].values()) < 1e-5
    assert row["forward"]["ms"]["torch channels_last"]["median"] > 0


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
    code = "import ladder; print(ladder.memory('AlexNet conv2', 4, 'cpu', 'minicaffe'))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*FOLDERS, ROOT)))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert least < float(done.stdout) < 40 * least


def test_photographs_are_drawn_predicted_and_counted(scripts, tmp_path, few_digits, monkeypatch):
    """Each condition, by a net that knows nothing."""
    pytest.importorskip("PIL")
    from minicaffe import Net
    from minicaffe.tools.data.digits import draw

    photos = scripts("photos")
    images, labels = draw(10, seed=2)
    drawn = photos.draw(tmp_path, images[:, None], labels, 1)
    assert sum(condition in scripts("photographs").UNSEEN for condition, _ in drawn) == 4
    (tmp_path / "net.yaml").write_text(photos.MODEL.read_text("utf-8").replace("mnist", "digits"))
    Net(str(tmp_path / "net.yaml"), "TEST", device="cpu").save(str(tmp_path / "net.npz"))
    counts = photos.count(drawn, photos.predict(tmp_path / "net.npz", drawn))
    assert list(counts) == list(dict.fromkeys(condition for condition, _ in drawn))
    assert counts["blank paper"] == {
        "pictures": 1, "right": 0, "unsure": 1, "wrong_unsaid": 0, "sure_and_wrong": 0,
    }  # fmt: skip
    text = scripts("result_tables").photos(PLACE | {"runs": {"now": {"conditions": counts}}})
    assert f"of {len(drawn)} photographs " in text
    assert text.endswith(" (P, 2 cores, 2026-11-27, 01234567)")


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
