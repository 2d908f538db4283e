"""What real files of Caffe and its forks hold beside what caffe.proto of BVLC says."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import layer_text, refusal, registered

from minicaffe import Layer, Net, Solver, SpecError, parse, read, register
from minicaffe.core.config.declare import Filler, SolverSpec
from minicaffe.core.config.model import model
from minicaffe.core.config.types import AtLeast, keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.interop import caffe
from minicaffe.interop.caffe import model as model_text
from minicaffe.interop.caffe import weights
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.caffe.schema import own_block, schema
from minicaffe.interop.caffe.unknown import FORK_OF

DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'
OLD = 'input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8\n'


@dataclass(frozen=True)
class Corner:
    """A place in an image."""

    at: Annotated[int, "pixels", AtLeast(0)] = 0
    name: Annotated[str, "what it is called"] = ""


def my_scale():
    """Register a layer of one's own, with a key of every kind."""

    @register
    class MyScale(Layer):
        """x times a factor."""

        factor: Annotated[float, "by how much"]
        mode: Annotated[Literal["FAST", "EXACT"], "how"] = "EXACT"
        sizes: Annotated[tuple[int, ...], "sizes"] = ()
        ratios: Annotated[tuple[float, ...], "ratios"] = (1.0,)
        deep: Annotated[bool, "whether"] = False
        title: Annotated[str | None, "a text"] = None
        corner: Annotated[Corner, "one"] = Corner()
        corners: Annotated[tuple[Corner, ...], "several"] = ()
        fill: Annotated[Filler, "a filler"] = Filler(type="constant")

        def setup(self, x):
            return x

        def forward(self, x):
            return x * self.factor

    return MyScale


@pytest.fixture
def own_types():
    with registered():
        yield my_scale()


def net(text):
    return caffe.parse(DATA + text, "n.prototxt")


def mistake(text):
    return refusal(net, text, error=SpecError)


def file_of(folder, text, name="net.prototxt"):
    """A file of this text."""
    (folder / name).write_text(text)
    return folder / name


def test_a_declaration_is_the_block_of_its_type(own_types):
    spec = net(
        'layer { name: "m" type: "MyScale" bottom: "x" top: "m" my_scale_param { factor: 3 mode: FAST sizes: 4'
        ' corner { at: 2 } corners { at: 1 name: "a b" } corners { at: 5 } fill { value: 2 } deep: true } }'
    )
    options = spec.layers[1].options
    assert options["factor"] == 3 and options["mode"] == "FAST" and options["sizes"] == (4,)
    assert options["corner"] == Corner(at=2) and options["deep"] is True
    assert options["corners"] == (Corner(at=1, name="a b"), Corner(at=5))
    assert options["fill"] == Filler(type="constant", value=2)
    written = prototxt(spec, REGISTRY)
    assert "my_scale_param {" in written and "minicaffe_param" not in written
    assert "mode: FAST" in written and 'name: "a b"' in written
    assert caffe.parse(written).layers[1].options == options
    assert parse(yaml_text(spec, REGISTRY)).layers[1].options == options


@given(
    st.fixed_dictionaries(
        {"factor": st.floats(-1e6, 1e6, width=32)},
        optional={
            "mode": st.sampled_from(["FAST", "EXACT"]),
            "sizes": st.lists(st.integers(-(2**31) + 1, 2**31 - 1), max_size=4).map(tuple),
            "ratios": st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=3).map(tuple),
            "deep": st.booleans(),
            "title": st.text(
                st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=9
            ),
            "corner": st.builds(Corner, at=st.integers(0, 99)),
            "corners": st.lists(st.builds(Corner, at=st.integers(0, 9)), max_size=3).map(tuple),
        },
    )
)
def test_any_declaration_goes_there_and_back(given_keys):
    """To a prototxt, in the block of its type, and back to the same keys."""
    with registered():
        keys = keys_of(my_scale())

        def plain(value):
            if isinstance(value, Corner):
                return {"at": value.at}
            return [plain(one) for one in value] if isinstance(value, tuple) else value

        layer = {"name": "m", "type": "MyScale", "bottom": "x"}
        layer |= {key: plain(value) for key, value in given_keys.items()}
        spec = parse({"layers": [{"name": "x", "type": "Input", "shape": {"dim": [1, 2]}}, layer]})
        wanted, got = (
            {name: one.layers[1].options.get(name, key.default) for name, key in keys.items()}
            for one in (spec, caffe.parse(prototxt(spec, REGISTRY)))
        )
        assert got == wanted


