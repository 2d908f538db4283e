"""Tell all of the classes that are in a picture, with a data layer in Python (Caffe's pascal-multilabel)."""

import os
import os.path as osp
import sys
from copy import copy

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import COLOURS, SHAPES, paint

import caffe
from caffe import layers as L, params as P

sys.path.append(".")  # where the data layer and the tools are
import shapes_datalayers  # noqa: F401  Caffe would import it for the net
import voc_tools as tools

classes = np.asarray(list(COLOURS))
voc_root = osp.abspath("VOC")


def draw_pascal():
    """A folder as that of PASCAL VOC: pictures, their annotations, and lists of them."""
    rng = np.random.RandomState(5)
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        os.makedirs(osp.join(voc_root, folder))
    for split, count in (("train", 96), ("val", 32)):
        names = []
        for i in range(count):
            names.append("%s_%04d" % (split, i))
            image = 70 + 15 * rng.randn(40, 40, 3)
            there = [c for c in classes if rng.rand() < 0.35]
            for colour in there:
                paint(image, SHAPES[rng.randint(len(SHAPES))], colour, 15, rng)
            # a shape may hide another
            shown = [c for c in there if (abs(image - COLOURS[c]).max(2) == 0).sum() > 25]
            plt.imsave(
                osp.join(voc_root, "JPEGImages", names[-1] + ".png"),
                image.clip(0, 255).astype(np.uint8),
            )
            with open(osp.join(voc_root, "Annotations", names[-1] + ".xml"), "w") as f:
                objects = "".join("<object><name>%s</name></object>" % c for c in shown)
                f.write("<annotation>%s</annotation>" % objects)
        with open(osp.join(voc_root, "ImageSets/Main", split + ".txt"), "w") as f:
            f.write("".join(name + "\n" for name in names))


draw_pascal()
caffe.set_mode_cpu()
caffe.set_random_seed(2)


# -- the net
def conv_relu(bottom, ks, nout, stride=1, pad=0, group=1):
    conv = L.Convolution(
        bottom,
        kernel_size=ks,
        stride=stride,
        num_output=nout,
        pad=pad,
        group=group,
        weight_filler=dict(type="msra"),
    )
    return conv, L.ReLU(conv, in_place=True)


def fc_relu(bottom, nout):
    fc = L.InnerProduct(bottom, num_output=nout, weight_filler=dict(type="msra"))
    return fc, L.ReLU(fc, in_place=True)


def max_pool(bottom, ks, stride=1):
    return L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=ks, stride=stride)


def caffenet_multilabel(data_layer_params, datalayer):
    n = caffe.NetSpec()
    n.data, n.label = L.Python(
        module="shapes_datalayers", layer=datalayer, ntop=2, param_str=str(data_layer_params)
    )
    n.conv1, n.relu1 = conv_relu(n.data, 5, 12, stride=2)
    n.pool1 = max_pool(n.relu1, 3, stride=2)
    n.norm1 = L.LRN(n.pool1, local_size=5, alpha=1e-4, beta=0.75)
    n.conv2, n.relu2 = conv_relu(n.norm1, 3, 24, pad=1, group=2)
    n.pool2 = max_pool(n.relu2, 7, stride=7)
    n.fc6, n.relu6 = fc_relu(n.pool2, 32)
    n.drop6 = L.Dropout(n.relu6, dropout_ratio=0.1, in_place=True)
    n.score = L.InnerProduct(n.drop6, num_output=5, weight_filler=dict(type="xavier"))
    n.loss = L.SigmoidCrossEntropyLoss(n.score, n.label)
    return str(n.to_proto())


# -- the files
workdir = "./pascal_multilabel_with_datalayer"
if not os.path.isdir(workdir):
    os.makedirs(workdir)
