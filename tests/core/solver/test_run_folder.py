"""What a run's folder holds, read: whole, cut off, and mutated in many ways."""

import json
import os
import random
from pathlib import Path

import pytest
from kit import refusal

from minicaffe.errors import CheckpointError
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import Lock, in_use, json_line
from minicaffe.tools.training.run import cut, forget

RUN = {
    "name": "net", "command": ["minicaffe", "train", "net.yaml"], "cwd": "/there", "model": "net.yaml",
    "imports": [], "started": "2026-01-02T12:00:00+00:00", "state": "running", "iteration": 100,
    "snapshot_prefix": "net", "tests_on": [""], "versions": {"numpy": "2.4.6"},
}  # fmt: skip
TRAIN = {
    "epoch": 0.5, "loss": 2.5, "outputs": {"loss": 2.5, "f1": [0.5, None]}, "lr": 0.01,
    "images_per_s": None, "memory_mib": 90.5, "gradient_norm": 1e-3, "weight_norm": 12,
}  # fmt: skip
WORDS = [b"null", b"NaN", b"1e400", *(bytes([one]) for one in b'[{"\n\0\xff')]
WORDS += [b"-1", b"true", b"9" * 30]
LINES = [
    {"kind": "test", "iteration": 0, "epoch": 0.0, "seconds": 0.5, "outputs": {"accuracy": 0.1}},
    {"kind": "train", "iteration": 0, "seconds": 1.5, **TRAIN},
    {"kind": "event", "iteration": 3, "seconds": 2.0, "text": "größer \ud800"},
    {"kind": "train", "iteration": 50, "seconds": 2.5, **TRAIN},
    {"kind": "snapshot", "iteration": 100, "seconds": 3.5, "path": "net_iter_100.npz", "best": False},
    {"kind": "test", "iteration": 100, "epoch": 1.0, "seconds": 4.0, "outputs": {"accuracy": 0.5}},
    {"kind": "snapshot", "iteration": 100, "seconds": 4.0, "path": "net_best.npz", "best": True},
    {"kind": "train", "iteration": 100, "seconds": 4.5, **TRAIN},
]  # fmt: skip


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "log.jsonl").write_text("".join(json_line(line) + "\n" for line in LINES))
    return tmp_path


def test_all_is_read_as_it_was_written(run):
    record = run_folder.read(run)
    assert (record.folder, record.about, record.lines) == (run, RUN, LINES)
    assert [line["iteration"] for line in record.of("train")] == [0, 50, 100]
    assert record.model == run / "model.yaml" and record.model_given == "/there/net.yaml"
    assert record.prefix == str(run / "net") and record.newest is None and record.best is None
    assert record.state == "killed"  # it is said to run, and nobody holds it
    lock = Lock(run)
    assert run_folder.read(run).state == "running" and in_use(run)
    lock.release()
    assert run_folder.read(run).state == "killed"


@pytest.mark.parametrize("end", [b'{"kind": "train", "iter', b"\0" * 4096, b'{"kind"\0\0\0', b"{}"])
def test_half_a_line_at_the_end_is_passed_over(run, end):
    with open(run / "log.jsonl", "ab") as file:
        file.write(end)
    assert run_folder.read(run).lines == LINES


def test_numbers_that_are_missing_are_none_and_what_is_not_known_stays(run):
    (run / "log.jsonl").write_text('{"kind": "train", "iteration": 5, "outputs": {}, "new": [1]}\n')
    (line,) = run_folder.read(run).lines
    assert line["loss"] is None and line["seconds"] is None and line["new"] == [1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "is no JSON: Expecting property name enclosed in double quotes"),
        ("[1]", "expected an object of JSON's, got list"),
        ('{"kind": "tset", "iteration": 1}', "kind: expected one of train, test, snapshot, event, got 'tset'"),
        ('{"kind": ["train"], "iteration": 1}', "kind: expected one of train, test, snapshot, event, got list"),
        ('{"kind": "event", "text": "a"}', "has no 'iteration'; expected a count"),
        ('{"kind": "event", "iteration": true, "text": "a"}', "iteration: expected a count, got True"),
        ('{"kind": "event", "iteration": -1, "text": "a"}', "iteration: expected a count, got -1"),
        ('{"kind": "event", "iteration": 1, "text": 2}', "text: expected a text, got 2"),
        ('{"kind": "event", "iteration": 1, "text": "a", "seconds": "b"}', "seconds: expected a number, got 'b'"),
        ('{"kind": "test", "iteration": 1, "outputs": {"a": NaN}}', "is no JSON: NaN is no number of JSON's"),
        ('{"kind": "test", "iteration": 1, "outputs": {"a": 1e999}}', "outputs: expected numbers by name, got dict"),
        ('{"kind": "test", "iteration": 1, "outputs": {"a": [["b"]]}}', "outputs: expected numbers by name, got dict"),
        ('{"kind": "test", "iteration": 1, "outputs": [1]}', "outputs: expected numbers by name, got list"),
        ('{"kind": "snapshot", "iteration": 1, "path": "a", "best": 1}', "best: expected true or false, got 1"),
        ("[" * 100_000, "is no JSON: "),
        ('{"a":' * 100_000, "is no JSON: "),
        ("\ufeff{}", "is no JSON: "),
        ("1" * 5000, "is no JSON: "),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(run, line, told):
    with open(run / "log.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    said = refusal(run_folder.read, run, error=CheckpointError)
    assert said.startswith(f"{run}/log.jsonl:9: {told}")
    assert "\n" not in said and len(said) < 400


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": None}, "name: expected a text, got None"),
        ({"command": "minicaffe train"}, "command: expected a list of texts, got 'minicaffe train'"),
        ({"iteration": 2.5}, "iteration: expected a count, got 2.5"),
        ({"state": {}}, "state: expected a text, got dict"),
        ({"tests_on": "train"}, "tests_on: expected a list of texts, got 'train'"),
    ],
)  # fmt: skip
def test_a_run_json_that_is_wrong_is_told(run, change, told):
    (run / "run.json").write_text(json.dumps({**RUN, **change}))
    assert refusal(run_folder.read, run, error=CheckpointError) == f"{run}/run.json: {told}"


