"""Nets written in Python: `layers` (L), `params` (P) and NetSpec, which return messages of caffe.proto.

A call such as `L.Convolution(bottom, num_output=20, kernel_size=5)` returns a Top, the blob a layer writes;
a Top knows the layer (`fn`) and through it the whole net below. A layer is called as the NetSpec's attribute
that its top is assigned to, or, without one, by its type and a number: Convolution1.

>>> n, L = NetSpec(), layers
>>> n.data = L.Input(shape=dict(dim=[1, 3]))
>>> n.ip = L.InnerProduct(n.data, num_output=2, weight_filler=dict(type="xavier"))
>>> n.relu = L.ReLU(n.ip, in_place=True)
>>> net = n.to_proto()
>>> [(layer.name, list(layer.bottom), list(layer.top)) for layer in net.layer]
[('data', [], ['data']), ('ip', ['data'], ['ip']), ('relu', ['ip'], ['ip'])]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from minicaffe.core.layers import REGISTRY
from minicaffe.errors import SpecError, UnknownNameError, did_you_mean
from minicaffe.interop.caffe.schema import PARSERS, Field, schema

__all__ = ["Function", "NetSpec", "Top", "assign_proto", "layers", "params", "to_proto"]


def assign_proto(message: Any, name: str, value: Any, what: str = "") -> None:
    """Put a value into the field `name` of a message; `what` the message is, for errors.

    A list, tuple or array is a repeated field, a dict a message, and one value of a repeated field a list of
    one; the words of an enumeration may be given as such. Raises SpecError.

    >>> from minicaffe.interop.pycaffe.proto import caffe_pb2
    >>> layer = caffe_pb2.LayerParameter()
    >>> assign_proto(layer, "param", [dict(lr_mult=1), dict(lr_mult=2)])
    >>> assign_proto(layer, "convolution_param", dict(kernel_size=5, num_output=20))
    >>> [one.lr_mult for one in layer.param], list(layer.convolution_param.kernel_size)
    ([1.0, 2.0], [5])
    """
    kind, inside = message.DESCRIPTOR.name, f"{what}: " if what else ""
    field = schema().messages[kind].get(name)
    if field is None or name not in message.DESCRIPTOR.fields_by_name:
        near = did_you_mean(name, message.DESCRIPTOR.fields_by_name)
        raise SpecError(f"{inside}{kind} has no field {name!r}{near}")
    single = isinstance(value, (str, bytes, Mapping)) or np.ndim(value) == 0  # or without axes
    inside, several = f"{inside}{name}", isinstance(value, Iterable) and not single
    if several and not field.repeated:
        raise SpecError(f"{inside}: expected {_expected(field)}, got {value!r}")
    for one in value if several else [value]:
        if field.is_message:
            target = getattr(message, name)
            _fill(target.add() if field.repeated else target, one, inside)
        else:
            _put(message, field, one, inside)


def _fill(message: Any, value: Any, what: str) -> None:
    if isinstance(value, type(message)):
        message.CopyFrom(value)
        return
    if not isinstance(value, Mapping):
        kind = message.DESCRIPTOR.name
        raise SpecError(f"{what}: expected a dict of the fields of {kind}, got {value!r}")
    for key, inner in value.items():
        assign_proto(message, key, inner, what)


def _put(message: Any, field: Field, value: Any, what: str) -> None:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    asked, near = value, ""
    if field.words is not None and isinstance(value, str):
        value, near = field.words.get(value), did_you_mean(value, field.words)
    try:
        if field.repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    except (TypeError, ValueError):
        raise SpecError(f"{what}: expected {_expected(field)}, got {asked!r}{near}") from None


def _expected(field: Field) -> str:
    if field.words is not None:
        return "one of " + ", ".join(field.words)
    return f"one {field.type}" if field.type in PARSERS else "one dict"


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
            problem = f"expected Tops, got {type(top).__name__}; n.to_proto() for all"
            raise NotATopError(f"to_proto: {problem}")
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


class NoSuchNameError(UnknownNameError, AttributeError):
    """An attribute or entry that is not there; both, for it is asked for as either."""


class NetSpec:
    """Tops by the names they are assigned to, which are those of blobs and layers."""

    tops: dict[str, Named]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Named) -> None:
        if not isinstance(value, (Top, Function)):
            several = "; a name for each: n.a, n.b = L.X(..., ntop=2)"
            more = several if isinstance(value, tuple) else ""
            raise NotATopError(f"{name}: expected a Top, got {type(value).__name__}{more}")
        self.tops[name] = value

    def __getattr__(self, name: str) -> Named:
        tops = self.__dict__.get("tops", {})
        if name not in tops:
            raise NoSuchNameError(f"the NetSpec has no top {name!r}{did_you_mean(name, tops)}")
        return tops[name]

    def __delattr__(self, name: str) -> None:
        self.__getattr__(name)
        del self.tops[name]

    __setitem__, __getitem__, __delitem__ = __setattr__, __getattr__, __delattr__

    def to_proto(self) -> Any:
        """The NetParameter of all layers that the assigned tops need, in the order of assignment."""
        return net_of(self.tops.values(), {top: name for name, top in self.tops.items()})


class Layers:
    """Functions by the types of layers: `L.Pooling(bottom, pool=P.Pooling.MAX)` returns a Top.

    It takes the keys of the type's `..._param` and LayerParameter's own (`name`, `loss_weight`, `param`,
    `include`, `transform_param`, ...), `in_place`, and `ntop`: 0 returns the layer, 2 or more a tuple of Tops.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in REGISTRY:
            raise NoSuchNameError(f"there is no layer type {name!r}{did_you_mean(name, REGISTRY)}")

        def layer(*inputs: Top, **params: Any) -> Any:
            fn = Function(name, inputs, params)
            return fn if fn.ntop == 0 else fn.tops[0] if fn.ntop == 1 else fn.tops

        return layer


class Words:
    """The words of a message's enumerations, as the numbers that stand for them."""

    def __init__(self, message: str, words: Mapping[str, int]):
        self._message = message
        self.__dict__.update(words)

    def __getattr__(self, name: str) -> int:
        near = did_you_mean(name, self.__dict__)
        raise NoSuchNameError(f"{self._message} has no word {name!r}{near}")


class Parameters:
    """The words that layers' keys take: `P.Pooling.MAX` is PoolingParameter's.

    >>> params.Pooling.AVE, params.Data.LMDB
    (1, 1)
    """

    def __getattr__(self, name: str) -> Words:
        message, enums = f"{name}Parameter", schema().enums
        if message not in enums:
            near = did_you_mean(name, [one.removesuffix("Parameter") for one in enums])
            raise NoSuchNameError(f"caffe.proto has no message {message}{near}")
        return Words(message, {w: n for words in enums[message].values() for w, n in words.items()})


layers, params = Layers(), Parameters()
