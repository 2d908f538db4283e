"""Reference numbers computed with BVLC Caffe 1.0, as nets and arrays of ours."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe import Net, Solver
from minicaffe.core.layers.blob import Param
from minicaffe.core.solver.report import Mute

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "caffe"
FOLDERS = (FIXTURES, SHARED / "cases")  # a small part of the cases, and all of them where they are
RENAMED: dict[str, str] = {}
DROPPED: set[str] = set()


def names(*prefixes: str) -> list[str]:
    """The cases, here or among all that Caffe computed, whose name up to the first `_` is one of these.

    A prefix with a `_` of its own is one of the whole name.
    """
    return [
        name
        for name in sorted({path.stem for folder in FOLDERS for path in folder.glob("*_*.npz")})
        if name.partition("_")[0] in prefixes
        or any("_" in prefix and name.startswith(prefix) for prefix in prefixes)
    ]


def load(name: str) -> dict[str, Any]:
    path = next(p for p in (folder / f"{name}.npz" for folder in FOLDERS) if p.exists())
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def as_model(caffe: dict[str, Any], phase: str = "TRAIN") -> dict[str, Any]:
    """Caffe's net (prototxt as JSON) as the mapping that a model file holds."""
    return {
        "name": caffe.get("name", ""),
        "force_backward": caffe.get("force_backward", False),
        "layers": [as_layer(layer) for layer in listed(caffe["layer"])],
    }


def as_layer(caffe: dict[str, Any]) -> dict[str, Any]:
    """Caffe's layer with the keys of its *_param beside the common ones."""
    layer: dict[str, Any] = {"bottom": []}
    for key, value in caffe.items():
        if key in ("transform_param",):
            layer["transform"] = {k: v for k, v in value.items() if k != "mean_file"}
        elif key.endswith("_param"):
            layer.update({RENAMED.get(k, k): v for k, v in value.items() if k not in DROPPED})
            if str(layer.get("source", "")).endswith(".binaryproto"):
                layer["source"] = str(FIXTURES / Path(layer["source"]).name)
        else:
            layer[key] = value
    return layer


def from_json(text: Any) -> dict[str, Any]:
    return json.loads(str(text))


def solver_of(case: dict[str, Any], **more: Any) -> Solver:
    """A solver made as the case's was, which says nothing and saves nothing at the end."""
    settings = {"max_iter": 10_000, **from_json(case["solver_json"]), **more}
    settings["snapshot_after_train"] = False
    settings.pop("display", None)
    model = {**as_model(from_json(case["net_json"])), "solver": settings}
    return Solver(model, device="cpu", report=Mute())


def params_of(net: Net, case: dict[str, Any]) -> dict[str, Param]:
    """The parameters that a case follows."""
    names = [name.rsplit("__", 1) for name in json.loads(str(case["param_names"]))]
    return {f"{layer}__{i}": net.params[layer][int(i)] for layer, i in names}


def feed(net: Net, case: dict[str, Any], start: int = 0) -> None:
    """The net reads the batches of a case, those of the iteration `start` first."""
    pairs = zip(case["data"], case["label"], strict=True)
    batches = itertools.islice(pairs, start * int(case["iter_size"]), None)
    blobs = [value.blob for value in net.steps[0].tops]
    net.steps[0].layer.forward = lambda: [
        np.copyto(b.data, a) or b.data for b, a in zip(blobs, next(batches), strict=True)
    ]


def assert_close(got: Any, wanted: Any, what: str, tolerance: float = 1e-5) -> None:
    """Equal to `tolerance` of the wanted array's largest value."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, Caffe's {wanted.shape}"
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-7)
    error = float(np.abs(got - wanted).max(initial=0)) / scale
    assert error <= tolerance, f"{what}: relative error {error:.2e}"
