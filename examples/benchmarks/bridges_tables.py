"""What is read of ONNX: the figures of docs/onnx-to-caffe.md."""

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "bridges.json"
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime")


def nets() -> str:
    """The nets, and the largest differences of their blobs and of OpenCV's outputs."""
    found = json.loads(RESULTS.read_text())
    rows = found["nets"]
    assert not any("refused" in row for row in rows.values())
    worst = max(rows, key=lambda name: rows[name]["worst"])
    read = {
        name: row["opencv"]["outputs"] for name, row in rows.items() if "outputs" in row["opencv"]
    }
    others = [f"`{name}` has none" for name in rows if name not in read]
    versions = ", ".join(f"{name} {found['machine'][name]}" for name in PACKAGES)
    return (
        f"{', '.join(f'`{name}`' for name in rows)}: of all blobs the largest difference is "
        f"{rows[worst]['worst']:.0e}, in `{worst}`; of OpenCV's outputs {max(read.values()):.0e}"
        f" ({'; '.join(others)}). {versions}, OpenCV {found['machine']['opencv']}."
    )


def cases() -> str:
    """The sums of the operator cases."""
    found = json.loads(RESULTS.read_text())
    every = found["cases"]
    right = sum(one["right"] for one in every.values())
    wrong = sum(len(one["wrong"]) for one in every.values())
    refused = sum(sum(one["refused"].values()) for one in every.values())
    later = sum(one["later_opset"] for one in every.values())
    return (
        f"Of {right + wrong + refused + later:,} cases of {len(every)} operators (onnx "
        f"{found['machine']['onnx']}), {right} are right, {wrong} wrong, and {refused} refused. "
        f"{later} are of an opset behind 21, which onnx's converter does not bring down."
    )
