"""Fine-tune a net that knows shapes to tell styles of pictures (Caffe's 02-fine-tuning)."""

import os
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import SHAPES, picture

import caffe
from caffe import layers as L
from caffe import params as P
from caffe.proto import caffe_pb2

caffe.set_mode_cpu()
caffe.set_random_seed(1701)

NUM_STYLE_LABELS = 4
STYLES = {
    "Noir": ("white", 15),
    "Pastel": ("yellow", 190),
    "HDR": ("green", 90),
    "Melancholy": ("blue", 50),
}
SIZE, CROP = 30, 27


def assemble_data():
    """Lists of pictures with labels, the mean of them all, and a net that has learnt something else."""
    rng = np.random.RandomState(3)
    os.makedirs("flickr_style/images")
    total, count = 0, 0
    for subset, n in (("train", 80), ("test", 40)):
        lines = []
        for i in range(n):
            label = i % NUM_STYLE_LABELS
            colour, ground = list(STYLES.values())[label]
            image = picture(SHAPES[rng.randint(6)], colour, SIZE + 4, rng, ground)
            path = os.path.abspath("flickr_style/images/%s%d.png" % (subset, i))
            plt.imsave(path, image)
            lines.append("%s %d\n" % (path, label))
            total, count = total + image.astype(float), count + 1
        with open("flickr_style/%s.txt" % subset, "w") as f:
            f.writelines(lines)
    mean = (total / count).mean((0, 1))[::-1]  # blue first
    blob = caffe.io.array_to_blobproto(np.tile(mean[None, :, None, None], (1, 1, SIZE, SIZE)))
    with open("imagenet_mean.binaryproto", "wb") as f:
        f.write(blob.SerializeToString())
    with open("style_names.txt", "w") as f:
        f.write("".join(name + "\n" for name in STYLES))


def deprocess_net_image(image):
    image = image.copy()  # not in the net itself
    image = image[::-1]  # blue first -> red first
    image = image.transpose(1, 2, 0)  # CHW -> HWC
    image += mean_pixel[::-1]
    image[image < 0], image[image > 255] = 0, 255
    image = np.round(image)
    return np.require(image, dtype=np.uint8)


assemble_data()
blob = caffe_pb2.BlobProto()
with open("imagenet_mean.binaryproto", "rb") as f:
    blob.ParseFromString(f.read())
mean_pixel = caffe.io.blobproto_to_array(blob)[0].mean(1).mean(1)
style_labels = list(np.loadtxt("style_names.txt", str))[:NUM_STYLE_LABELS]

# -- the nets
weight_param = dict(lr_mult=1, decay_mult=1)
bias_param = dict(lr_mult=2, decay_mult=0)
learned_param = [weight_param, bias_param]
frozen_param = [dict(lr_mult=0)] * 2


def conv_relu(
    bottom,
    ks,
    nout,
    stride=1,
    pad=0,
    group=1,
    param=learned_param,
    weight_filler=dict(type="msra"),
    bias_filler=dict(type="constant", value=0.1),
):
    conv = L.Convolution(
        bottom,
        kernel_size=ks,
        stride=stride,
        num_output=nout,
        pad=pad,
        group=group,
        param=param,
        weight_filler=weight_filler,
        bias_filler=bias_filler,
    )
    return conv, L.ReLU(conv, in_place=True)


def fc_relu(
    bottom,
    nout,
    param=learned_param,
    weight_filler=dict(type="msra"),
    bias_filler=dict(type="constant", value=0.1),
):
    fc = L.InnerProduct(
        bottom, num_output=nout, param=param, weight_filler=weight_filler, bias_filler=bias_filler
    )
    return fc, L.ReLU(fc, in_place=True)


def max_pool(bottom, ks, stride=1):
    return L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=ks, stride=stride)