solverprototxt = tools.CaffeSolver(
    trainnet_prototxt_path=osp.join(workdir, "trainnet.prototxt"),
    testnet_prototxt_path=osp.join(workdir, "valnet.prototxt"),
)
solverprototxt.sp["display"] = "1"
solverprototxt.sp["base_lr"] = "0.01"
solverprototxt.sp["snapshot_prefix"] = '"%s/snapshot"' % workdir
solverprototxt.write(osp.join(workdir, "solver.prototxt"))
for split, name in (("train", "trainnet"), ("val", "valnet")):
    with open(osp.join(workdir, name + ".prototxt"), "w") as f:
        data_layer_params = dict(batch_size=16, im_shape=[35, 35], split=split, voc_root=voc_root)
        f.write(caffenet_multilabel(data_layer_params, "ShapesMultilabelDataLayerSync"))

solver = caffe.SGDSolver(osp.join(workdir, "solver.prototxt"))
weights = osp.join(workdir, "pretrained.caffemodel")
solver.net.save(weights)  # what would be downloaded
solver.net.copy_from(weights)
solver.test_nets[0].share_with(solver.net)
solver.step(1)

# -- what was read
transformer = tools.SimpleTransformer()
image_index = 0
seen = transformer.deprocess(copy(solver.net.blobs["data"].data[image_index, ...]))
plt.figure()
plt.imshow(seen)
gtlist = solver.net.blobs["label"].data[image_index, ...].astype(int)
plt.title("GT: {}".format(classes[np.where(gtlist)]))
plt.axis("off")
plt.savefig("read.png")
assert seen.shape == (35, 35, 3) and 50 < seen.mean() < 200
assert set(np.unique(solver.net.blobs["label"].data)) == {0, 1}
assert solver.net.layers[0].type == "Python" and solver.net.layers[0].batch_size == 16


# -- training, with a measure of accuracy
def hamming_distance(gt, est):
    return sum([1 for (g, e) in zip(gt, est) if g == e]) / float(len(gt))


def check_accuracy(net, num_batches, batch_size=16):
    acc = 0.0
    for _ in range(num_batches):
        net.forward()
        gts = net.blobs["label"].data
        ests = net.blobs["score"].data > 0
        for gt, est in zip(gts, ests):
            acc += hamming_distance(gt, est)
    return acc / (num_batches * batch_size)


def check_baseline_accuracy(net, num_batches, batch_size=16):
    acc = 0.0
    for _ in range(num_batches):
        net.forward()
        gts = net.blobs["label"].data
        ests = np.zeros((batch_size, gts.shape[1]))
        for gt, est in zip(gts, ests):
            acc += hamming_distance(gt, est)
    return acc / (num_batches * batch_size)


for itt in range(3):
    solver.step(30)
    print(
        "itt:{:3d}".format((itt + 1) * 30),
        "accuracy:{0:.4f}".format(check_accuracy(solver.test_nets[0], 2)),
    )
baseline = check_baseline_accuracy(solver.test_nets[0], 2)
accuracy = check_accuracy(solver.test_nets[0], 2)
print("Baseline accuracy:{0:.4f}, trained: {1:.4f}".format(baseline, accuracy))
assert solver.iter == 91
assert 0.5 < baseline < 0.9 and accuracy > baseline + 0.05

# -- some results
test_net = solver.test_nets[0]
for image_index in range(3):
    plt.figure()
    plt.imshow(transformer.deprocess(copy(test_net.blobs["data"].data[image_index, ...])))
    gtlist = test_net.blobs["label"].data[image_index, ...].astype(int)
    estlist = test_net.blobs["score"].data[image_index, ...] > 0
    plt.title("GT: {} \n EST: {}".format(classes[np.where(gtlist)], classes[np.where(estlist)]))

# -- going on another day
solver.snapshot()
state = osp.join(workdir, "snapshot_iter_91.solverstate")
again = caffe.SGDSolver(osp.join(workdir, "solver.prototxt"))
again.restore(state)
assert again.iter == 91
assert np.array_equal(again.net.params["fc6"][0].data, solver.net.params["fc6"][0].data)
again.step(1)
assert again.iter == 92
plt.close("all")
