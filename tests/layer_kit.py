"""What tests share: tables written as text, nets of one layer, the words of a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minicaffe import MinicaffeError, Net, parse


def rows(text: str) -> list[Any]:
    """The rows of a table in text, for parametrize: one a line, its cells apart by ` | `.

    >>> [row.values for row in rows("type: ReLU, top: [] | needs one top")]
    [('type: ReLU, top: []', 'needs one top')]
    """
    lines = [f"{line} " for line in text.splitlines() if line.strip()]
    table = [tuple(cell.strip() for cell in re.split(r" \|(?= )", line)) for line in lines]
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
    given = {"phase": "TRAIN", "device": "cpu", "dtype": "float64"} | options
    return Net(parse(model), **given)


def arrays_for(bottoms: list[Any], random: np.random.Generator) -> dict[str, Any]:
    """What such bottoms are given: normal numbers of a shape, or the array itself."""
    return {
        f"b{i}": random.normal(size=one) if isinstance(one, tuple) else np.asarray(one)
        for i, one in enumerate(bottoms)
    }


def refusal(work: Callable[..., object], *args: Any, **keys: Any) -> str:
    """What work(*args) is refused with: the error's type and its words, in one line."""
    with pytest.raises(MinicaffeError) as caught:
        work(*args, **keys)
    assert str(caught.value).isprintable()
    return f"{type(caught.value).__name__}: {caught.value}"