def test_mistakes_in_the_block_of_a_declaration_have_their_place(own_types):
    """Numbers stand for true and false; what is no message is refused."""
    lead = 'layer { name: "m" type: "MyScale" bottom: "x" top: "m" '
    what = "layer 'm' (MyScale)"
    for text, told in [
        ("my_scale_param { factr: 3 } }", f"n.prototxt:2:73: {what}: my_scale_param: unknown key 'factr'; did you mean 'factor'?"),
        ("my_scale_param { factor: 3 mode: SLOW } }", f"{what}: mode: expected one of FAST, EXACT, got 'SLOW'"),
        ("my_scale_param { mode: FAST } }", f"{what}: missing key 'factor'"),
        ("my_scale_param { factor: 3 corner { at: -1 } } }", f"{what}: corner: at: expected at least 0, got -1"),
        ("scale_param_of_mine { factor: 3 } }", f"n.prototxt:2:56: {what}: unknown key 'scale_param_of_mine'"),
        ("my_scale_param: 3 }", "my_scale_param: expected { fields of MyScale }"),
        ('my_scale_param { factor: 3 ratios: "x" } }', "ratios: expected a number"),
    ]:  # fmt: skip
        assert told in mistake(lead + text)
    for word in ("1", "t", "True", "true"):
        options = net(f"{lead} my_scale_param {{ factor: 1 deep: {word} }} }}").layers[1].options
        assert options["deep"] is True


def test_the_blocks_of_types_are_named_as_their_authors_name_them():
    """Where the file of Caffe's messages has one block of a type alone, its name follows from the type's."""
    irregular = "Normalize", "Deconvolution", "LSTM"
    for kind, blocks in schema().layers.items():
        own = [block for block in blocks if block not in ("transform_param", "loss_param")]
        named = own_block(kind)
        if own and kind not in irregular and named in schema().messages["LayerParameter"]:
            assert named in own, kind
    assert own_block("PSROIPooling") == "psroi_pooling_param" and own_block("BN") == "bn_param"


def test_unknown_keys_are_told_all_at_once_and_may_be_left_out(caplog, tmp_path):
    text = (
        'layer { name: "c" type: "Convolution" bottom: "x" top: "c" glow_param { on: true }'
        " convolution_param { num_output: 4 kernel_size: 3 spin: 2 } }\nrampup_lr: 1\n"
    )
    message = mistake(text)
    assert message.startswith("n.prototxt:2:60: layer 'c' (Convolution): unknown key 'glow_param'")
    told = "convolution_param: unknown key 'spin'"
    assert f"; and 2 more: n.prototxt:2:133: layer 'c' (Convolution): {told}" in message
    assert "n.prototxt:3:1: unknown key 'rampup_lr'" in message and "NVCaffe has it" in message
    assert message.endswith("; --lenient reads on without them")
    path = file_of(tmp_path, DATA + text)
    assert [one.name for one in read(path, lenient=True).layers] == ["x", "c"]
    assert [told.endswith(": left out") for told in caplog.messages] == [True] * 3
    assert "--lenient" in refusal(read, path)


def test_keys_of_forks_that_change_no_result_are_passed_over(caplog, tmp_path):
    file_of(tmp_path, DATA + "default_forward_type: FLOAT16\nmem_param { optimize_train: true }\n")
    solver = file_of(
        tmp_path,
        'net: "net.prototxt"\nbase_lr: 0.1\nlr_policy: "fixed"\nmax_iter: 3\neval_type: "detection"\nap_version: "11point"\n'
        'larc: true\nlarc_policy: "clip"\nlarc_eta: 0.002\nlocal_lr_auto: true\n',
        "solver.prototxt",
    )
    assert read(solver).solver.max_iter == 3
    told = " ".join(caplog.messages)
    for key in ("default_forward_type", "mem_param"):
        assert f"{key} has no effect: it is " in told
    for key in ("larc", "larc_policy", "larc_eta", "local_lr_auto"):
        assert f"{key} has no effect: " in told and "fits each layer's rate to its weights" in told
    for key in ("eval_type", "ap_version"):
        assert f"{key} has no effect: no net has a DetectionEvaluate" in told


CONV = "convolution_param { num_output: 2 kernel_size: 1"
SPLIT = layer_text("Split", "phase: TRAIN", "a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("default_forward_math: FLOAT", "it is how NVCaffe computes, not what"),
        ("global_grad_scale: 8", "gradients of 16 bits are scaled by loss_scale here"),
        ("multinode { }", "it is how Intel's Caffe divides the work"),
        ("bn_stats_batch_size: 3", "it is how Intel's Caffe computes, not what"),
        ("mem_param { }", "it is how a fork saves memory"),
        (layer_text("Convolution", f"{CONV} }} quantization_param {{ }}"), "it is how Intel's Caffe computes with integers"),
        (layer_text("Convolution", f"{CONV} conv_algorithm: 1 }}"), "it is how a fork computes, not what"),
        (layer_text("BatchNorm", "batch_norm_param { filler { value: 1 } }"), "the Scale behind it"),
        (SPLIT + layer_text("Split", "phase: TEST", "b"),
         "layer 'b': phase: TEST has no effect: others are of TRAIN; include { phase: ... } builds a layer for one phase"),
    ],
)  # fmt: skip
def test_why_a_key_has_no_effect(text, reason, caplog):
    """A layer's phase is that of its net, as Caffe prints a net."""
    net(text)
    (told,) = caplog.messages
    assert (reason if "has no effect" in reason else f" has no effect: {reason}") in told
    net(SPLIT + SPLIT.replace('"a"', '"b"'))
    assert len(caplog.messages) == 1


