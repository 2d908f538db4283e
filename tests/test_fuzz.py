"""Model files with mistakes of every kind: each works, or is refused in one line."""

from __future__ import annotations

import collections
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest

from minicaffe.errors import MinicaffeError, SpecError
from minicaffe.layers import REGISTRY
from minicaffe.net import Net, parse, read

FIXTURES = Path(__file__).parent / "fixtures"
READING = FIXTURES / "reading"
MODELS = Path(__file__).resolve().parent.parent / "models"
SMALL = 20 << 20  # bytes of a net that is run, not only measured
WORK = 10**8  # multiply-adds of such a net

INLINE = {
    "vision": """\
name: vision
force_backward: true
layers:
  - {name: data, type: Input, shape: {dim: [2, 4, 9, 8]}}
  - name: conv1
    type: Convolution
    num_output: 6
    kernel_size: [3, 2]
    stride: 2
    pad: [1, 0]
    dilation: 1
    group: 2
    weight_filler: {type: gaussian, std: 0.01, sparse: 3}
    bias_filler: constant
  - name: relu1
    type: ReLU
    bottom: conv1
    top: conv1
    negative_slope: 0.1
  - {name: pool1, type: Pooling, pool: AVE, kernel_h: 2, kernel_w: 3, stride: 2, pad: 1}
  - {name: pool2, type: Pooling, pool: MAX, global_pooling: true}
  - {name: flat, type: Flatten, axis: 1, end_axis: -1}
  - {name: prob, type: Softmax}
""",
    "windows": """\
name: windows
force_backward: true
layers:
  - {name: data, type: Input, shape: {dim: [2, 3, 4, 6]}}
  - {name: up, type: Deconvolution, num_output: 3, group: 3, kernel_size: 4, stride: 2, pad: 1,
     bias_term: false, weight_filler: bilinear, param: {lr_mult: 0}}
  - {name: columns, type: Im2col, kernel_h: 2, kernel_w: 3, stride_w: 2, pad_h: 1, dilation: [2, 1]}
  - name: line
    type: Convolution
    axis: 2
    force_nd_im2col: true
    num_output: 2
    kernel_size: 3
    engine: caffe
  - {name: point, type: Convolution, num_output: 4, kernel_size: 1, engine: pointwise}
  - {name: volume, type: Input, shape: {dim: [1, 2, 3, 4, 5]}}
  - {name: solid, type: Convolution, num_output: 2, kernel_size: [1, 3, 2], pad: [0, 1, 0], engine: mec}
  - {name: back, type: Deconvolution, num_output: 1, kernel_size: [1, 3, 2], engine: implicit}
""",
    "branches": """\
name: "branches"
layers:
  - name: in
    type: Input
    top: [data, label]
    shape: [{dim: [3, 5]}, {dim: 3}]
  - {name: a, type: InnerProduct, bottom: data, num_output: 4, weight_filler: xavier,
     param: [{name: w, lr_mult: 2}, {name: b, decay_mult: 0}]}
  - {name: b, type: InnerProduct, bottom: data, num_output: 4, transpose: false, axis: -1,
     weight_filler: {type: uniform, min: -1, max: 1},
     param: [{name: w, lr_mult: 2}, {name: b, decay_mult: 0}]}
  - {name: sum, type: Eltwise, bottom: [a, b], operation: SUM, coeff: [1, -0.5]}
  - {name: max, type: Eltwise, bottom: [a, sum], operation: MAX}
  - {name: both, type: Concat, bottom: [sum, max, b], axis: 1}
  - {name: drop, type: Dropout, bottom: both, top: both, dropout_ratio: 0.3}
  - name: scores
    type: InnerProduct
    num_output: 7
    bias_term: false
    weight_filler: &f
      type: msra
      variance_norm: AVERAGE
  - {name: acc, type: Accuracy, bottom: [scores, label], top_k: 2, include: TEST}
  - name: loss
    type: SoftmaxWithLoss
    bottom: [scores, label]
    loss_weight: 0.5
    propagate_down: [true, false]
    ignore_label: 6
    normalization: VALID
    exclude: []
solver: {base_lr: 0.1, lr_policy: multistep, gamma: 0.5, stepvalue: [10, 20], max_iter: 30}
""",
    "pictures": """\
layers:
  - name: digits
    type: Data
    top: [data, label]
    source: digits
    batch_size: 4
    shuffle: false
    transform: {scale: 0.01, mean_value: [3.5], mirror: true, crop_size: 24}
  - name: ip
    type: InnerProduct
    bottom: data
    num_output: 10
  - name: loss
    type: SoftmaxWithLoss
    bottom: [ip, label]
solver:
  base_lr: 1e-2
  max_iter: 10
""",
    "readers": f"""\
layers:
  - {{name: digits, type: Data, top: [d, dl], source: {READING}/lmdb, batch_size: 2, backend: LMDB, rand_skip: 3,
     transform: {{mean_value: [1, 2, 3], crop_size: 4}}}}
  - {{name: images, type: ImageData, top: [i, il], source: {READING}/images.txt, batch_size: 2, shuffle: true,
     new_height: 8, new_width: 9, is_color: false, root_folder: ""}}
  - name: windows
    type: WindowData
    top: [w, wl]
    source: {READING}/windows.txt
    batch_size: 4
    fg_threshold: 0.5
    fg_fraction: 0.5
    context_pad: 1
    crop_mode: square
    transform: {{crop_size: 6, mirror: true, scale: 0.1}}
  - {{name: rows, type: HDF5Data, top: [data, label], source: {FIXTURES}/list.txt, batch_size: 4, shuffle: true}}
  - {{name: out, type: HDF5Output, bottom: [data, label], top: [], file_name: out.h5}}
""",
}
WORDS = """
0 -0 -0.0 -1 1 2 3 7 31 010 0x10 0o17 1e3 1e999 -1e400 .nan .inf 1e-400 1.5 1_000 12:30
1000000000 1000000000000000 9223372036854775807 9223372036854775808 99999999999999999999999999
~ null true false yes no on off Null TRUE '' "" "\\0" "\\n" "\\ud800" "\\UFFFFFFFF" é 日本
[] {} [[]] [1] [1,2] [1,2,3] [[1],[2]] {a:1} {a:&x} [~] [TRAIN,TEST] {type:constant} {dim:[]}
data label conv1 a b ip loss TRAIN TEST MAX AVE SUM PROD xavier msra bilinear positive_unitball
ReLU Convolution Pooling Input Data Softmax Accuracy Concat Eltwise Dropout Flatten digits mnist
*f *nope &f &f<<:*f !!int !!str !!float !!bool !!python/object:os.system !local !!set ? | > % @ `
<<: --- ... # : - , ] } [ { & * ! ' " . .. / /dev/null ../../etc ~nobody
"""
NASTY = [*WORDS.split(), "\t", "\0", "\ufeff", "\x07", "\x85", "\u2028", "\ud800", "dim: 0"]
NASTY += ["9" * 400, "9" * 5000, "x" * 5000, "[" * 300, "{a: " * 300, "- " * 300]
DIGITS = """
0 1 2 3 4 5 6 7 8 10 12 28 30 64 1000 -1 -2 0.5 1.0 1e3 1e200 -1e299 1e-300
1000000000 2147483647 3000000000 1000000000000 1000000000000000 9223372036854775807
"""
NUMBERS = DIGITS.split()


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to three things wrong in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng)
    return text


