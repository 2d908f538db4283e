"""How far onnxruntime is from minicaffe in the nets of models/: the table of docs/export.md."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables

RESULTS = Path(__file__).resolve().parent / "results" / "zoo_onnx.json"
HEAD = ("net", "parameters", "nodes", "file", "outputs", "of all blobs the farthest")
EXACT = "there from float64: minicaffe, onnxruntime"


def differences() -> str:
    """A row a net: its outputs, its worst blob, and, where that is measured, both there beside float64."""
    found = json.loads(RESULTS.read_text())
    rows = [
        [
            f"`{name}`",
            f"{told['parameters']:,}",
            str(told["nodes"]),
            f"{told['mib']:.1f} MiB",
            f"{told['outputs']:.1e}",
            f"{told['worst']:.1e} in `{told['blob']}`",
            ", ".join(f"{apart:.1e}" for apart in told.get("from_float64", {}).values()),
        ]
        for name, told in found["nets"].items()
    ]
    version = found["machine"]["onnxruntime"]
    return tables.lay_out([*HEAD, EXACT], rows) + f"\n\nonnxruntime {version}."
