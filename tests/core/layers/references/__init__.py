"""What each layer computes: a plain function of its name, slow and in float64, that calls nothing of minicaffe.

One module a family, as in rows/. A function is given the layer - its keys by name with their defaults, `params`,
`train`, `passes`, the `stream` of numbers that it draws, and what it keeps itself from pass to pass - and the
bottoms; it gives the top, or the tops. A function `<name>_gradient` takes the tops' gradients before the bottoms
and gives those of the bottoms and of the parameters, with None for what has none: types have one whose gradient
is by their authors' definition no derivative, or that of the first where several are largest.

DRAWN holds random cases: of a type, what draws one and how many. A function may say which rows it `takes`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from types import FunctionType
from typing import Any

from core.layers.references.draws import DRAWN as DRAWN

REFERENCES: dict[str, Callable[..., Any]] = {}
for _module in pkgutil.iter_modules(__path__):
    _all = vars(importlib.import_module(f"{__name__}.{_module.name}"))
    _own = {name: one for name, one in _all.items() if isinstance(one, FunctionType)}
    REFERENCES |= {name: one for name, one in _own.items() if name[0].isupper()}
GRADIENTS = {
    name.removesuffix("_gradient"): REFERENCES.pop(name)
    for name in [*REFERENCES]
    if name.endswith("_gradient")
}