def characters(text: str, rng: random.Random) -> str:
    at, count = rng.randrange(len(text) + 1), rng.choice((0, 1, 1, 2, 9))
    new = rng.choice(("", rng.choice(text or " "), rng.choice(":-[]{},#&*!|>'\"%@ \t\n\r\0~0é?")))
    return text[:at] + new + text[at + count :]


def lines(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(4):
        case 0:
            rows[i], rows[j] = rows[j], rows[i]
        case 1:
            del rows[i]
        case 2:
            rows.insert(j, rows[i])
        case _:
            by = rng.choice((-4, -2, -1, 1, 2, 4))
            rows[i] = " " * by + rows[i] if by > 0 else rows[i][-by:]
    return "\n".join(rows)


def values(text: str, rng: random.Random) -> str:
    return _replaced(text, rng, lambda word: rng.choice(NASTY))


def numbers(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"(?<![\w.])-?[0-9.]+\b", text))
    if not found:
        return text
    at = rng.choice(found)
    new = rng.choice(NUMBERS) if rng.random() < 0.7 else f"[{rng.choice(NUMBERS)}, 2]"
    return text[: at.start()] + new + text[at.end() :]


def keys(text: str, rng: random.Random) -> str:
    known = ["name", "type", "top", "bottom", "axis", "pad", "param", "shape", "dim", "solver", "x"]
    return _replaced(
        text, rng, lambda word: rng.choice((word[:-1], word + word[-1], *known)), key=True
    )


