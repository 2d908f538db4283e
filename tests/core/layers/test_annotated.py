"""AnnotatedData: what it reads, and that boxes stay on their objects whatever is done to the pictures.

The pictures are painted: object k is a rectangle in channel k, on black. Where its box is said to be after a
change, the rectangle must be found.
"""

import io

import kit
import numpy as np
import pytest
from core.layers.references.points import shared
from core.ops.cases import cases
from hypothesis import given
from hypothesis import strategies as st
from reading_files import write_lmdb

from minicaffe import Net, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import DataError, MinicaffeError
from minicaffe.interop.caffe import parse as parse_prototxt
from minicaffe.storage import wire
from minicaffe.tools.data import box_recipe, datum
from minicaffe.tools.data.augment import Recipe

H, W = 48, 64


def painted(seed, count=3, h=H, w=W):
    """A picture (3, h, w) of rectangles side by side, and their boxes."""
    random = np.random.default_rng(seed)
    picture, rows = np.zeros((3, h, w), np.uint8), []
    for k in range(count):
        x0 = w * k // count + random.integers(0, 4)
        x1 = x0 + random.integers(8, w // count - 3)
        y0 = random.integers(0, h // 2)
        y1 = y0 + random.integers(8, h - y0 + 1) if y0 + 8 < h else h
        picture[k, y0:y1, x0:x1] = 255
        rows.append([1 + k, k, x0 / w, y0 / h, x1 / w, y1 / h, k == 1])
    return picture, np.array(rows, float).reshape(-1, 7)


def message(picture, rows, packed=True):
    from PIL import Image

    if not packed:
        return datum.write_annotated(datum.write(picture, 0), rows)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture[::-1].transpose(1, 2, 0))).save(file, "PNG")
    return datum.write_annotated(datum.encoded(file.getvalue(), 0), rows)


def bare(picture):
    """A message of a picture, and of no box."""
    return datum.write_annotated(picture, np.zeros((0, 7)))


def database(folder, count=6, packed=True):
    write_lmdb(folder, [message(*painted(i, i % 4), packed) for i in range(count)])
    return folder


def net(source, keys="", batch=2, kind="AnnotatedData", phase="TRAIN", device="cpu"):
    """A net of the layer d alone; of its tops x and y."""
    text = f"name: d, type: {kind}, source: {source}, batch_size: {batch}, top: [x, y]"
    return Net(parse(f"layers: [{{{text}{', ' * bool(keys)}{keys}}}]"), phase, device=device)


def on_objects(picture, boxes):
    """Each box is where its object's channel is bright; returns the classes that have a box."""
    h, w = picture.shape[1:]
    found = set()
    for _, label, instance, x0, y0, x1, y1, _ in boxes[boxes[:, 1] >= 0]:
        assert instance == label - 1
        rows, columns = np.nonzero(picture[int(instance)] > 127)
        found.add(int(label))
        edge = 2.5  # pixels: of rounding a part to whole ones, and of mixed edges
        if not len(rows):
            assert (x1 - x0) * w < 2 * edge or (y1 - y0) * h < 2 * edge
            continue
        sides = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        np.testing.assert_allclose(sides, [x0 * w, y0 * h, x1 * w, y1 * h], atol=edge)
    return found


@pytest.mark.parametrize("packed", [True, False])
def test_pictures_and_boxes_are_those_of_the_database(packed, tmp_path, device):
    database(tmp_path / "db", packed=packed)
    one = net(tmp_path / "db", batch=4, device=device)
    for first in (0, 4):
        one.forward()
        x, y = (device.to_host(one.blobs[name].data) for name in "xy")
        assert x.shape == (4, 3, H, W) and y.shape == (1, 1, 12, 8)
        wanted = []
        for place in range(4):
            picture, rows = painted((first + place) % 6, (first + place) % 6 % 4)
            assert np.array_equal(x[place], picture)
            wanted += [[place, *row] for row in rows]
        np.testing.assert_allclose(y[0, 0, : len(wanted)], wanted, rtol=1e-6)
        assert (y[0, 0, len(wanted) :] == -1).all()


