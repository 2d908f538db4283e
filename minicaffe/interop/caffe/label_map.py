"""SSD's label maps: what classes are called, as the text of a LabelMap."""

import re
from pathlib import Path

from minicaffe.core.config.tree import load
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.text import parse
from minicaffe.interop.caffe.typed import typed


def is_label_map(text: str) -> bool:
    """Whether a text is that of a label map.

    >>> is_label_map('# classes\\nitem { name: "cat" label: 1 }'), is_label_map("cat")
    (True, False)
    """
    return re.match(r"item\s*[:{]", re.sub("#.*", "", text).lstrip()) is not None and "{" in text


def label_map(path: str | Path) -> dict[int, str]:
    """The names of classes by label: their display names, or else their names. Raises SpecError."""
    file, text = load(path, "prototxt", own=True)
    return names_in(text, file)


def names_in(text: str, file: str, shown: bool = True) -> dict[int, str]:
    """The names in the text of a label map, which errors call `file`; `shown` takes display names."""
    tree = typed(parse(text, file)[0], "LabelMap")
    names: dict[int, str] = {}
    for item in tree.value["item"].value if "item" in tree.value else []:
        fields = item.value
        for key in ("name", "label"):
            if key not in fields:
                raise SpecError(f"{item.mark}: an item of a label map needs {key}")
        label = fields["label"].value
        if label in names:
            raise SpecError(f"{fields['label'].mark}: label {label} has two names")
        named = fields.get("display_name", fields["name"]) if shown else fields["name"]
        if not str(named.value).isprintable():
            raise SpecError(f"{named.mark}: a name that cannot be printed: {named.value!r}")
        names[label] = named.value
    if not names:
        raise SpecError(f"{file}: a label map without a class")
    return names
