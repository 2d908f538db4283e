"""Batches that are read ahead: the same whoever makes them, whatever the batch, from any pass on."""

import kit
import numpy as np
import pytest

from minicaffe import DataError, Net, ShapeError, Solver, parse
from minicaffe.tools.data import feed

Image = pytest.importorskip("PIL.Image")
COUNT = 7
EVERY = (
    "{crop_size: 12, mirror: true, rotation: 20, scale: 0.5, mean_value: 3, random_resized_crop: {},"
    " color_jitter: {brightness: 0.4, contrast: 0.3, saturation: 0.3, hue: 0.1}}"
)
PLAIN = "{crop_size: 12, mirror: true, resize: 14, mean_value: [1, 2, 3]}"


@pytest.fixture
def folder(tmp_path, here):
    """A folder of two classes with seven pictures of several sizes."""
    random = np.random.default_rng(1)
    for i in range(COUNT):
        home = tmp_path / "set" / "ab"[i % 2]
        home.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (16 + 2 * i, 24 - i, 3), np.uint8)
        Image.fromarray(pixels).save(home / f"{i}.png")
    return tmp_path / "set"


def net(keys="", batch=4, transform=PLAIN, phase="TRAIN", **options):
    text = f"layers: [{{name: d, type: Data, top: [x, y], source: set, batch_size: {batch}, transform: {transform}"
    spec = parse(text + (f", {keys}" if keys else "") + "}]")
    return Net(spec, phase, **{"device": "cpu", **options})


