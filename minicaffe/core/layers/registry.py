"""The register of all layer classes, by the names of their types."""

import importlib
from collections import UserDict
from dataclasses import dataclass
from typing import Any, TypeVar

from minicaffe.core.config.declare import LayerSpec
from minicaffe.core.config.types import json_schema, keys_of
from minicaffe.core.layers.base import Layer, Traits, check_traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.plugins import FORKS
from minicaffe.errors import ShapeError, SpecError


class Registry(UserDict[str, Any]):
    """Layer classes by the names of their types; a fork's module stands for a class not imported yet."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], str):
            importlib.import_module(self.data[name])  # which registers the type
        return self.data[name]

    def add(self, cls: type) -> None:
        """Register a class, in a fork's place if it is a user's. Raises SpecError if its name is taken."""
        other = self.data.get(cls.__name__)
        if isinstance(other, type) and other.__module__ != cls.__module__:
            of_forks = set(FORKS.values())
            if cls.__module__ in of_forks:
                return  # the user's class stays
            if other.__module__ not in of_forks:
                problem = f"{other.__module__} has a layer of that name"
                raise SpecError(f"layer {cls.__name__}: {problem}")
        self.data[cls.__name__] = cls


REGISTRY = Registry()
L = TypeVar("L", bound="type[Layer]")


def register(cls: L) -> L:
    """Register a layer class under its name; its annotated fields become its YAML keys.

    A class of one's own takes the place of a fork's layer of its name. Raises SpecError if the class is no
    Layer, if another module has a layer of its name, if a field has a name that every layer has or a type
    that YAML cannot hold, or if a trait is declared outside `traits`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Layer)):
        raise SpecError(f"register: {getattr(cls, '__name__', cls)} is no subclass of Layer")
    doc = cls.__doc__
    dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)
    cls.__doc__ = doc  # a dataclass without a docstring would take its signature
    if not cls.__module__.startswith("minicaffe."):  # the tests check those
        check_traits(cls)
        check_keys(cls)
    REGISTRY.add(cls)
    return cls


def check_keys(cls: type[Layer]) -> None:
    """Raise SpecError if a layer's key has a name that every layer has, or a type that YAML cannot hold."""
    taken = {*keys_of(LayerSpec), *Layer.__annotations__, *Traits.__annotations__}
    for key in keys_of(cls).values():  # type: ignore[arg-type]
        if key.name in taken or hasattr(Layer, key.name):
            raise SpecError(f"layer {cls.__name__}: the key {key.name!r} is taken by every layer")
        try:
            json_schema(key.type, lambda kind: {})
        except KeyError:
            problem = f"the key {key.name!r} is of a type YAML cannot give: {key.type}"
            raise SpecError(f"layer {cls.__name__}: {problem}") from None


class Unknown(Layer):
    """A layer of an unknown type: its keys are what the file has, as they are."""

    def setup(self, *bottoms: Shape) -> list[Shape]:
        """Raise ShapeError: what it writes is not known."""
        raise ShapeError(f"the type {type(self).__name__} is not known: --import FILE registers it")
