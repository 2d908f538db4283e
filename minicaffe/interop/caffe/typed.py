"""The fields of a text as caffe.proto declares them: a tree like that of YAML, with Caffe's names."""

import difflib
import logging
import re

from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import SpecError, did_you_mean
from minicaffe.interop.caffe.schema import Field, is_declared, schema
from minicaffe.interop.caffe.text import Field as Given
from minicaffe.interop.caffe.text import Message, Token, Word
from minicaffe.interop.caffe.upgrade import type_of_word

_log = logging.getLogger("minicaffe")
INFINITE = re.compile(r"(-?)(inf|infinity|nan)", re.IGNORECASE)
WORD = re.compile("[A-Za-z][A-Za-z0-9_]*")
WHOLE = re.compile(r"-?([0-9]+|0[xX][0-9a-fA-F]+)")
TRUE, FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")
RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
# Keys of forks that change no result here, behind their message, with the reason; forks whose keys do.
NVCAFFES = "it is how NVCaffe computes, not what"
INTELS = "it is how Intel's Caffe computes, not what"
HARMLESS = {
    "NetParameter reduce_buckets eltwise_mem_sharing default_forward_type default_forward_math "
    "default_backward_type default_backward_math": NVCAFFES,
    "LayerParameter forward_type forward_math backward_type backward_math": NVCAFFES,
    "DataParameter cache threads parser_threads": NVCAFFES,
    "SolverParameter store_blobs_in_old_format": NVCAFFES,
    "ConvolutionParameter cudnn_convolution_algo_seeker": NVCAFFES,
    "ImageDataParameter cache": NVCAFFES,
    "NetParameter global_grad_scale global_grad_scale_adaptive": (
        "gradients of 16 bits are scaled by loss_scale here"
    ),
    "NetParameter multinode": "it is how Intel's Caffe divides the work",
    "LayerParameter quantization_param": "it is how Intel's Caffe computes with integers",
    "LayerParameter engine": INTELS,
    "NetParameter bn_stats_batch_size": INTELS,
    "ConvolutionParameter conv_algorithm": "it is how a fork computes, not what",
    "SolverParameter larc larc_policy larc_turbo larc_eta": (
        "NVCaffe fits each layer's rate to its weights, which is not done here"
    ),
    "SolverParameter local_lr_auto local_gw_ratio": (
        "Intel's Caffe fits each layer's rate to its weights, which is not done here"
    ),
    "BatchNormParameter filler": "the Scale behind it, which Intel's engine merges, has its own",
    "NetParameter mem_param": "it is how a fork saves memory",
}
FORKS = {  # which have a key that changes the result
    **dict.fromkeys(("color_order", "rampup_interval", "rampup_lr"), "NVCaffe"),
    **dict.fromkeys(("stagelr", "stageiter"), "a fork"),
    "denser_prior_boxes": "a fork of SSD's Caffe",
    "param_propagate_down": "a fork",
}
# Fields that a fork has several of, one for each axis: video-caffe's poolings.
SEVERAL = {("PoolingParameter", key) for key in ("kernel_size", "stride", "pad")}
ANY, UNDECLARED = "Any", ""  # a message whose fields are not declared, and the type of these
RAW = "as it is"  # both, of layers of unknown types: words are told from text


