"""What is held out of a set without test entries of its own, and that both phases of a model keep to it."""

import re

import numpy as np
import pytest
from kit import refusal
from reading_files import write_lmdb

from minicaffe import DataError, Net, Solver, SpecError, parse
from minicaffe.tools.data import datum, readers
from minicaffe.tools.data.reader.base import Reader, sides

MODEL = """
layers:
  - {{name: data, type: Data, top: [data, label], source: {source}, batch_size: 2, {keys}}}
  - {{name: ip, type: InnerProduct, bottom: data, num_output: 3}}
  - {{name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver: {{base_lr: 0.001, max_iter: 2, test_iter: 2, test_interval: 1, snapshot_after_train: false}}
"""


class Named(Reader):
    """Entries by name and label."""

    name = origin = "named"

    def __init__(self, entries):
        self.entries = entries

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        return np.zeros((1, 1, 1), np.uint8), self.entries[i][1]

    def key(self, i):
        return self.entries[i][0]


def names(part):
    return {part.key(i) for i in range(len(part))}


@pytest.fixture
def photos(tmp_path, here):
    """Three classes of 20 pictures, each of one colour of its own."""
    image = pytest.importorskip("PIL.Image")
    for label, word in enumerate(("ant", "bee", "cat")):
        (tmp_path / "photos" / word / "deeper").mkdir(parents=True)
        for i in range(20):
            place = tmp_path / "photos" / word / ("deeper" if i % 3 else "") / f"{word}{i}.png"
            image.fromarray(np.full((4, 4, 3), 20 * label + i, np.uint8)).save(place)
    return tmp_path / "photos"


@pytest.fixture
def arrays(here):
    images = np.arange(60, dtype=np.uint8).reshape(60, 1, 1, 1)
    np.savez("set.npz", images=images, labels=np.arange(60) % 3)
    return "set.npz"


def model(source, keys="split: null"):
    return parse(MODEL.format(source=source, keys=keys))


def seen(spec, phase):
    """The pixels of all pictures that a phase reads."""
    layer = Net(spec, phase, device="cpu").layers["data"]
    return {int(layer.reader[i][0].max()) for i in range(len(layer.reader))}


def test_a_share_of_each_class_is_held_out():
    """Cameras call files alike in all classes, whose sides differ all the same."""
    sizes = [40, 34, 3, 500]
    reader = Named([(f"DSC{i}.jpg", label) for label, n in enumerate(sizes) for i in range(n)])
    train, test = sides(reader, 0.2)
    held = [{test.key(i) for i in range(len(test)) if test.label(i) == label} for label in range(4)]
    assert [len(part) for part in held] == [8, 7, 1, 100] and len(train) + len(test) == 577
    assert held[1] - held[0]


def test_an_entry_that_comes_later_moves_one_other_at_most():
    for count in range(4, 60):
        parts = [sides(Named([(f"{i}.jpg", 0) for i in range(n)]), 0.2) for n in (count, count + 1)]
        (train, test), (longer_train, longer_test) = (map(names, part) for part in parts)
        assert len(test - longer_test) + len(train - longer_train) <= 1


