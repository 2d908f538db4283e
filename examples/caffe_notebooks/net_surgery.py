"""Design filters by hand, and cast a classifier into a fully convolutional net (Caffe's net_surgery)."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawn import picture
from google.protobuf import text_format
from PIL import Image

import caffe
from caffe.proto import caffe_pb2

# -- designer filters
with open("conv.prototxt", "w") as f:
    f.write("""
name: "convolution"
input: "data"
input_shape { dim: 1 dim: 1 dim: 20 dim: 20 }
layer {
  name: "conv"
  type: "Convolution"
  bottom: "data"
  top: "conv"
  convolution_param {
    num_output: 3
    kernel_size: 5
    stride: 1
    weight_filler { type: "gaussian" std: 0.01 }
    bias_filler { type: "constant" value: 0 }
  }
}
""")
Image.fromarray(picture("ring", "white", 48, np.random.RandomState(0))[:40]).convert("L").save(
    "cat_gray.png"
)

caffe.set_mode_cpu()
net = caffe.Net("conv.prototxt", caffe.TEST)
print("blobs {}\nparams {}".format(list(net.blobs.keys()), list(net.params.keys())))
im = np.array(Image.open("cat_gray.png"))
im_input = im[np.newaxis, np.newaxis, :, :]
net.blobs["data"].reshape(*im_input.shape)
net.blobs["data"].data[...] = im_input


def show_filters(net, name):
    net.forward()
    plt.figure()
    filt_min, filt_max = net.blobs["conv"].data.min(), net.blobs["conv"].data.max()
    for i in range(3):
        plt.subplot(1, 4, i + 2)
        plt.title("filter #{} output".format(i))
        plt.imshow(net.blobs["conv"].data[0, i], vmin=filt_min, vmax=filt_max)
        plt.axis("off")
    plt.savefig(name)


show_filters(net, "random.png")
assert net.blobs["conv"].data.shape == (1, 3, 36, 44)

# a bias moves the output, and nothing else
conv0 = net.blobs["conv"].data[0, 0]
before = conv0.mean()
print("pre-surgery output mean {:.2f}".format(before))
net.params["conv"][1].data[0] = 1.0
net.forward()
print("post-surgery output mean {:.2f}".format(net.blobs["conv"].data[0, 0].mean()))
assert abs(net.blobs["conv"].data[0, 0].mean() - before - 1) < 1e-3

# blur and edges
ksize = net.params["conv"][0].data.shape[2:]
sigma = 1.0
y, x = np.mgrid[-ksize[0] // 2 + 1 : ksize[0] // 2 + 1, -ksize[1] // 2 + 1 : ksize[1] // 2 + 1]
g = np.exp(-((x**2 + y**2) / (2.0 * sigma**2)))
gaussian = (g / g.sum()).astype(np.float32)
net.params["conv"][0].data[0] = gaussian
net.params["conv"][1].data[...] = 0
net.params["conv"][0].data[1:] = 0
sobel = np.array((-1, -2, 0, 2, 1), dtype=np.float32).reshape((5, 1))
net.params["conv"][0].data[1, 0, :, 2:3] = sobel  # horizontal edges
net.params["conv"][0].data[2, 0, 2:3, :] = sobel.T  # vertical edges
show_filters(net, "designed.png")

blurred = net.blobs["conv"].data[0, 0]
by_hand = sum(
    gaussian[i, j] * im[i : i + 36, j : j + 44].astype(float) for i in range(5) for j in range(5)
)
assert np.allclose(blurred, by_hand, atol=1e-2)
assert blurred.std() < im.std()
edges = -1.0 * im[:36, 2:46] - 2.0 * im[1:37, 2:46] + 2.0 * im[3:39, 2:46] + im[4:, 2:46]
assert np.allclose(net.blobs["conv"].data[0, 1], edges, atol=1e-2)

# -- casting a classifier into a fully convolutional net
with open("caffenet.prototxt", "w") as f:
    f.write("""
