"""Write LeNet in Python, train it step by step, watch it learn (Caffe's 01-learning-lenet)."""

import os

import lmdb
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import digits
from numpy import arange, ceil, exp, zeros

import caffe
from caffe import layers as L, params as P
from caffe.proto import caffe_pb2

os.makedirs("mnist")


def create(path, n, seed):
    """What create_mnist.sh does."""
    images, labels = digits(n, seed)
    env = lmdb.open(path, map_size=1 << 26)
    with env.begin(write=True) as txn:
        for i, (image, label) in enumerate(zip(images, labels)):
            datum = caffe_pb2.Datum()
            datum.channels, datum.height, datum.width = 1, 28, 28
            datum.data = image.tobytes()
            datum.label = int(label)
            txn.put("{:08}".format(i).encode("ascii"), datum.SerializeToString())
    env.close()


create("mnist/mnist_train_lmdb", 640, 1)
create("mnist/mnist_test_lmdb", 200, 2)


def lenet(lmdb, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        batch_size=batch_size,
        backend=P.Data.LMDB,
        source=lmdb,
        transform_param=dict(scale=1.0 / 255),
        ntop=2,
    )
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(
        n.pool1, kernel_size=5, num_output=40, weight_filler=dict(type="xavier")
    )
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool2, num_output=100, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


with open("mnist/lenet_auto_train.prototxt", "w") as f:
    f.write(str(lenet("mnist/mnist_train_lmdb", 32)))
with open("mnist/lenet_auto_test.prototxt", "w") as f:
    f.write(str(lenet("mnist/mnist_test_lmdb", 50)))
with open("mnist/lenet_auto_train.prototxt") as f:
    shown = f.read()
assert 'type: "Convolution"' in shown and "backend: LMDB" in shown and "pool: MAX" in shown

with open("mnist/lenet_auto_solver.prototxt", "w") as f:
    f.write("""
train_net: "mnist/lenet_auto_train.prototxt"
test_net: "mnist/lenet_auto_test.prototxt"
test_iter: 4
test_interval: 500
base_lr: 0.03
momentum: 0.9
weight_decay: 0.0005
lr_policy: "inv"
gamma: 0.0001
power: 0.75
display: 100
max_iter: 10000
snapshot: 5000
snapshot_prefix: "mnist/lenet"
""")

caffe.set_mode_cpu()
solver = None  # a solver that holds the database open would be in the way of the next
solver = caffe.SGDSolver("mnist/lenet_auto_solver.prototxt")

blobs = [(k, v.data.shape) for k, v in solver.net.blobs.items()]
assert blobs[:3] == [("data", (32, 1, 28, 28)), ("label", (32,)), ("conv1", (32, 20, 24, 24))]
assert blobs[-1] == ("loss", ())
assert [(k, v[0].data.shape) for k, v in solver.net.params.items()] == [
    ("conv1", (20, 1, 5, 5)),
    ("conv2", (40, 20, 5, 5)),
    ("fc1", (100, 640)),
    ("score", (10, 100)),
]

first = solver.net.forward()
assert list(first) == ["loss"] and 1.5 < first["loss"] < 5
solver.test_nets[0].forward()
images, labels = digits(640, 1)
assert np.allclose(solver.net.blobs["data"].data[:8, 0], images[:8] / 255.0, atol=1e-5)
assert (solver.net.blobs["label"].data[:8] == labels[:8]).all()
plt.imsave(
    "eight.png",
    solver.net.blobs["data"].data[:8, 0].transpose(1, 0, 2).reshape(28, 8 * 28),
    cmap="gray",
)
print("train labels:", solver.net.blobs["label"].data[:8])
print("test labels:", solver.test_nets[0].blobs["label"].data[:8])

solver.step(1)
gradient = solver.net.params["conv1"][0].diff[:, 0].reshape(4, 5, 5, 5)
plt.imsave("gradient.png", gradient.transpose(0, 2, 1, 3).reshape(4 * 5, 5 * 5), cmap="gray")
assert (abs(solver.net.params["conv1"][0].diff).max((1, 2, 3)) > 0).all()

niter = 30
test_interval = 15
train_loss = zeros(niter)
test_acc = zeros(int(ceil(niter / test_interval)) + 1)
output = zeros((niter, 8, 10))


def accuracy():
    """The share of the test pictures that is right."""
    correct = 0
    for _ in range(4):
        solver.test_nets[0].forward()
        correct += sum(
            solver.test_nets[0].blobs["score"].data.argmax(1)
            == solver.test_nets[0].blobs["label"].data
        )
    return correct / 200.0


for it in range(niter):
    solver.step(1)
    train_loss[it] = solver.net.blobs["loss"].data
    # from conv1, so that no new data are read
    solver.test_nets[0].forward(start="conv1")
    output[it] = solver.test_nets[0].blobs["score"].data[:8]
    if it % test_interval == 0:
        print("Iteration", it, "testing...")
        test_acc[it // test_interval] = accuracy()
test_acc[-1] = accuracy()

_, ax1 = plt.subplots()
ax2 = ax1.twinx()
ax1.plot(arange(niter), train_loss)
ax2.plot(test_interval * arange(len(test_acc)), test_acc, "r")
ax1.set_xlabel("iteration")
ax1.set_ylabel("train loss")
ax2.set_ylabel("test accuracy")
ax2.set_title("Test Accuracy: {:.2f}".format(test_acc[-1]))
plt.savefig("learning.png")
plt.imsave("scores.png", exp(output[:50, 0].T) / exp(output[:50, 0].T).sum(0), cmap="gray")
print(train_loss[::8], test_acc)
assert solver.iter == niter + 1
assert train_loss[-5:].mean() < train_loss[:5].mean() / 2
assert test_acc[-1] > 0.85 > test_acc[0]


# -- an architecture and a solver of one's own
def custom_net(lmdb, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        batch_size=batch_size,
        backend=P.Data.LMDB,
        source=lmdb,
        transform_param=dict(scale=1.0 / 255),
        ntop=2,
    )
    n.fc1 = L.InnerProduct(n.data, num_output=32, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.drop1 = L.Dropout(n.relu1, dropout_ratio=0.2, in_place=True)
    n.score = L.InnerProduct(n.drop1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


train_net_path = "mnist/custom_auto_train.prototxt"
test_net_path = "mnist/custom_auto_test.prototxt"
solver_config_path = "mnist/custom_auto_solver.prototxt"
with open(train_net_path, "w") as f:
    f.write(str(custom_net("mnist/mnist_train_lmdb", 64)))
with open(test_net_path, "w") as f:
    f.write(str(custom_net("mnist/mnist_test_lmdb", 50)))

s = caffe_pb2.SolverParameter()
s.random_seed = 0xCAFFE  # so that each run gives the same
s.train_net = train_net_path
s.test_net.append(test_net_path)
s.test_interval = 500
s.test_iter.append(4)
s.max_iter = 10000
s.type = "Adam"
s.base_lr = 0.005
s.momentum = 0.9
s.momentum2 = 0.999
s.weight_decay = 5e-4
s.lr_policy = "inv"
s.gamma = 0.0001
s.power = 0.75
s.display = 1000
s.snapshot = 5000
s.snapshot_prefix = "mnist/custom_net"
s.solver_mode = caffe_pb2.SolverParameter.CPU
with open(solver_config_path, "w") as f:
    f.write(str(s))

solver = None
solver = caffe.get_solver(solver_config_path)
assert isinstance(solver, caffe.AdamSolver)
solver.step(40)
print("accuracy of one's own net:", accuracy())
assert accuracy() > 0.6
plt.close("all")
