"""The built-in layers, one family per file; importing this package registers all of them."""

import importlib
import pkgutil

from minicaffe.layers.base import REGISTRY, Layer, Traits, register
from minicaffe.layers.blob import Blob, Param
from minicaffe.layers.context import Context

__all__ = ["REGISTRY", "Blob", "Context", "Layer", "Param", "Traits", "register"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