UNBOXED = datum.write(np.zeros((1, 2, 2), np.uint8), 3)
NAN = np.array([[1, 0, np.nan, 0, 1, 1, 0]])


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("it holds no picture", b""),
        ("its annotations are no boxes", wire.put_integer(2, 1)),
        ("it is a picture without boxes, which the layer Data reads", UNBOXED),
        ("expected a message", wire.put_integer(3, 1)),
        ("it holds more than 2 boxes", message(*painted(5, 3))),
        ("a box has a side that is not finite", message(painted(5)[0], NAN)),
        ("it says its picture is encoded, and hol", bare(wire.put_integer(7, 1))),
        (r"a picture of shape \(3, 0, 0\) holds 0 pix", bare(wire.put_integer(1, 3))),
    ],
)
def test_what_is_no_annotated_datum_is_told(value, message, tmp_path, monkeypatch):
    monkeypatch.setattr(datum, "MOST", 2)
    write_lmdb(tmp_path / "db", [value])
    with pytest.raises(DataError, match=f"entry 0: is not a whole AnnotatedDatum: {message}"):
        net(tmp_path / "db")


def test_damaged_entries_are_skipped_or_told(tmp_path):
    """Those of no message, those of no picture, and those of other channels."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((H, W), np.uint8)).save(file, "PNG")
    grey = datum.write_annotated(datum.encoded(file.getvalue(), 0), painted(2)[1])
    whole = message(*painted(1, 2))
    change = (
        "transform: {mean_value: [1, 2, 3], distort_param: {random_order_prob: 1, hue_prob: 1},"
        f" expand_param: {{max_expand_ratio: 2}}, resize_param: {{height: {H}, width: {W}}}}}"
    )
    for bad, said in (
        (b"x", "is not a whole AnnotatedDatum"),
        (whole.replace(b"IDAT", b"IDXX"), "is not a picture"),
        (grey, "expected a picture of 3 channels, got 1"),
        (bare(datum.write(np.ones((3, H, W)), 0)), "expected bytes, got float32"),
    ):
        folder = tmp_path / str(len(bad))
        write_lmdb(folder, [whole, bad, whole])
        with pytest.raises(DataError, match=f"entry 1: {said}"):
            net(folder, change).forward()
        assert (net(folder, f"{change}, on_error: skip").forward()["y"][..., 0] >= -1).all()


@pytest.mark.parametrize(
    ("keys", "message"),
    kit.rows(r"""
