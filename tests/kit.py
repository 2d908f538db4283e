"""What tests share: tables written as text, nets of one layer, refusals, arrays of archives."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minicaffe import CheckpointError, Layer, MinicaffeError, Net, parse, register
from minicaffe.core.layers import REGISTRY
from minicaffe.core.solver import Report
from minicaffe.storage import checkpoint
from minicaffe.tools.data import datasets
from minicaffe.tools.training import folder

CPU = ("--device", "cpu")


def rows(text: str) -> list[Any]:
    """The rows of a table in text, for parametrize: one a line, its cells apart by ` | `.

    A backslash and n in a cell are the end of a line; a line that `# ` leads is a comment.

    >>> [row.values for row in rows("type: ReLU, top: [] | needs one top")]
    [('type: ReLU, top: []', 'needs one top')]
    """
    lines = [f"{line} " for line in text.splitlines() if not re.match(r"\s*(# |$)", line)]
    cells = [re.split(r" \|(?= )", line) for line in lines]
    table = [tuple(cell.strip().replace("\\n", "\n") for cell in row) for row in cells]
    assert len(set(map(len, table))) == 1, "the rows of one table have as many cells"
    named = len({cells[0] for cells in table}) == len(table)
    ids = [cells[0] if named else ", ".join(cells[:-1]) for cells in table]
    return [pytest.param(*cells, id=name[:60]) for name, cells in zip(ids, table, strict=True)]


def net_of(layer: str | dict[str, Any], *bottoms: Any, **options: Any) -> Net:
    """A net of one layer `it`, by its keys as YAML or as a dict; its bottoms are b0, b1, ...

    A bottom is a shape, or an array whose shape it is. The net is of float64, is on the CPU, and has gradients
    of its bottoms, unless options of Net say otherwise.
    """
    names = [f"b{i}" for i in range(len(bottoms))]
    shapes = [list(one if isinstance(one, tuple) else np.shape(one)) for one in bottoms]
    if isinstance(layer, str):
        dims = ", ".join(f"{{dim: {shape}}}" for shape in shapes)
        data = f"  - {{name: data, type: Input, top: [{', '.join(names)}], shape: [{dims}]}}\n"
        it = f"  - {{name: it, bottom: [{', '.join(names)}], {layer}}}\n"
        model: Any = f"layers:\n{data if bottoms else ''}{it}force_backward: true"
    else:
        dims = [{"dim": shape} for shape in shapes]
        data = {"name": "data", "type": "Input", "top": names, "shape": dims}
        it = {"name": "it", "bottom": names, "top": ["it"], **layer}
        model = {"force_backward": True, "layers": [data, it][not bottoms :]}
    return Net(parse(model), **{"phase": "TRAIN", "device": "cpu", "dtype": "float64"} | options)


def arrays_for(bottoms: list[Any], random: np.random.Generator) -> dict[str, Any]:
    """What such bottoms are given: normal numbers of a shape, or the array itself."""
    return {
        f"b{i}": random.normal(size=one) if isinstance(one, tuple) else np.asarray(one)
        for i, one in enumerate(bottoms)
    }


def arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def same_numbers(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    """The same names are given to the same numbers."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def same_arrays(first: str | Path, second: str | Path) -> None:
    """Two snapshots are of the same bits, whatever their commands were (@model)."""
    one, other = arrays(first), arrays(second)
    assert set(one) == set(other)
    for name in set(one) - {"@model"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def logged(run: str | Path, *kinds: str) -> list[dict[str, Any]]:
    """The lines of a run's log, of these kinds or all, without what time and memory they took."""
    lines = [line for line in folder.read(run).lines if not kinds or line["kind"] in kinds]
    clock = {"seconds", "images_per_s", "memory_mib"}
    return [{key: line[key] for key in line.keys() - clock} for line in lines]


def onnx_runs(path: str | Path, **given) -> dict[str, np.ndarray]:
    """What onnxruntime computes from a file, by the outputs' names."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs = {name: np.asarray(array, np.float32) for name, array in given.items()}
    return dict(zip(names, session.run(names, inputs), strict=True))


def refusal(work, *args, error=MinicaffeError, **more) -> str:
    """The message of the error that work(*args, **more) raises."""
    with pytest.raises(error) as caught:
        work(*args, **more)
    return str(caught.value)


def error_line(work: Callable[..., object], *args: Any, **keys: Any) -> str:
    """What work(*args) is refused with: the error's type and its words, in one line."""
    with pytest.raises(MinicaffeError) as caught:
        work(*args, **keys)
    assert str(caught.value).isprintable()
    return f"{type(caught.value).__name__}: {caught.value}"


def plain(node: Any) -> Any:
    """The tree of a file's text as Python's own lists and dictionaries."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    return [plain(one) for one in node.value] if isinstance(node.value, list) else node.value


def layer_text(kind: str, rest: str = "", name: str = "l", bottom: str = "x", top: str = "") -> str:
    """A layer in Caffe's text, which writes the blob of its own name."""
    bottoms = "".join(f' bottom: "{one}"' for one in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}"{bottoms} top: "{top or name}" {rest} }}\n'


def single(kind, keys, bottoms, device="cpu", phase="TRAIN", dtype="float64", tops="[it]") -> Net:
    """A net of a layer `it` of inputs b0, b1, ..., after its forward pass."""
    arrays = [np.asarray(bottom) for bottom in bottoms]
    made = net_of(
        f"type: {kind}, top: {tops}, {keys}", *arrays, device=device, phase=phase, dtype=dtype
    )
    made.forward(**{f"b{i}": array for i, array in enumerate(arrays)})
    return made


def host(made: Net, array) -> np.ndarray:
    """An array of the net's device, in float64."""
    return np.array(made.device.to_host(array), np.float64)


def near(got, wanted, dtype="float64") -> None:
    """Both are of one shape, and alike to what is rounded in `dtype`."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    rtol = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}[dtype]
    np.testing.assert_allclose(got, wanted, atol=rtol * (np.abs(wanted).max(initial=0) + 1e-30))


def model_of(inputs: dict[str, Any], *layers: str, head: str = "") -> str:
    """A model's text: its inputs' shapes by name, then a layer each: `name Type key: value, ...`.

    >>> print(model_of({"x": [2, 3]}, "ip InnerProduct num_output: 4", head="name: small"), end="")
    name: small
    layers:
      - {name: data, type: Input, top: [x], shape: [{dim: [2, 3]}]}
      - {name: ip, type: InnerProduct, num_output: 4}
    """
    shapes = ", ".join(f"{{dim: {shape}}}" for shape in inputs.values())
    data = f"{{name: data, type: Input, top: [{', '.join(inputs)}], shape: [{shapes}]}}"
    words = [layer.split(None, 2) for layer in layers]
    keys = ["".join(f", {more}" for more in rest) for _, _, *rest in words]
    named = [f"{{name: {name}, type: {kind}" for name, kind, *_ in words]
    lines = [data, *(f"{one}{more}}}" for one, more in zip(named, keys, strict=True))]
    return f"{head}\nlayers:\n".lstrip() + "".join(f"  - {line}\n" for line in lines)


def small_net(inputs: dict[str, Any], *layers: str, head: str = "", **options: Any) -> Net:
    """The net of such a text, on the CPU unless options of Net say otherwise."""
    return Net(parse(model_of(inputs, *layers, head=head)), **{"device": "cpu"} | options)


class Heard(Report):
    """Shows nothing, and keeps what it is told: the lines, and what happened when."""

    def __init__(self):
        self.lines, self.events = [], []

    def write(self, text):
        self.lines.append(text)

    def displayed(self, iteration, loss, rate):
        super().displayed(iteration, loss, rate)
        self.events.append(("display", iteration))

    def tested(self, iteration, scores):
        super().tested(iteration, scores)
        self.events.append(("test", iteration))

    def saved(self, path, best=False):
        super().saved(path, best)
        self.events.append(("save", Path(path).name))


def full_disk(monkeypatch, *ends: str) -> None:
    """Snapshots whose names end so cannot be written."""
    write = checkpoint.write

    def fails(path, arrays):
        if str(path).endswith(ends):
            raise CheckpointError(f"{path}: cannot be written: No space left on device")
        write(path, arrays)

    monkeypatch.setattr(checkpoint, "write", fails)


def few_digits(monkeypatch, train: int = 50, test: int = 20) -> None:
    """The drawn digits, but few, kept apart from the whole set."""
    monkeypatch.setattr(datasets, "_COUNTS", {"train": train, "test": test})
    monkeypatch.setattr(datasets, "_DRAWING", f"few-{train}")


def digits_for_mnist(monkeypatch) -> None:
    """The drawn digits for a model that asks for MNIST, wherever that is."""
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setattr(
        datasets, "shape", lambda _, split, __: (datasets._COUNTS[split], 1, 28, 28)
    )


@contextlib.contextmanager
def registered(*layers: type[Layer]) -> Iterator[None]:
    """Types of layers that are known while a test runs."""
    before = dict(REGISTRY)
    try:
        for layer in layers:
            register(layer)
        yield
    finally:
        REGISTRY.clear()
        REGISTRY.update(before)


def numbers_of(bottoms: list[Any], turn: int, random: np.random.Generator) -> list[np.ndarray]:
    """Other numbers each turn for the bottoms of a row: of a shape, or the same in another order."""
    drawn = []
    for bottom in bottoms:
        given = random.normal(size=bottom) if isinstance(bottom, tuple) else np.asarray(bottom)
        turned = not isinstance(bottom, tuple) and turn % 2 and len(given)
        drawn.append(np.ascontiguousarray(given[::-1]) if turned else given)
    return drawn