def passes(given, count, first=0):
    given.context.passes = first
    host = given.device.to_host
    found = [[np.array(host(blob)) for blob in given.forward().values()] for _ in range(count)]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def same(a, b):
    return all((one == other).all() for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize("transform", [PLAIN, EVERY], ids=["bytes", "numbers"])
def test_whoever_makes_them_they_are_the_same(folder, transform):
    wanted = passes(net("workers: 0", transform=transform), 6)
    assert len(np.unique(wanted[0].reshape(24, -1), axis=0)) > 15
    for keys in ("", "workers: 1", "workers: 3, prefetch: 1", "workers: 5, prefetch: 9"):
        assert same(passes(net(keys, transform=transform), 6), wanted), keys
    for batch in (1, 3, 8, 24):
        assert same(passes(net(batch=batch, transform=transform), 24 // batch), wanted), batch


@pytest.mark.parametrize("transform", [PLAIN, EVERY], ids=["bytes", "numbers"])
def test_a_device_is_given_the_same(folder, transform, device):
    wanted = passes(net("workers: 0", transform=transform), 6)
    for one, other in zip(passes(net(transform=transform, device=device), 6), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-5)


def test_each_epoch_has_other_draws(folder):
    given = net("shuffle: false, workers: 1", batch=COUNT, transform=EVERY)
    epochs = [passes(given, 1, first)[0] for first in range(3)]
    assert all(
        (a != b).reshape(COUNT, -1).any(axis=1).all() for a in epochs for b in epochs if a is not b
    )
    assert not same(passes(net(batch=COUNT, transform=EVERY, seed=2), 1), [epochs[0]])


def test_passes_in_any_order_are_what_they_are_in_theirs(folder):
    given = net("workers: 2", batch=3)
    straight = [passes(net("workers: 0", batch=3), 1, k) for k in range(9)]
    for k in (4, 5, 0, 1, 8, 7, 7, 2, 3, 3):
        assert same(passes(given, 1, k), straight[k]), k
    given.context.seed = 5
    assert not same(passes(given, 1, 3), straight[3])
    given.reshape(x=(2, 3, 12, 12))
    assert same(passes(given, 1, 6), passes(net(batch=2, seed=5), 1, 6))


@pytest.mark.parametrize(
    "keys", ["workers: 0", "workers: 2, prefetch: 3", "workers: 1, prefetch: 1, rand_skip: 7"]
)
def test_another_seed_is_another_run_from_its_next_pass_on(folder, keys):
    """Though batches of the seed before were read ahead for just these passes."""
    given, runs = net(keys, transform=EVERY), []
    for first, seed in ((0, 1), (2, 5), (4, 1), (4, 5), (5, 5)):
        given.context.seed = seed
        runs.append(passes(given, 2, first))
        assert same(runs[-1], passes(net(keys, transform=EVERY, seed=seed), 2, first)), first
    assert not same(*runs[2:4])


def test_a_sample_in_memory_is_the_sample_that_is_fed(folder, monkeypatch):
    """The data set of arrays takes the gather's way, that of files the feed's: draws and numbers agree."""
    pictures = np.random.default_rng(4).integers(0, 256, (COUNT, 3, 9, 8), np.uint8)
    for part in ("train", "test"):
        for i, one in enumerate(pictures):
            home = folder.parent / "files" / part / "only"
            home.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one[::-1].transpose(1, 2, 0)).save(home / f"{i}.png")
    np.savez("kept.npz", images=pictures, labels=np.zeros(COUNT, np.int64))
    keys = "transform: {crop_size: 6, mirror: true, mean_value: [1, 2, 3], scale: 0.3}"
    for phase in ("TRAIN", "TEST"):
        found = []
        for source in ("kept.npz", "files"):
            monkeypatch.setattr("minicaffe.backends.cpu.ops.MANY", 1 if source == "files" else 1e9)
            text = f"layers: [{{name: d, type: Data, top: [x, y], source: {source}, batch_size: 4, {keys}}}]"
            found.append(passes(Net(parse(text), phase, device="cpu"), 5))
        assert same(*found)


TRAINED = """
layers:
  - {{name: d, type: Data, top: [x, y], source: set, batch_size: 3, transform: {transform}, {keys}}}
  - {{name: ip, type: InnerProduct, bottom: x, num_output: 2, weight_filler: {{type: xavier}}}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, y]}}
solver: {{base_lr: 0.0001, max_iter: 9, random_seed: 3, test_iter: 2, test_interval: 4}}
"""


@pytest.mark.parametrize("saved", [1, 5])
def test_training_goes_on_bit_for_bit(folder, saved):
    def solver(keys):
        return Solver(parse(TRAINED.format(keys=keys, transform=PLAIN)), device="cpu")

    whole = solver("workers: 2")
    whole.solve()
    part = solver("workers: 0")
    part.step(saved)
    path = part.snapshot()
    rest = solver("workers: 3, prefetch: 2")
    rest.restore(path)
    rest.solve()
    kit.same_numbers(rest.net.weights(), whole.net.weights())


# what is damaged


def damage(folder, *names):
    for name in names:
        path = next(folder.rglob(f"{name}.png"))
        path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize("keys", ["workers: 0", "workers: 2"])
def test_a_damaged_picture_is_named(folder, keys):
    damage(folder, 4)
    given = net(f"shuffle: false, {keys}", batch=2)
    labels = passes(given, 1)[1]  # the entries are a/0 a/2 a/4 a/6 b/1 b/3 b/5
    assert labels.tolist() == [0, 0]
    for _ in range(2):  # asked again, it is as damaged
        with pytest.raises(DataError, match=r"set/a/4.png: is not a picture that can be read"):
            given.forward()
    assert passes(given, 1, 2)[1].tolist() == [1, 1]


def test_a_damaged_picture_is_skipped_and_counted(folder, capsys):
    keys = "shuffle: false, on_error: skip"
    good = passes(net(f"{keys}, workers: 0", batch=COUNT), 1)
    damage(folder, 4, 6)
    found = []
    for kind in ("workers: 0", "workers: 2"):
        given = net(f"{keys}, {kind}", batch=3)
        capsys.readouterr()
        found.append(passes(given, 7))
        told = capsys.readouterr().err.splitlines()
        assert [line.split(": is not")[0] for line in told[:2]] == [
            "d: skipped: set/a/4.png",
            "d: skipped: set/a/6.png",
        ]
        assert told[2:] == [
            f"d: damaged pictures of set in epoch {epoch} of TRAIN: 2, samples replaced by the next: 3"
            for epoch in (1, 2)
        ]
        assert same(found[-1], found[0])
    kept = [0, 1, 4, 5, 6]
    assert same([part[:COUNT][kept] for part in found[0]], [part[kept] for part in good])
    assert found[0][1][:COUNT].tolist() == [0, 0, 1, 1, 1, 1, 1]  # b/1 stands in for a/4 and a/6


def test_a_solver_tells_its_report_of_what_is_damaged(folder):
    damage(folder, 5)
    heard = kit.Heard()
    text = TRAINED.format(
        keys="on_error: skip, workers: 1, shuffle: false, split: 0", transform=PLAIN
    )
    Solver(parse(text), device="cpu", report=heard, test_iter=3, snapshot_after_train=False).solve()
    assert [line for line in heard.lines if "replaced" in line][:2] == [
        "d: damaged pictures of set in epoch 1 of TEST: 1, samples replaced by the next: 1",
        "d: damaged pictures of set in epoch 1 of TRAIN: 1, samples replaced by the next: 1",
    ]
    assert sum("d: skipped: set/b/5.png: is not a picture" in line for line in heard.lines) == 2


def test_where_all_are_damaged_there_is_an_end(folder):
    given = net("on_error: skip, shuffle: false", batch=1)
    damage(folder, *range(COUNT))
    with pytest.raises(DataError, match="set/b/5.png: is not .*; and so are the 6 before it$"):
        given.forward()
    with pytest.raises(DataError, match="set/b/5.png: is not a picture"):
        net("on_error: skip")


@pytest.mark.parametrize(
    ("keys", "message"),
    kit.rows("""
{crop_size: 30} | crop_size 30 is larger than the images of 16 x 24
{random_resized_crop: {}} | random_resized_crop needs crop_size
{crop_size: 8, random_resized_crop: {scale: [0.5, 2]}} | scale: expected [least, largest] above 0
{crop_size: 8, random_resized_crop: {ratio: 1}} | ratio: expected [least, largest]
{crop_size: 8, mean_file: m.npy, random_resized_crop: {}} | goes with mean_value
{color_jitter: {hue: 0.6}} | hue: expected at most 0.5
{color_jitter: {hues: 0.6}} | unknown key 'hues'; did you mean 'hue'?
{rotation: 9, rotation_fill: 300} | rotation_fill: expected 0 to 255, got 300
"""),
)
def test_mistakes_are_named(folder, keys, message):
    assert message in kit.error_line(net, transform=keys)


def test_a_data_set_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(feed, "PATIENCE", 0)
    asked = feed.Crew(1, None, (1, 1, 1, 2, 2), np.dtype("f4"), np.dtype("f4"))
    with pytest.raises(DataError, match="no pictures came for 0 s: the data set does not answer"):
        asked.take()
    asked.close()


def test_pictures_of_several_sizes_want_a_remedy(folder):
    for keys, remedy in (("{}", "crop_size, and resize"), ("{crop_size: 16}", "transform: resize")):
        given = net("shuffle: false", batch=COUNT, transform=keys)
        if remedy.endswith("transform: resize"):
            Image.new("RGB", (9, 9)).save(folder / "a" / "0.png")
        with pytest.raises(DataError, match=rf"set/a/\d.png: expected a picture of .*{remedy}"):
            given.forward()
    told = "color_jitter: expected 3 channels, or 1 and no saturation"
    with pytest.raises(ShapeError, match=told):
        text = "layers: [{type: Data, name: d, source: digits, batch_size: 1, transform: {color_jitter: {hue: 0.1}}}]"
        Net(parse(text), device="cpu", shapes_only=True)
    with pytest.raises(ShapeError, match="prefetch of 9999999 batches needs"):
        net("prefetch: 9999999", batch=900).forward()


def test_digits_in_memory_may_be_turned(few_digits, device):
    text = """layers: [{name: d, type: Data, top: [x, y], source: digits, batch_size: 20,
                        transform: {scale: 0.01, rotation: 15, random_resized_crop: {scale: [0.8, 1]}, crop_size: 28}}]"""
    train, test = (Net(parse(text), phase, device=device) for phase in ("TRAIN", "TEST"))
    assert train.layers["d"].images is None and test.layers["d"].images is not None
    turned, plain = (device.to_host(one.forward()["x"]) for one in (train, test))
    assert turned.shape == plain.shape and 0.5 < turned.mean() / plain.mean() < 2
    np.testing.assert_allclose(device.to_host(train.forward()["x"]), passes(train, 1, 1)[0])


def test_processes_of_old_models_are_threads_and_told(folder, capsys):
    assert same(passes(net("feed: processes"), 2), passes(net("workers: 0"), 2))
    assert capsys.readouterr().err == "d: feed: processes: threads read, which are as fast\n"


def test_however_much_is_read_ahead_nobody_waits_for_ever(here):
    np.savez("set.npz", images=np.zeros((3, 1, 1, 1), np.float32), labels=np.arange(3))
    text = """layers: [{name: d, type: Data, top: [x, y], source: set.npz, batch_size: 8192, shuffle: false,
                        workers: 1, prefetch: 9}]"""
    assert Net(parse(text), device="cpu").forward()["y"].tolist() == [k % 3 for k in range(8192)]


@pytest.mark.parametrize("where", ["shuffle", "Piece"])
def test_a_batch_that_was_interrupted_is_made_again(folder, monkeypatch, where):
    """Ctrl-C anywhere in a pass: the pass that is asked for next is what it would have been."""
    straight = [passes(net("workers: 0"), 1, k) for k in (2, 4, 5)]

    def interrupt(*given):
        if given and isinstance(given[-1], np.ndarray):
            given[-1][:] = given[-1][::-1].copy()  # half done
        raise KeyboardInterrupt

    given = net("workers: 2, prefetch: 1")
    assert same(passes(given, 1, 2), straight[0])
    with monkeypatch.context() as patched:
        if where == "Piece":
            patched.setattr("minicaffe.tools.data.feed.Piece", interrupt)
        else:
            patched.setattr(given.layers["d"].order, "shuffle", interrupt)
        with pytest.raises(KeyboardInterrupt):
            passes(given, 1, 5)
    for first, wanted in zip((4, 5), straight[1:], strict=True):
        assert same(passes(given, 1, first), wanted)
