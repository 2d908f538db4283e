"""Which axes of a net's inputs may be of any size, and what that makes of every other shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minicaffe.core.layers.blob import Shape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Value
from minicaffe.errors import MinicaffeError, SpecError, did_you_mean
from minicaffe.interop.onnx.writer.graph import Trial
from minicaffe.tools.inference import inputs

WORDS = {"batch": 0, "height": 2, "width": 3}
Axes = Mapping[Value, Mapping[int, str]]  # of inputs, their dynamic axes, and a word for each


def dynamic_axes(net: Net, words: Sequence[str]) -> Axes:
    """The axes that words mean: `batch` is the first of every input that has as many samples as the first
    input, `height` and `width` are the last two of images (n, c, h, w). Raises SpecError.
    """
    found: dict[Value, dict[int, str]] = {}
    for word in words:
        if word not in WORDS:
            hint = did_you_mean(word, WORDS) or f"; expected {', '.join(WORDS)}"
            raise SpecError(f"dynamic: there is no axis {word!r}{hint}")
        axis = WORDS[word]
        fits = [v for v in inputs(net) if len(v.shape) == 4 or (not axis and v.shape)]
        if not fits:
            raise SpecError(f"dynamic: no input of net {net.name!r} has a {word}")
        for value in fits:
            if axis or value.shape[0] == fits[0].shape[0]:
                found.setdefault(value, {})[axis] = word
    return found


def words_of(axes: Axes) -> list[str]:
    """The words of dynamic axes, each once."""
    return list(dict.fromkeys(word for those in axes.values() for word in those.values()))


def trials(net: Net, axes: Axes) -> list[Trial]:
    """The shapes of all values at the net's own size, at others of one word each, and at others of all.

    Larger by 32, which nets of strides of 2 can do with, and by 37 where the net can: what is one size
    with the former need not be with the latter. Raises the error of the layer that cannot take another size.
    """
    words = words_of(axes)
    mine = [value for step in net.steps for value in step.tops]
    found: list[Trial] = [{value: value.shape for value in mine}]
    if not words:
        return found
    shapes = Net(net.spec, "TEST", device="cpu", shapes_only=True)
    for some, more in [*(([word], 32) for word in words), (words, 32), (words, 37)]:
        try:
            shapes.reshape(**sizes(net, axes, some, more))
        except MinicaffeError as error:
            if more == 37:
                break
            raise error.at(f"dynamic {', '.join(some)}: another size will not do") from None
        there = [value.shape for step in shapes.steps for value in step.tops]
        found.append(dict(zip(mine, there, strict=True)))
    return found


def sizes(net: Net, axes: Axes, words: Sequence[str], more: int = 32) -> dict[str, Shape]:
    """Shapes of a net's inputs, larger along axes of these words, the first of a shape by 2."""
    return {
        value.name: tuple(
            size + (2 if axis == 0 else more) * (axes.get(value, {}).get(axis) in words)
            for axis, size in enumerate(value.shape)
        )
        for value in inputs(net)
    }