def test_nvcaffes_least_rate_of_poly(tmp_path):
    file_of(tmp_path, DATA)
    rule = 'base_lr: 0.5\nlr_policy: "poly"\npower: 2\nmin_lr: 0.125\nmax_iter: 4\n'
    spec = read(file_of(tmp_path, f'net: "net.prototxt"\n{rule}', "solver.prototxt"))
    assert [learning_rate(spec.solver, i) for i in (0, 2, 4)] == [0.5, 0.21875, 0.125]
    written = prototxt(spec, REGISTRY)
    assert "min_lr: 0.125" in written and "minicaffe_param" not in written


def test_the_filler_of_intels_batch_norm_is_the_scales_behind_it():
    text = "batch_norm_param { moving_average_fraction: 0.5 filler { value: 1 } }"
    assert net(layer_text("BatchNorm", text)).layers[1].options == {"moving_average_fraction": 0.5}


def transformed(block):
    """The transform of a Data layer with such a transform_param."""
    param = 'data_param { source: "x" batch_size: 2 backend: LMDB }'
    text = f"{param} transform_param {{ crop_size: 224 {block} }}"
    return net(layer_text("Data", text, bottom="")).layers[-1].options["transform"]


@given(st.integers(1, 999), st.floats(0.01, 1), st.floats(0.1, 1), st.booleans())
def test_intels_ways_to_make_pictures_one_size(size, least, change, cubic):
    """A part's height and width both change by a factor, so that their ratio changes by its square."""
    how = "resize_param { interp_mode: LINEAR }" if cubic else ""
    resized = transformed(f"random_resize_param {{ min_size: {size} max_size: {size} {how} }}")
    assert (resized.resize, resized.random_resized_crop, resized.crop_size) == (size, None, 224)
    part = transformed(
        f"random_aspect_ratio_param {{ min_area_ratio: {least} aspect_ratio_change: {change} {how} }}"
    ).random_resized_crop
    assert part.scale == pytest.approx((least, 1), rel=1e-6)
    assert part.ratio == pytest.approx((change**2, 1 / change**2), rel=1e-6)


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("random_resize_param { min_size: 240 max_size: 288 }", "min_size 240 and max_size 288: exp"),
        ("random_resize_param { }", "max_size 0: expected one size, the shorter side's"),
        ("random_aspect_ratio_param { aspect_ratio_change: 1.5 }", "expected above 0 and at most 1"),
        ("random_aspect_ratio_param { min_area_ratio: 0 }", "scale: expected [least, largest]"),
    ],
)  # fmt: skip
def test_what_of_intels_sizes_is_refused(block, told):
    assert told in refusal(transformed, block, error=SpecError)


def test_cubic_scaling_is_said_to_be_linear(caplog):
    cubic = "resize_param { interp_mode: CUBIC }"
    transformed(f"random_resize_param {{ min_size: 9 max_size: 9 {cubic} }}")
    (told,) = caplog.messages
    assert told.endswith("has no effect: pictures are scaled linearly")


@pytest.mark.parametrize("text", ["prototxt", "yaml"])
def test_a_rate_below_zero_turns_the_gradient_round(text):
    """A step goes as far the other way."""
    ends = []
    for mult in (2, -2):
        spec = net(
            f'layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" param {{ lr_mult: {mult} }}'
            ' inner_product_param { num_output: 2 weight_filler { type: "constant" value: 0.1 } } }\n'
            'layer { name: "y" type: "Input" top: "y" input_param { shape { dim: 2 dim: 2 } } }\n'
            'layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "l" }'
        )
        spec = parse(yaml_text(spec, REGISTRY)) if text == "yaml" else spec
        rule = SolverSpec(base_lr=0.01, max_iter=1)
        solver = Solver(dataclasses.replace(spec, solver=rule), device="cpu")
        x = np.linspace(-1, 1, 2 * 3 * 64, dtype=np.float32).reshape(2, 3, 8, 8)
        solver.net.forward(x=x, y=np.ones((2, 2), np.float32))
        start = solver.net.params["ip"][0].data.copy()
        solver.step(1)
        ends.append(solver.net.params["ip"][0].data - start)
    assert np.abs(ends[0]).max() > 0
    np.testing.assert_allclose(ends[0], -ends[1], rtol=1e-4, atol=1e-7)


