"""A net that several threads share returns to each what it asked for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minicaffe
from minicaffe import Net, parse
from minicaffe.interop import pycaffe

TEXT = """
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 40, 40]}}
  - {name: conv, type: Convolution, bottom: data, num_output: 8, kernel_size: 3, weight_filler: xavier}
  - {name: relu, type: ReLU, bottom: conv, top: conv}
  - {name: ip, type: InnerProduct, bottom: conv, num_output: 5, weight_filler: xavier}
  - {name: prob, type: Softmax, bottom: ip}
"""
DETECTS = """
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 12, 12]}}
  - {name: c, type: Convolution, bottom: data, num_output: 8, kernel_size: 3, weight_filler: xavier}
  - {name: pool, type: Pooling, bottom: c, pool: AVE, kernel_size: 5, stride: 5}
  - {name: loc, type: Convolution, bottom: pool, num_output: 4, kernel_size: 1, weight_filler: xavier}
  - {name: score, type: Convolution, bottom: pool, num_output: 2, kernel_size: 1, weight_filler: xavier}
  - {name: lp, type: Permute, bottom: loc, order: [0, 2, 3, 1]}
  - {name: lf, type: Flatten, bottom: lp}
  - {name: sp, type: Permute, bottom: score, order: [0, 2, 3, 1]}
  - {name: sr, type: Reshape, bottom: sp, shape: {dim: [0, -1, 2]}}
  - {name: sm, type: Softmax, bottom: sr, axis: 2}
  - {name: sf, type: Flatten, bottom: sm}
  - {name: prior, type: PriorBox, bottom: [pool, data], min_size: 4, variance: [0.1, 0.1, 0.2, 0.2]}
  - {name: out, type: DetectionOutput, bottom: [lf, sf, prior], num_classes: 2, nms_param: {nms_threshold: 0.4}}
"""
COUNT = 120


def net():
    shared = Net(parse(TEXT), "TEST", device="cpu", keep=())
    return lambda x: shared.forward(data=x[None])["prob"][0]


def classifier():
    return minicaffe.Classifier(parse(TEXT), device="cpu").predict


def detector():
    return minicaffe.Detector(parse(DETECTS), device="cpu").predict


def caffes(tmp_path, function="forward"):
    (tmp_path / "net.yaml").write_text(TEXT)
    shared = pycaffe.Net(str(tmp_path / "net.yaml"), pycaffe.TEST)
    return lambda x: getattr(shared, function)(data=x[None])["prob"][0]


@pytest.mark.parametrize("of", ["net", "classifier", "detector", "forward", "forward_all"])
def test_each_thread_has_its_own_answers(of, tmp_path):
    made = {"net": net, "classifier": classifier, "detector": detector}
    answer = made[of]() if of in made else caffes(tmp_path, of)
    side = 12 if of == "detector" else 40
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (3, side, side)).astype(np.float32) for _ in range(COUNT)]
    alone = [np.array(answer(one)) for one in pictures]
    with ThreadPoolExecutor(4) as pool:
        # Kept as they are: no other pass may overwrite them
        found = list(pool.map(answer, pictures))
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


def test_in_one_thread_a_pass_returns_the_nets_own_arrays():
    shared = Net(parse(TEXT), "TEST", device="cpu", keep=())
    assert shared.forward()["prob"] is shared.blobs["prob"].data
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(shared.forward).result()["prob"] is not shared.blobs["prob"].data
    assert shared.forward()["prob"] is not shared.blobs["prob"].data


def test_the_lock_holds_more_than_one_pass():
    shared = Net(parse(TEXT + "force_backward: true\n"), "TRAIN", device="cpu")

    def gradient(seed):
        x = np.random.default_rng(seed).normal(size=(1, 3, 40, 40))
        with shared.lock:
            shared.forward(data=x)
            shared.clear_param_diffs()
            shared.backward(prob=np.eye(5)[:1])
            return shared.blobs["data"].diff.copy()

    alone = [gradient(seed) for seed in range(30)]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(alone, pool.map(gradient, range(30)), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-7)


def test_no_samples_have_empty_answers_under_their_names(tmp_path):
    (tmp_path / "net.yaml").write_text("force_backward: true\n" + TEXT)
    shared = pycaffe.Net(str(tmp_path / "net.yaml"), pycaffe.TEST)
    none = np.empty((0, 3, 40, 40), np.float32)
    out = shared.forward_all(blobs=["ip"], data=none)
    assert {name: array.shape for name, array in out.items()} == {"prob": (0, 5), "ip": (0, 5)}
    out, gradients = shared.forward_backward_all(data=none, prob=np.empty((0, 5)))
    assert out["prob"].shape == (0, 5) and gradients["data"].shape == none.shape


def test_a_pass_is_not_reshaped_within():
    shared = Net(parse(TEXT), "TEST", device="cpu", keep=())
    x = np.random.default_rng(0).normal(size=(1, 3, 40, 40)).astype(np.float32)
    wanted = shared.forward(data=x)["prob"].copy()
    ends = threading.Event()

    def reshaping():
        while not ends.is_set():
            with shared.lock:
                shared.reshape(data=(2, 3, 40, 40))
                shared.reshape(data=(1, 3, 40, 40))
            shared.reshape(data=(1, 3, 40, 40))

    other = threading.Thread(target=reshaping)
    other.start()
    try:
        for _ in range(60):
            np.testing.assert_allclose(shared.forward(data=x)["prob"], wanted, rtol=1e-5)
    finally:
        ends.set()
        other.join()
