"""Python values put into messages of caffe.proto: lists as repeated fields, dicts as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minicaffe.errors import SpecError, did_you_mean
from minicaffe.interop.caffe.schema import PARSERS, Field, schema


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
    kind = message.DESCRIPTOR.name
    field = schema().messages[kind].get(name)
    if field is None or name not in message.DESCRIPTOR.fields_by_name:
        near = did_you_mean(name, message.DESCRIPTOR.fields_by_name)
        raise SpecError(f"{_prefix(what)}{kind} has no field {name!r}{near}")
    inside, several = f"{_prefix(what)}{name}", _is_list(value)
    if several and not field.repeated:
        raise SpecError(f"{inside}: expected {_expected(field)}, got {value!r}")
    for one in value if several else [value]:
        if field.is_message:
            target = getattr(message, name)
            _fill(target.add() if field.repeated else target, one, inside)
        else:
            _put(message, field, one, inside)


def _prefix(what: str) -> str:
    return f"{what}: " if what else ""


def _is_list(value: Any) -> bool:
    """Whether a value is several; an array without axes is one."""
    single = isinstance(value, (str, bytes, Mapping)) or np.ndim(value) == 0
    return isinstance(value, Iterable) and not single


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
    given, near = value, ""
    if field.words is not None and isinstance(value, str):
        value, near = field.words.get(value), did_you_mean(value, field.words)
    try:
        if field.repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    except (TypeError, ValueError):
        raise SpecError(f"{what}: expected {_expected(field)}, got {given!r}{near}") from None


def _expected(field: Field) -> str:
    if field.words is not None:
        return "one of " + ", ".join(field.words)
    return f"one {field.type}" if field.type in PARSERS else "one dict"
