"""Layers that users wrote for Caffe's Python interface."""

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import yaml

from minicaffe._moved import Finder
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import ZERO
from minicaffe.core.layers.registry import REGISTRY, register
from minicaffe.errors import (
    LayerError,
    MinicaffeError,
    ShapeError,
    SpecError,
    did_you_mean,
    raised_at,
    reason,
)
from minicaffe.interop.pycaffe.host_blob import HostBlob, HostBlobs, PythonLayer

METHODS = ("setup", "reshape", "forward")  # and backward, if a gradient is needed
# Of py-faster-rcnn's configuration, by phase: regions before and after suppression.
TOPS = {"TRAIN": (12000, 2000), "TEST": (6000, 300)}


FOLDERS: list[str] = []  # whose modules layers may import, as the user said by --import


def modules(module: str) -> list[Any]:
    """The modules of that name that are already imported.

    A model file runs no code: a module is imported only from a folder of --import or of
    $MINICAFFE_PYTHON_LAYERS. There `import caffe` finds pycaffe. Raises SpecError for what that raises.
    """
    places = [sys.modules[n] for n in (module, f"_{module}") if n in sys.modules]
    path = Path(*module.split(".")).with_suffix(".py")
    of_path = sys.modules.get(path.stem)  # --import knows no package, only the file
    if of_path not in places and Path(_names(of_path).get("__file__") or "").match(str(path)):
        places.append(of_path)  # type: ignore[arg-type]
    main = sys.modules.get("__main__")
    if Path(getattr(main, "__file__", None) or "").stem == module:
        places.append(main)  # type: ignore[arg-type]
    by_variable = os.environ.get("MINICAFFE_PYTHON_LAYERS", "").split(os.pathsep)
    for folder in () if places else (*FOLDERS, *filter(None, by_variable)):
        own = Path(folder, *module.split("."))
        if own.with_suffix(".py").is_file() or Path(own, "__init__.py").is_file():
            Finder.finds_caffe = True
            sys.path[:] = [folder, *(path for path in sys.path if path != folder)]
            try:
                return [importlib.import_module(module)]
            except (Exception, SystemExit) as error:
                raise SpecError(raised_at(error)) from None
    return places


def find(module: str, name: str) -> type:
    """The layer class of that name in a module that is imported or may be. Raises SpecError."""
    places = modules(module)
    if not places:
        raise SpecError(
            f"module {module!r} is not imported, and a model does not import: "
            f"--import {module.replace('.', '/')}.py does, or `import {module}` before the net is built;"
            " --import FOLDER or MINICAFFE_PYTHON_LAYERS=FOLDER lets it import what lies there"
        )
    names: dict[str, Any] = {}
    for place in reversed(places):
        names |= _names(place)
    cls = names.get(name)
    if not isinstance(cls, type):
        classes = [key for key, value in names.items() if isinstance(value, type)]
        raise SpecError(f"module {module!r} has no class {name!r}{did_you_mean(name, classes)}")
    require(cls, *METHODS[: 1 if issubclass(cls, PythonLayer) else None])
    return cls


def _names(place: Any) -> dict[str, Any]:
    """What a module holds; vars() would load a lazy one."""
    with contextlib.suppress(AttributeError):  # None if an import is blocked
        return object.__getattribute__(place, "__dict__")
    return {}


def require(cls: type, *methods: str) -> None:
    """Raise SpecError for a class that lacks methods of a layer."""
    if lacks := [m for m in methods if not callable(inspect.getattr_static(cls, m, None))]:
        raise SpecError(
            f"class {cls.__name__!r} of module {cls.__module__!r} has no {' and no '.join(lacks)}: "
            "a layer has setup, reshape, forward and backward"
        )


