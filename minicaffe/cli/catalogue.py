"""Commands that list what there is: layers, schema, models and fetch."""

import dataclasses
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from minicaffe.cli.options import Imports
from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.core.config.declare import Filler, LayerSpec
from minicaffe.core.config.model import schema
from minicaffe.core.config.types import Key, describe, keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.model import models
from minicaffe.core.net.summary import table
from minicaffe.errors import DataError, MinicaffeError, SpecError, did_you_mean, say
from minicaffe.interop.caffe.forks import FORKS
from minicaffe.tools.data.fetch import NAMES, SETS, data_folder, fetch
from minicaffe.tools.data.weights import NAMES as WEIGHT_NAMES
from minicaffe.tools.data.weights import WEIGHTS, fetch_weights, lookup

HEAD = """\
# The layers

For those who write a model: each layer, by `minicaffe layers --markdown`; `minicaffe layers NAME` shows one.
Shapes are written `(n, c, h, w)`, those of several bottoms or tops with commas between them; an example is
`bottoms -> layer -> tops`. Beside its own keys a layer has [those of every layer](#keys-of-every-layer).
In a prototxt the keys stand where caffe.proto has them: [from Caffe](from-caffe.md). What a layer of one's own
declares beside its keys are its [traits](extending.md#traits).
"""
MARKS = r"\*|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])"  # what Markdown may take for its own; not a_b, not a < b


class Layers(Imports):
    """Show the catalogue of layers, or what one layer does and the keys it takes.

    example:
      minicaffe layers
      minicaffe layers Convolution
    """

    name: Annotated[str | None, Arg("name", nargs="?"), "a layer type"] = None
    markdown: Annotated[bool, "all layers as one page, which docs/layers.md is"] = False

    def __call__(self) -> None:
        self.import_files()
        if self.name is not None and self.name not in REGISTRY:
            raise SpecError(
                f"there is no layer type {self.name!r}{did_you_mean(self.name, REGISTRY)}"
            )
        if self.name is not None:
            print(text(self.name, REGISTRY[self.name]))
        elif self.markdown:
            print(page(REGISTRY), end="")
        else:
            width = max(map(len, REGISTRY))
            for fork, names in by_fork(REGISTRY).items():
                if fork:
                    print(f"\nof Caffe's forks, {fork}:")
                for name in names:
                    first, _, _ = (REGISTRY[name].__doc__ or "").partition("\n")
                    print(f"{name:<{width}}  {first.partition(' Source: ')[0]}".rstrip())


Shapes = list[tuple[int, ...]]


def documentation(cls: type) -> str:
    """What a layer's docstring says, without its example."""
    text = inspect.cleandoc(cls.__doc__ or "no documentation")
    return re.sub(r"\n+Example: .*", "", text, flags=re.S)


def fork_of(cls: type) -> str:
    """The name of the fork of Caffe that a layer is of; empty for others."""
    names = (fork.name for fork in FORKS if cls.__name__ in fork.types)
    return next(names, "") if cls.__module__.startswith("minicaffe.interop.caffe.forks.") else ""


