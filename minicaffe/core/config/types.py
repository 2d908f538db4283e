"""The types a key may have: one declaration defines the conversion, its errors and the JSON schema.

A key is a dataclass field, `name: Annotated[type, "one line of documentation", checks] = default`.
The types: bool, int, float, str, Literal words, `X | None`, `tuple[X, ...]` (a single value stands for a
list of one) and frozen dataclasses (mappings; one with a class attribute `word` may be given as that one
field's value; what __post_init__ raises gets its place). A check holds for each number or text of the value.
"""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from minicaffe.core.config.tree import Node, shown
from minicaffe.errors import SpecError, did_you_mean

NAMES = {  # the name here, and what goes with it: the words of others, as `plain` has them
    "Convolution": "conv",
    "Deconvolution": "convtranspose transposedconv",
    "InnerProduct": "linear dense fc fullyconnected gemm",
    "BatchNorm": "batchnormalization bn",
    "Pooling with pool: MAX": "maxpool maxpooling",
    "Pooling with pool: AVE": "avgpool averagepool averagepooling",
    "Pooling with pool: AVE and global_pooling: true": (
        "globalavgpool globalaveragepool globalaveragepooling adaptiveavgpool"
    ),
    "ReLU with negative_slope": "leakyrelu",
    "ReLU": "relu6",
    "Embed": "embedding",
    "Eltwise": "add",
    "Eltwise with operation: PROD": "mul",
    "SoftmaxWithLoss": "crossentropy crossentropyloss",
    "EuclideanLoss": "mse mseloss",
    "SigmoidCrossEntropyLoss": "bcewithlogitsloss",
    "LRN": "localresponsenorm",
    "Data with source: FOLDER": "imagefolder",
    "num_output": "filters units outchannels outfeatures",
    "kernel_size": "kernel",
    "pad": "padding",
    "eps": "epsilon",
    "dropout_ratio": "p rate",
    "split": "validationsplit",
    "base_lr": "lr learningrate",
    "max_iter (--epochs counts in epochs)": "epochs",
    "max_iter": "iterations steps",
    "type": "optimizer",
    "lr_policy": "scheduler lrscheduler",
    "random_seed": "seed",
    "test_interval": "valinterval evalinterval",
    "momentum": "beta1",
    "momentum2": "beta2",
}


def plain(word: str) -> str:
    """A word without what frameworks write differently.

    >>> plain("MaxPool2d"), plain("out_channels")
    ('maxpool', 'outchannels')
    """
    return re.sub(r"(?<=[a-z])[123]d$", "", re.sub("[-_]", "", word.lower()))


def meant(word: str, known: Container[str]) -> str:
    """A hint that names what a word of other frameworks is here, if that is among the known.

    >>> meant("MaxPool2d", ["Pooling"])
    "; did you mean 'Pooling' with pool: MAX?"
    """
    meaning = next((name for name, words in NAMES.items() if plain(word) in words.split()), "")
    name, blank, more = meaning.partition(" ")
    return f"; did you mean {name!r}{blank}{more}?" if name and name in known else ""


class Check:
    """A check of a number or a text: what it `holds` of, in words, and as a part of a JSON Schema."""

    def __init__(self, holds: Callable[[Any], Any], words: str, json_schema: dict[str, Any]):
        self.holds, self.words, self.json_schema = holds, words, json_schema

    def problem(self, value: Any) -> str | None:
        """Returns what is wrong with a value, or None."""
        return None if self.holds(value) else f"expected {self.words}, got {shown(value)}"


class AtLeast(Check):
    """A bound for a number: `Annotated[int, "...", AtLeast(1)]`."""

    def __init__(self, minimum: float):
        super().__init__(lambda v: v >= minimum, f"at least {minimum}", {"minimum": minimum})


class Below(Check):
    """An exclusive upper bound for a number."""

    def __init__(self, limit: float):
        super().__init__(lambda value: value < limit, f"below {limit}", {"exclusiveMaximum": limit})