name: "SmallCaffeNet"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 21 dim: 21 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "fc6" type: "InnerProduct" bottom: "pool1" top: "fc6"
  inner_product_param { num_output: 24 weight_filler { type: "xavier" } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" dropout_param { dropout_ratio: 0.5 } }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } bias_filler { type: "gaussian" } } }
layer { name: "relu7" type: "ReLU" bottom: "fc7" top: "fc7" }
layer { name: "fc8" type: "InnerProduct" bottom: "fc7" top: "fc8"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc8" top: "prob" }
""")
caffe.Net("caffenet.prototxt", caffe.TEST).save("caffenet.caffemodel")

# the definition is edited: fully connected layers become convolutions, the first as wide as what it saw
model = caffe_pb2.NetParameter()
with open("caffenet.prototxt") as f:
    text_format.Merge(f.read(), model)
model.name = "SmallCaffeNetConv"
model.layer[0].input_param.shape[0].dim[2:] = [29, 37]
renamed = {}
for layer in model.layer:
    if layer.type == "InnerProduct":
        renamed[layer.name] = layer.name + "-conv"
        layer.type = "Convolution"
        layer.convolution_param.num_output = layer.inner_product_param.num_output
        layer.convolution_param.kernel_size.append(4 if layer.name == "fc6" else 1)
        layer.ClearField("inner_product_param")
        layer.name = renamed[layer.name]
    for names in (layer.bottom, layer.top):
        names[:] = [renamed.get(name, name) for name in names]
with open("caffenet_full_conv.prototxt", "w") as f:
    f.write(text_format.MessageToString(model))
assert [layer.name for layer in model.layer if layer.type == "Convolution"] == [
    "conv1",
    "fc6-conv",
    "fc7-conv",
    "fc8-conv",
]

net = caffe.Net("caffenet.prototxt", "caffenet.caffemodel", caffe.TEST)
params = ["fc6", "fc7", "fc8"]
fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}
for fc in params:
    print(
        "{} weights are {} dimensional and biases are {} dimensional".format(
            fc, fc_params[fc][0].shape, fc_params[fc][1].shape
        )
    )
assert fc_params["fc6"][0].shape == (24, 128)

net_full_conv = caffe.Net("caffenet_full_conv.prototxt", "caffenet.caffemodel", caffe.TEST)
params_full_conv = ["fc6-conv", "fc7-conv", "fc8-conv"]
conv_params = {
    pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data)
    for pr in params_full_conv
}
assert conv_params["fc6-conv"][0].shape == (24, 8, 4, 4)
for pr, pr_conv in zip(params, params_full_conv):
    conv_params[pr_conv][0].flat = fc_params[pr][0].flat  # flat unrolls the arrays
    conv_params[pr_conv][1][...] = fc_params[pr][1]
net_full_conv.save("caffenet_full_conv.caffemodel")

# a map of classes of a larger picture
np.save("mean.npy", np.full((3, 30, 30), 110.0))
plt.imsave("large.png", picture("triangle", "green", 60, np.random.RandomState(4)))
im = caffe.io.load_image("large.png")
net_full_conv = caffe.Net(
    "caffenet_full_conv.prototxt", "caffenet_full_conv.caffemodel", caffe.TEST
)
transformer = caffe.io.Transformer({"data": net_full_conv.blobs["data"].data.shape})
transformer.set_mean("data", np.load("mean.npy").mean(1).mean(1))
transformer.set_transpose("data", (2, 0, 1))
transformer.set_channel_swap("data", (2, 1, 0))
transformer.set_raw_scale("data", 255.0)
large = transformer.preprocess("data", im)
out = net_full_conv.forward_all(data=np.asarray([large]))
print(out["prob"][0].argmax(axis=0))
plt.imsave("map.png", transformer.deprocess("data", net_full_conv.blobs["data"].data[0]).clip(0, 1))
plt.imsave("classes.png", out["prob"][0].max(axis=0))

# each place of the map is what the classifier gives for its window
assert out["prob"].shape == (1, 5, 3, 5)
windows = np.array(
    [large[:, 4 * i : 4 * i + 21, 4 * j : 4 * j + 21] for i in range(3) for j in range(5)]
)
assert large.shape == (3, 29, 37)
each = net.forward_all(data=windows)["prob"]
assert np.allclose(out["prob"][0].transpose(1, 2, 0).reshape(15, 5), each, atol=1e-4)
plt.close("all")
