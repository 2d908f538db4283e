"""The built-in layers, a family a file; importing this package registers those of every file in it.

And those of the rooms around the core that have layers, too: outer.LAYERS.
"""

import importlib
import pkgutil

from minicaffe import outer
from minicaffe.layers.base import REGISTRY, Layer, Traits, register
from minicaffe.layers.blob import Blob, Param
from minicaffe.layers.context import Context

__all__ = ["REGISTRY", "Blob", "Context", "Layer", "Param", "Traits", "register"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
for _module in outer.LAYERS:
    importlib.import_module(_module)
