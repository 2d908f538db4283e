"""A siamese net: two halves with the same weights put digits into the plane, the same ones near each other.

python examples/siamese.py [--small] [--iterations N] [--out FOLDER]

Explained in docs/examples/training.md.
"""

import numpy as np
from teaching import CPU, LENET, digits, end, options, pyplot, save, table

import minicaffe

MODEL = minicaffe.read(LENET.parent / "mnist_siamese.yaml")


def embed(solver: minicaffe.Solver, images: np.ndarray) -> np.ndarray:
    """The points (n, 2) of digits (n, 1, 28, 28): one half of the net, without the layers of data and loss."""
    net = solver.test_net
    net.reshape(data=images.shape, data_p=images.shape)
    return net.forward(start="conv1", end="feat", data=images)["feat"].copy()


def neighbours_agree(points: np.ndarray, labels: np.ndarray, k: int = 5) -> float:
    """The share of points whose k nearest others have mostly the same label."""
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    near = labels[np.argsort(distance, axis=1)[:, :k]]
    return float(np.mean([np.bincount(row).argmax() for row in near] == labels))


def main() -> dict[str, float]:
    args = options(__doc__, 2000, 150)
    images, labels = digits("test", 200 if args.small else 1000)
    solver = minicaffe.Solver(MODEL, display=0, test_interval=0, average_loss=50, **CPU)
    if args.small:
        solver.net.reshape(data=(16, 1, 28, 28), data_p=(16, 1, 28, 28))
    points = {0: embed(solver, images)}
    for part in (1, 9):
        solver.step(args.iterations * part // 10)
        points[solver.iteration] = embed(solver, images)
        print(f"{solver.iteration} iterations: loss {solver.loss():.4f}")
    found = {"784 pixels": neighbours_agree(images.reshape(len(images), -1), labels)}
    found |= {f"2 numbers, {n} iterations": neighbours_agree(p, labels) for n, p in points.items()}
    print(f"{len(images)} test digits whose 5 nearest others are mostly of their class:")
    table(["by the distance of", "share"], [list(item) for item in found.items()])
    if plt := pyplot():
        figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.4))
        for one, (iteration, at) in zip(axes, points.items(), strict=True):
            one.scatter(*at.T, c=labels, cmap="tab10", s=4)
            one.set(title=f"after {iteration} iterations", xticks=[], yticks=[])
            for digit in range(10 if iteration else 0):
                box = {"facecolor": "white", "alpha": 0.7, "pad": 1, "linewidth": 0}
                x, y = np.median(at[labels == digit], axis=0)
                one.text(x, y, digit, size=12, weight="bold", ha="center", va="center", bbox=box)
        figure.tight_layout(pad=0.4)
        save(figure, args.out, "siamese.png")
    end()
    return found


if __name__ == "__main__":
    main()
