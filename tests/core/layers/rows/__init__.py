"""The contract table: of each layer type, rows of (its keys, its bottoms as gradcheck takes them).

One module a family of layers, with ROWS and, for layers without a gradient, WITHOUT_GRADIENT. A bottom is a
shape, filled at random, or an array, such as labels. Keys are as YAML gives them; `top` among them names the
tops of a layer that has not just one. OWN_GRADIENT names types whose gradient is by their authors' definition
no derivative: tests of their own compare it with that definition.
"""

import importlib
import pkgutil
from typing import Any

import numpy as np

ROWS: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {}
WITHOUT_GRADIENT: set[str] = set()
OWN_GRADIENT: set[str] = set()
for _module in pkgutil.iter_modules(__path__):
    _rows = importlib.import_module(f"{__name__}.{_module.name}")
    ROWS |= _rows.ROWS
    WITHOUT_GRADIENT |= getattr(_rows, "WITHOUT_GRADIENT", set())
    OWN_GRADIENT |= getattr(_rows, "OWN_GRADIENT", set())


def net_of(name: str, keys: dict[str, Any], bottoms: list[Any]) -> str:
    """A row's layer `it` in a net, as YAML: each of its tops is read twice and made a loss."""
    options = {k: list(given) if isinstance(given, tuple) else given for k, given in keys.items()}
    options.setdefault("top", ["it"])
    inputs = ", ".join(f"b{i}" for i in range(len(bottoms)))
    dims = [list(b if isinstance(b, tuple) else np.shape(b)) for b in bottoms]
    shapes = ", ".join(f"{{dim: {dim}}}" for dim in dims)
    lines = [
        "force_backward: true",
        "layers:",
        f"  - {{name: data, type: Input, top: [{inputs}], shape: [{shapes}]}}",
        f"  - {{name: it, type: {name}, bottom: [{inputs}], {str(options)[1:-1]}}}",
    ]
    for top in options["top"]:
        keys_of_loss = "operation: PROD, loss_weight: 0.5"
        lines.append(
            f"  - {{name: twice {top}, type: Eltwise, bottom: [{top}, {top}], {keys_of_loss}}}"
        )
    return "\n".join(lines).replace("True", "true").replace("False", "false")