def typed(
    message: Message,
    kind: str,
    what: str = "",
    mark: Mark | None = None,
    unknown: list[tuple[Mark, str]] | None = None,
) -> Node:
    """A message of a kind as a mapping, a repeated field as a list. Raises SpecError.

    Unknown keys are left out, and what is to be said of each is appended with its place to `unknown`, if that
    is given. The `..._param` of a layer whose type caffe.proto does not have is taken as it is.

    >>> from minicaffe.interop.caffe.text import parse
    >>> tree = typed(parse("name: 'x' input: 'a' force_backward: 1")[0], "NetParameter")
    >>> tree.value["force_backward"].value, tree.value["input"].value[0].value
    (True, 'a')
    """
    known = schema().messages.get(kind, {})
    texts = {one.name: one.value.text for one in message.fields if isinstance(one.value, Token)}
    if kind in ("LayerParameter", "V1LayerParameter", "V0LayerParameter") and "name" in texts:
        own = f" ({texts['type']})" if "type" in texts and texts["type"].isprintable() else ""
        what = f"layer {shown(texts['name'])}{own}"
    names = [(one.name, one.mark) for one in message.fields]
    type_ = texts.get("type", "") if kind in ("LayerParameter", "V1LayerParameter") else ""
    if kind == "V1LayerParameter":  # where a word may be given by its number, too: none of a fork's
        type_ = "" if WHOLE.fullmatch(type_) else type_of_word(type_)
    apart = type_ != "" and is_declared(type_)
    free = Field("", 0, UNDECLARED if type_ in REGISTRY or kind == ANY else RAW)
    left_out = set()
    for name, place in [*names, *message.empty.items()]:
        if kind in (ANY, RAW) or name in known or (apart and name.endswith("_param")):
            continue
        problem = f"{place}: {f'{what}: ' if what else ''}{_unknown(name, kind)}"
        if unknown is None:
            raise SpecError(problem)
        left_out.add(name)
        row = next((row for row in HARMLESS if {kind, name} <= {*row.split()}), None)
        if row is not None:
            _log.warning("%s: %s has no effect: %s", place, name, HARMLESS[row])
        else:
            unknown.append((place, problem))
    groups: dict[str, list[Node]] = {name: [] for name in message.empty if name not in left_out}
    fields: dict[str, Field] = {}
    keys = dict(reversed(names)) | message.empty
    for one in message.fields:
        if one.name in left_out:
            continue
        as_declared = apart and one.name.endswith("_param")
        if as_declared and type_ not in REGISTRY and _fits(one, known.get(one.name)):
            as_declared = False
        field = free if as_declared else known.get(one.name, free)
        fields[one.name] = field
        inside = f"{what}: {one.name}" if what else one.name
        group = groups.setdefault(one.name, [])
        once = not field.repeated and (kind, one.name) not in SEVERAL
        if group and once and field.type not in (UNDECLARED, RAW):
            line = keys[one.name].within
            raise SpecError(f"{one.mark}: {inside}: is given twice, first at {line}")
        group.append(_value(one, field, inside, unknown))
    values = {}
    for name, group in groups.items():
        field = fields.get(name, known.get(name, free))
        free_of = field.type in (UNDECLARED, RAW) or (kind, name) in SEVERAL
        if len(group) != 1 if free_of else field.repeated:
            values[name] = Node(group, group[0].mark if group else keys[name])
        elif group:
            values[name] = group[0]
    return Node(values, mark or message.mark, {name: keys[name] for name in values})


def _fits(block: Given, field: Field | None) -> bool:
    """Whether caffe.proto knows a block and all that a layer of an unknown type has in it."""
    if field is None or field.words is not None or not isinstance(block.value, Message):
        return False
    fields = schema().messages.get(field.type, {})
    return all(one.name in fields for one in block.value.fields)


def _unknown(name: str, kind: str) -> str:
    messages = schema().messages
    homes = [home for home, fields in messages.items() if name in fields]
    why = f"unknown key {name!r}: neither BVLC Caffe's {kind} has it nor what is read of its forks"
    elsewhere = f"; it is a key of {homes[0]}" if homes else ""
    if name in FORKS:
        return f"{why}; {FORKS[name]} has it"
    near = list(messages[kind])
    if name.endswith("_param"):  # `bn_param` is of another layer, not a slip of `mvn_param`
        near = [one for one in near if difflib.SequenceMatcher(None, name, one).ratio() > 0.85]
    return why + (did_you_mean(name, near) or elsewhere)


