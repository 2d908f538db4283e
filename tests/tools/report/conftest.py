"""A run folder made by hand: a small net of random weights on a few pictures, a log of given lines."""

import json
from pathlib import Path

import browser
import numpy as np
import pytest

from minicaffe import Net, read
from minicaffe.tools.data import idx
from minicaffe.tools.data.fetch import FILES

MODEL = """\
name: Small
layers:
  - {name: data, type: Data, top: [data, label], source: SOURCE, batch_size: 8, transform: {scale: 0.0039}}
  - {name: conv1, type: Convolution, bottom: data, num_output: 4, kernel_size: 3}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: {type: gaussian, std: 0.5}}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, max_iter: 100, test_iter: 4, test_interval: 50}
"""


def log(count: int = 7) -> list[dict]:
    """Lines as a run writes them: training every 10 iterations, a test every 30, events."""
    lines: list[dict] = [{"kind": "event", "iteration": 0, "seconds": 0.0, "text": "started"}]
    for i in range(count):
        if i % 3 == 0:
            lines.append(
                {
                    "kind": "test",
                    "iteration": 10 * i,
                    "epoch": i / 2,
                    "seconds": i / 1,
                    "outputs": {"accuracy": 0.3 + i / 100, "loss": 1.5 - i / 50},
                }
            )
        line = {
            "kind": "train",
            "iteration": 10 * i,
            "epoch": i / 2,
            "seconds": 1.1 * i,
            "loss": 2.0 - i / 10,
        }
        line |= {
            "outputs": {"loss": 2.0 - i / 9},
            "lr": 0.01,
            "images_per_s": None if i == 0 else 900.0 + i,
        }
        line |= {"memory_mib": 100.0, "gradient_norm": 1.0 + i, "weight_norm": 3.0}
        lines.append(line)
    return lines


@pytest.fixture(scope="session")
def chromium():
    """A browser for all tests."""
    started = browser.start()
    yield started
    started.close()


@pytest.fixture
def make_run(tmp_path):
    """Makes a run folder: make_run("name", lines=..., change={old: new in the model}, **keys of run.json)."""
    rng = np.random.default_rng(1)
    source = tmp_path / "pictures"
    source.mkdir()
    for split, count in (("train", 16), ("t10k", 21)):
        images, labels = (name for name in FILES if name.startswith(split))
        idx.write(source / images, rng.integers(0, 256, (count, 8, 8), dtype=np.uint8))
        idx.write(source / labels, rng.integers(0, 3, count).astype(np.uint8))

    def make(
        name: str = "a-run", lines: list | None = None, change: dict | None = None, **about
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        text = MODEL.replace("SOURCE", str(source))
        for old, new in (change or {}).items():
            assert old in text
            text = text.replace(old, new)
        (folder / "model.yaml").write_text(text)
        known = {
            "name": "small",
            "command": ["minicaffe", "train", "small.yaml"],
            "model": "small.yaml",
            "cwd": str(tmp_path),
            "imports": [],
            "started": "2026-11-22T12:00:00+00:00",
            "state": "finished",
            "iteration": 60,
            "snapshot_prefix": "small",
            "device": "cpu",
            "seed": 1,
        }
        (folder / "run.json").write_text(json.dumps({**known, **about}))
        lines = log() if lines is None else lines
        snapshot = folder / "small_iter_70.npz"
        lines = [
            *lines,
            {
                "kind": "snapshot",
                "iteration": 70,
                "seconds": 8.0,
                "path": snapshot.name,
                "best": False,
            },
        ]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        net = Net(read(folder / "model.yaml"), "TRAIN", device="cpu", seed=5, deterministic=True)
        net.save(snapshot)
        return folder

    return make
