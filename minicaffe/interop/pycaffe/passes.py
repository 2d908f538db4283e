"""Passes as Caffe runs them: a name is one blob, shapes may have changed, scripts may have written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import minicaffe
from minicaffe.core.net import memory
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import LayerError, MinicaffeError
from minicaffe.interop.pycaffe.blob import FlowBlob, push
from minicaffe.interop.pycaffe.host_blob import HostBlob
from minicaffe.interop.pycaffe.python import Python

FREE = ("Input", "DummyData")  # whose tops stay as a script has reshaped them
Blobs = Mapping[str, FlowBlob]


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Within it, what the user's own layers raise comes out as it was raised, as from pycaffe."""
    try:
        yield
    except LayerError as error:
        cause: BaseException | None = error
        while isinstance(cause, LayerError):  # it has been given its place
            cause = cause.__cause__ or cause.__context__
        raise cause or error from None


def forward(net: minicaffe.Net, blobs: Blobs, first: int, last: int) -> None:
    """Run the layers of these numbers, after `reshape`."""
    reshape(net, blobs, last)
    steps = net.steps[first : last + 1]
    ready(blobs, "data", steps)
    net.memory.sharing.holds = {}  # Caffe goes by what the data hold
    with own_errors():
        net.forward(net.steps[first].spec.name, net.steps[last].spec.name)
    passed(blobs, "data", steps)


def backward(net: minicaffe.Net, blobs: Blobs, first: int, last: int) -> None:
    """Run the gradient from the layer `first` down through `last`, both numbers.

    It begins with what the outputs' diffs hold, and is of what the blobs hold, whether or not a forward pass
    has put it there.
    """
    if net.memory.fits is not None:
        reshape(net, blobs, first)
    steps = [step for step in net.steps[last : first + 1][::-1] if step.layer.runs_backward]
    ready(blobs, "diff", steps)
    outputs = [value for step in steps for value in step.tops if not value.readers]
    gradients = {value.name: value.blob.diff for value in outputs}
    names = net.steps[first].spec.name, net.steps[last].spec.name
    with own_errors(), net.device.current():
        for step in steps[::-1]:
            if not step.ran:
                _prime(step, net, blobs)
        net.backward(*names, **gradients)
    passed(blobs, "diff", steps)


def _prime(step: Step, net: minicaffe.Net, blobs: Blobs) -> None:
    """Have a layer that has not run know what its gradient needs; what its blobs hold stays.

    Layers of the user's are not run, as in Caffe.
    """
    push()
    for value in (*step.bottoms, *step.tops):
        blobs[value.name].bring("data", value)
    layer, bottoms = step.layer, [value.blob.data for value in step.bottoms]
    if isinstance(layer, Python):
        layer.show(*bottoms)
    else:
        changed = [*(value.blob.data for value in step.tops), *layer.running]
        before = [array.copy() for array in changed]
        with step.named():
            layer.prepare()
            net.context.slots.send()
            layer.forward(*bottoms)
        for array, held in zip(changed, before, strict=True):
            net.device.xp.copyto(array, held)
    step.ran = True


def loss(net: minicaffe.Net, first: int, last: int) -> float:
    """What the layers of these numbers have added to the loss; waits for the device."""
    values = [value for step in net.steps[first : last + 1] for value in step.tops]
    host = net.device.to_host
    return sum(v.loss_weight * float(host(v.blob.data).sum()) for v in values if v.loss_weight)


def reshape(net: minicaffe.Net, blobs: Blobs, last: int | None = None) -> None:
    """Have the net take the shapes that its blobs were given. What was written into its inputs stays there.

    Raises ShapeError, and leaves the net as it was, if they do not fit. Layers above the number `last` need
    not fit: they take them when they run.
    """
    held, above = net.memory, None if last in (None, len(net.steps) - 1) else last + 1
    waiting = {name: blob.waiting for name, blob in blobs.items() if blob.waiting is not None}
    if not waiting and (held.fits is None or (above or len(net.steps)) <= held.fits):
        return
    push()
    net.passes.forget()
    shapes, arrays, before = _free(net, waiting)

    def take(fits: int | None) -> None:
        if waiting:
            memory.reshape(net.graph, held, shapes, fits, arrays)
        else:
            memory.extend(net.graph, held, fits, arrays)

    with own_errors(), net.device.current():
        try:
            take(None)
        except MinicaffeError:
            if above is None:
                raise
            take(above)
    fresh = {value for step in net.steps[: held.fits] for value in step.tops} if waiting else set()
    for value, blob in before.items():
        value.blob.data = blob.data
    for flowing in blobs.values():
        flowing.settle(fresh)


def _free(net: minicaffe.Net, waiting: Mapping[str, HostBlob]) -> Any:
    """Of blobs that keep what scripts wrote: new shapes, arrays that go on as their data, and others' blobs.

    On the CPU a view of a blob that is `waiting` stays one; DummyData fills its memory when that is taken.
    """
    shapes: dict[str, Any] = {}
    arrays: dict[Value, Any] = {}
    before: dict[Value, Any] = {}
    for step in net.steps:
        for value in step.tops if step.spec.type in FREE else ():
            new = waiting.get(value.name)
            if new is not None:
                shapes[value.name] = new.shape
            if step.spec.type == "Input" and not (new is not None and net.device.is_cuda):
                arrays[value] = value.blob.data if new is None else new.data
            elif new is None:
                before[value] = value.blob
    return shapes, arrays, before


def watch(net: minicaffe.Net, blobs: Blobs, when: str, function: Callable[[int], Any]) -> None:
    """Have a function be called `when`, as "before_forward", with the number of each layer that runs."""

    def tell(number: int, step: Step) -> None:
        way, _, which = when.partition("_")
        if way == "after":
            passed(blobs, "data" if which == "forward" else "diff", [step])
        function(number)
        push()

    for number, step in enumerate(net.steps):
        watchers = step.watchers.setdefault(when, [])
        watchers.append(partial(tell, number, step))


def ready(blobs: Blobs, which: str, steps: Iterable[Step]) -> None:
    """Before these steps run: have the net hold what scripts see, and have written."""
    push()
    done: set[Value] = set()
    for step in steps:
        for value in _read(which, step):
            if value not in done:
                blobs[value.name].bring(which, value)
        done.update(_written(which, step))


def passed(blobs: Blobs, which: str, steps: Iterable[Step]) -> None:
    """After these steps have run: show what they have written."""
    for step in steps:
        for value in _written(which, step):
            blobs[value.name].show(which, value)


def _read(which: str, step: Step) -> Sequence[Value]:
    """What a step reads; one without bottoms may leave its tops as they are."""
    return step.tops if which == "diff" else step.bottoms or step.tops


def _written(which: str, step: Step) -> Sequence[Value]:
    if which == "data":
        return step.tops
    wanted = zip(step.bottoms, step.layer.needs_gradient, strict=True)
    return [value for value, needs in wanted if needs]
