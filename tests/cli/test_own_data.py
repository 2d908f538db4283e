"""A stranger's folder of pictures, with the mistakes that strangers make: one clear line, nothing half-written."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from minicaffe import __version__
from minicaffe.errors import pip_install
from minicaffe.tools.training import folder as run_folder

Image = pytest.importorskip("PIL.Image")
CPU = ("--device", "cpu")
TRAIN = ("train", "small", "--size", "16", "--device", "cpu", "--max-iter", "2", "--data")


@pytest.fixture
def pets(folder):
    """Eight JPEGs of each of two classes in pets/."""
    random = np.random.default_rng(1)
    for i, name in enumerate(("cats", "dogs")):
        (folder / "pets" / name).mkdir(parents=True)
        for j in range(8):
            pixels = random.integers(0, 100, (20, 24, 3), np.uint8) + np.uint8(100 * i)
            Image.fromarray(pixels).save(folder / "pets" / name / f"{j}.jpg")
    return folder / "pets"


def damaged(path, how: str) -> None:
    """A picture as an interrupted copy leaves it."""
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"<html>"}[how])


@pytest.mark.parametrize("how", ["empty", "cut", "text"])
@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_damaged_picture_is_told_before_training_starts(mistake, pets, how, ending):
    with Image.open(pets / "dogs" / "3.jpg") as opened:
        opened.save(pets / "dogs" / f"new.{ending}")
    damaged(pets / "dogs" / f"new.{ending}", how)
    told = mistake(*TRAIN, "pets")
    count = "1 of 17 pictures cannot be read; minicaffe data pets --check lists them"
    first = f"the first: pets/dogs/new.{ending}: is not a picture that can be read:"
    rest = "--skip-damaged trains with the rest"
    assert told.startswith(f"minicaffe: pets: {count}, {rest}; {first}")
    assert "_io" not in told
    assert not (pets.parent / "runs").exists()
    damaged(pets / "cats" / "0.jpg", how)
    told = mistake("new", "small", "--data", "pets")
    assert "pets: 2 of 17 pictures cannot be read" in told and "first: pets/cats/0.jpg" in told


def test_damaged_pictures_are_skipped_if_that_is_asked_for(cli, mistake, pets):
    damaged(pets / "dogs" / "3.jpg", "cut")
    (pets / "dogs" / "5.jpg").unlink()
    names = [f"pets/{name}/{i}.jpg,{name}" for name in ("cats", "dogs") for i in range(8)]
    (pets.parent / "pets.csv").write_text("\n".join(["image,label", *names]))  # one is missing
    for source, count in ((f"{pets}", "1 of 15"), ("pets.csv", "2 of 16")):
        ran = cli(*TRAIN, source, "--skip-damaged", "--run", f"runs/{count[0]}")
        assert ran.code == 0 and f"{count} pictures cannot be read; minicaffe data" in ran.err
        assert "data: skipped: " in ran.err
    assert cli("data", "pets.csv", "--check").err.count("dogs/") == 2
    for path in (pets / "dogs").iterdir():
        damaged(path, "empty")
    assert mistake(*TRAIN, "pets", "--skip-damaged").endswith("; among them are all of a class")
    told = mistake("train", "small", "--skip-damaged")
    assert told.startswith("minicaffe: --skip-damaged: goes with --data")


def test_the_folder_within_that_holds_the_classes_is_named(mistake, cli, pets):
    (pets.parent / "deep").mkdir()
    pets.rename("deep/pets")
    told = mistake(*TRAIN, "deep")
    one = "deep: has one class, 'pets'; a classifier needs two or more"
    assert told == f"minicaffe: {one}; did you mean 'deep/pets'?"
    for part in ("train", "val"):
        shutil.copytree("deep/pets", f"deeper/set/{part}")
    assert mistake(*TRAIN, "deeper").endswith("; did you mean 'deeper/set'?")
    Path("deep/pets/Thumbs.db").touch()
    Path("deep/pets/cats/Desktop.ini").touch()
    assert "passed over" not in cli("data", "deep/pets").err


def test_a_jpeg_with_bytes_of_a_camera_behind_it_is_no_damaged_one(cli, pets):
    with (pets / "cats" / "0.jpg").open("ab") as file:
        file.write(bytes(10_000))
    assert cli(*TRAIN, "pets").code == 0


def test_a_picture_of_a_table_that_is_missing_is_told_before_training_starts(mistake, pets):
    rows = ["file,label", *(f"pets/cats/{i}.jpg,cat" for i in range(9)), "pets/dogs/1.jpg,dog"]
    (pets.parent / "pets.csv").write_text("\n".join(rows))
    assert "no such file; looked for 'pets/cats/8.jpg'" in mistake(*TRAIN, "pets.csv")
    assert not (pets.parent / "runs").exists()


def test_without_pillow_that_is_all_that_is_told(mistake, pets, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert mistake(*TRAIN, "pets").endswith(f"cats/0.jpg: needs Pillow: {pip_install('image')}")


def test_pictures_without_folders_are_told_where_to_go(mistake, pets):
    told = mistake(*TRAIN, "pets/cats")
    assert "pets/cats: holds 8 pictures, not in folders: put those of each class into" in told


def test_a_class_may_be_called_train(cli, mistake, pets):
    (pets / "cats").rename(pets / "train")
    ran = cli(*TRAIN, "pets")
    assert ran.code == 0 and "2 classes (dogs " in ran.err and ", train " in ran.err
    (pets / "dogs").rename(pets / "test")  # these two alone are the parts of a set
    told = mistake(*TRAIN, "pets")
    assert told == "minicaffe: pets/train: expected a folder for each class in it, found none"


def test_classes_of_val_that_train_lacks_are_told_before_anything_else(mistake, pets):
    for part in ("train", "val"):
        shutil.copytree(pets, pets.parent / "set" / part)
    (pets.parent / "set" / "val" / "cats").rename(pets.parent / "set" / "val" / "cat")
    told = mistake(*TRAIN, "set")
    hint = "minicaffe: set/val/cat: there is no such class in set/train; did you mean 'cats'?"
    assert told == hint


def test_data_without_a_model_and_models_that_are_not_there(mistake, pets):
    assert "--data: give a MODEL for it" in mistake("train", "--data", "pets")
    assert mistake("predict", "runs/none", "pets") == "minicaffe: runs/none: no such file or folder"
    assert "did you mean 'small'?" in mistake("predict", "smal", "pets")
    told = mistake("new", "small", "--data", "pets", "--weights", "nothing_such")
    assert "nothing_such: no such file, and no weights of this name" in told


def test_lines_fit_the_terminal(cli, terminal, pets, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    terminal.columns = 60
    assert terminal.run(*TRAIN, "pets") == 0
    decided, _, rest = terminal.getvalue().partition("\ndevice: ")
    assert "\nrun: runs/pets\nmodel: runs/pets/model.yaml\n" in rest
    head = decided.splitlines()
    assert head[0].startswith("data: pets: ") and head[1].startswith("  ")
    assert max(map(len, head)) <= 60
    assert max(map(len, cli("new", "--help").out.partition("example:")[0].splitlines())) <= 60


def test_each_epoch_is_a_row(cli, pets):
    for epochs, said in (("1", "1 epoch of 2 iterations"), ("3", "3 epochs of 2 iterations")):
        ran = cli("train", "small", "--size", "16", "--epochs", epochs, "--data", "pets", *CPU)
        assert f"training: {said}, " in ran.err and "snapshot: " not in ran.err
    rows = [line.split("  ") for line in ran.err.splitlines()]
    rows = [[cell.strip() for cell in row if cell] for row in rows]
    at = rows.index(["epoch", "train loss", "test loss", "accuracy", "images/s", "time left"])
    assert [row[0] for row in rows[at + 1 : at + 4]] == ["1", "2", "3"]
    assert rows[at + 3][-1] == "0:00" and all(len(row) == 6 for row in rows[at + 1 : at + 4])


def test_the_command_that_goes_on_names_the_run_once(cli, pets, interrupt):
    interrupt(1)
    ran = cli(*TRAIN, "pets")
    words = ran.last.partition("to go on: ")[2].split()
    assert ran.code == 130 and words[1:4] == ["train", "--resume", "runs/pets"]
    interrupt(9)
    assert cli(*words[1:]).code == 0


def test_a_snapshot_trained_on_has_no_name_twice(cli, pets):
    assert cli(*TRAIN, "pets").code == 0
    best = "runs/pets/small_best.npz"
    assert cli("train", best, "--device", "cpu", "--max-iter", "1", "--data", "pets").code == 0
    assert (pets.parent / "runs" / "pets-2" / "small_best.npz").exists()


def test_answers_are_written_on_pictures_as_wide_as_they_are():
    from minicaffe.tools.data.pictures.drawn import with_text

    long = "triangles (65.62 %), discs (34.14 %), stars (0.24 %)"
    pixels = np.zeros((400, 200, 3), np.uint8)
    rows = [np.flatnonzero(with_text(pixels, text))[-1] for text in ("discs (34.14 %)", long)]
    assert rows[1] > 2 * rows[0] > 0


@pytest.fixture
def turned(folder):
    """Photographs of two classes that lie on their side, as a phone stores them: a quarter turn exchanges them."""
    random, exif = np.random.default_rng(0), Image.Exif()
    exif[0x0112] = 6
    for label, name in enumerate(("side", "top")):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 60, (16, 16, 3), np.uint8)
            pixels[: 6 if label else None, : None if label else 6] += 150
            Image.fromarray(pixels).save(folder / f"photos/{name}/{number}.jpg", exif=exif)
    return folder


def test_predict_sees_photographs_as_they_were_trained(cli, turned):
    words = ("train", "small", "--size", "16", "--device", "cpu", "--epochs", "8", "--run", "r")
    assert cli(*words, "--data", "photos").code == 0
    for name in ("side", "top"):
        words = ("predict", "r", f"photos/{name}", "--device", "cpu", "--top", "1")
        lines = cli(*words).out.splitlines()
        assert len(lines) == 12 and all(f": {name} (" in line for line in lines)


@pytest.mark.parametrize(
    "words", ["predict r photos/side/0.jpg", "test r", "train --resume r --max-iter 3"]
)
def test_a_run_of_the_old_reading_is_told(cli, turned, words):
    """Its run.json names the version that took pictures as they are stored."""
    train = ("train", "small", "--size", "16", "--device", "cpu", "--max-iter", "2", "--run", "r")
    assert cli(*train, "--data", "photos").code == 0
    assert "as they are stored" not in cli(*words.split(), *CPU).err
    record = turned / "r" / "run.json"
    record.write_text(record.read_text().replace(f'"{__version__}"', '"0.1.0"'))
    run_folder.warn_of_old_reading.cache_clear()
    told = [line for line in cli(*words.split(), *CPU).err.splitlines() if "stored" in line]
    assert len(told) == 1
    assert told[0].startswith("minicaffe: r: was trained by version 0.1.0, which took pictures as")
