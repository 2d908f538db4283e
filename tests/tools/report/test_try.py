"""The net in the page against ours, in headless Chromium: layers, a drawing's preparation, strokes on the canvas."""

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kit import refusal, rows
from reading_files import read_picture

from minicaffe import Net
from minicaffe.core.net import parse
from minicaffe.errors import ShapeError
from minicaffe.tools.data import idx, png
from minicaffe.tools.data.fetch import FILES
from minicaffe.tools.data.pictures import prepared
from minicaffe.tools.deploy import Classifier
from minicaffe.tools.report import make, try_
from minicaffe.tools.report.study import LeftOutError
from minicaffe.tools.report.try_ import encoded, program

CONV = "type: Convolution, weight_filler: {type: gaussian, std: 0.3}, bias_filler: {type: gaussian, std: 1}"
IP = "type: InnerProduct, weight_filler: {type: gaussian, std: 0.3}, bias_filler: {type: gaussian, std: 1}"
FUNCTIONS = [
    *("AbsVal", "BNLL", "Clip, min: -0.5, max: 0.4", "ELU, alpha: 0.7", "Exp, base: 2, shift: 0.3"),
    *("HardSwish", "Power, power: 0", "Power, power: 2, shift: 1", "Power, scale: -2", "ReLU"),
    *("ReLU, negative_slope: 0.2", "ReLU6", "Sigmoid", "Swish, beta: 1.5", "TanH", "Threshold"),
    "GELU, approximate: tanh",
]
CASES = {  # shape of the input, layers
    "lenet": ((1, 1, 28, 28),
        f"{{{CONV}, name: a, num_output: 20, kernel_size: 5}}; {{type: Pooling, name: b, kernel_size: 2, stride: 2}}; "
        f"{{{CONV}, name: c, num_output: 50, kernel_size: 5}}; {{type: Pooling, name: d, kernel_size: 2, stride: 2}}; "
        f"{{{IP}, name: e, num_output: 500}}; {{type: ReLU, name: f, top: e}}; {{{IP}, name: g, num_output: 10}}; "
        "{type: Softmax, name: h}"),
    "strides": ((1, 4, 11, 9), f"{{{CONV}, name: a, num_output: 6, kernel_size: [3, 2], stride: [2, 3], pad: [2, 1], group: 2}}"),
    "dilation": ((1, 3, 12, 12), f"{{{CONV}, name: a, num_output: 4, kernel_size: 3, dilation: [2, 3], pad: 4, bias_term: false}}"),
    "max": ((1, 3, 10, 11), "{type: Pooling, name: a, kernel_size: 3, stride: 2, pad: 1}"),
    "mean": ((1, 3, 10, 11), "{type: Pooling, name: a, pool: AVE, kernel_size: [3, 4], stride: [2, 3], pad: 1}"),
    "past": ((1, 2, 7, 7), "{type: Pooling, name: a, kernel_size: 1, stride: 3}; {type: Pooling, name: b, pool: AVE, kernel_size: 1, stride: 2}"),
    "floor": ((1, 2, 8, 8),
        "{type: Pooling, name: a, kernel_size: 3, stride: 2, round_mode: FLOOR}; {type: Pooling, name: b, pool: AVE, global_pooling: true}"),
    "across": ((1, 7, 4, 5), "{type: LRN, name: a, local_size: 5, alpha: 0.3, beta: 0.6, k: 2}"),
    "within": ((1, 3, 6, 5), "{type: LRN, name: a, local_size: 3, alpha: 0.3, norm_region: WITHIN_CHANNEL}"),
    "channels": ((1, 4, 5, 5),
        "{type: BatchNorm, name: a}; {type: Scale, name: b, bias_term: true, filler: {type: gaussian}, bias_filler: {type: gaussian}}; "
        "{type: Bias, name: c, filler: {type: gaussian}}; {type: PReLU, name: d}; {type: BatchNorm, name: e, scale_bias: true}"),
    "functions": ((1, 2, 3, 3),
        "; ".join(f"{{name: f{i}, bottom: data, type: {keys}}}" for i, keys in enumerate(FUNCTIONS))
        + f"; {{name: all, type: Concat, bottom: [{', '.join(f'f{i}' for i in range(len(FUNCTIONS)))}]}}; "
        "{name: positive, type: Power, bottom: all, power: 3, scale: 0.5, shift: 4}; {name: log, type: Log, shift: 99, base: 10}"),
    "branches": ((1, 4, 6, 6),
        f"{{{CONV}, name: a, num_output: 4, kernel_size: 3, pad: 1}}; {{{CONV}, name: b, bottom: data, num_output: 4, kernel_size: 1}}; "
        "{name: s, type: Eltwise, bottom: [a, b], coeff: [1, -2]}; {name: p, type: Eltwise, bottom: [a, b], operation: PROD}; "
        "{name: m, type: Eltwise, bottom: [a, b], operation: MAX}; {name: c, type: Concat, bottom: [s, p, m]}; "
        "{name: w, type: Concat, axis: 3, bottom: [c, c]}; {name: drop, type: Dropout, top: w}; {name: flat, type: Flatten}; "
        f"{{{IP}, name: ip, num_output: 5, transpose: true}}; {{name: prob, type: Softmax}}"),
    "places": ((1, 5, 3, 2), "{name: a, type: Softmax}; {name: b, type: Softmax, axis: 3}"),
}  # fmt: skip
STUB = """<!doctype html><meta charset="utf-8"><style>:root { --line: #888 }</style><main id="page"></main>
<script>
const report = { sections: {}, busy: [], make: (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
} };
SCRIPTS
const data = DATA;
const host = document.getElementById("page");
const shares = () => [...document.querySelectorAll("[data-share]")].map((bar) => Number(bar.dataset.share));
const busy = () => report.busy[report.busy.length - 1]();
const nets = () => Object.fromEntries(Object.entries(data.nets).map(([name, one]) =>
  [name, Array.from(hand.net(one.net)(hand.decode(one.input)))]));
const begin = (name) => {
  host.replaceChildren();
  report.sections.try(host, data.pages[name]);
  const box = host.querySelector("canvas").getBoundingClientRect();
  return [shares().length, box.left, box.top, box.width, box.height];
};
const file = (bytes) => new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], "a.png");
const drop = async (name, bytes) => {
  begin(name);
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(file(bytes));
  host.querySelector("canvas").dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
  for (let i = 0; i < 200 && !host.querySelector(".answer > p:last-child").textContent.match(/computed|no picture/); i++) {
    await new Promise((done) => setTimeout(done, 20));
  }
  return [shares(), host.querySelector(".answer > p:last-child").textContent];
};
const fitted = async (bytes, image, fit, crop) => {
  const bitmap = await createImageBitmap(file(bytes));
  const canvas = Object.assign(document.createElement("canvas"), { width: bitmap.width, height: bitmap.height });
  const on = canvas.getContext("2d");
  on.drawImage(bitmap, 0, 0);
  const rgba = on.getImageData(0, 0, canvas.width, canvas.height);
  return Array.from(hand.prepared(rgba, { image, fit, crop: [0, 0, crop, crop], digit: false, blue_first: false }));
};
const end = async (name) => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const canvas = host.querySelector("canvas");
  const rgba = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const one = { shares: shares(), png: canvas.toDataURL("image/png").split(",")[1],
    picture: Array.from(hand.prepared(rgba, data.pages[name])), busy: busy(), samples: [] };
  host.querySelector(".controls button").click();
  Object.assign(one, { cleared: shares().length, idle: !busy() });
  for (const button of host.querySelectorAll(".samples button")) {
    button.click();
    one.samples.push(shares());
  }
  return { ...one, text: host.textContent };
};
</script>"""
THREE = [[0.3, 0.2], [0.5, 0.13], [0.68, 0.25], [0.6, 0.42], [0.46, 0.48], [0.66, 0.58]]
THREE += [[0.7, 0.75], [0.5, 0.87], [0.28, 0.78]]
SAMPLE = {
    name: np.random.default_rng(8).integers(0, 256, (1, size, size), dtype=np.uint8)
    for name, size in (("digits", 28), ("cropped", 24))
}
SEVEN = [[0.1, 0.3], [0.45, 0.28], [0.3, 0.6], [0.22, 0.9]]
MNIST = """
layers:
  - {name: data, type: Data, top: [data, label], source: SOURCE, batch_size: 4, transform: {TRANSFORM}}
  - {name: conv, type: Convolution, bottom: data, num_output: 8, kernel_size: 5, stride: 2}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10, weight_filler: {type: gaussian, std: 0.1}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""


def drawn_at_random(seed):
    """A shape and layers: convolutions and poolings of any geometry that fits."""
    rng = np.random.default_rng(seed)
    shape = (1, 2 * int(rng.integers(1, 4)), *map(int, rng.integers(9, 16, 2)))
    layers = []
    for number in range(int(rng.integers(2, 5))):
        ranges = (1, 5), (1, 4), (0, 2)
        kernel, stride, pad = ([int(n) for n in rng.integers(*one, 2)] for one in ranges)
        keys = f"name: l{number}, kernel_size: {kernel}, stride: {stride}, pad: {[min(p, k - 1) for p, k in zip(pad, kernel, strict=True)]}"
        if rng.random() < 0.5:
            group, dilation = rng.choice([1, 2]), [int(n) for n in rng.integers(1, 3, 2)]
            layer = f"{{{CONV}, {keys}, num_output: {2 * rng.integers(1, 4)}, group: {group}, dilation: {dilation}}}"
        else:
            layer = f"{{type: Pooling, {keys}, pool: {rng.choice(['MAX', 'AVE'])}, round_mode: {rng.choice(['CEIL', 'FLOOR'])}}}"
        try:
            of("", shape, "; ".join([*layers, layer]), shapes_only=True)
        except ShapeError:
            break
        layers.append(layer)
    return shape, "; ".join([*layers, f"{{{IP}, name: ip, num_output: 7}}"])


def of(name, shape, layers, **given):
    lines = "".join(f"  - {layer}\n" for layer in layers.split("; "))
    text = f"layers:\n  - {{name: data, type: Input, shape: {{dim: {list(shape)}}}}}\n{lines}"
    return Net(parse(text, name), "TEST", device="cpu", seed=3, **given)


CASES |= {f"random {seed}": drawn_at_random(seed) for seed in range(16)}


def built(name):
    shape, layers = CASES[name]
    net = of(name, shape, layers)
    rng = np.random.default_rng(4)
    for step in net.steps:  # statistics as if it had been trained
        if step.spec.type == "BatchNorm":
            for param in step.layer.params:
                param.data[...] = rng.uniform(0.5, 3, param.shape)
    return net, rng.normal(size=shape).astype(np.float32)


def classifier(tmp_path, transform="scale: 0.00390625", digits=True):
    source = tmp_path / ("mnist_few" if digits else "things")
    source.mkdir(exist_ok=True)
    rng = np.random.default_rng(2)
    for split in ("train", "t10k"):
        images, labels = (file for file in FILES if file.startswith(split))
        idx.write(source / images, rng.integers(0, 256, (4, 28, 28), dtype=np.uint8))
        idx.write(source / labels, np.arange(4, dtype=np.uint8))
    text = MNIST.replace("SOURCE", str(source)).replace("TRANSFORM", transform)
    return Classifier(parse(text), device="cpu")


def colourful(made):
    """A classifier of three channels: what the page is told of one, beside a net that takes them."""
    layers = f"{{{IP}, name: ip, num_output: 4}}; {{name: prob, type: Softmax}}"
    net = of("", (1, 3, 20, 24), layers)
    mean = encoded(np.array([10, 20, 30], "<f4"))
    told = {"net": program(net.steps, "prob"), "image": [3, 20, 24], "crop": [0, 0, 20, 24]}
    told |= {"mean": mean, "scale": 0.001, "digit": False, "blue_first": True, "samples": []}
    return net, {**try_.page(made), **told, "text": "<b>colours</b>"}


@dataclass
class Seen:
    """What the page was given, and what it answers: of nets, and of drawings, by name."""

    folder: Path
    nets: dict
    made: dict
    colours: Net
    numbers: dict
    answers: dict


def draw(chromium, name, strokes, touch):
    """Strokes by mouse or finger, as the browser itself sends them; gives what `end` finds."""
    before, left, top, width, height = chromium.evaluate(f"begin({name!r})")
    assert before == 0
    for points in strokes:
        places = [{"x": left + x * width, "y": top + y * height} for x, y in points]
        if touch:
            for i, place in enumerate(places):
                kind = "touchMove" if i else "touchStart"
                chromium.call("Input.dispatchTouchEvent", type=kind, touchPoints=[place])
            chromium.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        else:
            mouse = {"button": "left", "buttons": 1, "clickCount": 1}
            chromium.call("Input.dispatchMouseEvent", type="mousePressed", **places[0], **mouse)
            for place in places[1:]:
                chromium.call("Input.dispatchMouseEvent", type="mouseMoved", **place, **mouse)
            chromium.call("Input.dispatchMouseEvent", type="mouseReleased", **places[-1], **mouse)
    return chromium.evaluate(f"end({name!r})")


@pytest.fixture(scope="module")
def seen(chromium, tmp_path_factory):
    """One page for all."""
    folder = tmp_path_factory.mktemp("try")
    nets = {name: built(name) for name in CASES}
    crop = "scale: 0.01, mean_value: 30, crop_size: 24"
    made = {"digits": classifier(folder), "cropped": classifier(folder, crop, digits=False)}
    pages = {name: {**try_.page(one), "text": name} for name, one in made.items()}
    for name, told in pages.items():
        told["classes"] = ["</script><b>" + "x" * 300]
        told["samples"] = [{"picture": encoded(SAMPLE[name]), "label": 3}]
    colours, pages["colours"] = colourful(made["digits"])
    given = {"pages": pages, "nets": {}}
    for name, (net, x) in nets.items():
        told = program(net.steps, net.steps[-1].tops[0].name)
        given["nets"][name] = {"net": told, "input": encoded(x)}
    scripts = "\n".join(make._file(name) for name in make.SCRIPTS if name.startswith("try"))
    text = STUB.replace("SCRIPTS", scripts).replace("DATA", make.as_json(given))
    (folder / "try.html").write_text(text, "utf-8")
    chromium.open(folder / "try.html")
    numbers = chromium.evaluate("nets()")
    answers = {
        "digits": draw(chromium, "digits", [THREE], touch=False),
        "cropped": draw(chromium, "cropped", [SEVEN, [[0.8, 0.8]]], touch=False),
        "colours": draw(chromium, "colours", [SEVEN], touch=True),
    }
    assert not chromium.complaints
    return Seen(folder, nets, made, colours, numbers, answers)


@pytest.mark.parametrize("name", CASES)
def test_layers_in_the_page_give_our_numbers(seen, name):
    net, x = seen.nets[name]
    expected = net.forward(data=x)[net.steps[-1].tops[0].name].ravel()
    np.testing.assert_allclose(seen.numbers[name], expected, rtol=1e-4, atol=1e-4)
    assert np.ptp(expected) > 1e-3 or name == "lenet"


@pytest.mark.parametrize("name", ["digits", "cropped"])
def test_a_drawing_is_answered_as_predict_answers_it(seen, name):
    made, answer = seen.made[name], seen.answers[name]
    drawing = seen.folder / f"{name}.png"
    drawing.write_bytes(base64.b64decode(answer["png"]))
    digit = name == "digits"
    pixels, notes = read_picture(str(drawing), made.image_shape, digit, invert=made.data.inverts)
    assert any("cropped to the digit" in note for note in notes) == digit
    theirs = np.reshape(answer["picture"], made.image_shape)
    assert np.abs(theirs - pixels.astype(int)).max() <= 1 and theirs.max() > 200
    given = made.predict(theirs.astype(np.uint8)).ravel()
    np.testing.assert_allclose(answer["shares"], given, atol=1e-4)
    np.testing.assert_allclose(answer["shares"], made.predict(pixels).ravel(), atol=1e-4)
    assert answer["cleared"] == 0 and answer["busy"] and answer["idle"]


@pytest.mark.parametrize("name", ["digits", "cropped"])
def test_a_sample_is_answered_as_the_test_net_sees_it(seen, name):
    made, (shares,) = seen.made[name], seen.answers[name]["samples"]
    edge = (28 - SAMPLE[name].shape[1]) // 2
    whole = np.pad(SAMPLE[name], [(0, 0), (edge, edge), (edge, edge)])
    np.testing.assert_allclose(shares, made.predict(whole).ravel(), atol=1e-4)


def test_colours_drawn_by_finger_go_in_as_the_data_has_them(seen):
    answer = seen.answers["colours"]
    drawing = seen.folder / "colours.png"
    drawing.write_bytes(base64.b64decode(answer["png"]))
    pixels, _ = read_picture(str(drawing), (3, 20, 24))
    theirs = np.reshape(answer["picture"], (3, 20, 24))
    assert np.abs(theirs - pixels[::-1].astype(int)).max() <= 1 and theirs.min() < 60
    given = (theirs - np.array([10, 20, 30]).reshape(3, 1, 1)) * 0.001
    expected = seen.colours.forward(data=given[None].astype(np.float32))["prob"].ravel()
    np.testing.assert_allclose(answer["shares"], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("fit", "shape", "size", "crop", "most"),
    [
        ("stretch", (3, 24, 20), (40, 65), 24, 0),
        ("stretch", (3, 24, 24), (48, 48), 24, 0),
        ("stretch", (3, 24, 20), (7, 9), 24, 0),
        ("cover", (3, 24, 24), (40, 65), 16, 1),
        ("cover", (3, 24, 24), (33, 30), 24, 1),
        ("contain", (3, 24, 20), (40, 65), 24, 1),
    ],
)
def test_a_photograph_is_prepared_as_predict_prepares_it(
    seen, chromium, fit, shape, size, crop, most
):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    told = json.dumps(base64.b64encode(png.encode(pixels)).decode())
    cut = crop if crop < shape[1] else 0
    theirs = chromium.evaluate(f"fitted({told}, {list(shape)}, {fit!r}, {crop})")
    ours, _ = prepared(pixels, shape, fit=fit, crop=cut)
    assert np.abs(np.reshape(theirs, shape) - ours.astype(int)).max() <= most


def test_a_picture_is_dropped_on_the_page(seen, chromium):
    pixels = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    told = json.dumps(base64.b64encode(png.encode(pixels[..., None])).decode())
    shares, took = chromium.evaluate(f"drop('cropped', {told})")
    expected = seen.made["cropped"].predict(pixels[None]).ravel()
    np.testing.assert_allclose(shares, expected, atol=1e-4)
    assert took.startswith("computed in ")
    nothing = json.dumps(base64.b64encode(b"no picture").decode())
    shares, took = chromium.evaluate(f"drop('cropped', {nothing})")
    assert (shares, took) == ([], "a.png is no picture that this browser can read.")


def test_hostile_names_are_text(seen):
    assert "<b>colours</b>" in seen.answers["colours"]["text"]
    assert "</script><b>" in seen.answers["digits"]["text"]


@pytest.mark.parametrize(
    ("channels", "layers", "why"),
    rows("""
        1 | {name: y, type: MVN}, | layer 'y' (MVN): this page's script does not have it
        1 | {name: y, type: Pooling, kernel_size: 2, pool: STOCHASTIC}, | layer 'y' (Pooling): this page's script does not have it
        4 | | a picture has 4 channels; one draws with 1 or 3
        1 | {name: y, type: DummyData, shape: {dim: [1, 1, 9, 9]}}, {name: z, type: Eltwise, bottom: [x, y]}, | the net takes more than pictures
    """),
)
def test_other_nets_leave_the_section_out(channels, layers, why):
    picture = f"{{name: x, type: Input, shape: {{dim: [1, {channels}, 9, 9]}}}}"
    end = "{name: ip, type: InnerProduct, num_output: 2}, {name: p, type: Softmax}"
    made = Classifier(parse(f"layers: [{picture}, {layers} {end}]"), device="cpu")

    def shown():
        try_.check(made.net, made.data)
        program(made.net.steps, "p")

    assert why in refusal(shown, error=LeftOutError)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("MOST_BYTES", 100), "its weights are .* MiB, more than 0.0 MiB"),
        (("MOST_SIDE", 20), "pictures of 28 x 28 are larger than 20 x 20"),
        (("MOST_WORK", 10), "an answer takes .* multiply-adds, more than 10"),
    ],
)
def test_nets_too_large_leave_the_section_out(tmp_path, monkeypatch, change, why):
    made = classifier(tmp_path)
    monkeypatch.setattr(try_, *change)
    assert re.search(why, refusal(try_.check, made.net, made.data))


def test_another_transform_and_weights_that_diverged_leave_the_section_out(tmp_path, monkeypatch):
    made = classifier(tmp_path)
    weight = made.net.params["ip"][0].data
    weight[0, 0], before = np.nan, weight[0, 0]
    told = refusal(try_.page, made, error=LeftOutError)
    assert re.search("'ip'.*its parameters are not all finite numbers", told)
    weight[0, 0] = before
    monkeypatch.setattr(made.data, "as_tested", lambda image: image / 2)
    told = refusal(try_.page, made, error=LeftOutError)
    assert "data: its transform is more than a crop, a mean and a scale" in told
