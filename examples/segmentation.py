"""Semantic segmentation: a small net in the manner of FCN-8s labels each pixel of drawn shapes.

python examples/segmentation.py [--small] [--iterations N] [--out FOLDER]

Explained in docs/examples/training.md.
"""

from string import Template
from typing import Annotated

import numpy as np
from teaching import CPU, end, options, pyplot, save, show, table

import minicaffe

CLASSES = ("background", "disc", "square", "triangle")
IGNORED = 255  # the label of pixels on a border, which nobody can tell


def draw(random: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture (3, h, w) of shapes on a shaded ground, from about -1 to 1, and its labels (h, w)."""
    y, x = np.mgrid[:height, :width].astype(float)
    slope = random.normal(0, 0.2, (3, 2, 1, 1))
    image = (
        random.uniform(-0.3, 0.3, (3, 1, 1)) + slope[:, 0] * y / height + slope[:, 1] * x / width
    )
    label = np.zeros((height, width))
    for kind in random.integers(1, len(CLASSES), random.integers(1, 2 + height * width // 576)):
        size, turn = random.uniform(8, 13), np.pi / 2 + random.uniform(-0.3, 0.3)
        dy, dx = y - random.uniform(5, height - 5), x - random.uniform(5, width - 5)
        sides = {1: 0, 2: 4, 3: 3}[int(kind)]
        if sides:  # the farthest of its sides, as seen from the middle
            angles = turn + 2 * np.pi * np.arange(sides) / sides
            away = np.max([dx * np.cos(a) + dy * np.sin(a) for a in angles], axis=0)
            away -= size * np.cos(np.pi / sides)
        else:
            away = np.hypot(dx, dy) - 0.8 * size
        colour = random.choice([-1, 1], (3, 1, 1)) * random.uniform(0.4, 0.8, (3, 1, 1))
        image = np.where(away < 0, colour, image)
        label = np.where(away < 0.7, np.where(away < -0.7, kind, IGNORED), label)
    return image + random.normal(0, 0.1, image.shape), label


@minicaffe.register
class Shapes(minicaffe.Layer):
    """Batches of drawn shapes: images (batch_size, 3, side, side), labels (batch_size, side, side)."""

    batch_size: Annotated[int, "pictures in a batch"]
    side: Annotated[int, "rows and columns of a picture"]

    def setup(self):
        n, side = self.batch_size, self.side
        return [(n, 3, side, side), (n, side, side)]

    def forward(self):
        random = np.random.default_rng([self.context.seed, self.context.passes])
        drawn = [draw(random, self.side, self.side) for _ in range(self.batch_size)]
        return [np.stack(arrays) for arrays in zip(*drawn, strict=True)]

    def backward(self, *tops):
        return []


NET = Template("""
name: FCN of shapes
layers:
  - {name: shapes, type: Shapes, top: [data, label], batch_size: $batch, side: 48, include: TRAIN}
  - {name: shapes, type: Input, top: [data, label],
     shape: [{dim: [1, 3, 48, 48]}, {dim: [1, 48, 48]}], include: TEST}

  - &conv {name: conv1, type: Convolution, bottom: data, num_output: 16, kernel_size: 3, pad: 1,
           weight_filler: msra}
  - &relu {name: relu1, type: ReLU, bottom: conv1, top: conv1}
  - &pool {name: pool1, type: Pooling, bottom: conv1, pool: MAX, kernel_size: 2, stride: 2}      # 1/2
  - {<<: *conv, name: conv2, bottom: pool1, num_output: 32}
  - {<<: *relu, name: relu2, bottom: conv2, top: conv2}
  - {<<: *pool, name: pool2, bottom: conv2}                                                    # 1/4
  - {<<: *conv, name: conv3, bottom: pool2, num_output: 64}
  - {<<: *relu, name: relu3, bottom: conv3, top: conv3}
  - {<<: *pool, name: pool3, bottom: conv3}                                                    # 1/8
  - {<<: *conv, name: conv4, bottom: pool3, num_output: 96}
  - {<<: *relu, name: relu4, bottom: conv4, top: conv4}
  - {<<: *conv, name: conv5, bottom: conv4, num_output: 96}
  - {<<: *relu, name: relu5, bottom: conv5, top: conv5}

  - &score {name: score8, type: Convolution, bottom: conv5, num_output: 4, kernel_size: 1}
  - &up {name: up4, type: Deconvolution, bottom: score8, num_output: 4, group: 4, kernel_size: 4, stride: 2,
         bias_term: false, weight_filler: bilinear, param: {lr_mult: 0}}
  - {<<: *score, name: score4, bottom: pool2, $skip4}
  - &crop {name: up4c, type: Crop, bottom: [up4, score4], offset: 1}
  - &sum {name: fuse4, type: Eltwise, bottom: [up4c, score4]}
  - {<<: *up, name: up2, bottom: fuse4}
  - {<<: *score, name: score2, bottom: pool1, $skip2}
  - {<<: *crop, name: up2c, bottom: [up2, score2]}
  - {<<: *sum, name: fuse2, bottom: [up2c, score2]}
  - {<<: *up, name: up1, bottom: fuse2}
  - {<<: *crop, name: score, bottom: [up1, data]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [score, label], ignore_label: 255}
solver: {type: Adam, base_lr: 0.006, momentum: 0.9, lr_policy: poly, power: 1, max_iter: $iterations}
""")
OFF = "weight_filler: constant, param: [{lr_mult: 0}, {lr_mult: 0}]"  # a score of 0, which stays so
NETS = {  # name: (the score of pool2, that of pool1)
    "FCN-8: conv5 alone": (OFF, OFF),
    "FCN-4: and pool2": ("", OFF),
    "FCN-2: and pool1": ("", ""),
}


def train(skips: tuple[str, str], iterations: int, batch: int) -> tuple[minicaffe.Net, float]:
    """The net of the phase TEST after training, for pictures of any size; and its loss at the end."""
    given = {"skip4": skips[0], "skip2": skips[1], "iterations": iterations, "batch": batch}
    model = minicaffe.parse(NET.substitute(given))
    solver = minicaffe.Solver(model, average_loss=20, **CPU)
    solver.step(iterations)
    net = minicaffe.Net(model, "TEST", **CPU)
    net.share_with(solver.net)
    return net, solver.loss()


def segment(net: minicaffe.Net, image: np.ndarray) -> np.ndarray:
    """The class (h, w) of each pixel of a picture (3, h, w)."""
    net.reshape(data=(1, *image.shape), label=(1, *image.shape[1:]))
    return net.forward(data=image[None], end="score")["score"][0].argmax(axis=0)


def overlaps(found: list[np.ndarray], labels: list[np.ndarray]) -> list[float]:
    """Of each class the pixels that are it and are called so, divided by those that are or are called so."""
    guess, truth = (np.concatenate([a.ravel() for a in arrays]) for arrays in (found, labels))
    guess = np.where(truth == IGNORED, IGNORED, guess)
    both = [((guess == c) & (truth == c)).sum() for c in range(len(CLASSES))]
    either = [((guess == c) | (truth == c)).sum() for c in range(len(CLASSES))]
    return [float(b / max(e, 1)) for b, e in zip(both, either, strict=True)]


def main() -> dict[str, tuple[float, float]]:
    args = options(__doc__, 1000, 100)
    nets = {"FCN-2: and pool1": NETS["FCN-2: and pool1"]} if args.small else NETS
    random = np.random.default_rng(7)
    pictures = [draw(random, 48, 48) for _ in range(20 if args.small else 200)]
    wide = [draw(random, 60, 100) for _ in range(4)]  # a size that no net was trained with
    rows, shown = [], []
    for name, skips in nets.items():
        net, loss = train(skips, args.iterations, 4 if args.small else 16)
        found = overlaps([segment(net, image) for image, _ in pictures], [la for _, la in pictures])
        rows.append([name, loss, *found, float(np.mean(found))])
        shown.append((name, [segment(net, image) for image, _ in wide]))
    print(f"{args.iterations} iterations; intersection over union on {len(pictures)} new pictures:")
    table(["net", "loss", *CLASSES, "mean"], rows)
    if plt := pyplot():
        figure, axes = plt.subplots(len(wide), 2 + len(nets), figsize=(9, 4.6))
        colours = plt.matplotlib.colors.ListedColormap(
            ["0.9", "tab:blue", "tab:orange", "tab:green"]
        )
        for i, (image, label) in enumerate(wide):
            show(
                axes[i, 0], (image.transpose(1, 2, 0) / 2 + 0.5).clip(0, 1), "" if i else "picture"
            )
            labels = [("truth", label), *((name, found[i]) for name, found in shown)]
            for j, (name, one) in enumerate(labels, 1):
                seen = np.ma.masked_equal(one, IGNORED)
                show(axes[i, j], seen, "" if i else name, cmap=colours, vmin=0, vmax=3)
        figure.tight_layout(pad=0.4)
        save(figure, args.out, "segmentation.png")
    end()
    return {row[0]: (row[1], row[-1]) for row in rows}


if __name__ == "__main__":
    main()