def by_fork(layers: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of layers by their fork, those of no fork, under the empty name, first."""
    forks: dict[str, list[str]] = {}
    for name in sorted(layers, key=lambda name: (fork_of(layers[name]), name.lower())):
        forks.setdefault(fork_of(layers[name]), []).append(name)
    return forks


def example(cls: type) -> tuple[Shapes, str, Shapes] | None:
    """The example in a layer's docstring, `Example: (2, 3) -> {type: ReLU} -> (2, 3)`, in its three parts."""
    match = re.search(r"Example: (.*?)->\s*(\{.*\})\s*->(.*)", cls.__doc__ or "", re.S)
    if match is None:
        return None
    bottoms, layer, tops = (" ".join(part.split()) for part in match.groups())
    return _shapes(bottoms), layer, _shapes(tops)


def text(name: str, cls: Any) -> str:
    """All of a layer, as `minicaffe layers NAME` prints it."""
    fork = fork_of(cls)
    parts = [f"{name} (of Caffe's forks, {fork})" if fork else name, documentation(cls)]
    if shown_example := example(cls):
        parts.append(f"example:\n  {_arrows(*shown_example)}")
    own, common = keys_of(cls), keys_of(LayerSpec)
    parts += ["keys:\n" + (_lines(own) or "  none of its own")]
    parts += ["keys of every layer:\n" + _lines(common)]
    for kind in mappings([*own.values(), *common.values()]):
        parts.append(f"{_called(kind)}, a mapping:\n{_lines(keys_of(kind))}")
    return "\n\n".join(parts)


def page(layers: Mapping[str, Any]) -> str:
    """The page of all layers, in Markdown."""
    names, sections = [], [HEAD]
    for fork, own_names in by_fork(layers).items():
        index = [
            f"- [{name}](#{name.lower()}): {_escaped(documentation(layers[name]).splitlines()[0])}"
            for name in own_names
        ]
        sections += [f"Of Caffe's forks, {fork}:"] * (fork != "")
        sections.append(re.sub(" Source: .*", "", "\n".join(index)))
        names += own_names
    for name in names:
        cls = layers[name]
        sections += [f"## {name}", *[_paragraph(part) for part in documentation(cls).split("\n\n")]]
        if shown_example := example(cls):
            sections.append(f"Example:\n\n    {_arrows(*shown_example)}")
        if own := keys_of(cls):
            sections.append(_table(own))
    sections += ["## Keys of every layer", _table(keys_of(LayerSpec))]
    every = [key for cls in (*map(layers.get, names), LayerSpec) for key in keys_of(cls).values()]
    for kind in mappings(every):
        sections += [f"## {_called(kind)}", _escaped(documentation(kind)), _table(keys_of(kind))]
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def mappings(keys: Iterable[Key]) -> list[type]:
    """The mappings that keys take as values, those within them too, each once."""
    kinds: dict[type, None] = {}
    for key in keys:
        if kind := mapping(key.type):
            kinds |= dict.fromkeys([kind, *mappings(keys_of(kind).values())])
    return list(kinds)


def mapping(kind: Any) -> type | None:
    """The mapping that a key of this type takes, or a list of; None if it takes something else."""
    if dataclasses.is_dataclass(kind):
        return kind if isinstance(kind, type) else None
    return next((inner for arg in get_args(kind) if (inner := mapping(arg))), None)


def shown(value: Any) -> str:
    """A default as YAML shows it."""
    if value is None or value == ():
        return "not given"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Filler):
        constant = value.type == "constant" and value.value
        return f"{value.type} {value.value:g}" if constant else value.type
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    if value == "":
        return "empty"
    return str(value) if isinstance(value, (int, float, str)) else "{}"


def _lines(keys: Mapping[str, Key]) -> str:
    """Keys in a line each: name, type, default, documentation."""
    lines = []
    for key in keys.values():
        default = f"default {shown(key.default)}" if key.default not in (None, ()) else "optional"
        default = "required" if key.required else default
        lines.append(f"  {key.name}: {_value(key)} ({default}). {key.doc}")
    return "\n".join(lines)


def _called(kind: type) -> str:
    """A mapping's name in words: ParamSpec is Param."""
    return kind.__name__.removesuffix("Spec")


def _value(key: Key) -> str:
    """What a key takes, in words; a mapping by its name."""
    kind = mapping(key.type)
    return describe(key.type, key.checks).replace("a mapping", f"a {_called(kind)}" if kind else "")


