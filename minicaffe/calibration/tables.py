"""A calibration as files: our JSON, TensorRT's cache, ncnn's table, NVDLA's JSON."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from minicaffe.calibration.calibrate import Calibration
from minicaffe.calibration.ranges import LARGEST, METHODS
from minicaffe.calibration.simulate import Score
from minicaffe.errors import SpecError

FORMAT = 1
TENSORRT = "TRT-8601-EntropyCalibration2"


def as_json(calibration: Calibration) -> str:
    """Everything that was measured; docs/calibration.md says what each key holds."""
    whole = {
        "format": "minicaffe calibration",
        "version": FORMAT,
        "net": calibration.net,
        "images": calibration.images,
        "method": calibration.method,
        "percentile": calibration.percentile,
        "blobs": {
            name: {
                "layer": one.writer,
                "min": one.low,
                "max": one.high,
                "count": one.size,
                "zeros": one.zeros,
                "threshold": {method: one.thresholds[method] for method in METHODS},
                "scale": calibration.scale(name),
            }
            for name, one in calibration.blobs.items()
        },
        "layers": {
            name: {
                "type": one.type,
                "bottoms": list(one.bottoms),
                "weight_max": one.maxima.tolist(),
                "weight_scale": one.scales.tolist(),
            }
            for name, one in calibration.layers.items()
        },
        "loss": {
            "accuracy": calibration.loss.accuracy,
            "int8": _score(calibration.loss.whole),
            "layers": [{"layer": one.layer, **_score(one)} for one in calibration.loss.layers],
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _score(one: Score) -> dict[str, Any]:
    sqnr = one.sqnr if math.isfinite(one.sqnr) else None
    return {"sqnr": sqnr, "agreement": one.agreement, "accuracy": one.accuracy}


def as_tensorrt(calibration: Calibration, header: str = TENSORRT) -> str:
    """TensorRT's calibration cache: a header, then a line a blob, name: scale as the hex of a float32.

    The header names the version and the calibrator that TensorRT expects: one of another version it does not
    read. Source: the README of TensorRT's sampleINT8, "Calibration file".
    """
    for name in calibration.blobs:
        if ":" in name or any(letter.isspace() for letter in name):
            raise SpecError(
                f"blob {name!r}: TensorRT's cache cannot hold a name with ':' or blanks"
            )
    lines = [
        f"{name}: {struct.pack('>f', calibration.scale(name)).hex()}" for name in calibration.blobs
    ]
    return "\n".join([header, *lines, ""])


def as_nvdla(calibration: Calibration) -> str:
    """NVDLA's JSON: scale = T / 127 of each blob; min, max and offset are 0, as its own tool writes them.

    Source: nvdla/sw, umd/utils/calibdata/calib_txt_to_json.py.
    """
    rows = {
        n: {"scale": calibration.scale(n), "min": 0, "max": 0, "offset": 0}
        for n in calibration.blobs
    }
    return json.dumps(rows, indent=4) + "\n"


def as_ncnn(calibration: Calibration) -> str:
    """ncnn's table: `layer_param_0` and a factor an output channel, then `layer` and that of its bottom.

    Factors are 127 / max |w| and 127 / T: ncnn multiplies by them. As ncnn2table has it, a convolution with
    groups has one a group, and one of 3 x 3 with stride 1 has 31 / max |w|, since ncnn's Winograd needs
    weights of 6 bits. A Deconvolution stays in floating point there, and has no line. Source: ncnn's
    tools/quantize/ncnn2table.cpp. Raises SpecError for a net without lines, or a name with blanks.
    """
    layers = {name: one for name, one in calibration.layers.items() if one.type != "Deconvolution"}
    if not layers:
        raise SpecError(f"net {calibration.net!r}: ncnn computes none of its layers in int8")
    weights, blobs = [], []
    for name, one in layers.items():
        if any(letter.isspace() for letter in name):
            raise SpecError(f"layer {name!r}: ncnn's table cannot hold a name with blanks")
        maxima = one.maxima.reshape(one.group, -1).max(axis=1) if one.group > 1 else one.maxima
        most = 31 if one.six_bits else LARGEST
        factors = [most / float(w) if w else 1.0 for w in maxima]
        weights.append(" ".join([f"{name}_param_0", *(f"{factor:f}" for factor in factors)]))
        blobs.append(f"{name} {1 / calibration.scale(one.bottoms[0]):f}")
    return "\n".join([*weights, *blobs, ""])
