"""The contract table: of each layer type, rows of (its keys, its bottoms as gradcheck takes them).

One module a family of layers, with ROWS and, for layers without a gradient, WITHOUT_GRADIENT. A bottom is
a shape, filled at random, or an array, such as labels. Among the keys, `top` names the tops of a layer that
must have several, the first `it`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

ROWS: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {}
WITHOUT_GRADIENT: set[str] = set()
for _module in pkgutil.iter_modules(__path__):
    _rows = importlib.import_module(f"{__name__}.{_module.name}")
    ROWS |= _rows.ROWS
    WITHOUT_GRADIENT |= getattr(_rows, "WITHOUT_GRADIENT", set())