def test_old_blocks_take_words_of_forks_and_types_in_quotes():
    refs = 'input: "r" input_dim: 1 input_dim: 2 input_dim: 5 input_dim: 5\n'
    crop = 'layers { name: "k" type: CROP bottom: "x" bottom: "r" top: "k" }'
    assert caffe.parse(OLD + refs + crop).layers[-1].type == "Crop"
    for word in ('"Softmax"', '"SOFTMAX"', "SOFTMAX"):
        spec = caffe.parse(OLD + f'layers {{ name: "p" type: {word} bottom: "x" top: "p" }}')
        assert spec.layers[-1].type == "Softmax"
    video = OLD + 'layers { name: "v" type: VIDEO_STREAM top: "v" }'
    assert "unknown type 'VideoStream'" in refusal(caffe.parse, video)


def test_a_label_map_is_called_what_it_is():
    items = (
        'item { name: "none" label: 0 display_name: "background" }\nitem { name: "n1" label: 1 }'
    )
    assert "is a label map, the names of classes; expected a net" in refusal(caffe.parse, items)


def test_a_net_whose_data_are_of_test_alone_is_looked_at_in_test(tmp_path, command):
    shape = "input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } include { phase: TEST }"
    conv = "convolution_param { num_output: 4 kernel_size: 3 }"
    text = layer_text("Input", shape, "d", "") + layer_text("Convolution", conv, "c", "d")
    path = file_of(tmp_path, text)
    for words in (["summary"], ["time", "--device", "cpu", "--iterations", "1"]):
        printed = command(*words, path)
        assert "phase: TEST (no layer that has data is part of TRAIN)" in printed
        assert "\nc " in printed
    command("summary", path, "--phase", "TRAIN", code=2)


ZORG = 'zorg_param { depth: 3 mode: FAST inner { a: "b" } inner { a: "c" } }'
UNKNOWN = (
    layer_text("Zorg", ZORG, "m")
    + layer_text("Ploo", "include { phase: TRAIN } convolution_param { num_output: 2 }", "n", "m")
    + layer_text("ReLU", "", "r", "n", "n")
    + layer_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", "c")
)


def test_unknown_types_are_kept_there_and_back(tmp_path, command, caplog):
    """A type of the old layers, too."""
    old = f'layers {{ name: "m" type: ZORG bottom: "x" top: "m" {ZORG} }}\n'
    for text, at in ((DATA + UNKNOWN, "2:25"), (OLD + old, "2:26")):
        path = file_of(tmp_path, text)
        there, back, again = (tmp_path / name for name in ("a.yaml", "b.prototxt", "c.yaml"))
        caplog.clear()
        command("convert", path, there, "--force")
        assert f"{path}:{at}: the type Zorg is not known: kept as it is" in caplog.text
        command("convert", there, back, "--force")
        command("convert", back, again, "--force")
        written = back.read_text()
        assert ZORG in written and 'type: "Zorg"' in written
        assert ("convolution_param { num_output: 2 }" in written) == (at == "2:25")
        assert there.read_text() == again.read_text()


@pytest.mark.parametrize("ending", ["prototxt", "yaml"])
def test_what_is_known_of_a_net_is_shown(tmp_path, command, ending):
    """Not what hangs on a layer of an unknown type; to run it is refused, with all unknown types in one line."""
    path = file_of(tmp_path, DATA + UNKNOWN)
    places = [f"{path}:2:25", f"{path}:3:25"]
    if ending == "yaml":
        command("convert", path, path.with_suffix(".yaml"))
        path = path.with_suffix(".yaml")
        text = path.read_text().splitlines()
        found = [(i, line.index(f"type: {kind}") + 7) for kind in ("Zorg", "Ploo") for i, line in enumerate(text, 1) if f"type: {kind}" in line]  # fmt: skip
        places = [f"{path}:{line}:{column}" for line, column in found]
    told = f"not shown, since the types are not known: m (Zorg, {places[0]}), n (Ploo, {places[1]}), nor of layers that read what these write (1)"
    printed = command("summary", path)
    assert told in printed and "kept as it is" not in printed
    assert [line.split()[0] for line in printed.splitlines() if " Convolution " in line] == ["c"]
    assert "ReLU" not in printed
    command("draw", path, "-o", tmp_path / "net.svg")
    assert (tmp_path / "net.svg").stat().st_size > 500
    also = f"and 1 more: {places[1]}: layer 'n': unknown type 'Ploo'"
    also = "unknown, too: 'Ploo'" if ending == "yaml" else also
    refused = command("time", path, "--device", "cpu", code=2)
    assert f"layer 'm': unknown type 'Zorg'; {also}" in refused