class Printable(Check):
    """A name: text that is not empty and can be shown in one line; a JSON Schema cannot say all of it."""

    def __init__(self) -> None:
        super().__init__(lambda s: s and s.isprintable(), "printable text", {"minLength": 1})


@dataclasses.dataclass(frozen=True)
class Among:
    """One of words that may become more later, such as the names of engines: those that `words` returns."""

    words: Callable[[], Iterable[str]]
    hint: Callable[[str, Iterable[str]], str] = did_you_mean  # ends the message, of the words

    def __str__(self) -> str:
        return "one of " + ", ".join(self.words())

    def problem(self, value: Any) -> str | None:
        """Returns what is wrong with a value, or None."""
        words = list(self.words())
        if value in words:
            return None
        return f"expected {self}, got {shown(value)}{self.hint(value, words)}"

    @property
    def json_schema(self) -> dict[str, Any]:
        """The same in a JSON Schema."""
        return {"enum": list(self.words())}


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a declaration: name, type, default (dataclasses.MISSING if required), ..."""

    name: str
    type: Any
    default: Any
    doc: str
    checks: tuple[Any, ...] = ()

    @property
    def required(self) -> bool:
        """Whether the key must be given."""
        return self.default is dataclasses.MISSING


@functools.cache
def keys_of(cls: type) -> Mapping[str, Key]:
    """The keys that a dataclass declares, in order, those of its bases first."""
    hints = get_type_hints(cls, include_extras=True)
    keys = {}
    for item in dataclasses.fields(cls):
        kind, doc, checks = hints[item.name], "", ()
        if get_origin(kind) is Annotated:
            kind, *extras = get_args(kind)
            doc = next((extra for extra in extras if isinstance(extra, str)), "")
            checks = tuple(extra for extra in extras if not isinstance(extra, str))
        factory = item.default_factory
        default = item.default if factory is dataclasses.MISSING else factory()
        if not item.metadata.get("hidden"):
            keys[item.name] = Key(item.name, kind, default, doc, checks)
    return types.MappingProxyType(keys)


def convert(node: Node, kind: Any, what: str = "", checks: tuple[Any, ...] = ()) -> Any:
    """The value of `node` as `kind`; SpecError names the place, `what`, expected and got."""
    origin, value = get_origin(kind), node.value
    if origin in (Union, types.UnionType):
        return None if value is None else convert(node, option(kind), what, checks)
    if kind is Node:
        return node
    if origin is tuple:
        item = get_args(kind)[0]
        if item is Node and not isinstance(value, list):
            raise _mismatch(node, what, "a list")
        items = value if isinstance(value, list) else [node]
        return tuple(convert(one, item, what, checks) for one in items)
    if dataclasses.is_dataclass(kind):
        if isinstance(value, str) and hasattr(kind, "word"):
            node = Node({kind.word: node}, node.mark, {kind.word: node.mark})
        elif not isinstance(value, dict):
            raise _mismatch(node, what, describe(kind))
        return build(node, kind, what)
    result = _scalar(node, kind, what, checks)
    for check in checks:
        if problem := check.problem(result):
            raise SpecError(f"{node.mark}: {_prefix(what)}{problem}")
    return result


def _scalar(node: Node, kind: Any, what: str, checks: tuple[Any, ...]) -> Any:
    value = node.value
    if type(value) is not kind and any(isinstance(check, Among) for check in checks):
        raise _mismatch(node, what, describe(kind, checks))
    if get_origin(kind) is Literal:
        words = get_args(kind)
        if isinstance(value, str) and value in words:
            return value
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        raise _mismatch(node, what, describe(kind), hint)
    if kind is float and type(value) in (int, float):
        if abs(value) < 1e300:
            return float(value) + 0.0  # -0.0, which NumPy takes for a negative number, becomes 0.0
        raise _mismatch(node, what, "a finite number")
    if type(value) is not kind:
        quote = kind is str and type(value) in (bool, int, float)
        raise _mismatch(node, what, describe(kind), "; quote it to make it text" if quote else "")
    if kind is int and abs(value) >= 2**31:  # as in Caffe; a CUDA kernel takes no larger one
        raise _mismatch(node, what, "an integer below 2^31")
    return value


def build(node: Node, cls: Any, what: str = "", **fields: Any) -> Any:
    """A mapping as the dataclass `cls`; `given` are fields that are no keys."""
    fields |= values(node, keys_of(cls), what)
    try:
        return cls(**fields)
    except SpecError as error:
        raise error.at(f"{node.mark}: {what}" if what else str(node.mark)) from None


def values(node: Node, keys: Mapping[str, Key], what: str) -> dict[str, Any]:
    """The values that a mapping gives to declared keys: none unknown, none missing."""
    if not isinstance(node.value, dict):
        raise _mismatch(node, what, "a mapping")
    for name in node.value:
        if name not in keys:
            hint = meant(name, keys) or did_you_mean(name, keys)
            raise SpecError(f"{node.keys[name]}: {_prefix(what)}unknown key {shown(name)}{hint}")
    result = {}
    for name, key in keys.items():
        if name in node.value:
            result[name] = convert(node.value[name], key.type, f"{_prefix(what)}{name}", key.checks)
        elif key.required:
            doc = key.doc or describe(key.type, key.checks)
            raise SpecError(f"{node.mark}: {_prefix(what)}missing key {name!r} ({doc})")
    return result


def option(kind: Any) -> Any:
    """X of `X | None`, and of X."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    return next(arg for arg in get_args(kind) if arg is not type(None))