def caffenet(data, label=None, train=True, num_classes=12, classifier_name="fc8", learn_all=False):
    """The file of a small CaffeNet."""
    n = caffe.NetSpec()
    n.data = data
    param = learned_param if learn_all else frozen_param
    n.conv1, n.relu1 = conv_relu(n.data, 5, 12, stride=2, param=param)
    n.pool1 = max_pool(n.relu1, 3, stride=2)
    n.norm1 = L.LRN(n.pool1, local_size=5, alpha=1e-4, beta=0.75)
    n.conv2, n.relu2 = conv_relu(n.norm1, 3, 16, pad=1, group=2, param=param)
    n.pool2 = max_pool(n.relu2, 3, stride=2)
    n.norm2 = L.LRN(n.pool2, local_size=5, alpha=1e-4, beta=0.75)
    n.conv3, n.relu3 = conv_relu(n.norm2, 3, 16, pad=1, param=param)
    n.fc6, n.relu6 = fc_relu(n.relu3, 48, param=param)
    if train:
        n.drop6 = fc7input = L.Dropout(n.relu6, dropout_ratio=0.2, in_place=True)
    else:
        fc7input = n.relu6
    n.fc7, n.relu7 = fc_relu(fc7input, 48, param=param)
    if train:
        n.drop7 = fc8input = L.Dropout(n.relu7, dropout_ratio=0.2, in_place=True)
    else:
        fc8input = n.relu7
    # the last layer always learns, and has the name that is asked for
    fc8 = L.InnerProduct(fc8input, num_output=num_classes, param=learned_param)
    n.__setattr__(classifier_name, fc8)
    if not train:
        n.probs = L.Softmax(fc8)
    if label is not None:
        n.label = label
        n.loss = L.SoftmaxWithLoss(fc8, n.label)
        n.acc = L.Accuracy(fc8, n.label)
    with tempfile.NamedTemporaryFile(mode="w", delete=False, dir=".") as f:
        f.write(str(n.to_proto()))
        return f.name


def style_net(train=True, learn_all=False, subset=None):
    if subset is None:
        subset = "train" if train else "test"
    transform_param = dict(mirror=train, crop_size=CROP, mean_file="imagenet_mean.binaryproto")
    style_data, style_label = L.ImageData(
        transform_param=transform_param,
        source="flickr_style/%s.txt" % subset,
        batch_size=20,
        new_height=SIZE,
        new_width=SIZE,
        ntop=2,
    )
    return caffenet(
        data=style_data,
        label=style_label,
        train=train,
        num_classes=NUM_STYLE_LABELS,
        classifier_name="fc8_flickr",
        learn_all=learn_all,
    )


dummy_data = L.DummyData(shape=dict(dim=[1, 3, CROP, CROP]))
imagenet_net_filename = caffenet(data=dummy_data, train=False)
weights = "caffenet.caffemodel"  # what would be downloaded
net = caffe.Net(imagenet_net_filename, caffe.TEST)
for param in net.params["conv1"]:
    param.data[...] /= 100  # for pixels up to 255
net.save(weights)
assert os.path.exists(weights)
imagenet_net = caffe.Net(imagenet_net_filename, weights, caffe.TEST)

# -- before any training
untrained_style_net = caffe.Net(style_net(train=False, subset="train"), weights, caffe.TEST)
untrained_style_net.forward()
style_data_batch = untrained_style_net.blobs["data"].data.copy()
style_label_batch = np.array(untrained_style_net.blobs["label"].data, dtype=np.int32)
assert style_data_batch.shape == (20, 3, CROP, CROP) and list(style_label_batch[:5]) == [
    0,
    1,
    2,
    3,
    0,
]


def disp_preds(net, image, labels, k=5, name="ImageNet"):
    input_blob = net.blobs["data"]
    net.blobs["data"].data[0, ...] = image
    probs = net.forward(start="conv1")["probs"][0]
    top_k = (-probs).argsort()[:k]
    print("top %d predicted %s labels =" % (k, name))
    print(
        "\n".join(
            "\t(%d) %5.2f%% %s" % (i + 1, 100 * probs[p], labels[p]) for i, p in enumerate(top_k)
        )
    )
    assert input_blob.data[0].shape == image.shape
    return probs


batch_index = 8
image = style_data_batch[batch_index]
plt.imsave("style.png", deprocess_net_image(image))
print("actual label =", style_labels[style_label_batch[batch_index]])
disp_preds(imagenet_net, image, ["class %d" % i for i in range(12)])
probs = disp_preds(untrained_style_net, image, style_labels, k=4, name="style")
assert np.allclose(probs, 1.0 / NUM_STYLE_LABELS)  # its new layer is still zero
# what is loaded by name is the same in both
diff = untrained_style_net.blobs["fc7"].data[0] - imagenet_net.blobs["fc7"].data[0]
assert (diff**2).sum() < 1e-8
assert abs(imagenet_net.blobs["fc7"].data).sum() > 0
del untrained_style_net


