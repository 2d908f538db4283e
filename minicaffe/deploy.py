"""A trained model made ready for pictures of one's own: no labels, no loss, probabilities at the end."""

from __future__ import annotations

import dataclasses

from minicaffe.errors import SpecError
from minicaffe.layers.inputs import BlobShape, Data
from minicaffe.net import Net
from minicaffe.spec.declare import LayerSpec, NetSpec


def deploy(model: NetSpec, batch: int = 1) -> tuple[NetSpec, Data]:
    """The TEST net of a model with an Input for its Data layer, and that layer, which knows the transform.

    What depends on the labels is left out; a SoftmaxWithLoss becomes a Softmax named `prob`. Raises
    SpecError for a model without a Data layer or without a softmax.

    >>> from minicaffe.net import parse
    >>> spec, data = deploy(parse('''
    ... layers:
    ...   - {name: mnist, type: Data, top: [data, label], source: digits, batch_size: 64}
    ...   - {name: ip, type: InnerProduct, num_output: 10}
    ...   - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
    ... '''))
    >>> [layer.type for layer in spec.layers]
    ['Input', 'InnerProduct', 'Softmax']
    """
    full = Net(model, "TEST", device="cpu", shapes_only=True)
    source = next((step for step in full.steps if isinstance(step.layer, Data)), None)
    if source is None:
        raise SpecError(
            f"net {model.name!r} has no Data layer in the phase TEST to take pictures for"
        )
    images = source.tops[0]
    kept = [
        LayerSpec(
            name=source.spec.name,
            type="Input",
            top=(images.name,),
            options={"shape": (BlobShape(dim=(batch, *images.shape[1:])),)},
            mark=source.spec.mark,
        )
    ]
    labels = {value.name for value in source.tops[1:]}
    softmax = False
    for step in full.steps:
        if step is source:
            continue
        bottoms = [value.name for value in step.bottoms]
        if step.spec.type == "SoftmaxWithLoss" and bottoms[0] not in labels and not softmax:
            axis = {"axis": step.layer.axis}  # type: ignore[attr-defined]
            kept.append(
                LayerSpec(
                    name="prob",
                    type="Softmax",
                    bottom=(bottoms[0],),
                    options=axis,
                    mark=step.spec.mark,
                )
            )
            softmax = True
        elif any(name in labels for name in bottoms):
            labels |= {value.name for value in step.tops}
        else:
            kept.append(
                dataclasses.replace(step.spec, bottom=tuple(bottoms), include=(), exclude=())
            )
            softmax = softmax or step.spec.type == "Softmax"
    if not softmax:
        raise SpecError(f"net {model.name!r} has no softmax, so it gives no probabilities")
    assert isinstance(source.layer, Data)
    return dataclasses.replace(model, layers=tuple(kept), solver=None), source.layer
