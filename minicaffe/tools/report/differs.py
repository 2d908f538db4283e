"""What differs between runs: the keys of their models and solvers, how they were started, what they ran on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.sparse import given_nodes
from minicaffe.core.net.yaml_text import flow
from minicaffe.tools.report.payload import environment
from minicaffe.tools.training.folder import RunRecord

OWN = (
    "name",
    "started",
    "resumed",
    "pid",
    "cwd",
    "snapshot_prefix",
)  # of each run its own, and so no difference
ABSENT = "-"


def differs(records: Sequence[RunRecord], specs: Sequence[NetSpec | None]) -> list[list[Any]]:
    """Rows [key, a value a run] of what is not the same in all runs; '-' where a run does not say it.

    Models are compared if all of them are known."""
    keys = []
    for record, spec in zip(records, specs, strict=True):
        known = dict(environment(record.about))
        own = {key: value for key, value in known.items() if key not in OWN}
        models = {} if spec is None or None in specs else flat(spec)
        keys.append({**models, **own})
    rows = []
    for key in dict.fromkeys(key for one in keys for key in one):
        values = [one.get(key, ABSENT) for one in keys]
        if len(set(values)) > 1:
            rows.append([key, *values])
    return rows


def flat(spec: NetSpec) -> dict[str, str]:
    """What a model says, key by key: `solver.base_lr`, `conv1.num_output`.

    >>> from minicaffe.core.net import parse
    >>> flat(parse("layers: [{name: x, type: Input, shape: {dim: [2, 3]}}]"))
    {'x.type': 'Input', 'x.shape': '{dim: [2, 3]}'}
    """
    found = {}
    if spec.solver is not None:
        found = {f"solver.{key}": flow(node) for key, node in given_nodes(spec.solver).items()}
    for layer in spec.layers:
        phases = [rule.phase for rule in layer.include if rule.phase is not None]
        name = " ".join([layer.name, *phases])
        found[f"{name}.type"] = layer.type
        nodes = {key: node for key, node in layer.nodes.items() if key not in ("name", "type")}
        found |= {f"{name}.{key}": flow(node) for key, node in nodes.items()}
    return found