def describe(kind: Any, checks: tuple[Any, ...] = ()) -> str:
    """A type, with its checks, in words, as an error or the catalogue shows it.

    >>> describe(tuple[int, ...])
    'an integer or a list of them'
    """
    for check in checks:
        if isinstance(check, Among):
            return str(check)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return describe(option(kind))
    if origin is tuple:
        return f"{describe(get_args(kind)[0])} or a list of them"
    if origin is Literal:
        return "one of " + ", ".join(get_args(kind))
    if dataclasses.is_dataclass(kind):
        return "a word or a mapping" if hasattr(kind, "word") else "a mapping"
    words = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    return words.get(kind, str(kind))


def json_schema(
    kind: Any, define: Callable[[Any], dict[str, Any]], checks: tuple[Any, ...] = ()
) -> dict[str, Any]:
    """The JSON Schema of a type; `define` returns the reference to a dataclass's own schema."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(option(kind), define, checks), {"type": "null"}]}
    if origin is tuple:
        item = json_schema(get_args(kind)[0], define, checks)
        return {"anyOf": [item, {"type": "array", "items": item}]}
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if dataclasses.is_dataclass(kind):
        reference = define(kind)
        if not hasattr(kind, "word"):
            return reference
        word = json_schema(keys_of(kind)[kind.word].type, define)  # type: ignore[arg-type, union-attr]
        return {"anyOf": [word.get("anyOf", [word])[0], reference]}  # a word, not null
    words = {bool: "boolean", int: "integer", float: "number", str: "string"}
    schema: dict[str, Any] = {"type": words[kind]}
    for check in checks:
        schema |= check.json_schema
    return schema


def json_schema_of_keys(
    keys: Mapping[str, Key], define: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no others."""
    properties = {}
    for key in keys.values():
        schema = json_schema(key.type, define, key.checks)
        properties[key.name] = {**schema, "description": key.doc or describe(key.type, key.checks)}
    return {
        "type": "object",
        "properties": properties,
        "required": [key.name for key in keys.values() if key.required],
        "additionalProperties": False,
    }


def _prefix(what: str) -> str:
    return f"{what}: " if what else ""


def _mismatch(node: Node, what: str, expected: str, hint: str = "") -> SpecError:
    got = shown(node.value)
    return SpecError(f"{node.mark}: {_prefix(what)}expected {expected}, got {got}{hint}")
