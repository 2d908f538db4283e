"""The built-in layers, registered by this import, and those of plugins.LAYERS and, by name, plugins.FORKS."""

import importlib
import pkgutil

from minicaffe.core import plugins
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Blob, Param
from minicaffe.core.layers.context import Context
from minicaffe.core.layers.registry import REGISTRY, register

__all__ = ["REGISTRY", "Blob", "Context", "Layer", "Param", "Traits", "register"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
for _module in plugins.LAYERS:
    importlib.import_module(_module)
for _type, _module in plugins.FORKS.items():
    REGISTRY.setdefault(_type, _module)
