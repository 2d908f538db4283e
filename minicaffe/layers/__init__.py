"""The built-in layers, a family a file; importing this package registers those of every file in it."""

import importlib
import pkgutil

from minicaffe.layers.base import REGISTRY, Layer, Traits, register
from minicaffe.layers.blob import Blob, Param
from minicaffe.layers.context import Context

__all__ = ["REGISTRY", "Blob", "Context", "Layer", "Param", "Traits", "register"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