def test_what_is_no_folder_of_a_run_is_told(tmp_path):
    said = "is no run's folder: there is no run.json in it"
    assert said in refusal(run_folder.read, tmp_path, error=CheckpointError)
    os.mkfifo(tmp_path / "run.json")
    said = "run.json: cannot be read: Is a pipe or a device"
    assert said in refusal(run_folder.read, tmp_path, error=CheckpointError)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, gone, doubled, moved, or replaced by what JSON may say elsewhere."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        i, j = sorted(chance.randrange(len(made) + 1) for _ in "ab")
        act = chance.randrange(5)
        if act == 0 and made:
            made[min(i, len(made) - 1)] = chance.randrange(256)
        elif act == 1:
            del made[i : min(j, i + 40)]
        elif act == 2:
            made[i:i] = made[i : min(j, i + 200)]
        elif act == 3:
            made[i:i] = chance.choice(WORDS)
        else:
            del made[j:]
    return bytes(made)


@pytest.mark.parametrize("name", ["log.jsonl", "run.json"])
def test_mutated_files_are_read_or_refused_in_one_line(run, name, request):
    data, chance, refused = (run / name).read_bytes(), random.Random(3), 0
    many = 1000 if request.config.getoption("--long") else 50
    for _ in range(many):
        (run / name).write_bytes(mutated(data, chance))
        try:
            record = run_folder.read(run)
            assert {line["kind"] for line in record.lines} <= {"train", "test", "snapshot", "event"}
            assert isinstance(record.state, str) and record.newest is None
            cut(record.lines, "net_iter_100.npz", 100, True)
        except CheckpointError as error:
            refused += 1
            assert str(error).startswith(str(run / name)) and "\n" not in str(error)
    assert many / 10 < refused < many


@pytest.mark.parametrize(
    ("name", "iteration", "again", "wanted"),
    [
        ("net_iter_100.npz", 100, True, LINES[:5]),
        ("net_best.npz", 100, False, LINES[:7]),
        ("net_best.npz", 100, True, [*LINES[:5], LINES[6]]),
        ("net_iter_80.npz", 80, True, LINES[:4]),  # killed before its line was written
        ("net_iter_50.npz", 50, True, LINES[:3]),
        ("net_iter_0.npz", 0, False, LINES[:1]),
        ("else.npz", 200, True, LINES),
    ],
)
def test_a_log_is_cut_where_the_run_goes_on(name, iteration, again, wanted):
    assert cut(LINES, name, iteration, again) == wanted


def test_what_diverged_and_cannot_be_removed_is_told(run):
    (run / "diverged.npz").mkdir()
    with pytest.raises(CheckpointError, match="diverged.npz: cannot be removed: "):
        forget(run, None)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_worker_that_outlives_its_process_does_not_hold_the_lock(run):
    read, write = os.pipe()
    lock = Lock(run)
    worker = os.fork()
    if not worker:
        os.close(write)
        os.read(read, 1)  # to its parent's end
        os._exit(0)
    lock.release()  # as the end of the process does
    again = Lock(run)
    told = rf"process {os.getpid()} on .* trains in this folder"
    with pytest.raises(CheckpointError, match=told):
        Lock(run)
    for garbage in (b"{", b'{"pid": 1, "host": "a\\n", "since": 2}'):
        (run / "lock").write_bytes(garbage)
        with pytest.raises(CheckpointError, match="another process trains in this folder"):
            Lock(run)
    again.release()
    os.write(write, b"x")
    assert os.waitpid(worker, 0)[1] == 0
    os.close(read), os.close(write)
