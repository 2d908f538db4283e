"""caffe.proto as classes of the package protobuf: what `protoc` makes of it, made at run time.

Every message and enumeration of `caffe.schema`, with Caffe's own numbers and defaults, in a pool of its own:
beside another caffe_pb2 in the same process neither knows of the other. What the schema has for the text alone
(number 0, keys of forks whose numbers differ among them) gets a number from 20,000,000 on. `minicaffe_param`,
whose fields are not declared, has no place here.

>>> pool = PoolingParameter(pool=PoolingParameter.AVE, kernel_size=3)
>>> print(pool, end="")
pool: AVE
kernel_size: 3
>>> PoolingParameter.FromString(pool.SerializeToString()) == pool
True
"""

from typing import Any

from minicaffe.errors import MinicaffeError, did_you_mean, pip_install
from minicaffe.interop.caffe.schema import PARSERS, Field, schema


class NoProtobufError(MinicaffeError, ImportError):
    """The package protobuf is missing; also an ImportError, for it is raised by an import."""


try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
except ImportError:
    raise NoProtobufError(
        f"caffe.proto as messages needs the package protobuf: {pip_install('pycaffe')}"
    ) from None

PACKAGE = "caffe"
OF_THE_TEXT = 20_000_000  # the first number of the fields that have none
UNDECLARED = "Any"


def _file() -> Any:
    """caffe.proto as protobuf describes a file."""
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package=PACKAGE, syntax="proto2")
    _enums(file, "")
    for name, fields in schema().messages.items():
        message = file.message_type.add(name=name)
        _enums(message, name)
        numbered = OF_THE_TEXT
        for field in fields.values():
            if field.type != UNDECLARED:
                _field(message.field.add(), field, name, field.number or numbered)
                numbered += not field.number
    return file


def _enums(home: Any, message: str) -> None:
    for name, words in schema().enums[message].items():
        enum = home.enum_type.add(name=name)
        for word, number in words.items():
            enum.value.add(name=word, number=number)


def _field(new: Any, field: Field, message: str, number: int) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    new.name, new.number = field.name, number
    new.label = kinds.LABEL_REPEATED if field.repeated else kinds.LABEL_OPTIONAL
    if field.packed:
        new.options.packed = True
    if field.type in PARSERS:
        new.type = getattr(kinds, f"TYPE_{field.type.upper()}")
    elif field.words is None:
        new.type, new.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{field.type}"
    else:
        home = f"{message}." if field.type in schema().enums[message] else ""
        new.type, new.type_name = kinds.TYPE_ENUM, f".{PACKAGE}.{home}{field.type}"
    if field.default is not None:
        text = str(field.default)
        new.default_value = text.lower() if field.type == "bool" else text


def _public() -> dict[str, Any]:
    """The classes, enumerations and words that stand above all messages, by name."""
    pool = descriptor_pool.DescriptorPool()
    file = pool.AddSerializedFile(_file().SerializeToString()) or pool.FindFileByName("caffe.proto")
    names: dict[str, Any] = {"DESCRIPTOR": file}
    for name, enum in file.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names |= dict(names[name].items())
    for name, message in file.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
    return names


globals().update(_public())


def __getattr__(name: str) -> Any:
    near = did_you_mean(name, schema().messages)
    raise AttributeError(f"caffe.proto has no {name!r} above its messages{near}")
