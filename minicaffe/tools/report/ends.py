"""Where a net's answer is, and what it is the answer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minicaffe.core.net.step import Step
from minicaffe.errors import MinicaffeError
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.inference import is_scored


class LeftOutError(MinicaffeError):
    """Why a section is not there, in one line."""


@dataclass(frozen=True)
class Ends:
    """Where a test net's answer is: scores seen as (n, classes, places), labels as (n, places)."""

    scores: str
    labels: str
    axis: int
    ignored: int | None
    probabilities: bool  # whether the scores are such already
    softmax: bool  # whether a softmax makes such of them


def find(steps: Sequence[Step]) -> Ends | None:
    """The ends of a test net, by its last Accuracy or SoftmaxWithLoss; None without either."""
    loss = next((s for s in reversed(steps) if is_scored(s.spec)), None)
    last = next((s for s in reversed(steps) if s.spec.type == "Accuracy"), loss)
    if last is None:
        return None
    scores, labels = last.bottoms[:2]
    made = next(step for step in steps if scores in step.tops)
    options: Any = last.layer
    return Ends(
        scores.name,
        labels.name,
        options.axis % len(scores.shape),
        getattr(options, "ignore_label", None),
        made.spec.type == "Softmax",
        loss is not None,
    )


def pictures(steps: Sequence[Step]) -> str | None:
    """The blob of pictures: of a layer that reads them, or of 1 or 3 channels out of nothing."""
    for step in steps:
        value = step.tops[0] if step.tops else None
        if value is None or step.bottoms or len(value.shape) != 4:
            continue
        if isinstance(step.layer, Pictures) or value.shape[1] in (1, 3):
            return value.name
    return None