# -- training
def solver(train_net_path, test_net_path=None, base_lr=0.02):
    s = caffe_pb2.SolverParameter()
    s.train_net = train_net_path
    if test_net_path is not None:
        s.test_net.append(test_net_path)
        s.test_interval = 1000
        s.test_iter.append(100)
    s.iter_size = 1
    s.max_iter = 100000
    s.type = "SGD"
    s.base_lr = base_lr
    s.lr_policy = "step"
    s.gamma = 0.1
    s.stepsize = 20000
    s.momentum = 0.9
    s.weight_decay = 5e-4
    s.display = 1000
    s.snapshot = 10000
    s.snapshot_prefix = "finetune_flickr_style"
    s.solver_mode = caffe_pb2.SolverParameter.CPU
    with tempfile.NamedTemporaryFile(mode="w", delete=False, dir=".") as f:
        f.write(str(s))
        return f.name


def run_solvers(niter, solvers, disp_interval=10):
    """Run (name, solver) pairs side by side; the files of their weights."""
    blobs = ("loss", "acc")
    loss, acc = ({name: np.zeros(niter) for name, _ in solvers} for _ in blobs)
    for it in range(niter):
        for name, s in solvers:
            s.step(1)
            loss[name][it], acc[name][it] = (s.net.blobs[b].data.copy() for b in blobs)
        if it % disp_interval == 0 or it + 1 == niter:
            print(
                "%3d)" % it,
                "; ".join(
                    "%s: loss=%.3f, acc=%2d%%" % (n, loss[n][it], np.round(100 * acc[n][it]))
                    for n, _ in solvers
                ),
            )
    weight_dir = tempfile.mkdtemp(dir=".")
    files = {}
    for name, s in solvers:
        files[name] = os.path.join(weight_dir, "weights.%s.caffemodel" % name)
        s.net.save(files[name])
    return loss, acc, files


niter = 30
style_solver_filename = solver(style_net(train=True))
style_solver = caffe.get_solver(style_solver_filename)
style_solver.net.copy_from(weights)
scratch_style_solver_filename = solver(style_net(train=True))
scratch_style_solver = caffe.get_solver(scratch_style_solver_filename)
before = style_solver.net.params["fc7"][0].data.copy()

solvers = [("pretrained", style_solver), ("scratch", scratch_style_solver)]
loss, acc, style_weights = run_solvers(niter, solvers)
plt.plot(np.vstack([loss["pretrained"], loss["scratch"]]).T)
plt.xlabel("Iteration #")
plt.ylabel("Loss")
plt.savefig("losses.png")
assert np.array_equal(style_solver.net.params["fc7"][0].data, before)  # frozen
assert loss["pretrained"][0] > 1.2 and loss["pretrained"][-5:].mean() < 0.9
del style_solver, scratch_style_solver, solvers


def eval_style_net(weights, test_iters=2):
    test_net = caffe.Net(style_net(train=False), weights, caffe.TEST)
    accuracy = 0
    for _ in range(test_iters):
        accuracy += test_net.forward()["acc"]
    return test_net, accuracy / test_iters


test_net, accuracy = eval_style_net(style_weights["pretrained"])
print("Accuracy, trained from ImageNet initialization: %3.1f%%" % (100 * accuracy))
assert accuracy > 0.7

# -- end to end: everything learns, at a smaller rate
end_to_end_net = style_net(train=True, learn_all=True)
style_solver = caffe.get_solver(solver(end_to_end_net, base_lr=0.0002))
style_solver.net.copy_from(style_weights["pretrained"])
_, _, finetuned = run_solvers(15, [("pretrained, end-to-end", style_solver)])
assert not np.array_equal(style_solver.net.params["fc7"][0].data, before)
test_net, accuracy = eval_style_net(finetuned["pretrained, end-to-end"])
print("Accuracy, finetuned: %3.1f%%" % (100 * accuracy))
assert accuracy > 0.8
probs = disp_preds(test_net, style_data_batch[2], style_labels, k=3, name="style")
assert probs.argmax() == style_label_batch[2]
plt.close("all")
