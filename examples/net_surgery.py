"""Net surgery: cast LeNet's fully connected layers into convolutions, and slide it over a wide picture.

python examples/net_surgery.py [--small] [--iterations N] [--out FOLDER]

Explained in docs/examples/inside.md.
"""

import numpy as np
from teaching import CPU, digits, end, lenet, options, pyplot, save, show

import minicaffe

FULL = """
name: LeNet, fully connected
layers:
  - {name: data, type: Input, shape: {dim: [1, 1, 28, 28]}}
  - {name: conv1, type: Convolution, num_output: 20, kernel_size: 5}
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: conv2, type: Convolution, num_output: 50, kernel_size: 5}
  - {name: pool2, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: ip1, type: InnerProduct, num_output: 500}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: ip2, type: InnerProduct, num_output: 10}
  - {name: prob, type: Softmax}
"""
CONVOLUTIONAL = FULL.replace(
    "ip1, type: InnerProduct, num_output: 500", "ip1_conv, type: Convolution, num_output: 500, kernel_size: 4"
).replace(
    "ip2, type: InnerProduct, num_output: 10", "ip2_conv, type: Convolution, num_output: 10, kernel_size: 1"
).replace("top: ip1", "top: ip1_conv").replace("fully connected", "convolutional")  # fmt: skip


def operate(full: minicaffe.Net, convolutional: minicaffe.Net) -> None:
    """Give the convolutions the numbers of the fully connected layers: the same, in another shape."""
    weights = full.weights()
    for name in ("ip1", "ip2"):
        for i, param in enumerate(convolutional.params[f"{name}_conv"]):
            weights[f"{name}_conv__{i}"] = weights.pop(f"{name}__{i}").reshape(param.shape)
            print(f"{name}__{i} {full.params[name][i].shape} -> {param.shape}")
    convolutional.load(weights)


def strip(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits of the test set side by side, as one picture (1, 1, 28, 28 count), and their labels."""
    images, labels = digits("test", count)
    return np.concatenate(list(images), axis=-1)[None], labels


def multiply_adds(net: minicaffe.Net) -> int:
    return sum(layer.multiply_adds for layer in net.layers.values())


def main() -> dict[str, float]:
    args = options(__doc__, 1000, 30)
    full = minicaffe.Net(minicaffe.parse(FULL), "TEST", **CPU)
    full.load(lenet(args.iterations))
    convolutional = minicaffe.Net(minicaffe.parse(CONVOLUTIONAL), "TEST", **CPU)
    operate(full, convolutional)

    wide, labels = strip(8)
    convolutional.reshape(data=wide.shape)
    found = convolutional.forward(data=wide)["prob"][0, :, 0].copy()  # (10, places), 4 pixels apart
    places = found.shape[1]
    crops = [
        full.forward(data=wide[..., 4 * k : 4 * k + 28])["prob"][0].copy() for k in range(places)
    ]
    apart = float(np.abs(found - np.transpose(crops)).max())
    print(
        f"{wide.shape[2:]} pixels give {places} places; the largest difference from {places} crops"
    )
    print(f"through the fully connected net is {apart:.1e}; multiply-adds:")
    print(
        f"{multiply_adds(convolutional):,} sliding, {places * multiply_adds(full):,} crop by crop"
    )
    read = found[:, ::7].argmax(axis=0)  # 28 pixels are 7 places
    print(f"written {labels.tolist()}")
    print(f"read    {read.tolist()}")
    if plt := pyplot():
        figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 3.2), height_ratios=[1, 1.3])
        show(top, wide[0, 0], "the picture; a window is 28 pixels wide and moves by 4")
        title = "probability of each class, at the middle of each window"
        extent = (12, 12 + 4 * places, 9.5, -0.5)
        show(bottom, found, title, cmap="viridis", aspect="auto", extent=extent)
        bottom.set(yticks=range(10), xlim=(0, wide.shape[3]), facecolor="0.9")
        bottom.set_xticks(range(14, wide.shape[3], 28), [f"{digit}" for digit in read])
        bottom.set_xlabel("read where a window holds a whole digit")
        save(figure, args.out, "net_surgery.png")
    end()
    return {"apart": apart, "right": float(np.mean(read == labels))}


if __name__ == "__main__":
    main()
