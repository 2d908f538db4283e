"""What tests/tools/fuzz/run.py fuzzes: whole files are read, and what it has found is read or refused in one line."""

import random
from pathlib import Path

import pytest
from fuzz.fuzzed import READERS, words
from test_fuzz_files import mutated

from minicaffe.errors import MinicaffeError

HERE = Path(__file__).parent
NEEDS = {
    **dict.fromkeys(("h5", "caffemodel.h5", "solverstate.h5", "hdf5_list"), "h5py"),
    **dict.fromkeys(("png", "jpeg", "image_list"), "PIL"),
    "safetensors": "safetensors",
    "compiled": "numba",
}


@pytest.fixture
def reader(request, tmp_path, here):
    name = request.param
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return name, READERS[name](tmp_path)


def used(reader, data: bytes) -> bool:
    """Whether it was read; else it was refused in one line."""
    try:
        reader.use(data)
    except MinicaffeError as error:
        assert str(error).isprintable(), error
        return False
    return True


@pytest.mark.parametrize("reader", READERS, indirect=True)
def test_a_whole_file_is_read_and_a_spoilt_one_may_be_refused(reader):
    name, one = reader
    assert one.seeds and words(name)
    assert all(used(one, data) for data in one.seeds)
    rng = random.Random(name)
    for _ in range(10):
        used(one, mutated(rng.choice(one.seeds), rng))


@pytest.mark.parametrize("reader", READERS, indirect=True)
def test_what_was_found_is_mended(reader):
    name, one = reader
    for path in sorted((HERE / "finds" / name).glob("*")):
        used(one, path.read_bytes())
