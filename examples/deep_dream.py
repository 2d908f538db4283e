"""Deep dream: change a picture, not the weights, until a layer of LeNet sees more of what it looks for.

python examples/deep_dream.py [--small] [--iterations N] [--steps N] [--out FOLDER]

Explained in docs/examples/inside.md.
"""

import numpy as np
from teaching import CPU, digits, end, lenet, options, pyplot, save, show

import minicaffe

NET = """
name: LeNet, convolutional, with a gradient of its picture
force_backward: true
layers:
  - {name: data, type: Input, shape: {dim: [1, 1, 28, 28]}}
  - {name: conv1, type: Convolution, num_output: 20, kernel_size: 5}
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: conv2, type: Convolution, num_output: 50, kernel_size: 5}
  - {name: pool2, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: ip1, type: Convolution, num_output: 500, kernel_size: 4}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: ip2, type: Convolution, num_output: 10, kernel_size: 1}
"""


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture (h, w) in another size, by the means of its four nearest pixels."""
    y = np.linspace(0, image.shape[0] - 1, height)
    x = np.linspace(0, image.shape[1] - 1, width)
    rows = np.array([np.interp(x, np.arange(image.shape[1]), row) for row in image])
    return np.array([np.interp(y, np.arange(image.shape[0]), column) for column in rows.T]).T


def step(net: minicaffe.Net, image: np.ndarray, layer: str, wish, rate: float, shift) -> tuple:
    """One step uphill: the picture (h, w) after it, and how much the layer sees before it.

    `wish(a)` gives the objective of what the layer gives, and its gradient. The picture is rolled by `shift`
    first, so that no pixel always lies at the same place of a window.
    """
    rolled = np.roll(image, shift, (0, 1))
    ((top, a),) = net.forward(data=rolled[None, None], end=layer).items()
    value, diff = wish(a)
    net.backward(start=layer, **{top: diff})
    slope = net.blobs["data"].diff[0, 0]
    rolled = np.clip(rolled + rate * slope / (np.abs(slope).mean() + 1e-8), 0, 1)
    return np.roll(rolled, (-shift[0], -shift[1]), (0, 1)), value


def dream(net, image, layer, wish, steps, rate=0.02, octaves=(1.0,), seed=0):
    """A picture after `steps` steps in each octave, from the smallest; and the objective at each step.

    What was dreamt in an octave, not the picture, is made larger and added to the picture of the next.
    """
    random, detail, seen = np.random.default_rng(seed), np.zeros_like(image), []
    for factor in octaves:
        size = [round(side * factor) for side in image.shape]
        base = resized(image, *size)
        now = base + resized(detail, *size)
        net.reshape(data=(1, 1, *size))
        for _ in range(steps):
            now, value = step(net, now, layer, wish, rate, random.integers(-2, 3, 2))
            seen.append(value)
        detail = now - base
    return now, seen


def more(a):
    """Half the sum of squares: whatever a layer sees, let it see more of it."""
    return float(np.square(a).sum() / 2), a


def of_class(c):
    """The score of class c, at every place."""

    def wish(a):
        diff = np.zeros_like(a)
        diff[:, c] = 1
        return float(a[:, c].sum()), diff

    return wish


def main() -> dict[str, list[float]]:
    args = options(__doc__, 1000, 30, steps=40)
    steps, octaves = (4, (1, 2)) if args.small else (args.steps, (2, 3, 4))
    net = minicaffe.Net(minicaffe.parse(NET), "TEST", **CPU)
    weights = lenet(args.iterations)
    weights["ip1__0"] = weights["ip1__0"].reshape(net.params["ip1"][0].shape)
    weights["ip2__0"] = weights["ip2__0"].reshape(net.params["ip2"][0].shape)
    net.load(weights)  # net surgery

    images, labels = digits("test", 20)
    start = images[int(np.flatnonzero(labels == 4)[0]), 0]
    found, rows = {}, []
    for layer in ("conv1", "conv2", "relu1"):
        picture, found[layer] = dream(net, start, layer, more, steps, octaves=octaves)
        rows.append((layer, picture))
    print(f"octaves of {octaves} times 28 pixels, {steps} steps each; half the sum of squares of")
    for layer, seen in found.items():
        print(
            f"{layer}: {seen[-steps]:,.0f} at the start of the last octave, {seen[-1]:,.0f} at its end"
        )
    grey = np.full((28, 28), 0.1, np.float32)
    classes = [dream(net, grey, "ip2", of_class(c), steps, rate=0.01) for c in range(10)]
    for c, (_, seen) in enumerate(classes):
        found[f"class {c}"] = seen
    print("score of each class, in a grey picture and in what was dreamt of it:")
    print(" ".join(f"{c}: {seen[0]:.1f}, {seen[-1]:.1f};" for c, (_, seen) in enumerate(classes)))
    if plt := pyplot():
        figure = plt.figure(figsize=(9, 3.8))
        grid = figure.add_gridspec(2, 20, height_ratios=(2.3, 1), hspace=0.15)
        for i, (title, picture) in enumerate([("a test digit", start), *rows]):
            show(figure.add_subplot(grid[0, 5 * i : 5 * i + 5]), picture, title)
        for c, (picture, _) in enumerate(classes):
            show(figure.add_subplot(grid[1, 2 * c : 2 * c + 2]), picture, f"class {c}")
        save(figure, args.out, "deep_dream.png")
    end()
    return found


if __name__ == "__main__":
    main()