def _table(keys: Mapping[str, Key]) -> str:
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    for key in keys.values():
        default = "required" if key.required else shown(key.default)
        cells = [_escaped(cell).replace("|", "\\|") for cell in (_value(key), default, key.doc)]
        if kind := mapping(key.type):
            name = _called(kind)
            cells[0] = cells[0].replace(f"a {name}", f"a [{name}](#{name.lower()})")
        rows.append(f"| `{key.name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _paragraph(part: str) -> str:
    """A paragraph of a docstring; what is drawn in columns, or indented, stays as it stands."""
    if any(line.startswith("  ") or re.search(r"\S {3,}\S", line) for line in part.splitlines()):
        return "\n".join(f"    {line}".rstrip() for line in part.splitlines())
    return re.sub(r"^([-+>#]) ", r"\\\1 ", _escaped(part), flags=re.M)


def _escaped(line: str) -> str:
    """Letters that Markdown would take for its own, outside of `code`."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        part if part.startswith("`") else re.sub(MARKS, r"\\\g<0>", part) for part in parts
    )


def _arrows(bottoms: Shapes, layer: str, tops: Shapes) -> str:
    before, after = (", ".join(map(str, shapes)) for shapes in (bottoms, tops))
    return " -> ".join(part for part in (before, layer, after or "nothing") if part)


def _shapes(words: str) -> Shapes:
    """`(2, 3), (2,), ()` as tuples."""
    shapes = re.findall(r"\(([0-9, ]*)\)", words)
    return [tuple(int(n) for n in part.replace(",", " ").split()) for part in shapes]


class Schema(Imports):
    """Print the JSON Schema of model files: editors complete and check YAML with it.

    example:
      minicaffe schema > minicaffe.schema.json
    """

    def __call__(self) -> None:
        self.import_files()
        print(json.dumps(schema(REGISTRY), indent=2))


class Models(CommandOptions):
    """List the models that come with minicaffe; each command takes their names as MODEL.

    A file of that name in the current folder comes first. With NAME, print the model's file.

    example:
      minicaffe models
      minicaffe models lenet > mine.yaml
      minicaffe train lenet
    """

    name: Annotated[str | None, Arg("name", nargs="?"), "a model, whose file is printed"] = None

    def __call__(self) -> None:
        known = models()
        if self.name is None:
            width = max(map(len, known))
            for name, path in known.items():
                lines = path.read_text(encoding="utf-8").splitlines()
                comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
                text = " ".join(line.removeprefix("# ") for line in comment)
                # Its first sentence, without what is in brackets
                first = re.split(r"[.;] ", re.sub(r" \([^)]*\)", "", text))[0].rstrip(".")
                print(f"{name:<{width}}  {textwrap.shorten(first, 100, placeholder=' ...')}")
            return
        if self.name not in known:
            raise SpecError(f"there is no model {self.name!r}{did_you_mean(self.name, known)}")
        print(known[self.name].read_text(encoding="utf-8"), end="")


class Fetch(CommandOptions):
    """Download a data set or published weights into $MINICAFFE_DATA or data/, verify, install.

    Weights go by their own name, or by that of the model that they fit. Their file is installed only if it has
    the digest that was published. Without NAME, all that can be fetched is listed.

    example:
      minicaffe fetch mnist
      minicaffe fetch squeezenet
      minicaffe test squeezenet --weights squeezenet --stage lmdb
    """

    name: Annotated[
        str | None,
        Arg("name", nargs="?"),
        f"{', '.join(NAMES)}; or weights, or a model that some fit",
    ] = None
    folder: Annotated[
        Path | None, "where data sets go, and weights/ in it; default: $MINICAFFE_DATA or data"
    ] = None
    list: Annotated[bool, "list what can be fetched, with licences and accuracies"] = False

    def __call__(self) -> None:
        if self.list and self.name is not None:
            raise MinicaffeError(f"--list goes without NAME, got {self.name!r}")
        if self.name is None:
            sets = [(name, one.content, one.licence) for name, one in SETS.items()]
            print(table(sets, ("data set", "content", "licence"), (0, 1, 2)), end="\n\n")
            rows = [
                (name, one.model or "-", one.licence, one.accuracy) for name, one in WEIGHTS.items()
            ]
            print(table(rows, ("weights", "model", "licence", "accuracy"), (0, 1, 2, 3)))
            return
        folder = self.folder or data_folder()
        if self.name in NAMES:
            say(f"{self.name}: {fetch(self.name, folder)}")
        elif (weights := lookup(self.name)) is not None:
            name, row = weights
            say(f"{name}: {fetch_weights(name, folder)} ({row.licence})")
        else:
            raise DataError(
                f"cannot fetch {self.name!r}: expected {', '.join(NAMES)}, or weights by name"
                f"{did_you_mean(self.name, (*NAMES, *WEIGHT_NAMES))} (minicaffe fetch --list lists them)"
            )