def test_of_a_net_of_which_nothing_is_known_nothing_is_shown(tmp_path, command):
    path = file_of(tmp_path, layer_text("Zorg", "", "m", "") + layer_text("ReLU", "", "r", "m"))
    told = f"no layer's shapes are known: all depend on m (Zorg, {path}:1:25); --import FILE registers them"
    assert told in command("summary", path, code=2)


TRAINED = (
    'layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }'
    ' data_param { source: "no_such_lmdb" batch_size: 4 backend: LMDB } transform_param { crop_size: 32 } }\n'
    'layer { name: "d" type: "ImageData" top: "data" top: "label" include { phase: TEST }'
    ' image_data_param { source: "no_list.txt" batch_size: 2 new_height: 32 new_width: 32 is_color: false } }\n'
    + layer_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", "c", "data")
    + layer_text("InnerProduct", "inner_product_param { num_output: 4 }", "ip", "c")
    + layer_text("SoftmaxWithLoss", "", "l", "ip label")
)


def test_a_training_net_is_shown_without_its_data(tmp_path, command):
    """By the sizes that it gives, or that --shape gives."""
    path = file_of(tmp_path, TRAINED, "train.prototxt")
    bare = file_of(tmp_path, TRAINED.replace("crop_size: 32", ""), "bare.prototxt")
    for words, wanted in [
        ([path], "data 4x3x32x32, label 4"),
        ([path, "--phase", "TEST"], "data 2x1x32x32, label 2"),
        ([path, "--shape", "data=8,1,20,24"], "data 8x1x20x24, label 8"),
        ([bare, "--shape", "data=8,3,20,24", "--shape", "label=8"], "data 8x3x20x24, label 8"),
    ]:
        printed = command("summary", *words)
        assert wanted in printed
        assert ("shown with the shapes that the model gives" not in printed) == ("--shape" in words)
    command("draw", path, "-o", tmp_path / "net.svg")
    for words, told in [
        ([], "--shape BLOB=N,C,H,W shows the net without its data"),
        (["--shape", "dta=8,3"], "--shape dta=...: no layer of data writes such a blob"),
        (["--shape", "data=8,x"], "expected BLOB=N,C,H,W, such as data=8,3,224,224, got 'data=8,x'"),
    ]:  # fmt: skip
        assert told in command("summary", bare, *words, code=2)


RESIZED = "resize_param { resize_mode: WARP height: 32 width: 24 }"
BOXED = (
    'layer { name: "d" type: "AnnotatedData" top: "data" top: "label" data_param { source: "no_lmdb" batch_size: 6 }'
    f" transform_param {{ {RESIZED} }} }}\n"
    + layer_text("InnerProduct", "inner_product_param { num_output: 16 }", "loc", "data")
    + layer_text("InnerProduct", "inner_product_param { num_output: 12 }", "conf", "data")
    + layer_text("Input", "input_param { shape { dim: 1 dim: 2 dim: 16 } }", "prior", "")
    + layer_text(
        "MultiBoxLoss", "multibox_loss_param { num_classes: 3 }", "l", "loc conf prior label"
    )
)


@pytest.mark.parametrize(
    ("resized", "given", "wanted"),
    [
        (RESIZED, [], "data 6x3x32x24, label 1x1x6x8"),
        (f"{RESIZED} crop_size: 20", [], "data 6x3x20x20, label 1x1x6x8"),
        (f"{RESIZED} crop_h: 8 crop_w: 12", [], "data 6x3x8x12, label 1x1x6x8"),
        (f"{RESIZED} force_gray: true", [], "data 6x1x32x24, label 1x1x6x8"),
        (RESIZED, ["--shape", "label=1,1,15,8"], "data 6x3x32x24, label 1x1x15x8"),
        (RESIZED, ["--shape", "data=2,3,16,16"], "data 2x3x16x16, label 1x1x2x8"),
        ("", ["--shape", "data=2,3,16,16"], "data 2x3x16x16, label 1x1x2x8"),
    ],
)
def test_a_detector_is_shown_without_its_data(tmp_path, command, resized, given, wanted):
    """Of the true boxes of its data, one a picture is assumed, if --shape does not say more."""
    path = file_of(tmp_path, BOXED.replace(RESIZED, resized))
    assert wanted in command("summary", path, *given)
    command("draw", path, "-o", tmp_path / "net.svg", *given)


@pytest.mark.parametrize(("phase", "n"), [("TRAIN", 32), ("TEST", 50)])
def test_the_example_detector_is_shown_before_its_data_are_made(phase, n, command):
    model = Path(__file__).parents[3] / "examples/ssd/shapes.yaml"
    if (model.parent / "scenes").exists():
        pytest.skip("its data are made")
    assert f"data {n}x3x96x96, label 1x1x{n}x8" in command("summary", model, "--phase", phase)


