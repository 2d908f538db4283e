"""From a YAML tree to the declarations of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe.errors import SpecError, did_you_mean
from minicaffe.spec import mapping, tree
from minicaffe.spec.declare import LayerSpec, NetSpec, SolverSpec
from minicaffe.spec.settings import replaced
from minicaffe.spec.tree import Node, shown
from minicaffe.spec.types import Key, convert, keys_of, values


def read_model(
    source: str | Path | Mapping[str, Any],
    layer_types: Mapping[str, type],
    settings: Sequence[str] = (),
) -> NetSpec:
    """The model in a YAML file or a mapping, its keys replaced by `settings`, each `PATH=VALUE`.

    `layer_types` are the known layers. Raises SpecError.
    """
    if isinstance(source, Mapping):
        root, path = mapping.tree(source), None
    else:
        root, path = tree.read(source), Path(source)
    for setting in settings:
        root = replaced(root, setting, layer_types)
    return model(root, layer_types, path)


def parse_model(
    text: str | Mapping[str, Any], layer_types: Mapping[str, type], file: str | None = None
) -> NetSpec:
    """The model in a YAML text or a mapping; errors call it `file`. Raises SpecError."""
    if isinstance(text, Mapping):
        root = mapping.tree(text, file or "<mapping>")
    else:
        root = tree.parse(text, file or "<text>")
    return model(root, layer_types)


def model(root: Node, layer_types: Mapping[str, type], path: Path | None = None) -> NetSpec:
    """The model that a YAML tree declares."""
    if root.value is None:
        raise SpecError(f"{root.mark}: is empty; expected a mapping with 'name' and 'layers'")
    layers = Key("layers", tuple[Node, ...], dataclasses.MISSING, "the list of layers")
    solver = Key("solver", Node, None, "how the net is trained")
    given = values(root, {**keys_of(NetSpec), "layers": layers, "solver": solver}, "")
    if not given["layers"]:
        raise SpecError(f"{root.value['layers'].mark}: layers: expected at least one layer")
    given["layers"] = tuple(
        _layer(node, f"layer {number}", layer_types)
        for number, node in enumerate(given["layers"], 1)
    )
    if "solver" in given:
        given["solver"] = _solver(given["solver"])
    return NetSpec(**given, path=path)


def with_settings(solver: SolverSpec, settings: Mapping[str, Any]) -> SolverSpec:
    """A solver with some keys replaced, checked as in a model file. Raises SpecError."""
    merged = {key: getattr(solver, key) for key in keys_of(SolverSpec)} | dict(settings)
    try:
        return _solver(mapping.tree(merged, "Solver"))
    except SpecError as error:
        _, _, told = str(error).partition(": ")  # without the place: the key is told as well
        raise SpecError(told) from None


def _layer(node: Node, what: str, layer_types: Mapping[str, type]) -> LayerSpec:
    if not isinstance(node.value, dict):
        raise SpecError(f"{node.mark}: {what}: expected a mapping, got {shown(node.value)}")
    name = node.value.get("name", Node(None, node.mark)).value
    what = f"layer {shown(name)}" if isinstance(name, str) else what
    if "type" not in node.value:
        raise SpecError(f"{node.mark}: {what}: missing key 'type' (the layer's class)")
    kind = convert(node.value["type"], str, f"{what}: type")
    if kind not in layer_types:
        hint = did_you_mean(kind, layer_types) or "; see minicaffe layers, or --import FILE"
        raise SpecError(f"{node.value['type'].mark}: {what}: unknown type {shown(kind)}{hint}")
    what, own = f"{what} ({kind})", keys_of(layer_types[kind])
    given = values(node, {**keys_of(LayerSpec), **own}, what)
    if given["name"].startswith("@"):
        mark = node.value["name"].mark
        raise SpecError(f"{mark}: {what}: name: expected text not led by '@', got {shown(name)}")
    if given.get("include") and given.get("exclude"):
        raise SpecError(f"{node.keys['exclude']}: {what}: give either include or exclude, not both")
    options = {key: given.pop(key) for key in own if key in given}
    return LayerSpec(**given, options=options, mark=node.mark, nodes=node.value)


POLICY_NEEDS = {
    "fixed": (),
    "step": ("gamma", "stepsize"),
    "multistep": ("gamma", "stepvalue"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "poly": ("power",),
    "sigmoid": ("gamma", "stepsize"),
}


def _solver(node: Node) -> SolverSpec:
    solver = SolverSpec(**values(node, keys_of(SolverSpec), "solver"), mark=node.mark)

    def wrong(key: str, why: str) -> SpecError:
        return SpecError(
            f"{node.value[key].mark if key in node.value else node.mark}: solver: {why}"
        )

    for key in POLICY_NEEDS[solver.lr_policy]:
        if getattr(solver, key) in (None, ()):
            raise wrong("lr_policy", f"lr_policy {solver.lr_policy!r} needs the key {key!r}")
    if solver.gamma is not None and solver.gamma < 0 and solver.lr_policy != "sigmoid":
        raise wrong("gamma", f"gamma: expected at least 0, got {solver.gamma}")
    if list(solver.stepvalue) != sorted(set(solver.stepvalue)):
        raise wrong("stepvalue", "stepvalue: expected rising iterations")
    if solver.clip_gradients <= 0 and solver.clip_gradients != -1:
        raise wrong("clip_gradients", "clip_gradients: expected a number above 0, or -1 for none")
    if solver.test_iter and solver.test_interval is None:
        raise wrong(
            "test_iter", "test_iter needs the key 'test_interval' (0: one test, at the end)"
        )
    if solver.test_interval and not solver.test_iter:
        raise wrong("test_interval", "test_interval needs the key 'test_iter', above 0")
    return solver
