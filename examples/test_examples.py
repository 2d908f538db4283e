"""The teaching examples: each runs small and does what its page says; each page shows what its run printed."""

import json
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from minicaffe.core.layers import REGISTRY

ROOT = Path(__file__).parent.parent
EXAMPLES, PAGES = ROOT / "examples", ROOT / "docs" / "examples"
NAMES = sorted(path.stem for path in PAGES.glob("*.txt"))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example small, on few drawn digits; gives what its `main` gives."""
    from minicaffe.tools.data import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setattr(datasets, "_DRAWING", "few-1000")  # kept apart from the whole set
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 1000, "test": 500})
    monkeypatch.setattr(
        datasets, "shape", lambda source, split, beside: (datasets._COUNTS[split], 1, 28, 28)
    )
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = dict(REGISTRY)

    def run(name: str, *options: str):
        monkeypatch.setattr(sys, "argv", [name, "--small", *options])
        found = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")["main"]()
        printed, told = capsys.readouterr()
        assert ("pip install -e '.[pictures]'" in told) == (
            sys.modules.get("matplotlib", 1) is None
        )
        assert re.search(r"^\d+ s of processor time; .* cores, NumPy ", printed.splitlines()[-1])
        for picture in re.findall(r"^drew (.*)$", printed, re.M):
            assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
        return found, printed

    yield run
    REGISTRY.clear()
    REGISTRY.update(before)
    sys.modules.pop("teaching", None)


def test_fine_tuning_beats_training_from_scratch(run):
    found, printed = run("finetuning")
    scores = {how: accuracies[2] for how, accuracies in found.items()}
    assert scores["fine-tuned, all layers alike"] > scores["from scratch"] > 0.3  # a guess: 0.25
    assert min(scores.values()) > 0.3
    assert "loading: 6 loaded; missing: ip2_new__0, ip2_new__1; unused: ip2__0, ip2__1" in printed


def test_surgery_gives_at_each_place_what_the_fully_connected_net_gives(run):
    found, printed = run("net_surgery")
    assert found["apart"] < 1e-5
    assert found["right"] > 0.4
    assert "BUILT-IN DRAWN DIGITS" in printed


def test_features_are_nearer_than_pixels(run):
    found, _ = run("nearest_neighbours")
    assert found["ip1"] > found["pixels"] > 0.2


def test_the_pixels_labels_are_learnt(run):
    found, _ = run("segmentation")
    ((loss, _),) = found.values()
    assert loss < 0.65  # to know how frequent each class is gives 0.7, a guess 1.39


def test_pairs_put_the_classes_apart(run):
    found, _ = run("siamese")
    assert found["2 numbers, 150 iterations"] > found["2 numbers, 0 iterations"] + 0.05 > 0.1


def test_the_net_that_writes_has_learnt_letters(run):
    found, _ = run("char_lstm")
    assert found["read"][-1] < 5 < found["read"][0]  # bits; of a guess among 128: 7
    assert found["unread"][-1] < 5
    usual = sum(c.islower() or c in " \n" for c in found["written"])
    assert usual > 0.7 * len(found["written"])


def test_a_text_of_ones_own_is_read(run, tmp_path):
    (tmp_path / "mine.txt").write_text("a line that says the same again and again\n" * 60)
    found, printed = run("char_lstm", "--text", "mine.txt", "--iterations", "24")
    assert "1920 characters in 10 streams" in printed
    assert found["read"][-1] < found["read"][0]
    (tmp_path / "mine.txt").write_text("too little")
    with pytest.raises(SystemExit, match="mine.txt: expected at least 2000 characters, got 10"):
        run("char_lstm", "--text", "mine.txt")


def test_a_dream_climbs(run):
    found, _ = run("deep_dream")
    for layer in ("conv1", "conv2", "relu1"):
        assert found[layer][-1] > 1.05 * found[layer][-4]  # within the last octave
    classes = [seen for name, seen in found.items() if name.startswith("class")]
    assert len(classes) == 10
    assert all(seen[-1] > seen[0] + 0.1 for seen in classes)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["finetuning", "--iterations", "0"], "invalid count value: '0'"),
        (["finetuning", "--samples", "many"], "invalid count value: 'many'"),
        (["char_lstm", "--text", "no such file"], "no such file: No such file or directory"),
        (["char_lstm", "--out", "pictures"], "unrecognized arguments: --out pictures"),
    ],
)
def test_a_wrong_option_is_one_line(run, capsys, options, told):
    with pytest.raises(SystemExit) as stop:
        run(*options)
    assert told in f"{stop.value}{capsys.readouterr().err}"


def test_an_example_without_matplotlib_says_so_and_goes_on(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found, printed = run("net_surgery", "--iterations", "1")
    assert found["apart"] < 1e-5
    assert "drew" not in printed


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_what_its_example_printed(name):
    """What a run wrote into NAME.txt stands on the page, and so do the pictures it drew."""
    printed = (PAGES / f"{name}.txt").read_text("utf-8")
    texts = [path.read_text("utf-8") for path in PAGES.glob("*.md")]
    (page,) = [text for text in texts if f"\npython examples/{name}.py\n" in text]
    assert f"```\n{printed}```\n" in page
    assert f"](../../examples/{name}.py)" in page
    for picture in re.findall(r"^drew (.*)$", printed, re.M):
        assert f"]({picture})" in page
        assert (PAGES / picture).stat().st_size < 60_000


def test_every_example_of_the_pages_has_its_run():
    texts = [path.read_text("utf-8") for path in PAGES.glob("*.md")]
    named = re.findall(r"^python examples/(\w+)\.py$", "\n".join(texts), re.M)
    assert sorted(named) == NAMES
    assert all((EXAMPLES / f"{name}.py").is_file() for name in NAMES)
    table = re.findall(r"^\| \[.*\]\(\S*#", (PAGES / "README.md").read_text("utf-8"), re.M)
    assert len(table) == len(NAMES) + 1  # and the notebook, which is run itself, below


NOTEBOOK = EXAMPLES / "notebook.ipynb"
RUN_NOTEBOOK = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], 4)
book.cells.insert(0, nbformat.v4.new_code_cell(sys.argv[2]))
nbclient.NotebookClient(book, timeout=600).execute()
del book.cells[0]
nbformat.write(book, "done.ipynb")
"""
FEW_DIGITS = """
from minicaffe.tools.data import datasets
datasets._DRAWING, datasets._COUNTS = "few-1000", {"train": 1000, "test": 500}
datasets.shape = lambda source, split, beside: (datasets._COUNTS[split], 1, 28, 28)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the code cells of examples/notebook.ipynb put out in a fresh kernel, with few drawn digits."""
    missing = [
        name for name in ("nbclient", "ipykernel", "pandas", "matplotlib") if not find_spec(name)
    ]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[test-all]'")
    folder = tmp_path_factory.mktemp("notebook")
    homes = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"), str(folder))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", RUN_NOTEBOOK, NOTEBOOK, FEW_DIGITS],
        cwd=folder,
        env={**os.environ, **homes, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((folder / "done.ipynb").read_text("utf-8"))["cells"]
    found = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    for one in (one for cell in found for one in cell if one.get("name") == "stderr"):
        said = ("minicaffe: drawing ", "compiling loops for this CPU ")  # once on each machine
        assert all(line.startswith(said) for line in one["text"]), one
    return [
        [
            one.get("data") or {"text/plain": "".join(one["text"])}
            for one in cell
            if one.get("name") != "stderr"
        ]
        for cell in found
    ]


def test_the_notebook_does_what_it_says(outputs):
    imports, layer, net, fit, plot, frame, filters, mistakes, wrong, own = outputs
    assert imports == [] and float("".join(layer[0]["text/plain"])) < 1e-6
    assert "<svg" in "".join(net[0]["text/html"])
    figure, scores = fit  # the figure was drawn in place: it is one output
    html = "".join(figure["text/html"])
    assert html.count("<svg") == 2 and '<progress value="200" max="200"' in html
    assert "done after" in "".join(figure["text/plain"])
    assert float(re.search(r"'accuracy': ([\d.]+)", "".join(scores["text/plain"]))[1]) > 0.7
    assert "<table" in "".join(frame[0]["text/html"])
    for picture in (plot, filters, wrong, own):
        assert picture[0]["image/png"]
    assert re.match(r"\d+ of 500 test digits are wrong", mistakes[0]["text/plain"])
    assert own[1]["text/plain"] == "it is a 7\n"


def test_the_notebook_is_kept_without_outputs_and_small():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert NOTEBOOK.stat().st_size < 15_000
    assert "](../../examples/notebook.ipynb)" in (PAGES / "README.md").read_text("utf-8")
