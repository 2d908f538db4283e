"""The page's data is the log's; nothing in it breaks the page; damaged folders are one line."""

import json
import random
import re

import pytest

from minicaffe.backends import device as backend
from minicaffe.cli import main
from minicaffe.errors import CheckpointError, MinicaffeError
from minicaffe.tools.report import make, write
from minicaffe.tools.report.make import payload
from minicaffe.tools.report.sections import left_out
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import Lock

CPU = backend.device("cpu")
HOSTILE = "</script><!--<script>alert(1)//'\"&\u2028\U0001f600" + "x" * 10_000


def embedded(path) -> dict:
    """The data in a page, as a browser's parser would find them."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def data_of(folder) -> dict:
    """A run as its page has it."""
    return payload(run_folder.read(folder))


def test_the_page_has_exactly_the_logs_points(make_run):
    folder = make_run()
    write([folder], folder / "report.html", device=CPU)
    (run,) = embedded(folder / "report.html")["runs"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    for name in ("iteration", "epoch", "seconds", "loss", "lr", "images_per_s", "gradient_norm"):
        assert run["train"][name] == [line[name] for line in trained]
    assert run["train"]["outputs"] == {"loss": [line["outputs"]["loss"] for line in trained]}
    tested = [line for line in lines if line["kind"] == "test"]
    assert run["test"]["iteration"] == [line["iteration"] for line in tested]
    for name in ("accuracy", "loss"):
        assert run["test"]["outputs"][name] == [line["outputs"][name] for line in tested]
    assert run["scores"] == tested[-1]["outputs"]
    assert [event["kind"] for event in run["events"]] == ["event", "snapshot"]


def test_the_page_asks_for_nothing_and_stands_alone(make_run):
    folder = make_run()
    write([folder], folder / "report.html", device=CPU)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:|#)", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "default-src 'none'" in text
    assert text.count("</script>") == 2 and len(text) < 2**20


def test_names_of_users_break_nothing(make_run):
    lines = [{"kind": "train", "iteration": 0, "loss": 1.0, "outputs": {HOSTILE: 1.0}}]
    folder = make_run(lines=lines, name="h", command=[HOSTILE], note=HOSTILE)
    write([folder], folder / "report.html", device=CPU)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 2 and text.count("<!--") == 0
    (run,) = embedded(folder / "report.html")["runs"]
    assert list(run["train"]["outputs"]) == [HOSTILE]


def test_what_is_no_finite_number_is_null():
    assert make.as_json([float("nan"), (float("inf"), 1)]) == "[null,[null,1]]"


@pytest.mark.parametrize("state", ["finished", "stopped", "diverged", "failed"])
def test_the_state_is_told(make_run, state):
    told = payload(run_folder.read(make_run(state=state)))
    assert told["state"] == state and state in told["told"].lower()


def test_a_run_that_goes_on_and_one_that_was_killed(make_run):
    folder = make_run(state="running")
    data = write([folder], folder / "report.html", device=CPU)
    assert data["runs"][0]["state"] == "killed" and data["refresh"] is None
    assert f"train --resume {folder}" in data["runs"][0]["told"]
    lock = Lock(folder)
    data = write([folder], folder / "report.html", device=CPU)
    lock.release()
    assert data["runs"][0]["state"] == "running" and data["refresh"] >= 5


def test_half_a_line_is_left_out_and_damage_is_one_line(make_run, tmp_path, capsys):
    folder = make_run()
    whole = len(data_of(folder)["train"]["loss"])
    with open(folder / "log.jsonl", "a") as file:
        file.write('{"kind": "train", "iter')
    assert len(data_of(folder)["train"]["loss"]) == whole
    (folder / "log.jsonl").write_text('{"kind": "event", "iteration": 1, "text": ""}\n{"kind"\n')
    (tmp_path / "empty").mkdir()
    for bad in (folder, tmp_path / "empty", tmp_path / "nowhere"):
        assert main(["report", str(bad), "--device", "cpu"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.startswith(f"minicaffe: {bad}")
        assert not (bad / "report.html").exists()


def test_a_page_that_cannot_be_written(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(CheckpointError, match="cannot be written"):
        write([folder], tmp_path / "no" / "report.html", device=CPU)


def test_runs_are_laid_over_each_other(make_run):
    first = make_run("one", seed=3)
    change = {"base_lr: 0.01": "base_lr: 0.5", "num_output: 4": "num_output: 6"}
    data = write([first, make_run("two", lines=[], change=change)], first / "both.html", device=CPU)
    assert [run["name"] for run in data["runs"]] == ["one", "two"]
    rows = {key: values for key, *values in data["differs"]}
    assert rows["solver.base_lr"] == ["0.01", "0.5"] and rows["conv1.num_output"] == ["4", "6"]
    assert rows["seed"] == ["3", "1"] and "ip.num_output" not in rows
    assert data["sections"] == [] and embedded(first / "both.html")["title"] == "one, two"


def test_a_net_that_cannot_be_read_leaves_the_curves(make_run):
    folder = make_run()
    (folder / "model.yaml").write_text("layers:\n  - {name: a, type: Mine}\n")
    data = write([folder], folder / "report.html", device=CPU)
    assert data["panels"] and all("Mine" in one["left_out"] for one in data["sections"])
    (told,) = left_out(data["sections"]).values()
    assert told == [one["title"] for one in data["sections"]]


def test_the_command_says_what_is_left_out(make_run, capsys):
    folder = make_run()
    assert main(["report", str(folder), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(str(folder / "report.html")) and not printed.err
    (folder / "small_iter_70.npz").unlink()
    assert main(["report", str(folder), "--device", "cpu"]) == 0
    told = capsys.readouterr().err
    assert "no snapshot" in told and "Confusion matrix" in told and "Net" not in told
    shown = [one["id"] for one in embedded(folder / "report.html")["sections"] if "data" in one]
    assert shown == ["net", "layers"]  # which need no weights


def test_a_damaged_record_is_one_line_or_a_page(make_run):
    """Bytes of run.json and log.jsonl changed, dropped, doubled: an error of ours, else a page that is JSON."""
    folder, rng, pages = make_run(), random.Random(3), 0
    for file in ("run.json", "log.jsonl"):
        whole = (folder / file).read_bytes()
        for _ in range(100):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 3)):
                start = rng.randrange(len(data))
                end = start + rng.choice([1, 1, 1, 20])
                data[start:end] = rng.choice(
                    [b"", b"9", b"null", b"[", b'"', data[start:end] * 2, b"-1e309"]
                )
            (folder / file).write_bytes(data)
            try:
                found = make.data_of([run_folder.read(folder)], [None], [])
            except MinicaffeError as error:
                assert "\n" not in str(error)
                continue
            json.loads(re.search(r'id="data">(.*?)</script>', make.html(found), re.S)[1])
            pages += 1
        (folder / file).write_bytes(whole)
    assert 20 < pages < 180


def test_runs_whose_models_are_not_all_known_are_compared_without_them(make_run):
    first, second = make_run("one", seed=3), make_run("two")
    (second / "model.yaml").write_text("layers:\n  - {name: a, type: Mine}\n")
    data = write([first, second], first / "both.html", device=CPU)
    assert data["differs"] == [["seed", "3", "1"]]
    assert next(one["left_out"] for one in data["sections"]).startswith(str(second / "model.yaml"))