def swaps(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    mine, other = rows[i].split(" "), rows[j].split(" ")
    a, b = rng.randrange(len(mine)), rng.randrange(len(other))
    if i != j:
        mine[a], other[b] = other[b], mine[a]
    rows[i], rows[j] = " ".join(mine), " ".join(other)
    return "\n".join(rows)


MUTATIONS = (characters, lines, values, numbers, numbers, numbers, keys, swaps)


def _replaced(text, rng, new, key=False):
    """One word of the text, a key or a value, replaced by new(word)."""
    rows = text.split("\n")
    i = rng.choice([i for i, row in enumerate(rows) if ":" in row] or [0])
    parts = rows[i].replace(",", " ,").replace("}", " }").split(" ")
    at = [k for k, part in enumerate(parts) if part and part.endswith(":") == key] or [0]
    k = rng.choice(at)
    parts[k] = new(parts[k].rstrip(":") or "x") + (":" if key else "")
    rows[i] = " ".join(parts)
    return "\n".join(rows)


@np.errstate(all="ignore")  # a net of absurd numbers may overflow
def attempt(text: str, path: Path) -> str:
    """What becomes of a model file: how far it went, or the error's class. Other errors pass."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        spec = read(path)
        nets = [Net(spec, phase, device="cpu", shapes_only=True) for phase in ("TRAIN", "TEST")]
        if any(layer.type == "Data" for layer in spec.layers) or not all(map(small, nets)):
            return "shapes"
        for phase in ("TRAIN", "TEST"):
            net = Net(spec, phase, device="cpu")
            net.forward()
            net.backward()
        return "ran"
    except MinicaffeError as error:
        assert str(error).isprintable(), error
        assert str(error).startswith(f"{path}:"), error
        return type(error).__name__


def small(net: Net) -> bool:
    """Whether a net may be run: few bytes, few multiplications."""
    arrays = [value for step in net.steps for value in step.tops] + net.learnable
    size = 2 * sum(math.prod(array.shape) for array in arrays) + net.context.workspace_size
    return 4 * size < SMALL and all(step.layer.multiply_adds < WORK for step in net.steps)


def texts() -> dict[str, str]:
    return {**INLINE, **{path.name: path.read_text() for path in sorted(MODELS.glob("*.yaml"))}}


def test_the_models_hold_every_layer():
    built_in = {name for name, cls in REGISTRY.items() if cls.__module__.startswith("minicaffe.")}
    assert {layer.type for text in texts().values() for layer in parse(text).layers} == built_in


@pytest.mark.parametrize("name", texts())
def test_a_model_works_before_it_is_spoilt(name, tmp_path):
    done = ("ran",) if name in ("vision", "windows", "branches") else ("ran", "shapes")
    assert attempt(texts()[name], tmp_path / "model.yaml") in done


def test_a_spoilt_model_works_or_is_refused_in_one_line(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = 2000 if request.config.getoption("--long") else 150
    counts: collections.Counter[str] = collections.Counter()
    models = list(texts().values())
    for i in range(count):
        text = mutated(models[i % len(models)], random.Random(f"spoilt {i}"))
        try:
            counts[attempt(text, tmp_path / "model.yaml")] += 1
        except Exception as error:
            pytest.fail(f"mutation {i}: {error!r}:\n{text!r}")
    print(dict(counts))
    assert counts["ran"] > count // 50 and counts["SpecError"] > count // 4


def test_any_bytes_are_refused_in_one_line(request, tmp_path):
    rng, path = random.Random(5), tmp_path / "model.yaml"
    soup = [
        *NASTY[:-6],
        "\n",
        "\n  ",
        "\n- ",
        ": ",
        "- ",
        "? ",
        "a",
        "&a ",
        "*a ",
        '"\\U',
        "%YAML 1.",
    ]
    for _ in range(5000 if request.config.getoption("--long") else 500):
        if rng.random() < 0.3:
            data = rng.randbytes(rng.randrange(30))
        else:
            text = "".join(rng.choices(soup, k=rng.randrange(30)))
            data = text.encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        with pytest.raises(SpecError) as caught:
            read(path)
        assert str(caught.value).isprintable(), data
        assert re.match(rf"{re.escape(str(path))}:\d+:\d+: \S", str(caught.value)), data
