"""Learn a plane in which digits of one class are near each other (Caffe's mnist_siamese)."""

import lmdb
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import digits

import caffe

SIDE = """
layer {{ name: "conv1{0}" type: "Convolution" bottom: "data{0}" top: "conv1{0}"
  param {{ name: "conv1_w" lr_mult: 1 }} param {{ name: "conv1_b" lr_mult: 2 }}
  convolution_param {{ num_output: 8 kernel_size: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "pool1{0}" type: "Pooling" bottom: "conv1{0}" top: "pool1{0}"
  pooling_param {{ pool: MAX kernel_size: 4 stride: 4 }} }}
layer {{ name: "ip1{0}" type: "InnerProduct" bottom: "pool1{0}" top: "ip1{0}"
  param {{ name: "ip1_w" lr_mult: 1 }} param {{ name: "ip1_b" lr_mult: 2 }}
  inner_product_param {{ num_output: 64 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1{0}" type: "ReLU" bottom: "ip1{0}" top: "ip1{0}" }}
layer {{ name: "feat{0}" type: "InnerProduct" bottom: "ip1{0}" top: "feat{0}"
  param {{ name: "feat_w" lr_mult: 1 }} param {{ name: "feat_b" lr_mult: 2 }}
  inner_product_param {{ num_output: 2 weight_filler {{ type: "xavier" }} }} }}
"""
TRAIN_TEST = (
    """
name: "mnist_siamese_train_test"
layer { name: "pair_data" type: "Data" top: "pair_data" top: "sim" include { phase: TRAIN }
  transform_param { scale: 0.00390625 } data_param { source: "siamese_train_lmdb" batch_size: 32 backend: LMDB } }
layer { name: "pair_data" type: "Data" top: "pair_data" top: "sim" include { phase: TEST }
  transform_param { scale: 0.00390625 } data_param { source: "siamese_test_lmdb" batch_size: 50 backend: LMDB } }
layer { name: "slice_pair" type: "Slice" bottom: "pair_data" top: "data" top: "data_p"
  slice_param { slice_dim: 1 slice_point: 1 } }
"""
    + SIDE.format("")
    + SIDE.format("_p")
    + """
layer { name: "loss" type: "ContrastiveLoss" bottom: "feat" bottom: "feat_p" bottom: "sim" top: "loss"
  contrastive_loss_param { margin: 1 } }
"""
)
DEPLOY = """
name: "mnist_siamese"
input: "data"
input_shape { dim: 64 dim: 1 dim: 28 dim: 28 }
""" + SIDE.format("")
SOLVER = """
net: "mnist_siamese_train_test.prototxt"
test_iter: 4
test_interval: 100
base_lr: 0.02
momentum: 0.9
weight_decay: 0.0000
lr_policy: "inv"
gamma: 0.0001
power: 0.75
display: 50
max_iter: 100
snapshot: 100
snapshot_prefix: "mnist_siamese"
solver_mode: CPU
"""


def create(path, pairs, seed):
    """Pairs of digits as pictures of two channels; the label tells whether they are alike."""
    images, labels = digits(600, seed)
    images, labels = images[labels < 4], labels[labels < 4]
    rng = np.random.RandomState(seed)
    env = lmdb.open(path, map_size=1 << 26)
    with env.begin(write=True) as txn:
        for k in range(pairs):
            i = rng.randint(len(images))
            alike = np.flatnonzero((labels == labels[i]) == (k % 2 == 0))
            j = rng.choice(alike)
            datum = caffe.io.array_to_datum(
                np.array([images[i], images[j]]), int(labels[i] == labels[j])
            )
            txn.put("{:08}".format(k).encode(), datum.SerializeToString())
    env.close()


create("siamese_train_lmdb", 640, 1)
create("siamese_test_lmdb", 200, 2)
for name, text in (
    ("mnist_siamese_train_test", TRAIN_TEST),
    ("mnist_siamese", DEPLOY),
    ("solver", SOLVER),
):
    with open(name + ".prototxt", "w") as f:
        f.write(text)

caffe.set_mode_cpu()
solver = caffe.SGDSolver("solver.prototxt")
first = solver.test_nets[0].forward()["loss"].copy()
# both sides have the same parameters
solver.step(1)
for name in ("conv1", "ip1", "feat"):
    for ours, theirs in zip(solver.net.params[name], solver.net.params[name + "_p"]):
        assert np.array_equal(ours.data, theirs.data)
solver.solve()
last = solver.test_nets[0].forward()["loss"]
print("loss %.4f -> %.4f" % (first, last))
assert last < first / 2

# -- the trained net
MODEL_FILE = "mnist_siamese.prototxt"
PRETRAINED_FILE = "mnist_siamese_iter_100.caffemodel"
net = caffe.Net(MODEL_FILE, PRETRAINED_FILE, caffe.TEST)

n = 300  # no multiple of the batch
raw_data, labels = digits(n, 3)
raw_data, labels = raw_data[labels < 4], labels[labels < 4]
caffe_in = raw_data.reshape(-1, 1, 28, 28) * 0.00390625
out = net.forward_all(data=caffe_in)
feat = out["feat"]
assert feat.shape == (len(labels), 2) and len(labels) % 64

f = plt.figure(figsize=(16, 9))
c = ["#ff0000", "#ffff00", "#00ff00", "#00ffff"]
for i in range(4):
    plt.plot(feat[labels == i, 0].flatten(), feat[labels == i, 1].flatten(), ".", c=c[i])
plt.legend(["0", "1", "2", "3"])
plt.grid()
plt.savefig("embedding.png")
plt.close("all")

distance = np.hypot(*(feat[:, None] - feat[None]).transpose(2, 0, 1))
alike = labels[:, None] == labels[None]
print(
    "mean distance: alike %.3f, not alike %.3f" % (distance[alike].mean(), distance[~alike].mean())
)
assert distance[~alike].mean() > 3 * distance[alike].mean()
nearest = (distance + 9 * np.eye(len(labels))).argmin(1)
assert (labels[nearest] == labels).mean() > 0.8
