"""Whether a net has numbers to work on where no Python program gives it any."""

from __future__ import annotations

import dataclasses

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.state import Phase, State
from minicaffe.errors import SpecError


def check_filled(spec: NetSpec, phase: Phase, built: State) -> None:
    """Raise SpecError if a net of a phase, `built` so beside what the model says, has an Input."""
    state = dataclasses.replace(built, phase=phase).over(spec.state)
    empty = [layer for layer in spec.layers if layer.type == "Input" and layer.included(state)]
    if not empty:
        return
    rules = [rule for layer in spec.layers for rule in (*layer.include, *layer.exclude)]
    hint = ""
    for stage in dict.fromkeys(name for rule in rules for name in (*rule.stage, *rule.not_stage)):
        other = dataclasses.replace(state, stage=(*state.stage, stage))
        if not any(layer.type == "Input" and layer.included(other) for layer in spec.layers):
            hint = f"with --stage {stage} the net reads a data set instead; "
            break
    shapes = empty[0].options.get("shape", ())
    if phase == "TRAIN" and not hint and shapes and len(shapes[0].dim) == 4:
        hint = "with --data SOURCE the net is trained on your own data; "
    blobs = f"net.blobs[{', '.join(map(repr, empty[0].tops[:1]))}].data"
    raise SpecError(
        f"{empty[0].place()}: nothing on the command line fills an Input; {hint}"
        f"in Python, {blobs} is filled before each step"
    )
