"""Messages of caffe.proto drawn at random, as nested mappings and lists, and as protobuf has them."""

import math
import struct

from minicaffe.interop.caffe.schema import schema

LETTERS = "az09 \"'\\\n\t\x00\x7f#{}é日😀"
SCALARS = {
    "bytes": lambda rng: rng.randbytes(rng.randrange(6)),
    "bool": lambda rng: rng.random() < 0.5,
    "float": lambda rng: struct.unpack("f", rng.randbytes(4))[0],
    "double": lambda rng: struct.unpack("d", rng.randbytes(8))[0],
    "string": lambda rng: "".join(rng.choices(LETTERS, k=rng.randrange(6))),
    "int32": lambda rng: rng.choice((0, 7, -1, 2**31 - 1, -(2**31))),
    "int64": lambda rng: rng.choice((0, 8, -9, 2**63 - 1, -(2**63))),
    "uint32": lambda rng: rng.choice((0, 10, 2**32 - 1)),
}


def drawn(rng, kind, depth=4):
    """A message as nested mappings and lists."""
    fields = [f for f in schema().messages[kind].values() if f.type != "Any"]
    found = {}
    for field in rng.sample(fields, min(len(fields), rng.randrange(6))):
        count = rng.randrange(1, 4) if field.repeated else 1
        if field.is_message and not depth:
            continue
        values = [
            drawn(rng, field.type, depth - 1)
            if field.is_message
            else rng.choice(list(field.words))
            if field.words
            else SCALARS[field.type](rng)
            for _ in range(count)
        ]
        found[field.name] = values if field.repeated else values[0]
    return found


def filled(message, values):
    """A message of protobuf's with such values."""
    for name, value in values.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        for one in value if isinstance(value, list) else [value]:
            if field.message_type is not None:
                inside = getattr(message, name)
                filled(inside.add() if isinstance(value, list) else inside, one)
                if not isinstance(value, list):
                    inside.SetInParent()
                continue
            one = field.enum_type.values_by_name[one].number if field.enum_type else one
            if isinstance(value, list):
                getattr(message, name).append(one)
            else:
                setattr(message, name, one)
    return message


def same(got, wanted):
    if isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(same(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, float):
        near = math.isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-45)
        return near or got == wanted or (math.isnan(got) and math.isnan(wanted))
    return got == wanted