@pytest.mark.parametrize("share", [1e-9, 0.2, 0.999999])
def test_a_class_of_two_is_on_both_sides_and_a_class_of_one_in_training(share):
    train, test = sides(Named([("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 2), ("e", 2)]), share)
    assert [train.label(i) for i in range(len(train))].count(0) == 1
    assert [test.label(i) for i in range(len(test))].count(0) == 1
    assert "c" in names(train) and not names(train) & names(test)
    assert sides(Named([("a", 0), ("b", 1), ("b", 1)]), share) is None


def test_the_phases_of_a_model_read_two_sides_of_a_folder(photos):
    spec = model("photos")
    train, test = seen(spec, "TRAIN"), seen(spec, "TEST")
    assert train | test == set(range(60)) and not train & test
    assert len(test) == 12
    assert seen(model("photos", "split: 0.6"), "TEST") > test
    assert seen(model("photos", "split: 0"), "TEST") == set(range(60))
    photos.rename(photos.with_name("elsewhere"))  # the side goes by the path within the class
    assert seen(model("elsewhere"), "TEST") == test


def test_lists_and_arrays_are_divided_as_well(photos, arrays):
    folder = readers.open("photos", "train")
    lines = [f"{path} {label}\n" for path, label in zip(folder.paths, folder.labels, strict=True)]
    (photos.parent / "list.txt").write_text("".join(lines))
    for source in ("list.txt", arrays):
        train, test = seen(model(source), "TRAIN"), seen(model(source), "TEST")
        assert train | test == set(range(60)) and test and not train & test


def test_a_part_in_memory_has_its_entries(arrays):
    whole = readers.open(arrays, "test")
    _, test = sides(whole, 0.2)
    images, labels = test.arrays()
    np.testing.assert_array_equal(images, whole.arrays()[0][test.entries])
    np.testing.assert_array_equal(labels, [test.label(i) for i in range(len(test))])


def test_what_has_test_entries_of_its_own_is_untouched(photos):
    (photos / "train").mkdir()
    for word in ("ant", "bee", "cat"):
        (photos / word).rename(photos / "train" / word)
    (photos / "val" / "bee").mkdir(parents=True)
    (photos / "train" / "bee" / "bee0.png").rename(photos / "val" / "bee" / "bee0.png")
    assert seen(model("photos"), "TEST") == {20}
    assert seen(model("photos"), "TRAIN") == set(range(60)) - {20}
    told = refusal(seen, model("photos", "split: 0.1"), "TRAIN", error=DataError)
    assert re.search("split: photos.* has test entries of its own", told)


def test_what_one_phase_reads_is_read_whole(photos):
    text = MODEL.format(source="photos", keys="include: TRAIN")
    other = "{name: test, type: Data, top: [data, label], source: set.npz, batch_size: 2, include: TEST}"
    np.savez("set.npz", images=np.ones((6, 3, 4, 4), np.uint8), labels=np.zeros(6, np.uint8))
    spec = parse(text.replace("layers:\n", f"layers:\n  - {other}\n"))
    assert seen(spec, "TRAIN") == set(range(60))
    assert len(Net(spec, "TEST", device="cpu").layers["test"].reader) == 6


def test_two_layers_of_one_source_agree_on_the_split(photos):
    text = MODEL.format(source="photos", keys="include: TRAIN, split: 0.5")
    other = "{name: data, type: Data, top: [data, label], source: ./photos, batch_size: 2, include: TEST%s}"
    spec = parse(text.replace("layers:\n", f"layers:\n  - {other % ''}\n"))
    assert seen(spec, "TEST") == set(range(60)) - seen(spec, "TRAIN")
    assert seen(spec, "TEST") == seen(model("photos", "split: 0.5"), "TEST")
    spec = parse(text.replace("layers:\n", f"layers:\n  - {other % ', split: 0.1'}\n"))
    told = refusal(seen, spec, "TEST", error=SpecError)
    assert re.search("split: layers that read .*photos say 0.1 and 0.5", told)


def test_where_nothing_can_be_held_out_all_is_read_and_an_asked_split_is_refused(here):
    np.savez("one.npz", images=np.ones((3, 1, 2, 2), np.uint8), labels=[0, 1, 2])
    assert len(Net(model("one.npz"), "TEST", device="cpu").layers["data"].reader) == 3
    told = refusal(seen, model("one.npz", "split: 0.3"), "TEST", error=DataError)
    assert re.search("split: .*one.npz has no class of two entries", told)


def test_an_lmdb_is_read_whole_unless_a_split_is_asked_for(tmp_path, here):
    pytest.importorskip("lmdb")
    pixels = np.arange(60, dtype=np.uint8).reshape(60, 1, 1, 1)
    write_lmdb(tmp_path / "db", [datum.write(image, i % 3) for i, image in enumerate(pixels)])
    assert seen(model("db"), "TRAIN") == seen(model("db"), "TEST") == set(range(60))
    spec = model("db", "split: 0.2")
    assert seen(spec, "TRAIN") == set(range(60)) - seen(spec, "TEST") != set(range(60))
    assert Net(spec, "TRAIN", device="cpu").layers["data"].order.shuffle is None


def test_a_solver_says_what_its_scores_are_of(arrays, capsys):
    for split, told in (("null", "test accuracy"), ("0", "accuracy on the training pictures")):
        Solver(model(arrays, f"split: {split}"), device="cpu").solve()
        assert f"iteration 0: {told} = " in capsys.readouterr().err


def test_a_test_net_of_its_own_on_the_training_pictures_is_told(photos, capsys):
    """Such a net, as Caffe's train_net and test_net, reads its data whole."""
    layers = MODEL.format(source="photos", keys="split: null").partition("solver:")[0]
    own = layers.replace(", include: TEST", "").replace("\n  -", "\n    -")
    own = own.replace("layers:", "- layers:")
    np.savez("set.npz", images=np.ones((6, 3, 4, 4), np.uint8), labels=np.zeros(6, np.uint8))
    solver = "solver: {base_lr: 0.001, max_iter: 1, test_interval: 1, snapshot_after_train: false}"
    on_training = "accuracy on the training pictures"
    for source, told in (("photos", on_training), ("set.npz", "test accuracy")):
        text = f"{layers}test_nets:\n{own.replace('photos', source).strip()}\n{solver}"
        Solver(parse(text), device="cpu").solve()
        assert f"iteration 0: {told} = " in capsys.readouterr().err


def test_a_copy_takes_no_picture_to_the_other_side(photos):
    """A copy has a longer name than what it is a copy of."""
    test = names(sides(readers.open("photos", "train"), 0.2)[1])
    for path in sorted(photos.rglob("*.png")):
        path.with_name(f"{path.stem} (copy).png").write_bytes(path.read_bytes())
    parts = [names(part) for part in sides(readers.open("photos", "train"), 0.2)]
    assert test <= parts[1] and not test & parts[0]