transform: {resize_param: {height: 9, width: 9, pad_value: [1, 2]}} | expected 1 or 3 numbers, got 2
transform: {noise_param: {saltpepper: true, saltpepper_param: {fraction: 0.1, value: [1, 2]}}} | saltpepper_param: value: expected 1 or 3 numbers, got 2
transform: {noise_param: {saltpepper_param: {fraction: 2}}} | fraction: expected at most 1, got 2
transform: {expand_param: {max_expand_ratio: 1000000}} | expand_param: a canvas 1e.06 times
transform: {distort_param: {saturation_lower: 2}} | expected saturation_lower <= saturation_upper
transform: {distort_param: {contrast_prob: 1, contrast_upper: 1e39}} | contrast_upper: expected below
transform: {resize_param: {height: 99999, width: 99999}} | resize_param: pictures of 99999 x 99999 are too large
transform: {resize_param: {height: 0, width: 3}} | height
transform: {resize_param: [{height: 9, width: 9}, {height: 9, width: 9}]} | resize_param: expected one, got 2: the pictures of all batches have one size
transform: {resize_param: {resize_mode: FIT_SMALL_SIZE, height: 9, width: 9}} | FIT_SMALL_SIZE makes pictures of several sizes
transform: {rotation: 5} | rotation does not move boxes
transform: {crop_h: 5} | give crop_size, or both crop_h and crop_w
transform: {crop_size: 49} | a crop of 49 x 49 is larger than the pictures of 48 x 64
transform: {mean_file: m.npy, expand_param: {}} | go with mean_value
transform: {force_color: true, force_gray: true} | either force_color or force_gray
batch_sampler: {sampler: {min_scale: 0}} | expected 0 < min_scale <= max_scale <= 1
batch_sampler: {sampler: {min_aspect_ratio: 2}} | expected 0 < min_aspect_ratio
backend: LEVELDB | LevelDB databases are not read.*; make an LMDB of it \(convert-images --boxes\)$
"""),
)
def test_what_is_refused_at_once(keys, message, tmp_path):
    with pytest.raises(MinicaffeError, match=message):
        net(database(tmp_path / "db"), keys)


def test_what_a_database_may_not_be(tmp_path):
    boxes, sizes, none = (tmp_path / name for name in ("boxes", "sizes", "none"))
    database(boxes)
    write_lmdb(sizes, [message(*painted(1)), message(*painted(1, h=24, w=40))])
    write_lmdb(none, [])
    for source, kind, told in (
        (
            sizes,
            "AnnotatedData",
            "transform: crop_size, and resize_param, makes pictures of several",
        ),
        (boxes, "Data", "a picture with boxes, which the layer AnnotatedData reads"),
        (none, "AnnotatedData", "data set '.*none' holds no images"),
        (none, "Data", "data set '.*none' holds no images"),
        ("nowhere", "AnnotatedData", "there is no LMDB database 'nowhere'"),
    ):
        with pytest.raises(DataError, match=told):
            net(source, kind=kind).forward()


def salted(value):
    salt = box_recipe.SaltPepper(fraction=0.5, value=(value,))
    return box_recipe.Noise(saltpepper=True, saltpepper_param=salt)


@pytest.mark.parametrize("value", [-300.0, 300.0])
def test_values_beyond_a_byte_are_the_nearest(value):
    picture, rows = painted(1)
    mode = {"resize_mode": "FIT_LARGE_SIZE_AND_PAD", "pad_value": (value,)}
    made, _ = box_recipe.Resize(height=40, width=90, **mode).of(picture, rows, 0.5)
    salt = salted(value).of(picture[:, :9] * 0 + 7, 0.5)
    assert made[0, 0, 0] == (255 if value > 0 else 0)
    assert set(np.unique(salt)) == {7, made[0, 0, 0]}


def test_boxes_are_counted_once_while_the_file_stays_the_same(tmp_path, monkeypatch):
    """A test makes the last batch smaller, and the next one larger; a report makes many nets."""
    counts, label = [], datum.AnnotatedSet.label
    counted = lambda self, i: counts.append(i) or label(self, i)  # noqa: E731
    monkeypatch.setattr(datum.AnnotatedSet, "label", counted)
    database(tmp_path / "db")
    for _ in range(2):
        assert net(tmp_path / "db").forward()["y"].shape == (1, 1, 6, 8)
    assert counts == [*range(6)]
    (tmp_path / "db" / "data.mdb").unlink()
    write_lmdb(tmp_path / "db", [message(*painted(0, 1))])
    assert net(tmp_path / "db").blobs["y"].shape == (1, 1, 2, 8)


LIMITS = {"jaccard": "jaccard_overlap", "sample": "sample_coverage", "object": "object_coverage"}
one_of = st.sampled_from
limits = st.tuples(one_of([*LIMITS]), one_of([None, 0.1, 0.3]), one_of([None, 0.9]))


def sampler(trials, enough, scale, ratio, limits=()):
    keys = {}
    for kind, least, most in limits:
        keys |= {f"min_{LIMITS[kind]}": least, f"max_{LIMITS[kind]}": most}
    sizes = box_recipe.Sampler(min_scale=scale, min_aspect_ratio=1 / ratio, max_aspect_ratio=ratio)
    shared = box_recipe.SampleConstraint(**keys)
    return box_recipe.BatchSampler(
        max_trials=trials, max_sample=enough, sampler=sizes, sample_constraint=shared
    )


samplers = st.builds(
    lambda scale, ratio, limits: sampler(20, 1, scale, ratio, limits),
    *(one_of([0.3, 0.6]), one_of([1.0, 2.0]), st.lists(limits, max_size=2)),
)
resizes = st.builds(
    lambda size, mode, interp_mode: box_recipe.Resize(
        height=size[0], width=size[1], resize_mode=mode, interp_mode=(interp_mode,)
    ),
    *(one_of([(60, 60), (40, 90)]), one_of(["WARP", "FIT_LARGE_SIZE_AND_PAD"])),
    one_of(["LINEAR", "NEAREST", "AREA"]),
)


@cases(150)
@given(
    st.integers(0, 10**6),
    st.none() | st.just(box_recipe.Expand(prob=1.0, max_expand_ratio=3.0)),
    st.lists(samplers, max_size=2),
    resizes,
    st.booleans(),
    st.booleans(),
)
def test_boxes_stay_on_their_objects(device, seed, expand, samplers, resized, mirror, crops):
    picture, rows = painted(seed, h=240, w=320)
    random = np.random.default_rng(seed)
    size = (resized.height, resized.width)
    out_size = (size[0] - 7, size[1] - 5) if crops else size
    rest = Recipe(chance=True, crop=max(out_size) if crops else None, mirror=mirror)
    recipe = box_recipe.BoxRecipe(
        rest=rest, boxes=4, expand=expand, samplers=tuple(samplers), resized=resized
    )
    out = np.empty((3, *out_size), np.uint8)
    boxes = recipe.sample(picture, rows, random.random(recipe.numbers), out)
    assert boxes.shape == (4, 8)
    kept = boxes[boxes[:, 1] >= 0]
    assert (kept[:, 3:7] >= 0).all() and (kept[:, 3:7] <= 1).all()
    assert (kept[:, 5:7] > kept[:, 3:5]).all()
    found = on_objects(out, boxes)
    for k in range(3):  # an object that is seen well has a box
        assert k + 1 in found or (out[k] > 127).sum() < 60


@pytest.mark.parametrize("kind", ["jaccard", "sample", "object"])
def test_a_sampler_takes_parts_that_share_so_much_with_one_box(kind):
    _, rows = painted(5)
    objects = rows[:, 2:6]
    numbers = np.random.default_rng(1).random((200, 4))
    one = sampler(200, None, 0.3, 2, [(kind, 0.3, 0.8)])
    every = sampler(200, None, 0.3, 2).parts(objects, numbers)
    assert len(every) == 200 and (every >= 0).all() and (every <= 1 + 1e-12).all()

    def share(a, b):
        w, h = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
        inside = w * h if w > 0 and h > 0 else 0
        own = {"sample": a, "object": b}.get(kind, a)
        area = (own[2] - own[0]) * (own[3] - own[1])
        return shared(a, b) if kind == "jaccard" else inside / area

    wanted = [p for p in every if any(0.3 <= share(p, o) <= 0.8 for o in objects)]
    assert 0 < len(wanted) < 200
    np.testing.assert_array_equal(one.parts(objects, numbers), wanted)


def test_which_boxes_are_emitted():
    rest = Recipe(chance=False)
    rows = np.array([[1, 0, 0.0, 0, 0.5, 1, 0], [2, 0, 0.4, 0, 0.9, 1, 0], [3, 0, 0.9, 0, 1, 1, 0]])
    part = np.array([0.45, 0, 1, 1])

    def left(emit=None):
        return box_recipe.BoxRecipe(rest=rest, boxes=3, emit=emit).seen(rows, part)[:, 0].tolist()

    def least(share):
        return box_recipe.EmitConstraint(emit_type="MIN_OVERLAP", emit_overlap=share)

    assert left() == [1, 2, 3]  # something of each is in the part
    assert left(box_recipe.EmitConstraint()) == [2, 3]  # the middle
    assert left(least(0.95)) == [3]
    assert left(least(0.05)) == [1, 2, 3]
    moved = box_recipe.BoxRecipe(rest=rest, boxes=3).seen(rows, part)
    np.testing.assert_allclose(moved[0], [1, 0, 0, 0, 0.05 / 0.55, 1, 0])


def test_colours_against_colorsys():
    """Saturation and hue as hue, saturation and value have them."""
    import colorsys

    picture = np.random.default_rng(0).integers(0, 256, (3, 5, 6), dtype=np.uint8)
    chance = np.full(11, 0.5)
    for saturation, turn in ((1.7, 0.0), (0.3, 0.0), (1.0, 30.0), (1.0, -75.0)):
        keys = {"saturation_lower": saturation, "saturation_upper": saturation}
        keys |= {"saturation_prob": 1.0, "hue_prob": 1.0, "hue_delta": abs(turn)}
        distortion = box_recipe.Distort(**keys)
        chance[7] = 1.0 if turn > 0 else 0.0
        got = distortion.of(picture, chance)
        for y in range(5):
            for x in range(6):
                b, g, r = picture[:, y, x] / 255
                h, s, v = colorsys.rgb_to_hsv(r, g, b)
                wanted = colorsys.hsv_to_rgb((h + turn / 180) % 1, min(1, s * saturation), v)
                np.testing.assert_allclose(got[::-1, y, x], np.array(wanted) * 255, atol=0.51)


@pytest.mark.parametrize("last", [True, False])
def test_brightness_and_contrast(last):
    picture = np.array([[[10, 250]]] * 3, np.uint8)
    chance = np.array([0, 1.0, 0, 0.5, 1, 1, 1, 1, 1, 0, 0.2 if last else 0.9])
    keys = {"contrast_prob": 1, "contrast_lower": 0.5, "contrast_upper": 1.5}
    distort = box_recipe.Distort(brightness_prob=1, brightness_delta=20, **keys)
    made = distort.of(picture, chance)
    assert made[0].tolist() == [[30, 255]]
    chance[3] = 0.0
    made = distort.of(picture, chance)
    assert made[0].tolist() == [[15, 128]]  # 255 / 2, to the even number
    chance[8:10] = 0, 0.99
    colours = np.arange(3, dtype=np.uint8).reshape(3, 1, 1)
    assert box_recipe.Distort(random_order_prob=1).of(colours, chance).ravel().tolist() == [2, 1, 0]


def test_noise():
    picture = np.random.default_rng(0).integers(0, 256, (3, 9, 8), dtype=np.uint8)
    made = {
        step: box_recipe.Noise(**{step: 90.0 if step == "jpeg" else True}).of(picture, 0.5)
        for step in box_recipe._SPOILT
    }
    assert all(one.shape == picture.shape and one.dtype == np.uint8 for one in made.values())
    assert np.array_equal(made["inverse"], ~picture)
    assert (made["decolorize"] == made["decolorize"][:1]).all()
    assert set(np.unique(made["posterize"])) <= {32, 96, 160, 224}
    assert (made["erode"] <= picture).all() and (made["erode"] < picture).any()
    assert abs(made["gauss_blur"].mean() - picture.mean()) < 3
    assert made["gauss_blur"].std() < picture.std() / 2
    smooth = np.linspace(0, 255, 3 * 9 * 8).reshape(3, 9, 8).astype(np.uint8)
    assert 0 < abs(box_recipe.Noise(jpeg=95.0).of(smooth, 0.5).astype(int) - smooth).max() < 8
    salt = salted(255.0).of(picture, 0.5)
    assert 0.2 < (salt == 255).mean() < 0.5
    assert np.array_equal(salt, salted(255.0).of(picture, 0.5))


LAYER = """
layer {{ name: "data" type: "AnnotatedData" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ mirror: true mean_value: 104 mean_value: 117 mean_value: 123
    resize_param {{ prob: 1 resize_mode: WARP height: 30 width: 40
      interp_mode: LINEAR interp_mode: AREA interp_mode: NEAREST interp_mode: CUBIC interp_mode: LANCZOS4 }}
    emit_constraint {{ emit_type: CENTER }}
    distort_param {{ brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5
      contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5
      saturation_upper: 1.5 random_order_prob: 0.0 }}
    expand_param {{ prob: 0.5 max_expand_ratio: 4.0 }} }}
  data_param {{ source: "{}" batch_size: 4 backend: LMDB }}
  annotated_data_param {{
    batch_sampler {{ max_sample: 1 max_trials: 1 }}
    batch_sampler {{ sampler {{ min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }}
      sample_constraint {{ min_jaccard_overlap: 0.1 }} max_sample: 1 max_trials: 50 }}
    batch_sampler {{ sampler {{ min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }}
      sample_constraint {{ max_jaccard_overlap: 1.0 }} max_sample: 1 max_trials: 50 }}
    label_map_file: "labelmap.prototxt" }} }}
