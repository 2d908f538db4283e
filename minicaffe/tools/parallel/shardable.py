"""Whether several ranks can have a part of each batch of a net: no layer takes samples of a batch together."""

from __future__ import annotations

from typing import Any

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net import Net
from minicaffe.core.net.inference_replay import OURS
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import ShapeError

ACROSS = ("Reduction", "Reshape")  # whose first axis may be the batch: see below


def refused(net: Net, whole: Net) -> str:
    """Why they cannot, if so; `whole` has the shapes of a net with all of the batch."""
    of_batch: set[Value] = set()
    for step, other in zip(net.steps, whole.steps, strict=True):
        layer, own = step.layer, not type(step.layer).__module__.startswith(OURS)
        if not step.bottoms and not layer.params and not layer.traits.takes_share:
            return (
                f"{step.place}: gives every rank the same batch; a layer of one's own gives the samples that "
                "self.context.share.of(batch_size) tells, and says traits = Traits(takes_share=True)"
            )
        if layer.traits.takes_share or any(value in of_batch for value in step.bottoms):
            of_batch |= set(step.tops)
            if why := _mixes(step, other, net):
                return f"{step.place}: {why}"
        for value in step.tops:
            if value.loss_weight and value not in of_batch:
                return f"{step.place}: is a loss of no batch, which every rank would add"
            if (
                value.loss_weight
                and (own or step.spec.type == "Python")
                and not layer.traits.of_whole
            ):
                return (
                    f"{step.place}: a loss of one's own divides by the samples that are here; let it divide "
                    "by self.context.share.of_whole(n), and say traits = Traits(of_whole=True)"
                )
    return "" if net.context.share.told else "no layer of the phase TRAIN gives a batch to share"


def _mixes(step: Step, whole: Step, net: Net) -> str:
    """Why a layer has no part of its own for each rank, if so."""
    layer, share = step.layer, net.context.share
    together = "takes samples of a batch together, which lie on several ranks"
    if layer.traits.sizes_vary:
        return "the size of a top varies, and with it what a rank's part is"
    axis: Any = getattr(layer, "axis", None)
    if layer.traits.mixes_samples or (isinstance(axis, int) and _first(axis, step)):
        return together
    if step.spec.type == "Reduction" and any(top.readers and not top.shape for top in step.tops):
        return together
    batch = share.count if share.per_rank else share.whole
    for value, other in zip(step.tops, whole.tops, strict=True):
        mine, theirs = tuple(value.shape), tuple(other.shape)
        parts = mine[1:] == theirs[1:] and mine[:1] and mine[0] * batch == theirs[0] * share.count
        if mine != theirs and not parts:
            return together
    both = zip(layer.params, whole.layer.params, strict=True)
    return "" if all(one.shape == other.shape for one, other in both) else together


def _first(axis: int, step: Step) -> bool:
    """Whether a layer's axis is the first of a bottom: the batch's."""
    if step.spec.type in ACROSS or not step.bottoms or not step.bottoms[0].shape:
        return False
    try:
        return canonical_axis(axis, step.bottoms[0].shape) == 0
    except ShapeError:  # of another bottom, then
        return False
