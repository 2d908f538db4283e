"""Copies of nets: from its settings, its inputs' shapes, its number of passes and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minicaffe.backends.device import PRECISIONS
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import memory
from minicaffe.core.net.graph import Graph


def kept(graph: Graph, held: memory.Memory) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The settings a net was built with, and its state since then, without the content of blobs."""
    context, taken = graph.context, bool(held.blobs)
    settings = {
        name: getattr(context, name)
        for name in ("phase", "seed", "engine", "workspace_cap", "deterministic")
    }
    settings |= {"level": context.state.level, "stages": context.state.stage}
    settings |= {"dtype": str(context.dtype), "shapes_only": not taken, "keep": held.keep}
    settings["device"] = context.device.name
    settings["precision"] = PRECISIONS[context.device.tf32]
    return settings, {
        "shapes": {name: value.shape for name, value in memory.resizable(graph).items()},
        "params": [(p.to_host(), p.lr_mult, p.decay_mult) for p in graph.learnable if taken],
        "passes": context.passes,
    }


def again(kind: Any, spec: NetSpec, settings: dict[str, Any], since: Mapping[str, Any]) -> Any:
    """Build a net of a class again, and restore the state of the other."""
    net = kind(spec, **settings)
    memory.reshape(net.graph, net.memory, since["shapes"])
    net.context.passes = since["passes"]
    for param, (values, *multipliers) in zip(net.learnable, since["params"], strict=False):
        param.load(values)
        param.lr_mult, param.decay_mult = multipliers
    return net
