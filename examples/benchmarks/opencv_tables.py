"""How far OpenCV and onnxruntime are from minicaffe in nets of Caffe's: docs/after-opencv-5.md shows it."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables

EXAMPLES = Path(__file__).resolve().parent.parent
SMALL, OTHERS = EXAMPLES / "after_opencv_5" / "results", EXAMPLES / "caffe_models" / "results"
NAMES = {"detect": "WeChat's `detect`", "sr": "WeChat's `sr`", "resnet": "the ResNet"}


def read(path: Path) -> dict:
    """A result file."""
    return json.loads(path.read_text())


def differences() -> str:
    """The largest difference of each reader from minicaffe, a row a net; which versions they were."""
    four, five = (read(SMALL / f"opencv_{major}.json") for major in (4, 5))
    onnx, caffe = (read(OTHERS / f"{name}.json") for name in ("onnx", "cpu"))
    rows = []
    for name, told in five["nets"].items():
        runs = [(told["runs"], "onnxruntime"), (told["runs"], "opencv")]
        runs.append((four["nets"][name]["runs"], "opencv"))
        worst = [max(run[who] for run in some) for some, who in runs]
        rows.append([f"`{name}.prototxt`", *map(shown, worst)])
    for name, told in onnx["models"].items():
        worst = [*told["worst"].values(), caffe["models"][name]["difference"]]
        rows.append([NAMES[name], *map(shown, worst)])
    versions = [machine["opencv"] for machine in (five["machine"], caffe["machine"])]
    head = ["net", f"onnxruntime {onnx['machine']['onnxruntime']}"]
    head += [f"OpenCV {version}" for version in versions]
    return tables.lay_out(head, rows)


def shown(value: float) -> str:
    """A difference in two digits."""
    return f"{value:.1e}"
