"""The gradient flow through a net, and which values reuse the memory of others."""

from collections.abc import Sequence

from minicaffe.core.layers import Context
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import SpecError


def mark(steps: Sequence[Step], force: bool, forward_only: bool) -> None:
    """Mark losses, gradients and reused memory in steps whose shapes are known. Raises SpecError."""
    _mark_losses(steps)
    _mark_gradients(steps, force)
    for step in steps:
        if forward_only:
            step.layer.runs_backward, step.layer.needs_gradient = False, [False] * len(step.bottoms)
            for value in step.tops:
                value.gets_gradient = False
        _reuse(step)


def mark_types(steps: Sequence[Step], context: Context) -> None:
    """Set the type of each value: the net's, or float32 for labels and losses in float16 and bfloat16 nets.

    A bottom can be float32 if it is the top of an Input, also through layers that only move numbers.
    """
    wanted: set[Value] = set()
    for step in reversed(steps):
        traits = step.layer.traits
        moved = traits.keeps_dtype and any(value in wanted for value in step.tops)
        for i, value in enumerate(step.bottoms):
            if moved or i in traits.float32_bottoms:
                wanted.add(value)
    for step in steps:
        traits, types = step.layer.traits, {value.dtype for value in step.bottoms}
        for i, value in enumerate(step.tops):
            single = i in traits.float32_tops or (traits.is_loss and i == 0)
            single |= value in wanted and not step.bottoms
            single |= traits.keeps_dtype and types == {context.sum_dtype}
            value.dtype = context.sum_dtype if single else context.dtype
            if value.reuses is not None:
                value.dtype = value.reuses.dtype


def _mark_losses(steps: Sequence[Step]) -> None:
    for step in steps:
        weights = step.spec.loss_weight
        if weights and len(weights) != len(step.tops):
            where, count = step.spec.place("loss_weight"), len(step.tops)
            raise SpecError(f"{where}: loss_weight: expected {count} number(s), got {len(weights)}")
        if not weights and step.layer.traits.is_loss:
            weights = (1.0,)
        for value, weight in zip(step.tops, weights, strict=False):
            value.loss_weight = weight


def _mark_gradients(steps: Sequence[Step], force: bool) -> None:
    """Gradients are computed if a layer below needs them and a loss above depends on the blob, as in Caffe."""
    for step in steps:
        flags = step.spec.propagate_down
        if flags and len(flags) != len(step.bottoms):
            where, count = step.spec.place("propagate_down"), len(step.bottoms)
            raise SpecError(f"{where}: propagate_down: expected {count} value(s), got {len(flags)}")
        step.layer.needs_gradient = [  # as propagate_down, or force_backward, says
            ((flags[i] if flags else value.wants_gradient) or force)
            and i not in step.layer.traits.label_bottoms
            for i, value in enumerate(step.bottoms)
        ]
        learns = any(param.learns for param in step.layer.params)
        for value in step.tops:
            value.wants_gradient = learns or any(step.layer.needs_gradient)
    has_loss = any(value.loss_weight for step in steps for value in step.tops)
    for step in reversed(steps):
        for value in step.tops:
            value.gets_gradient = (
                value.loss_weight != 0
                or value.gets_gradient
                or ((force or not has_loss) and not value.readers)
            )
        reached = any(value.gets_gradient for value in step.tops)
        learns = any(param.learns for param in step.layer.params)
        if reached:
            _refuse_labels(step, force)
        step.layer.runs_backward = reached and (learns or any(step.layer.needs_gradient))
        if not step.layer.runs_backward:
            step.layer.needs_gradient = [False] * len(step.bottoms)
        for i, value in enumerate(step.bottoms):
            value.gets_gradient |= step.layer.needs_gradient[i]


def _refuse_labels(step: Step, force: bool) -> None:
    """Raise SpecError if a bottom without gradient needs one: by propagate_down, or a label that learns."""
    traits = step.layer.traits
    for i in traits.label_bottoms if traits.is_loss and not force else ():
        value = step.bottoms[i] if i < len(step.bottoms) else None
        if value is not None and value.wants_gradient and not step.spec.propagate_down:
            raise SpecError(
                f"{step.spec.place('bottom', i)}: no gradient flows into bottom {value.name!r}, which depends "
                "on parameters that learn; propagate_down, false for it, says that it may end there"
            )
    for i, flag in enumerate(step.spec.propagate_down):
        if flag and i in traits.label_bottoms:
            where, name = step.spec.place("propagate_down", i), step.bottoms[i].name
            problem = f"propagate_down: no gradient can flow into bottom {name!r}; expected false"
            raise SpecError(f"{where}: {problem}")


def _reuse(step: Step) -> None:
    """Let a step that works in place reuse its bottom's memory, if no other layer needs that."""
    traits = step.layer.traits
    in_place = traits.in_place and not (traits.keeps_bottom and step.layer.runs_backward)
    if not (in_place and len(step.tops) == 1 and step.bottoms):
        return
    top, bottom = step.tops[0], step.bottoms[0]
    alone = bottom.readers == 1 and not bottom.producer.traits.keeps_top and not bottom.loss_weight
    if top.name == bottom.name and top.shape == bottom.shape and alone:
        top.reuses = bottom
