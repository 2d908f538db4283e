"""The writers, a family of layers a file; importing this package makes those of every file known."""

import importlib
import pkgutil

from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.table import REFUSED, WRITERS, Writer

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")


def writer_of(kind: str) -> Writer:
    """The writer of a type of layers. Raises SpecError, with the reason, where there is none."""
    if kind not in WRITERS:
        why = REFUSED.get(kind, "a layer of one's own needs a writer, see minicaffe.export.writes")
        raise SpecError(f"cannot be exported to ONNX: {why}")
    return WRITERS[kind]
