"""gather: crop, mirror, mean and scale, pixel by pixel."""

import numpy as np
from core.ops import references as ref
from core.ops.cases import batches, blank, cases, close, dtypes, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops.batch import gather


@cases(320)
@given(
    batches,
    st.integers(1, 3),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.data(),
    st.sampled_from([1.0, 1 / 256, -0.5]),
    dtypes,
    seeds,
)
def test_against_loops(device, n, c, image, data, scale, dtype, seed):
    size = tuple(data.draw(st.integers(1, side)) for side in image)
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (5, c, *image), np.uint8)
    index = rng.integers(0, 5, n)
    crop = np.stack(
        [rng.integers(0, side - s + 1, n) for side, s in zip(image, size, strict=True)], 1
    )
    mirror = rng.integers(0, 2, n)
    mean = rng.uniform(0, 255, (c, *image)).astype(dtype)
    hosts = [images, rng.integers(0, 9, 5).astype(dtype), np.stack([index, *crop.T, mirror]), mean]
    there = [put(device, host, host.dtype) for host in hosts]
    out, labels = blank(device, (n, c, *size), dtype), blank(device, n, dtype)
    assert gather(*there, scale, out, labels) is out
    close(device, out, ref.gather(images, index, crop, mirror, mean, scale, out.shape))
    same(device, labels, hosts[1][index])
    for array, host in zip(there, hosts, strict=True):
        same(device, array, host)
    there[1] = None
    same(device, gather(*there, scale, blank(device, out.shape, dtype), None), device.to_host(out))
