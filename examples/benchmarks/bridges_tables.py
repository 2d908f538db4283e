"""What is read of ONNX: the tables of docs/onnx-to-caffe.md."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables

from minicaffe.bridges.operators import rows

RESULTS = Path(__file__).resolve().parent / "results" / "bridges.json"
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime")
REASONS = 3  # of an operator's refusals, the commonest


def nets() -> str:
    """A row a net: its size, what was compared, the largest difference, and that of OpenCV's outputs."""
    found = json.loads(RESULTS.read_text())
    opencv = found["machine"]["opencv"]
    head = ["net", "input", "nodes", "layers", "parameters", "blobs compared", "largest difference"]
    lines = []
    for name, told in found["nets"].items():
        row = [f"`{name}`", " x ".join(map(str, told["input"]))]
        if "refused" in told:
            lines.append([*row, "", "", "", "", f"refused: {told['refused']}", ""])
            continue
        row += [f"{told[key]:,}" for key in ("nodes", "layers", "parameters", "blobs")]
        row.append(f"{told['worst']:.0e} in `{told['layer']}`")
        other = told.get("opencv", {})
        row.append(f"{other['outputs']:.0e}" if "outputs" in other else other.get("refused", ""))
        lines.append(row)
    versions = ", ".join(f"{name} {found['machine'][name]}" for name in PACKAGES)
    return tables.lay_out([*head, f"OpenCV {opencv}"], lines) + f"\n\n{versions}."


def cases() -> str:
    """The sums of the operator cases, then a row for each operator that is read."""
    found = json.loads(RESULTS.read_text())
    every = found["cases"]
    right = sum(one["right"] for one in every.values())
    wrong = sum(len(one["wrong"]) for one in every.values())
    refused = sum(sum(one["refused"].values()) for one in every.values())
    later = sum(one["later_opset"] for one in every.values())
    readers = dict(read())
    unread = [kind for kind in every if kind not in readers]
    lines = [
        [
            f"`{kind}`",
            str(one["right"]),
            str(sum(one["refused"].values())),
            str(one["later_opset"]),
            "; ".join(_reasons(one["refused"])),
        ]
        for kind, one in every.items()
        if kind not in unread
    ]
    head = ["operator", "right", "refused", "later opset", "refused for"]
    return (
        f"Of {right + wrong + refused + later:,} cases of {len(every)} operators (onnx "
        f"{found['machine']['onnx']}), {right} are right, {wrong} wrong, and {refused} refused. "
        f"{later} are of an opset behind 21, which onnx's converter does not bring down. "
        f"{len(unread)} operators that no layer says are left out here: of these, those cases are right "
        "that have no input, or whose outputs depend on its shape alone.\n\n"
    ) + tables.lay_out(head, lines)


def _reasons(refused: dict[str, int]) -> list[str]:
    """The commonest reasons, of which the others are a number."""
    reasons = [reason.replace("|", "\\|") for reason in refused]
    more = len(reasons) - REASONS
    return [*reasons[:REASONS], *([f"{more} more"] if more > 0 else [])]


def read() -> list[tuple[str, str]]:
    """The operators that are read, and what each becomes."""
    return [row for row in rows() if not row[1].startswith("refused: ")]


def operators() -> str:
    """A row an operator that is read, then one for each reason of refusal."""
    lines = [[f"`{kind}`", what.replace("|", "\\|")] for kind, what in read()]
    refused: dict[str, list[str]] = {}
    for kind, what in rows()[len(lines) :]:
        refused.setdefault(what.removeprefix("refused: "), []).append(f"`{kind}`")
    table = tables.lay_out(["operator", "becomes"], lines)
    because = [[", ".join(kinds), why] for why, kinds in refused.items()]
    return f"{table}\n\n{tables.lay_out(['refused', 'because'], because)}".replace("--:", "---")
