"""`minicaffe draw`: what it writes, where, and what it refuses."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from minicaffe import SpecError, parse
from minicaffe.cli import main
from minicaffe.core.config.declare import TRAIN
from minicaffe.core.layers import REGISTRY
from minicaffe.tools.visualize.notebook import boxes_of, outline

NET = """
name: small
layers:
  - {name: data, type: Input, shape: {dim: [2, 3]}}
  - {name: ip, type: InnerProduct, num_output: 4}
  - {name: relu, type: ReLU, top: ip}
  - {name: drop, type: Dropout, top: ip, include: TRAIN}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, here):
    (tmp_path / "small.yaml").write_text(NET)
    return tmp_path


def test_without_options_the_models_name_in_svg_is_written(folder, capsys):
    assert main(["draw", "small.yaml"]) == 0
    assert "small.svg: 4 layers in 2 boxes" in capsys.readouterr().err
    ElementTree.parse(folder / "small.svg")


def test_several_formats_at_once_settings_and_phase(folder):
    pytest.importorskip("PIL")
    given = ["--svg", "a.svg", "--dot", "b.txt", "-o", "c.PNG", "--phase", "TEST"]
    given += ["--set", "layers.ip.num_output=7", "--direction", "LR"]
    assert main(["draw", "small.yaml", *given]) == 0
    assert "InnerProduct 7" in (folder / "a.svg").read_text()
    assert "Dropout" not in (folder / "a.svg").read_text()
    assert (folder / "b.txt").read_text().startswith('digraph "small" {\n  rankdir="LR"')
    assert (folder / "c.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_dash_is_stdout(folder, capfdbinary):
    assert main(["draw", "small.yaml", "--svg", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"<svg ") and not err
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


UNKNOWN = """
name: other
layers:
  - {name: data, type: Input, shape: {dim: [2, 3, 8, 8]}}
  - {name: own, type: Zorg, bottom: data, depth: 3, inner: {a: b}}
  - {name: relu, type: ReLU, top: own}
  - {name: conv, type: Convolution, bottom: own, num_output: 4, kernel_size: 5, stride: 2}
  - {name: pool, type: Pooling, global_pooling: true}
  - {name: beside, type: Convolution, bottom: data, num_output: 6, kernel_size: 3}
  - {name: sum, type: Concat, bottom: [pool, beside]}
"""


def drawn(capfd, *words):
    """The DOT that is written, and what is said beside it."""
    assert main(["draw", *words, "--dot", "-"]) == 0
    return capfd.readouterr()


def test_a_layer_of_an_unknown_type_is_drawn_and_what_hangs_on_it_without_shapes(folder, capfd):
    (folder / "other.yaml").write_text(UNKNOWN)
    out, err = drawn(capfd, "other.yaml")
    assert "without shapes, since the types are not known: own (Zorg), and what reads" in err
    for label in (
        r"own\nZorg (unknown type)\n+ ReLU",
        r"conv\nConvolution 4 of 5x5, stride 2",
        r"pool\nPooling MAX global",
        r"beside\nConvolution 6 of 3x3\n168 parameters",
        r"sum\nConcat",
    ):
        assert f'[label="{label}" ' in out
    assert r"depth: 3\ninner: a b\nbottom data 2x3x8x8\ntop own\n" in out
    assert [line.strip() for line in out.splitlines() if "->" in line] == [
        'n0 -> n1 [label="2x3x8x8"]',
        "n1 -> n2",
        "n2 -> n3",
        'n0 -> n4 [label="2x3x8x8"]',
        "n3 -> n5",
        'n4 -> n5 [label="2x6x6x6"]',
    ]
    assert main(["draw", "other.yaml", "-o", "other.svg"]) == 0
    assert "other.svg: 7 layers in 6 boxes" in capfd.readouterr().err


def test_a_net_that_begins_with_an_unknown_type_is_drawn(folder, capfd):
    ip = "{name: ip, type: InnerProduct, num_output: 4}"
    text = f"layers:\n  - {{name: own, type: Zorg}}\n  - {ip}\n"
    (folder / "other.yaml").write_text(text)
    assert "n0 -> n1\n" in drawn(capfd, "other.yaml").out
    (folder / "other.yaml").write_text(text.replace("num_output: 4", "num_output: 4, bottom: on"))
    assert main(["draw", "other.yaml"]) == 2
    assert "unknown bottom 'on'" in capfd.readouterr().err


def test_a_net_whose_sizes_nothing_says_is_drawn_without_shapes(folder, capfd):
    data = "{name: data, type: Data, source: no_such, batch_size: 2, top: [data, label]}"
    text = NET.replace("{name: data, type: Input, shape: {dim: [2, 3]}}", data)
    text = text.replace("type: InnerProduct,", "type: InnerProduct, bottom: data,")
    (folder / "small.yaml").write_text(text)
    out, err = drawn(capfd, "small.yaml")
    assert "'no_such' not found" in err
    assert "drawn without shapes; --shape BLOB=N,C,H,W gives" in err
    assert r'[label="ip\nInnerProduct 4\n+ ReLU + Dropout" ' in out and "n0 -> n1\n" in out
    out, err = drawn(capfd, "small.yaml", "--shape", "data=2,3")
    assert 'n0 -> n1 [label="2x3"]' in out and not err


TYPES = sorted(name for name, kind in REGISTRY.items() if kind.__module__.startswith("minicaffe."))


@pytest.mark.parametrize("name", TYPES)
def test_a_layer_of_any_type_is_drawn_without_its_shapes(name):
    """By the example in its docstring: nothing is asked that only a layer with shapes knows."""
    example = rf"\{{(type: {name}\b.*?)\}}(?= ->|$)"
    found = re.search(example, REGISTRY[name].__doc__ or "", re.M | re.S)
    keys = found[1] if found else f"type: {name}"
    text = "layers: [{name: x, type: Input, shape: {dim: [1]}, top: [a, b]}, {name: y, bottom: [a, b], "
    try:
        spec = parse(f"{text}{keys}}}]")
    except SpecError:
        pytest.skip("its docstring has no whole example")
    boxes = boxes_of("net", outline(spec, TRAIN, []))
    assert boxes.nodes[1].lines[1].startswith(name) and len(boxes.edges) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["-o", "net.pgn"], "net.pgn: expected a name that ends in .svg, .png, .dot, .gv; did you mean '.png'?"),
        (["-o", "net"], ".svg, .png, .dot, .gv; --svg, --png and --dot take any name"),
        (["--svg", "a", "--dot", "a"], "a: is asked for twice"),
        (["--svg", "no/such/a.svg"], "no/such"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_nothing_is_written(given, told, folder, capsys):
    assert main(["draw", "small.yaml", *given]) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]