@pytest.mark.parametrize(
    ("kind", "block"),
    [("DenseImageData", "dense_image_data_param"), ("ImageLabelmapData", "image_data_param")],
)
def test_labels_of_each_pixel_follow_the_shape_that_is_given(tmp_path, command, kind, block):
    path = file_of(
        tmp_path,
        f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {block} {{ source: "no.txt" batch_size: 2 }} }}\n'
        + layer_text(
            "Convolution", "convolution_param { num_output: 4 kernel_size: 1 }", "c", "data"
        )
        + layer_text("SoftmaxWithLoss", "", "l", "c label"),
    )
    told = command("summary", path, "--shape", "data=3,3,16,20")
    assert "data 3x3x16x20, label 3x1x16x20" in told


def bn(keys, mode="TRAIN", params=""):
    """A net of a BN of a fork, and an x for it."""
    text = layer_text("BN", f"{params} bn_param {{ {keys} }}", "b")
    made = Net(net(text), mode, device="cpu", dtype="float64")
    return made, np.random.default_rng(1).standard_normal((2, 3, 8, 8))


@pytest.mark.parametrize("mode", ["TRAIN", "TEST"])
def test_bn_of_segnet_normalises_by_the_batch_or_not_at_all(mode):
    fillers = (
        'scale_filler { type: "constant" value: 1.5 } shift_filler { type: "constant" value: 0.25 }'
    )
    for keys, by_batch in ((fillers, True), (fillers + " bn_mode: INFERENCE", False)):
        found, x = bn(keys, mode)
        centre = x.mean((0, 2, 3), keepdims=True) if by_batch else 0
        wide = np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-9) if by_batch else 1
        wanted = (x - centre) / wide * 1.5 + 0.25
        np.testing.assert_allclose(found.forward(x=x)["b"], wanted, rtol=1e-9, atol=1e-9)
        assert [param.shape for param in found.params["b"]] == [(3,), (3,)]


def test_bn_of_pspnet_has_averages_and_its_own_scale(tmp_path):
    """Its four blobs are read from a .caffemodel: scale, bias, mean, variance; frozen, it learns nothing."""
    found, x = bn("slope_filler { type: 'constant' value: 1.5 } momentum: 0.8", "TRAIN")
    centre, wide = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    wanted = (x - centre) / np.sqrt(wide**2 + 1e-5) * 1.5
    np.testing.assert_allclose(found.forward(x=x)["b"], wanted, rtol=1e-9, atol=1e-9)
    assert found.layers["b"].moving_average_fraction == 0.8
    rng, path = np.random.default_rng(2), tmp_path / "psp.caffemodel"
    slope, bias, mean, variance = rng.uniform(0.5, 2, (4, 1, 3, 1, 1)).astype(np.float32)
    weights.write(path, [weights.Layer("b", "BN", dict(enumerate([slope, bias, mean, variance])))])
    rates = "param { lr_mult: 1 } param { lr_mult: 1 }"
    for keys, params in (("frozen: true", ""), ("eps: 1e-5", rates)):
        tested, x = bn(keys, "TEST", params)
        tested.load(path)
        wanted = (x - mean) / np.sqrt(variance + 1e-5) * slope + bias
        np.testing.assert_allclose(tested.forward(x=x)["b"], wanted, rtol=1e-5, atol=1e-6)
    frozen, _ = bn("frozen: true", "TRAIN")
    assert not frozen.learnable or not any(param.learns for param in frozen.params["b"])


def test_an_old_block_of_bn_is_read_too():
    spec = caffe.parse(
        OLD + 'layers { name: "b" type: BN bottom: "x" top: "b" bn_param { bn_mode: INFERENCE } }'
    )
    assert [layer.type for layer in spec.layers] == ["Input", "Scale"]
    again = caffe.parse(prototxt(spec, REGISTRY))
    assert [layer.options for layer in again.layers] == [layer.options for layer in spec.layers]


def test_a_users_class_goes_before_a_forks_type(own_types):
    """A BN of one's own is no BN of SegNet's, and its block is its declaration's."""

    @register
    class BN(Layer):
        """x."""

        k: Annotated[int, "a number"] = 0
        engine: Annotated[str, "a word"] = ""

        def setup(self, x):
            return x

    spec = net(layer_text("BN", 'bn_param { k: 3 engine: "own" }', "b"))
    assert spec.layers[1].type == "BN" and spec.layers[1].options == {"k": 3, "engine": "own"}
    written = prototxt(spec, REGISTRY)
    assert "bn_param {" in written and "minicaffe_param" not in written
    assert caffe.parse(written).layers[1].options == spec.layers[1].options


