"""Pictures of nets as Caffe draws them, by Graphviz's program `dot`; as DOT itself without it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from minicaffe.errors import MinicaffeError, SpecError
from minicaffe.interop.pycaffe.dot import (
    choose_color_by_layertype,
    get_dot,
    get_edge_label,
    get_layer_label,
)
from minicaffe.storage import checkpoint

__all__ = [
    "choose_color_by_layertype",
    "draw_net",
    "draw_net_to_file",
    "get_dot",
    "get_edge_label",
    "get_layer_label",
]
TEXT = ("dot", "gv", "raw")  # the endings of DOT itself


def draw_net(
    caffe_net: Any,
    rankdir: str = "LR",
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """The picture of a NetParameter in the format `ext`: dot, gv, or one that the program `dot` draws.

    Of the layers of one `phase`, if it is given; `display_lrm` shows the multipliers of their rates. Raises
    MinicaffeError without the program, and for what cannot be drawn.
    """
    text = get_dot(caffe_net, rankdir, phase=phase, display_lrm=display_lrm).encode()
    if ext in TEXT:
        return text
    if not ext.isalnum():
        raise SpecError(f"expected the format of a picture, such as png or dot, got {ext!r}")
    program = shutil.which("dot")
    if program is None:
        raise MinicaffeError(
            f"a picture as .{ext} needs Graphviz's program `dot`, not found here; .dot and .gv need nothing"
        )
    made = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True)
    if made.returncode != 0:
        said = " ".join(made.stderr.decode(errors="replace").split())
        raise MinicaffeError(f"`dot` does not draw this as .{ext}: {said[:200]}")
    return made.stdout


def draw_net_to_file(
    caffe_net: Any,
    filename: str | Path,
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write such a picture to a file; its ending is the format."""
    ext = Path(filename).suffix[1:].lower()
    picture = draw_net(caffe_net, rankdir, ext, phase, display_lrm)
    checkpoint.replace(filename, lambda file: file.write(picture))
