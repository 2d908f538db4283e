"""What each rank has of a batch: parts that make up the whole, whichever layer gives it."""

from pathlib import Path

import numpy as np
import pytest
from kit import few_digits, refusal

from minicaffe import Net, ShapeError, SpecError, parse
from minicaffe.backends import device as backend
from minicaffe.core.communicator import Communicator
from minicaffe.core.layers.context import Share

FILES = Path(__file__).parent.parent.parent / "fixtures" / "examples"
CROP = "transform: {crop_size: 6, mirror: true}"
LAYERS = {
    "in memory": f"{{type: Data, top: [x, y], source: digits, batch_size: 5, {CROP}}}",
    "read ahead": "{type: Data, top: [x, y], source: digits, batch_size: 5, transform: {crop_size: 6, rotation: 20}}",
    "skipped": f"{{type: Data, top: [x, y], source: digits, batch_size: 5, rand_skip: 7, {CROP}}}",
    "pictures": f"{{type: ImageData, top: [x, y], source: {FILES}/images.txt, batch_size: 5, shuffle: true}}",
    "windows": f"{{type: WindowData, top: [x, y], source: {FILES}/windows.txt, batch_size: 5, fg_fraction: 0.4, transform: {{crop_size: 8, mirror: true}}}}",
    "rows": f"{{type: HDF5Data, top: t0, source: {FILES}/rows.txt, batch_size: 5, shuffle: true}}",
    "arrays": "{type: MemoryData, top: [x, y], batch_size: 5, channels: 1, height: 2, width: 2}",
    "drawn": "{type: DummyData, top: [x, y], shape: [{dim: [5, 3]}, {dim: [5]}], data_filler: [{type: gaussian}, {type: constant, value: 2}]}",
}
CHANCE = "\n  - {name: drop, type: Dropout, bottom: x, top: dropped}"


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """The drawn digits, but few."""
    few_digits(monkeypatch, 12, 12)


def batches(layer, share, more="", passes=4):
    """What a layer gives in so many passes, and what another makes of it."""
    pytest.importorskip("PIL")
    if "HDF5" in layer:
        pytest.importorskip("h5py")
    spec = parse(f"layers:\n  - {layer.replace('{', '{name: data, ', 1)}{more}")
    net = Net(spec, share=share, device="cpu")
    if "Memory" in layer:
        net.layers["data"].reset(np.random.default_rng(0).normal(size=(15, 1, 2, 2)), np.arange(15))
    found = []
    for _ in range(passes):
        net.forward()
        found.append({name: blob.data.copy() for name, blob in net.blobs.items()})
    return found


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("name", LAYERS)
def test_parts_make_up_the_batch(name, size):
    """Entries, crops and draws are functions of the place in the whole batch; so is what Dropout keeps."""
    more = CHANCE if "[x, y]" in LAYERS[name] else ""
    whole = batches(LAYERS[name], None, more)
    parts = [batches(LAYERS[name], Share(rank, size), more) for rank in range(size)]
    for number, wanted in enumerate(whole):
        for blob, array in wanted.items():
            found = np.concatenate([part[number][blob] for part in parts])
            np.testing.assert_array_equal(found, array, err_msg=f"{blob} of pass {number}")


def test_a_batch_a_rank():
    """Two ranks with five samples each have the batch of ten."""
    layer = LAYERS["in memory"]
    whole = batches(layer.replace("batch_size: 5", "batch_size: 10"), None)
    parts = [batches(layer, Share(rank, 2, per_rank=True)) for rank in range(2)]
    for number, wanted in enumerate(whole):
        found = np.concatenate([part[number]["x"] for part in parts])
        np.testing.assert_array_equal(found, wanted["x"])


def test_what_is_no_number_a_sample():
    share = Share(0, 2)
    share.of(8)
    told = refusal(share.of_whole, 6, error=ShapeError)
    assert "6 of the 4 samples of rank 0 are no whole number a sample" in told


def test_statistics_of_all_ranks_are_not_of_16_bits(cuda):
    text = "layers: [{name: x, type: Input, shape: {dim: [4, 3]}}, {name: norm, type: BatchNorm, sync: true}]"
    told = refusal(
        Net, parse(text), share=Share(0, 2), device=cuda, dtype="float16", error=SpecError
    )
    said = "layer 'norm' (BatchNorm): sync: on several ranks a net of float32 or float64 is needed"
    assert said in told


def test_an_input_is_of_the_rank_and_its_net_keeps_its_shapes():
    spec = parse("layers: [{name: x, type: Input, shape: {dim: [5, 3]}}]")
    net = Net(spec, share=Share(1, 2), device="cpu")
    assert net.blobs["x"].shape == (3, 3)
    told = refusal(net.reshape, x=(6, 3), error=ShapeError)
    assert "a net of several ranks keeps its shapes: each has its part" in told
    assert net.blobs["x"].shape == (3, 3)


def test_alone_a_rank_has_all_there_is():
    """Each verb leaves arrays as they are, at once or later, and objects come back."""
    one, array = Communicator(), np.arange(6.0)
    assert one.allreduce(array) is array and one.bcast(array) is array
    for work in (one.allreduce_init, one.reduce_scatter_init, one.allgather_init, one.iallreduce):
        work(array)()
    one.progress(), one.barrier()
    np.testing.assert_array_equal(array, np.arange(6))
    assert one.bounds(6) == [0, 6] and one.on(backend.device("cpu")) is one
    assert one.bcast_obj(array) is array and one.allgather_obj(3) == [3]
    with pytest.raises(SystemExit) as ended:
        one.abort(3)
    assert ended.value.code == 3