def test_words_and_text_of_unknown_types_stay_what_they_are(tmp_path, command):
    """From a prototxt to another: text in quotes, words without; keys of known blocks that are not known, too."""
    words = ['s: "INF"', 't: "MAX"', "w: ave", "v: MAX", "u: true", "n: 1"]
    block = f'foo_param {{ {" ".join(words)} }} data_param {{ source: "DATA" spin: 2 }}'
    path = file_of(tmp_path, DATA + layer_text("my-Foo", block, "u"))
    there, other = tmp_path / "net.yaml", tmp_path / "other.prototxt"
    command("convert", path, other)
    written = " ".join(other.read_text().split())
    for text in (*words, 'source: "DATA"', "spin: 2"):
        assert text in written
    command("convert", path, there)
    command("convert", there, other, "--force")
    assert 's: "INF"' in other.read_text()


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ("[{name: u, type: Foo, class: 4}]", "net.yaml:1:31: Foo: 'class' cannot be a key of a layer"),
        ("[{name: u, type: Foo, setup: 4}]", "Foo: 'setup' cannot be a key of a layer"),
        ("[{name: u, type: Foo, foo_param: {a: [[1]]}}]", "a list in a list cannot stand in a prototxt"),
        ("[{name: u, type: Foo, foo_param: {a b: 1}}]", "'a b' cannot be a field of a prototxt"),
        ("3", "layers"),
        ("{a: {}}", "layers"),
    ],
)  # fmt: skip
def test_what_an_unknown_type_cannot_have(tmp_path, command, layers, told):
    path = file_of(tmp_path, f"layers: {layers}\n", "net.yaml")
    assert told in command("convert", path, tmp_path / "net.prototxt", code=2)
    assert not (tmp_path / "net.prototxt").exists()


def test_an_unknown_type_of_the_other_phase_hides_nothing(tmp_path, command):
    shape = "include { phase: TRAIN } input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } }"
    scribble = "include { phase: TEST } scribble_param { height: 8 }"
    path = file_of(
        tmp_path,
        layer_text("Input", shape, "d", "", "x")
        + layer_text("ScribbleData", scribble, "a", "", "x")
        + layer_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", "c"),
    )
    test = ["summary", path, "--phase", "TEST"]
    for words, shown in (
        (["summary", path], "c      Convolution"),
        ([*test, "--shape", "x=1,3,8,8"], "a      Input        x 1x3x8x8"),
    ):
        printed = command(*words)
        assert shown in printed and "not shown" not in printed
    assert f"all depend on a (ScribbleData, {path}:2:25)" in command(*test, code=2)


OF_FORKS = (
    'layer { name: "d" type: "ImageSegData" top: "d" top: "l" image_data_param { source: "a.txt" } }\n'
    + layer_text("RegionLoss", "", "r", "d l")
    + layer_text("RegionLoss", "", "q", "d l")
    + layer_text("Zorg", "zorg_param { a: 1 }", "z", "d")
    + layer_text("Convolutoin", "", "c", "d")
)


@pytest.mark.parametrize("words", ["time", "train"])
def test_all_unknown_types_are_told_with_their_places_and_forks(tmp_path, command, words):
    path = file_of(tmp_path, OF_FORKS)
    assert command(words, path, "--device", "cpu", code=2) == (
        f"minicaffe: {path}:1:25: layer 'd': unknown type 'ImageSegData'; DeepLab has it; and 3 more:"
        f" {path}:2:25: layer 'r': unknown type 'RegionLoss'; Intel's YOLO has it;"
        f" {path}:4:25: layer 'z': unknown type 'Zorg';"
        f" {path}:5:25: layer 'c': unknown type 'Convolutoin'; did you mean 'Convolution'?;"
        " --import FILE registers them; minicaffe layers lists what is known\n"
    )


def test_a_setting_may_give_a_layer_a_type_that_is_known(tmp_path):
    path = file_of(tmp_path, DATA + layer_text("Zorg", "", "r"))
    assert read(path, "layers.r.type=ReLU").layers[1].type == "ReLU"
    assert "unknown type 'Zorg'; --import FILE registers it" in refusal(read, path)


def test_summary_and_convert_say_which_fork_has_a_type(tmp_path, command, caplog):
    path = file_of(tmp_path, DATA + OF_FORKS.replace("Convolutoin", "ReLU"))
    told = f"d (ImageSegData, of DeepLab, {path}:2:25), r (RegionLoss, of Intel's YOLO, {path}:3:25), q "
    assert told in command("summary", path)
    command("convert", path, tmp_path / "a.yaml")
    assert "the type ImageSegData is not known (DeepLab has it): kept as it is" in caplog.text


def test_no_type_of_the_forks_elsewhere_is_here():
    assert not [kind for kind in FORK_OF if kind in REGISTRY]


