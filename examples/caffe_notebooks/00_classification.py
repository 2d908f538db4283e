"""Classify a picture with a trained net, and look at what the net holds (Caffe's 00-classification)."""

import os
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import COLOURS, SHAPES, picture

import caffe

DEPLOY = """
name: "SmallCaffeNet"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 10 dim: 3 dim: 33 dim: 33 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 24 kernel_size: 5 stride: 2 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1"
  lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 } }
layer { name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2"
  convolution_param { num_output: 32 pad: 1 kernel_size: 3 group: 2 weight_filler { type: "msra" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "fc6" type: "InnerProduct" bottom: "conv2" top: "fc6"
  inner_product_param { num_output: 256 weight_filler { type: "msra" } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" dropout_param { dropout_ratio: 0.5 } }
layer { name: "fc8" type: "InnerProduct" bottom: "fc6" top: "fc8"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc8" top: "prob" }
"""


NAMES = list(zip(COLOURS, SHAPES))  # red disc, green square, ...


def download():
    """What the download scripts bring: the model, its weights, the mean, the words, a picture."""
    rng = np.random.RandomState(0)
    os.makedirs("models")
    with open("models/deploy.prototxt", "w") as f:
        f.write(DEPLOY)
    names = [" ".join(name) for name in NAMES]
    pictures = np.array([picture(*reversed(NAMES[i % 5]), 33, rng) for i in range(300)])
    mean = pictures[..., ::-1].mean(0).transpose(2, 0, 1)  # (3, h, w), blue first
    np.save("models/mean.npy", mean)
    with open("models/words.txt", "w") as f:
        f.write("".join("n%08d\t%s\n" % (i, name) for i, name in enumerate(names)))
    plt.imsave("cat.png", picture("ring", "blue", 33, rng))

    # the last layer fits what the layers below, left random, make of the pictures
    net = caffe.Net("models/deploy.prototxt", caffe.TEST)
    x = pictures[..., ::-1].transpose(0, 3, 1, 2) - mean.mean(1).mean(1)[:, None, None]
    net.params["conv1"][0].data[...] -= net.params["conv1"][0].data.mean((1, 2, 3), keepdims=True)
    features = net.forward_all(blobs=["fc6"], data=x)["fc6"]
    features = np.c_[features, np.ones(len(features))]
    square = features.T @ features
    square += 1e-4 * np.trace(square) / len(square) * np.eye(len(square))
    fitted = np.linalg.solve(square, features.T @ (8.0 * np.eye(5)[np.arange(300) % 5]))
    net.params["fc8"][0].data[...] = fitted[:-1].T
    net.params["fc8"][1].data[...] = fitted[-1]
    net.save("models/small.caffemodel")


download()

# -- the net and its input
caffe.set_mode_cpu()
model_def = "models/deploy.prototxt"
model_weights = "models/small.caffemodel"
net = caffe.Net(
    model_def,  # the structure of the model
    model_weights,  # the trained weights
    caffe.TEST,
)  # no dropout

mu = np.load("models/mean.npy")
mu = mu.mean(1).mean(1)  # a mean pixel, blue first
print("mean-subtracted values:", list(zip("BGR", mu)))

transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
transformer.set_transpose("data", (2, 0, 1))
transformer.set_mean("data", mu)
transformer.set_raw_scale("data", 255)
transformer.set_channel_swap("data", (2, 1, 0))

# -- classification
net.blobs["data"].reshape(50, 3, 33, 33)
image = caffe.io.load_image("cat.png")
transformed_image = transformer.preprocess("data", image)
plt.imshow(image)

net.blobs["data"].data[...] = transformed_image
output = net.forward()
output_prob = output["prob"][0]
print("predicted class is:", output_prob.argmax())

labels = np.loadtxt("models/words.txt", str, delimiter="\t")
print("output label:", labels[output_prob.argmax()])
top_inds = output_prob.argsort()[::-1][:5]
print("probabilities and labels:", list(zip(output_prob[top_inds], labels[top_inds])))

assert list(output) == ["prob"] and output["prob"].shape == (50, 5)
assert labels[output_prob.argmax()][1] == "blue ring" and output_prob.max() > 0.5
assert np.allclose(output["prob"], output_prob, atol=1e-5)  # fifty times the same picture
assert np.allclose(output["prob"].sum(1), 1, atol=1e-5)
seen = transformer.deprocess("data", net.blobs["data"].data[0])
assert np.allclose(seen, image, atol=1e-4)

# -- time
net.forward()
start = time.time()
for _ in range(3):
    net.forward()
print("%.1f ms a batch of %d" % ((time.time() - start) / 3 * 1e3, net.blobs["data"].num))

# -- what is in between
for layer_name, blob in net.blobs.items():
    print(layer_name + "\t" + str(blob.data.shape))
for layer_name, param in net.params.items():
    print(layer_name + "\t" + str(param[0].data.shape), str(param[1].data.shape))
assert list(net.blobs) == ["data", "conv1", "pool1", "norm1", "conv2", "fc6", "fc8", "prob"]
assert net.blobs["conv2"].data.shape == (50, 32, 7, 7)
assert net.params["conv2"][0].data.shape == (32, 12, 3, 3)
assert [net.blobs["data"].channels, net.blobs["data"].height, net.blobs["data"].width] == [
    3,
    33,
    33,
]
assert net.inputs == ["data"] and net.outputs == ["prob"]


def vis_square(data, name):
    """Show (n, height, width) or (n, height, width, 3) in a grid of about sqrt(n) by sqrt(n)."""
    data = (data - data.min()) / (data.max() - data.min())
    n = int(np.ceil(np.sqrt(data.shape[0])))
    padding = ((0, n**2 - data.shape[0]), (0, 1), (0, 1)) + ((0, 0),) * (data.ndim - 3)
    data = np.pad(data, padding, mode="constant", constant_values=1)
    data = data.reshape((n, n) + data.shape[1:]).transpose(
        (0, 2, 1, 3) + tuple(range(4, data.ndim + 1))
    )
    data = data.reshape((n * data.shape[1], n * data.shape[3]) + data.shape[4:])
    plt.imsave(name, data)
    return data


filters = net.params["conv1"][0].data
assert vis_square(filters.transpose(0, 2, 3, 1), "conv1.png").shape == (5 * 6, 5 * 6, 3)
feat = net.blobs["conv1"].data[0, :16]
assert feat.min() == 0 < feat.max()  # rectified
vis_square(feat, "features1.png")
feat = net.blobs["fc6"].data[0]
plt.figure()
plt.subplot(2, 1, 1)
plt.plot(feat.flat)
plt.subplot(2, 1, 2)
plt.hist(feat.flat[feat.flat > 0], bins=100)
plt.savefig("fc6.png")
feat = net.blobs["prob"].data[0]
plt.plot(feat.flat)

# -- another picture, by hand and by the classifier that does all of it
rng = np.random.RandomState(7)
mine = [picture(shape, colour, 40, rng) / 255.0 for colour, shape in NAMES]
net.blobs["data"].reshape(len(mine), 3, 33, 33)
net.reshape()
for i, im in enumerate(mine):
    net.blobs["data"].data[i] = transformer.preprocess("data", im)
by_hand = net.forward()["prob"]
classifier = caffe.Classifier(
    model_def, model_weights, image_dims=(33, 33), mean=mu, raw_scale=255, channel_swap=(2, 1, 0)
)
assert np.allclose(classifier.predict(mine, oversample=False), by_hand, atol=1e-4)
assert classifier.predict(mine[:1]).shape == (1, 5)
assert (by_hand.argmax(1) == np.arange(5)).all()
plt.close("all")
