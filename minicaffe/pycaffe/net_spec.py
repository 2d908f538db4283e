"""Nets written in Python: `layers` (L), `params` (P) and NetSpec, which give messages of caffe.proto.

A call such as `L.Convolution(bottom, num_output=20, kernel_size=5)` gives a Top, the blob that a layer writes;
a Top knows the layer (`fn`) and through it the whole net below. A layer is called as the NetSpec's attribute
that its top is assigned to, or, without one, by its type and a number: Convolution1.

>>> n, L = NetSpec(), layers
>>> n.data = L.Input(shape=dict(dim=[1, 3]))
>>> n.ip = L.InnerProduct(n.data, num_output=2, weight_filler=dict(type="xavier"))
>>> n.relu = L.ReLU(n.ip, in_place=True)
>>> net = n.to_proto()
>>> [(layer.name, list(layer.bottom), list(layer.top)) for layer in net.layer]
[('data', [], ['data']), ('ip', ['data'], ['ip']), ('relu', ['ip'], ['ip'])]
>>> [layer.name for layer in to_proto(L.Softmax(L.Input())).layer]
['Input1', 'Softmax1']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minicaffe.caffe.schema import schema
from minicaffe.errors import SpecError, UnknownNameError, did_you_mean
from minicaffe.layers import REGISTRY
from minicaffe.pycaffe.assign import assign_proto

__all__ = ["Function", "NetSpec", "Top", "assign_proto", "layers", "params", "to_proto"]


class NoSuchNameError(UnknownNameError, AttributeError):
    """An attribute or entry that is not there; both, for it is asked for as either."""


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
    return _net(tops, {})


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
        return _net(self.tops.values(), {top: name for name, top in self.tops.items()})


class Layers:
    """Functions by the types of layers: `L.Pooling(bottom, pool=P.Pooling.MAX)` gives a Top.

    It takes the keys of the type's `..._param` and LayerParameter's own (`name`, `loss_weight`, `param`,
    `include`, `transform_param`, ...), `in_place`, and `ntop`: 0 gives the layer, 2 or more a tuple of Tops.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in REGISTRY:
            near = did_you_mean(name, REGISTRY)
            raise NoSuchNameError(f"there is no layer type {name!r}{near}")

        def layer(*inputs: Top, **params: Any) -> Any:
            fn = Function(name, inputs, params)
            if fn.ntop == 0:
                return fn
            return fn.tops[0] if fn.ntop == 1 else fn.tops

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
            known = [one.removesuffix("Parameter") for one in enums]
            near = did_you_mean(name, known)
            raise NoSuchNameError(f"caffe.proto has no message {message}{near}")
        return Words(message, {w: n for words in enums[message].values() for w, n in words.items()})


layers, params = Layers(), Parameters()


def _net(tops: Iterable[Named], given: Mapping[Named, str]) -> Any:
    """A layer stands behind those that it reads, the first bottom's before the second's."""
    from minicaffe.pycaffe.proto import caffe_pb2

    names, numbers, done = dict(given), Counter[str](), dict[Function, Any]()
    for top in tops:
        waiting = [top.fn if isinstance(top, Top) else top]
        while waiting:
            fn = waiting[-1]
            missing = [one.fn for one in fn.inputs if one.fn not in done]
            waiting += reversed(missing)
            if not missing:
                waiting.pop()
                if fn not in done:
                    bottoms = [done[one.fn].top[one.n] for one in fn.inputs]
                    layer = caffe_pb2.LayerParameter(type=fn.type_name, bottom=bottoms)
                    done[fn] = _filled(layer, fn, names, numbers)
    return caffe_pb2.NetParameter(layer=done.values())


def _filled(layer: Any, fn: Function, names: dict[Named, str], numbers: Counter[str]) -> Any:
    def name_of(one: Named) -> str:
        if one not in names:
            numbers[fn.type_name] += 1
            names[one] = f"{fn.type_name}{numbers[fn.type_name]}"
        return names[one]

    layer.top.extend(layer.bottom if fn.in_place else [name_of(top) for top in fn.tops])
    layer.name = names[fn] if fn in names else name_of(fn.tops[0] if fn.tops else fn)
    what = f"layer {layer.name!r} ({fn.type_name})"
    for key, value in fn.params.items():
        home = _home(fn.type_name, key, what)
        assign_proto(getattr(layer, home) if home else layer, key, value, what)
    return layer


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