"""


def test_a_sample_is_a_function_of_seed_epoch_and_entry(tmp_path):
    """By threads or nobody ahead, from any pass on, in batches of any size; SSD's own prototxt."""
    database(tmp_path / "db")
    text = LAYER.format(tmp_path / "db")

    def batches(passes, **keys):
        spec = parse_prototxt(text)
        spec.layers[0].options.update(keys)
        net = Net(spec, "TRAIN", device="cpu", seed=3)
        found = []
        for one in passes:
            net.context.passes = one
            net.forward()
            found.append([net.blobs[name].data.copy() for name in ("data", "label")])
        return found

    wanted = batches(range(6))
    assert not np.array_equal(wanted[0][0], wanted[3][0])  # the same entries, of another epoch
    for keys in ({"workers": 0}, {"workers": 3}):
        for got, want in zip(
            batches([4, 5, 1], **keys), (wanted[i] for i in (4, 5, 1)), strict=True
        ):
            assert all(np.array_equal(*pair) for pair in zip(got, want, strict=True))
    for i, (pictures, _) in enumerate(batches(range(3), batch_size=8)):
        assert np.array_equal(pictures, np.concatenate([wanted[2 * i][0], wanted[2 * i + 1][0]]))


def test_there_and_back(tmp_path):
    from minicaffe.interop.caffe.prototxt import prototxt

    spec = parse_prototxt(LAYER.format("db"))
    assert parse_prototxt(prototxt(spec, REGISTRY)).layers[0].options == spec.layers[0].options


@pytest.mark.parametrize(
    ("mode", "crop", "shape"),
    [("FIT_LARGE_SIZE_AND_PAD", "", (30, 30)), ("FIT_SMALL_SIZE", ", crop_size: 28", (28, 28))],
)
def test_sizes_that_keep_the_shape(mode, crop, shape, tmp_path):
    database(tmp_path / "db")
    keys = f"transform: {{resize_param: {{resize_mode: {mode}, height: 30, width: 30}}{crop}}}"
    found = net(tmp_path / "db", keys, 6, phase="TEST").forward()
    assert found["x"].shape == (6, 3, *shape)
    for place in range(6):
        rows = found["y"][0, 0]
        on_objects(found["x"][place], rows[rows[:, 0] == place])
