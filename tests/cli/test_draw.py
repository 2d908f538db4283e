"""`minicaffe draw`: what it writes, where, and what it refuses."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from minicaffe.cli import main

NET = """
name: small
layers:
  - {name: data, type: Input, shape: {dim: [2, 3]}}
  - {name: ip, type: InnerProduct, num_output: 4}
  - {name: relu, type: ReLU, top: ip}
  - {name: drop, type: Dropout, top: ip, include: TRAIN}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(NET)
    return tmp_path


def test_without_options_the_models_name_in_svg_is_written(folder, capsys):
    assert main(["draw", "small.yaml"]) == 0
    assert "small.svg: 4 layers in 2 boxes" in capsys.readouterr().err
    ElementTree.parse(folder / "small.svg")


def test_several_formats_at_once_settings_and_phase(folder):
    pytest.importorskip("PIL")
    given = ["--svg", "a.svg", "--dot", "b.txt", "-o", "c.PNG", "--phase", "TEST"]
    assert (
        main(["draw", "small.yaml", *given, "--set", "layers.ip.num_output=7", "--direction", "LR"])
        == 0
    )
    assert "InnerProduct 7" in (folder / "a.svg").read_text()
    assert "Dropout" not in (folder / "a.svg").read_text()
    assert (folder / "b.txt").read_text().startswith('digraph "small" {\n  rankdir="LR"')
    assert (folder / "c.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_dash_is_stdout(folder, capfdbinary):
    assert main(["draw", "small.yaml", "--svg", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"<svg ") and not err
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ["-o", "net.pgn"],
            "net.pgn: expected a name that ends in .svg, .png, .dot, .gv; did you mean '.png'?",
        ),
        (["-o", "net"], "net: expected a name that ends in .svg, .png, .dot, .gv; --svg, --png"),
        (["--svg", "a", "--dot", "a"], "a: is asked for twice"),
        (["--svg", "no/such/a.svg"], "no/such"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(given, told, folder, capsys):
    assert main(["draw", "small.yaml", *given]) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]
