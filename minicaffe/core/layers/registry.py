"""The register of layer types. Those of Caffe's forks are imported when one of them is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any

from minicaffe.core.plugins import FORKS
from minicaffe.errors import SpecError


class Registry(MutableMapping[str, Any]):
    """Layer classes by the names of their types; a module's name stands for a class not imported yet."""

    def __init__(self) -> None:
        self._types: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if isinstance(self._types[name], str):
            importlib.import_module(self._types[name])  # which registers the type
        return self._types[name]

    def __setitem__(self, name: str, kind: Any) -> None:
        self._types[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._types[name]

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def add(self, cls: type) -> None:
        """Register a class, in a fork's place if it is a user's. Raises SpecError if its name is taken."""
        there = self._types.get(cls.__name__)
        if isinstance(there, type) and there.__module__ != cls.__module__:
            of_forks = set(FORKS.values())
            if cls.__module__ in of_forks:
                return  # the user's class stays
            if there.__module__ not in of_forks:
                raise SpecError(
                    f"layer {cls.__name__}: {there.__module__} has a layer of that name"
                )
        self._types[cls.__name__] = cls