@register
class Python(Layer):
    """A layer written for Caffe's Python interface: the class `layer` of a `module` that is already imported.

    A model never imports or runs code: the module is the calling script, one that it has imported, or a
    file named by --import. The class has setup(bottom, top), reshape(bottom, top), which also runs before each
    forward pass, forward(bottom, top) and backward(top, propagate_down, bottom). It can use `param_str`,
    `phase` (0 TRAIN, 1 TEST) and `blobs`; `blobs.add_blob(*shape)` adds a parameter in setup.
    bottom[i] and top[i] have `data` and `diff`, as NumPy arrays, `shape`, `num`, `channels`, `height`, `width`
    and `count`. top[i].reshape(*sizes) sets the shape; if it changes from one pass to the next, the
    layers above allocate again. The data of bottoms can only be read. Its base class may be
    minicaffe.pycaffe.host_blob.PythonLayer.

    The class decides the bottoms and tops; `loss_weight` makes it a loss. On CUDA it works on host copies, so
    each pass waits; in float16 and bfloat16 these are float32. Raises LayerError for an error of the class.
    If the module of Faster R-CNN's published ProposalLayer is not imported, Proposal computes what it does.
    Source: Caffe's Python.

    Example: (2, 3) -> {type: Python, module: my_layers, layer: Scaled, param_str: "2.5"} -> (2, 3)
    """

    module: Annotated[str, "the module's name, as it was imported"]
    layer: Annotated[str, "the class's name"]
    param_str: Annotated[str, "text for the class to read"] = ""
    share_in_parallel: Annotated[
        bool, "one layer for all solvers; there is one solver, so this changes nothing"
    ] = False

    traits = Traits(keeps_top=True, sizes_vary=True)
    user = None  # the object whose methods are called
    inner = cast("Layer | None", None)  # a layer here that stands for a published one in Python

    def setup(self, *bottoms: Shape) -> list[Shape]:
        if self.user is None and self.inner is None and not modules(self.module):
            self.inner = self.standing_in()
        if self.inner is not None:
            return self.inner.top_shapes(*bottoms)
        zero = self.sum_dtype.type(0)
        if self.user is not None and bottoms == tuple(blob.shape for blob in self.bottoms):
            return self.promised  # the result of the last pass
        if self.user is None:
            self.bottoms = [HostBlob(None, zero.dtype) for _ in bottoms]
            self.tops = [HostBlob(None, zero.dtype) for _ in self.top or "1"]
        for blob, shape in zip(self.bottoms, bottoms, strict=True):
            blob.reshape(*shape)
            blob.bind(data=np.broadcast_to(zero, shape), diff=None)  # which takes no memory
        if self.user is None:
            self.user = self.made()
        self.call("reshape", self.bottoms, self.tops)
        for i, blob in enumerate(self.tops):
            if not blob.is_shaped:
                said = f"neither setup nor reshape of {self.layer} calls top[{i}].reshape(...)"
                raise ShapeError(f"top {i} has no shape: {said}")
        self.promised = [blob.shape for blob in self.tops]
        return self.promised

    def standing_in(self) -> Layer | None:
        """The layer here that does what a published layer does whose module is not imported."""
        keys = stand_in(self.module, self.layer, self.param_str, self.phase)
        if keys is None or len(self.bottom) != 3:  # scores, differences, the picture's size
            return None
        inner: Layer = REGISTRY["Proposal"](**keys)
        for key in ("context", "name", "bottom", "top"):
            setattr(inner, key, getattr(self, key))
        self.traits = inner.traits
        self.context.tell(
            f"{self.name}: {self.module} is not imported: Proposal does what {self.layer} does, with the "
            "settings of its authors"
        )
        return inner

    def made(self) -> Any:
        """The user's object, after its setup."""
        self.added: list[tuple[Param, HostBlob]] = []
        cls = find(self.module, self.layer)
        user = self.guarded(cls, *([None] if issubclass(cls, PythonLayer) else []))
        user.param_str = user.param_str_ = self.param_str
        user.phase = int(self.phase == "TEST")
        user.blobs = HostBlobs(self.add_blob)
        self.open = True
        self.guarded(user.setup, self.bottoms, self.tops)
        require(cls, *METHODS)  # of one that has Caffe's base: what setup raises comes first
        self.open, self.fresh = False, True
        return user

    def add_blob(self, *shape: Any) -> HostBlob:
        """A parameter, as the user's object sees it."""
        if not self.open:
            raise ShapeError("blobs.add_blob is for setup: parameters stay as many as they are")
        blob = HostBlob(None, self.sum_dtype)
        blob.reshape(*shape)
        self.added.append((self.param(blob.shape, ZERO), blob))
        return blob

    def allocate(self) -> None:
        if self.inner is not None:
            self.inner.runs_backward, self.inner.out = self.runs_backward, self.out
            return self.inner.allocate()
        for param, blob in self.added:
            values = blob.given("data")
            if self.fresh and values is not None and param.owner is param:
                param.load(values)
            blob.bind(data=self.host(param.data))
        self.fresh = False
        self.given = list(self.out)  # until the user's object reshapes the tops
        for blob, top in zip(self.tops, self.given, strict=True):
            blob.reshape(*top.shape)
            blob.bind(data=self.host(top), diff=None)

    def show(self, *xs: Any) -> None:
        """Show the current bottoms and parameters to the user's object."""
        for blob, x in zip(self.bottoms, xs, strict=True):
            seen = self.host(x).view()
            seen.flags.writeable = False
            blob.bind(data=seen)
        for param, blob in self.added:
            blob.bind(data=self.host(param.data) if param.master is None else param.to_host())

    def forward(self, *xs: Any) -> Any:
        if self.inner is not None:
            self.inner.out = self.out
            return self.inner.forward(*xs)
        self.show(*xs)
        self.call("reshape", self.bottoms, self.tops)
        self.call("forward", self.bottoms, self.tops)
        for i, (blob, top) in enumerate(zip(self.tops, self.given, strict=True)):
            if blob.shape != top.shape:
                self.given[i] = top = self.context.device.asarray(blob.data, top.dtype)
                blob.bind(data=self.host(top))
            self.back(blob.data, top)
        for param, blob in self.added:
            if blob.data is not param.data:
                param.load(blob.data)
        return self.given

    def backward(self, *dys: Any) -> Any:
        if getattr(self.user, "backward", None) is None:
            raise LayerError(f"{self.layer} has no backward, and its gradient is wanted")
        for blob, dy in zip(self.tops, dys, strict=True):
            blob.bind(diff=self.host(dy))
        for blob, dx in zip(self.bottoms, self.grad, strict=True):
            if dx is not None:
                dx.fill(0)
            blob.bind(diff=None if dx is None else self.host(dx))
        for param, blob in self.added:
            blob.bind(diff=self.host(param.diff))
        self.call("backward", self.tops, list(self.needs_gradient), self.bottoms)
        for blob, dx in zip(self.bottoms, self.grad, strict=True):
            if dx is not None:
                self.back(blob.diff, dx)
        for param, blob in self.added:
            self.back(blob.diff, param.diff)
        return self.grad

    def host(self, array: Any) -> Any:
        """The NumPy form of an array: itself on the CPU, else a copy."""
        host = self.context.device.to_host(array)
        return host.astype(np.float32) if host.itemsize == 2 else host

    def back(self, host: Any, array: Any) -> None:
        """Copy `host(array)` back to the array."""
        if host is not array:
            self.context.device.copy_from_host(array, host)

    def call(self, method: str, *args: Any) -> None:
        self.guarded(getattr(self.user, method), *args)

    def guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the user's. Raises LayerError with the place of the error that it raises."""
        try:
            return function(*args)
        except MinicaffeError:
            raise
        except Exception as error:
            raise LayerError(raised_at(error)) from error


def stand_in(module: str, name: str, param_str: str, phase: str) -> dict[str, Any] | None:
    """The keys of the Proposal that does what a published layer in Python does; None of another layer.

    That is rpn.proposal_layer, ProposalLayer, with the settings of py-faster-rcnn as published (16 pixels at
    least, overlap 0.7). Raises SpecError for a param_str that they cannot be made of.

    >>> stand_in("rpn.proposal_layer", "ProposalLayer", "'feat_stride': 16", "TEST")["scale"]
    (8.0, 16.0, 32.0)
    """
    if name != "ProposalLayer" or module not in ("rpn.proposal_layer", "pylayer.proposal_layer"):
        return None
    try:
        settings = yaml.safe_load(re.sub(r"!!python/tuple\s*", "", param_str)) or {}
        before, after = TOPS[phase]
        return {
            "feat_stride": int(settings["feat_stride"]),
            "ratio": tuple(map(float, settings.get("ratios", (0.5, 1, 2)))),
            "scale": tuple(map(float, settings.get("scales", (8, 16, 32)))),
            "pre_nms_topn": before,
            "post_nms_topn": after,
        }
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"expected 'feat_stride': 16 and the like: {reason(error)}"
        raise SpecError(f"param_str: {problem}") from None
