"""What layers write, called in Python, and the messages of caffe.proto made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from minicaffe.errors import SpecError, did_you_mean
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.pycaffe.assign import assign_proto


class NotATopError(SpecError, TypeError):
    """A layer reads, or a NetSpec is given, what is no Top; also a TypeError, as in Caffe."""


class Top:
    """One blob that a layer writes: the `n`-th of the layer `fn`."""

    def __init__(self, fn: Function, n: int):
        self.fn, self.n = fn, n

    def to_proto(self) -> Any:
        """The NetParameter of all layers that this blob needs."""
        return to_proto(self)


class Function:
    """A layer: its type, the Tops that it reads (`inputs`), its keys (`params`) and its own `tops`."""

    def __init__(self, type_name: str, inputs: tuple[Top, ...], params: dict[str, Any]):
        for i, one in enumerate(inputs):
            if not isinstance(one, Top):
                raise NotATopError(f"{type_name} input {i} is not a Top (type is {type(one)})")
        self.type_name, self.inputs, self.params = type_name, inputs, params
        self.ntop = params.pop("ntop", 1)
        self.in_place = params.pop("in_place", False)
        if not isinstance(self.ntop, int) or self.ntop < 0:
            raise SpecError(f"{type_name}: ntop: expected a number of tops, got {self.ntop!r}")
        if self.in_place and self.ntop > len(inputs):
            n, m = self.ntop, len(inputs)
            raise SpecError(f"{type_name}: in_place: {n} tops cannot lie in {m} bottoms")
        self.tops = tuple(Top(self, n) for n in range(self.ntop))


Named = Top | Function  # a layer without tops stands for itself


def to_proto(*tops: Named) -> Any:
    """The NetParameter of all layers that these blobs need, with names made of types and numbers."""
    return net_of(tops, {})


def net_of(tops: Iterable[Named], given: Mapping[Named, str]) -> Any:
    """The NetParameter of all layers that tops need; `given` names go before those that are made.

    A layer stands behind those that it reads, the first bottom's before the second's. Raises SpecError.
    """
    from minicaffe.interop.pycaffe.proto import caffe_pb2

    names, numbers, done = dict(given), Counter[str](), dict[Function, Any]()
    taken = set(given.values())

    def name_of(one: Named) -> str:
        kind = (one.fn if isinstance(one, Top) else one).type_name
        while one not in names:
            numbers[kind] += 1
            if (name := f"{kind}{numbers[kind]}") not in taken:
                names[one] = name
        return names[one]

    def add(fn: Function) -> None:
        bottom = [done[one.fn].top[one.n] for one in fn.inputs]
        top = bottom if fn.in_place else [name_of(one) for one in fn.tops]
        name = name_of(fn if fn in names or not fn.tops else fn.tops[0])
        layer = caffe_pb2.LayerParameter(name=name, type=fn.type_name, bottom=bottom, top=top)
        done[fn] = layer
        what = f"layer {name!r} ({fn.type_name})"
        for key, value in fn.params.items():
            home = _home(fn.type_name, key, what)
            assign_proto(getattr(layer, home) if home else layer, key, value, what)

    for top in tops:
        if not isinstance(top, (Top, Function)):
            raise NotATopError(
                f"to_proto: expected Tops, got {type(top).__name__}; n.to_proto() for all"
            )
        waiting = [top.fn if isinstance(top, Top) else top]
        while waiting:
            fn = waiting[-1]
            missing = [one.fn for one in fn.inputs if one.fn not in done]
            waiting += reversed(missing)
            if not missing:
                waiting.pop()
                if fn not in done:
                    add(fn)
    return caffe_pb2.NetParameter(layer=done.values())


def _home(layer_type: str, key: str, what: str) -> str:
    """The field of LayerParameter whose message has a key of a type of layer; "" for LayerParameter."""
    messages, homes = schema().messages, schema().layers.get(layer_type, ())
    own = messages["LayerParameter"]
    fields = {home: messages[own[home].type] for home in homes}
    first = {} if key.endswith("param") or not homes else fields[homes[0]]
    if key in own and key not in first:
        return ""
    for home in homes:
        if key in fields[home]:
            return home
    known = [*own, *(one for home in homes for one in fields[home])]
    raise SpecError(f"{what}: caffe.proto has no key {key!r} for it{did_you_mean(key, known)}")
