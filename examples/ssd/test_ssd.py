"""examples/ssd: scenes are drawn with tight boxes, the small net trains, and onnxruntime finds its boxes."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from minicaffe import Detector, Net, read
from minicaffe.cli import main
from minicaffe.tools.data.datum import AnnotatedSet

pytest.importorskip("lmdb")
pytest.importorskip("PIL")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ssd"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with few scenes, and the net after few iterations."""
    folder = tmp_path_factory.mktemp("ssd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(str(EXAMPLE / "draw_scenes.py"))["draw"](Path("scenes"), 48, 10)
        for name in ("train", "test"):
            words = (
                f"--boxes scenes/{name}.txt scenes/{name}_lmdb --label-map scenes/labelmap.prototxt"
            )
            assert main(["convert-images", *words.split(), "--encoded"]) == 0
        text = (EXAMPLE / "shapes.yaml").read_text("utf-8")
        text = text.replace("batch_size: 32", "batch_size: 8").replace(
            "batch_size: 50", "batch_size: 10"
        )
        (folder / "shapes.yaml").write_text(text)
        command = ["train", "shapes.yaml", "--max-iter", "25", "--device", "cpu", "--run", "run"]
        assert main([*command, "--set", "solver.test_interval=0"]) == 0
    return folder


def test_boxes_are_as_tight_as_the_pixels(trained):
    """Of the first scenes each box's sides are where a shape begins: its class is one of three."""
    found = AnnotatedSet(trained / "scenes" / "train_lmdb", "train")
    counts = [len(found.label(i)) for i in range(len(found))]
    assert min(counts) >= 1 and max(counts) <= 4 and len(set(counts)) > 2
    labels = np.concatenate([found.label(i)[:, 0] for i in range(len(found))])
    assert set(labels) == {1, 2, 3}
    for i in range(10):
        rows = found.label(i)
        sides = rows[:, 4:6] - rows[:, 2:4]
        assert (sides > 0.1).all() and (sides <= 0.51).all()


def test_it_learns(trained, monkeypatch):
    monkeypatch.chdir(trained)
    lines = (trained / "run" / "log.jsonl").read_text("utf-8").splitlines()
    losses = [
        float(line.split('"loss": ')[1].split(",")[0].rstrip("}"))
        for line in lines
        if '"loss": ' in line
    ]
    assert losses[0] > 6
    net = Net(read("shapes.yaml"), "TRAIN", device="cpu")
    net.load(trained / "shapes_iter_25.npz")
    net.forward()
    assert float(net.blobs["mbox_loss"].data) < 0.8 * losses[0]


def test_onnxruntime_finds_the_same_boxes(trained, monkeypatch):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(trained)
    command = ["export", str(EXAMPLE / "shapes.yaml"), "--weights", "shapes_iter_25.npz"]
    assert main([*command, "--onnx", "shapes.onnx"]) == 0
    detector = Detector(EXAMPLE / "shapes.yaml", "shapes_iter_25.npz", device="cpu")
    session = runtime.InferenceSession("shapes.onnx")
    for i in range(3):
        path = f"scenes/test/{i:05d}.png"
        wanted = detector.predict(path)
        prepared, _ = detector._prepared(path)
        (rows,) = session.run(None, {"data": prepared.astype(np.float32)})
        rows = rows.reshape(-1, 7)
        rows = rows[np.argsort(-rows[:, 2], kind="stable")]
        assert len(rows) == len(wanted) > 0
        np.testing.assert_allclose(rows[:, 1:], wanted, atol=1e-4)


def test_boxes_are_in_the_report(trained, monkeypatch):
    import json
    import re

    monkeypatch.chdir(trained)
    assert main(["report", "run"]) == 0
    page = (trained / "run" / "report.html").read_text("utf-8")
    assert "report.sections.boxes" in page
    data = json.loads(
        re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1]
    )
    (found,) = [one for one in data["sections"] if one["id"] == "boxes"]
    assert len(found["data"]["shown"]) == 10
    first = found["data"]["shown"][0]
    assert first["shape"] == [96, 96] and first["true"]
    assert {box["name"] for box in first["true"]} <= {"circle", "square", "triangle"}


def test_the_published_net_has_the_published_number_of_parameters():
    net = Net(read(EXAMPLE / "ssd300.yaml"), "TEST", device="cpu", shapes_only=True)
    assert sum(param.size for param in net.graph.learnable) == 26_285_486
    shapes = {value.name: value.shape for step in net.steps for value in step.tops}
    assert shapes["mbox_priorbox"] == (1, 2, 4 * 8732)


def test_it_is_written_as_a_prototxt_and_read_again(tmp_path):
    shutil.copy(EXAMPLE / "shapes.yaml", tmp_path)
    assert main(["convert", str(tmp_path / "shapes.yaml"), str(tmp_path / "s.prototxt")]) == 0
    assert main(["convert", str(tmp_path / "s.prototxt"), str(tmp_path / "again.yaml")]) == 0
    first, again = read(EXAMPLE / "shapes.yaml"), read(tmp_path / "again.yaml")
    assert [(one.name, one.type) for one in first.layers] == [
        (o.name, o.type) for o in again.layers
    ]