def _value(one: Given, field: Field, what: str, unknown: list[tuple[Mark, str]] | None) -> Node:
    value = one.value
    if field.type in (UNDECLARED, RAW):
        inside = ANY if field.type == UNDECLARED else RAW
        if isinstance(value, Message):
            return typed(value, inside, what, one.mark)
        return _guessed(value, inside == RAW)
    if field.is_message:
        if isinstance(value, Message):
            return typed(value, field.type, what, one.mark, unknown)
        got = _shown(value)
        raise SpecError(f"{value.mark}: {what}: expected {{ fields of {field.type} }}, got {got}")
    if isinstance(value, Message):
        problem = f"{what}: expected {_expected(field)}, got a message in braces"
        raise SpecError(f"{value.mark}: {problem}")
    held = _word(value, field) if field.words is not None else _plain(value, field.type)
    if held is None and field.name == "engine" and value.kind == "word":
        held = "DEFAULT"  # a fork's, such as MKLDNN; how, not what, is computed
    if held is None and field.type == "LayerType" and WORD.fullmatch(value.text):
        held = value.text  # a fork's word, or a type of today in quotes
    if held is None:
        hint = ""
        if field.words and value.text in field.words:
            hint = "; without quotes"
        elif field.words and value.kind != "number":
            hint = did_you_mean(value.text, field.words)
        elif field.type == "string" and value.kind != "string":
            hint = "; put it in quotes"
        got = f"expected {_expected(field)}, got {_shown(value)}{hint}"
        raise SpecError(f"{value.mark}: {what}: {got}")
    return Node(held, value.mark)


def _word(value: Token, field: Field) -> str | None:
    """A word of an enumeration, given as such or by its number."""
    words = field.words or {}
    if value.kind == "word":
        return value.text if value.text in words else None
    number = _integer(value)
    return next((word for word, meant in words.items() if meant == number), None)


def _plain(value: Token, kind: str) -> bool | int | float | str | None:
    if kind == "string" or value.kind == "string":
        return value.text if value.kind == kind else None
    number = _integer(value)
    if kind == "bool":
        text = value.text if number is None else str(number)
        return True if text in TRUE else False if text in FALSE else None
    if kind in RANGES:
        least, most = RANGES[kind]
        return number if number is not None and least <= number <= most else None
    return _float(value)


def _integer(value: Token) -> int | None:
    """A whole number in decimal, hexadecimal or, behind a 0, octal digits."""
    text = value.text
    if value.kind != "number" or not WHOLE.fullmatch(text) or len(text) > 40:
        return None
    digits = text.lstrip("-")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    try:
        number = int(digits, 8 if octal else 0)
    except ValueError:  # 09
        return None
    return -number if text[0] == "-" else number


def _float(value: Token) -> float | int | None:
    if value.kind == "word":
        return float(value.text) if INFINITE.fullmatch(value.text) else None
    if (whole := _integer(value)) is not None:
        return whole
    text = value.text.rstrip("fF") if "x" not in value.text.lower() else ""
    return float(text) if text and len(text) < 400 else None


def _guessed(value: Token, words: bool) -> Node:
    """A value whose type is not declared: whatever it looks like; with `words`, a word stays one."""
    text = value.text
    if value.kind == "number" or (value.kind == "word" and INFINITE.fullmatch(text)):
        number = _float(value)
        if number is None:
            raise SpecError(f"{value.mark}: {shown(text)} is not a number")
        return Node(number, value.mark)
    if value.kind == "word" and text in ("true", "false", "null"):
        return Node({"true": True, "false": False, "null": None}[text], value.mark)
    return Node(Word(text) if words and value.kind == "word" else text, value.mark)


def _shown(value: Token | Message) -> str:
    if isinstance(value, Message):
        return "a message in braces"
    return shown(value.text) if value.kind == "string" else shown(value.text).strip("'\"")


def _expected(field: Field) -> str:
    if field.words:
        some = list(field.words)
        return f"one of {', '.join(some)}" if len(some) < 10 else f"a word such as {some[7]}"
    words = {"bool": "true or false", "string": "text in quotes", "uint32": "an integer from 0"}
    return words.get(field.type, "an integer" if field.type in RANGES else "a number")
