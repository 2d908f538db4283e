"""ROIPooling as a layer: regions of images that are not there, 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers.rows.detection import MAPS, REGIONS
from half_nets import TYPES

from minicaffe import Net, parse
from minicaffe.errors import DataError

TEXT = """
force_backward: true
layers:
  - {name: data, type: Input, top: [x, rois], shape: [{dim: [2, 3, 5, 6]}, {dim: SHAPE}]}
  - {name: pool, type: ROIPooling, bottom: [x, rois], pooled_h: 2, pooled_w: 3}
  - {name: sum, type: Eltwise, bottom: [pool, pool], loss_weight: 1}
"""


def build(device="cpu", dtype=None, shape="[4, 5]"):
    return Net(parse(TEXT.replace("SHAPE", shape)), device=device, dtype=dtype)


def test_an_image_that_is_not_there_is_named(device):
    net = build(device)

    def run():
        net.forward(x=MAPS, rois=np.add(REGIONS, [2, 0, 0, 0, 0]))
        assert np.isnan(net.loss)
        net.check()

    told = r"layer 'pool' .*: region 0 is of image 2; there are 2: 0..1"
    with pytest.raises(DataError, match=told):
        run()


@TYPES
def test_16_bits(cuda, dtype):
    """What wins is as it is; regions are float32, which tells pixels from each other that 16 bits cannot."""
    exact, half = build(dtype="float64"), build(cuda, dtype)
    x, rois = np.round(MAPS * 8) / 8, REGIONS
    for net in (exact, half):
        net.forward(x=x, rois=rois)
        net.backward()
    assert half.blobs["rois"].data.dtype.name == "float32"
    for name in ("data", "diff"):
        got = cuda.to_host(getattr(half.blobs["pool" if name == "data" else "x"], name))
        wanted = getattr(exact.blobs["pool" if name == "data" else "x"], name)
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(got.dtype))
