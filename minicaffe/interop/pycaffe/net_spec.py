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
>>> [layer.name for layer in to_proto(L.Softmax(L.Input())).layer]
['Input1', 'Softmax1']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minicaffe.core.layers import REGISTRY
from minicaffe.errors import UnknownNameError, did_you_mean
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.pycaffe.assign import assign_proto
from minicaffe.interop.pycaffe.top import Function, Named, NotATopError, Top, net_of, to_proto

__all__ = ["Function", "NetSpec", "Top", "assign_proto", "layers", "params", "to_proto"]


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
