"""docs/export.md: its blob is OpenCV's, its nets give OpenCV's numbers, the result files say what it shows."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "after_opencv_5"
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


@pytest.fixture
def blob_from_image():
    """The function of the page."""
    (code,) = [
        text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "def blob" in text
    ]
    found = {}
    exec("import numpy as np\nfrom minicaffe.tools.data.augment import bilinear\n" + code, found)
    return found["blob_from_image"]


@pytest.mark.parametrize("shape", [(120, 160, 3), (33, 57, 3), (57, 33, 1), (64, 48, 3)])
def test_the_pages_blob_is_opencvs(blob_from_image, shape):
    cv2 = pytest.importorskip("cv2")
    picture = np.random.default_rng(2).integers(0, 256, shape, np.uint8)
    mean, size = (104, 117.5, 123)[: shape[2]], (32, 24)
    for more in ({}, {"swapRB": shape[2] == 3}, {"crop": True}, {"scalefactor": 1 / 255}):
        given = {"mean": mean, "size": size} | more
        wanted = cv2.dnn.blobFromImage(picture, **given)
        ours = blob_from_image(picture, **given)
        assert ours.dtype == wanted.dtype == np.float32 and ours.shape == wanted.shape
        if "scalefactor" in more:
            assert np.allclose(ours, wanted, rtol=1e-6, atol=1e-7)
        else:
            assert np.array_equal(ours, wanted)
    assert np.array_equal(blob_from_image(picture), cv2.dnn.blobFromImage(picture))


def test_the_pages_blob_without_opencv(blob_from_image):
    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    blob = blob_from_image(picture, 0.5, (2, 1), (1, 2, 3), swapRB=True)
    means = picture.reshape(1, 2, 2, 2, 3).transpose(0, 2, 1, 3, 4).mean(axis=(2, 3))  # of four
    wanted = (np.floor(means + 0.5)[0, :, ::-1].T - np.array([[1], [2], [3]])) * 0.5
    assert blob.shape == (1, 3, 1, 2) and np.array_equal(blob[0, :, 0], wanted)


@pytest.mark.parametrize("name", ["classifier", "faces", "pose", "colour"])
def test_a_net_of_the_page_gives_opencvs_numbers(name, monkeypatch, tmp_path):
    """OpenCV 4 reads the Caffe files, OpenCV 5 the ONNX file, onnxruntime too."""
    for package in ("onnx", "onnxruntime", "cv2"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(FOLDER))
    compare = importlib.import_module("compare")
    try:
        told = compare.compared(name, tmp_path)
    finally:
        for module in ("compare", "machine", "measure"):
            sys.modules.pop(module, None)
    assert len(told["runs"]) == 2
    for run in told["runs"]:
        assert 0 <= run["onnxruntime"] < compare.TOLERANCE
        assert 0 <= run["opencv"] < compare.TOLERANCE


@pytest.mark.parametrize("major", [4, 5])
def test_the_result_files_tell_of_agreement(major):
    told = json.loads((FOLDER / "results" / f"opencv_{major}.json").read_text("utf-8"))
    assert told["machine"]["opencv"].startswith(f"{major}.") and told["tolerance"] == 1e-4
    assert set(told["nets"]) == {path.stem for path in FOLDER.glob("*.prototxt")}
    for net in told["nets"].values():
        assert len({tuple(run["shape"]) for run in net["runs"]}) == 2
        assert all(run[who] < 1e-4 for run in net["runs"] for who in ("opencv", "onnxruntime"))