def test_unknown_keys_and_types_are_told_together():
    told = mistake(
        layer_text("Zorg", "", "z")
        + layer_text("ReLU", "relu_param { glow: 1 }", "r", "z")
        + layer_text("Ploo", "", "p", "r")
    )
    first = "n.prototxt:2:25: layer 'z': unknown type 'Zorg'; and 2 more: n.prototxt:3:"
    end = "--lenient reads on without the keys; --import FILE registers the types; minicaffe layers lists what is known"
    assert told.startswith(first) and told.endswith(f"; {end}")
    assert "unknown key 'glow'" in told
    assert "; n.prototxt:4:25: layer 'p': unknown type 'Ploo'" in told


def test_unknown_keys_of_a_solver_and_its_net_are_told_together(tmp_path):
    file_of(tmp_path, DATA + "glow: 1\n")
    nets = 'train_net: "net.prototxt"\ntest_net: "net.prototxt"\n'
    solver = file_of(tmp_path, f"{nets}test_iter: 1\nbase_lr: 0.1\nspin: 2\n", "solver.prototxt")
    told = refusal(read, solver)
    assert told.startswith(f"{solver}:5:1: unknown key 'spin'") and "; and 1 more: " in told
    assert told.count("unknown key 'glow'") == 1


def test_an_unknown_key_is_told_before_what_it_may_have_caused():
    lead = 'layer { name: "c" type: "Convolution" bottom: "x" top: "c" '
    assert "unknown key 'num_outpt'" in mistake(lead + "convolution_param { num_outpt: 1 } }")
    twice = mistake(lead + 'glow_param { } } layer { name: "c" name: "d" }')
    assert "unknown key 'glow_param'" in twice


@given(st.lists(st.sampled_from(["ba", "bo", "bi", "bu"]), unique=True, min_size=1))
def test_unknown_keys_of_a_declaration_are_told_with_the_others_and_left_out(names):
    with registered():
        my_scale()
        inside = " ".join(f"{name}: 1" for name in names)
        text = DATA + (
            f'layer {{ name: "m" type: "MyScale" bottom: "x" top: "m" my_scale_param {{ factor: 3 {inside}'
            f" corners {{ at: 1 {inside} }} fill {{ value: 2 {inside} }} }} }}\nglow: 1\n"
        )
        told = refusal(caffe.parse, text, "n.prototxt")
        for where in ("my_scale_param", "my_scale_param: corners", "my_scale_param: fill"):
            for name in names:
                assert f"layer 'm' (MyScale): {where}: unknown key '{name}'" in told
        assert "unknown key 'glow'" in told and f"; and {3 * len(names)} more: " in told
        kept = model_text.text_of(text, "n", REGISTRY, lenient=True).root
        options = model(kept, REGISTRY).layers[1].options
        assert options["factor"] == 3 and options["corners"] == (Corner(at=1),)
        assert options["fill"] == Filler(type="constant", value=2)


def test_unknown_keys_of_a_forks_block_are_left_out_with_a_warning(tmp_path, caplog):
    block = "center_loss_param { num_output: 10 foo: 1 bar: 2 }"
    path = file_of(tmp_path, DATA + layer_text("CenterLoss", block, bottom="x x"))
    with pytest.raises(SpecError, match=r"unknown key 'foo'.*and 1 more: .*unknown key 'bar'"):
        read(path)
    assert read(path, lenient=True).layers[1].options["num_output"] == 10
    assert [told.endswith(": left out") for told in caplog.messages] == [True] * 2


def test_a_declaration_is_the_block_of_its_type_in_old_layers_too(own_types):
    for word in ("MY_SCALE", '"MyScale"'):
        spec = caffe.parse(
            f'{OLD}layers {{ name: "m" type: {word} bottom: "x" top: "m" '
            "my_scale_param { factor: 3 mode: FAST corners { at: 1 } } }"
        )
        options = spec.layers[-1].options
        assert spec.layers[-1].type == "MyScale" and options["corners"] == (Corner(at=1),)
        assert options["factor"] == 3 and options["mode"] == "FAST"


def test_mistakes_in_old_layers_are_still_told():
    """By its number, too, a type of BVLC has only the keys that it has."""
    block = "convolution_param { num_output: 4 kernel_size: 3 glow: 1 }"
    for kind, rest, told in (
        *[(word, rest, "unknown key 'glow'") for word in ("CONVOLUTION", "4") for rest in (block, "glow: 1")],
        ("ZORG", "zorg_param { a: 1 }", "unknown type 'Zorg'"),
    ):  # fmt: skip
        text = f'{OLD}layers {{ name: "c" type: {kind} bottom: "x" top: "c" {rest} }}'
        assert told in refusal(caffe.parse, text, error=SpecError)
