"""One HTML file out of data, scripts and a style sheet; it asks for nothing else."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

SCRIPTS = (
    *("page.js", "header.js", "charts.js", "controls.js", "tables.js", "pictures.js", "boxes.js"),
    *("try_layers.js", "try_net.js", "try_prepare.js", "try.js"),
)
STYLES = ("page.css", "try.css")


def html(data: dict[str, Any]) -> str:
    """The page that shows `data`."""
    text = _file("page.html")
    scripts = "\n".join(_file(name) for name in SCRIPTS)
    styles = "\n".join(_file(name) for name in STYLES)
    for mark, part in (("STYLE", styles), ("SCRIPT", scripts), ("DATA", as_json(data))):
        text = text.replace(f"<!--{mark}-->", part, 1)
    return text


def as_json(data: Any) -> str:
    """Strict JSON in which nothing ends a <script> or begins a comment; what is no finite number is null.

    >>> as_json({"</script>": float("nan")})
    '{"\\\\u003c/script\\\\u003e":null}'
    """
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _file(name: str) -> str:
    return (resources.files("minicaffe.tools.report") / name).read_text(encoding="utf-8")
