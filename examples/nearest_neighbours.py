"""Nearest neighbours: what LeNet's layers hold of a digit, compared by distance, beside its pixels.

python examples/nearest_neighbours.py [--small] [--iterations N] [--out FOLDER]

Explained in docs/examples/inside.md.
"""

import numpy as np
from teaching import CPU, LENET, digits, end, lenet, options, pyplot, save, show, table

import minicaffe

SPACES = {"pixels": "", "conv1": "conv1", "pool2": "pool2", "ip1": "relu1"}  # space: where to end


def features(net: minicaffe.Net, images: np.ndarray, end: str, batch: int = 500) -> np.ndarray:
    """Rows of what the layer `end` gives for each image; the pixels, if there is no such layer."""
    if not end:
        return images.reshape(len(images), -1)
    rows = []
    for start in range(0, len(images), batch):
        part = images[start : start + batch]
        net.reshape(data=part.shape)
        (found,) = net.forward(data=part, end=end).values()
        rows.append(found.reshape(len(part), -1).copy())  # the next pass writes over it
    return np.concatenate(rows)


def nearest(rows: np.ndarray, known: np.ndarray, k: int) -> np.ndarray:
    """The numbers (n, k) of the k nearest of `known` to each row, by |a - b|^2 = a^2 - 2ab + b^2."""
    distance = np.square(known).sum(axis=1) - 2 * rows @ known.T  # a^2 is the same along a row
    return np.argsort(distance, axis=1, kind="stable")[:, :k]


def vote(labels: np.ndarray) -> np.ndarray:
    """The commonest label of each row; of equals the smallest."""
    return np.array([np.bincount(row, minlength=10).argmax() for row in labels])


def main() -> dict[str, float]:
    args = options(__doc__, 1000, 30, known=5000, queries=1000)
    if args.small:
        args.known, args.queries = 200, 100
    spec, _ = minicaffe.deploy.deploy(minicaffe.read(LENET))  # an Input for its data, no labels
    net = minicaffe.Net(spec, "TEST", **CPU)
    net.load(lenet(args.iterations))

    known, labels = digits("train", args.known)
    queries, truth = digits("test", args.queries)
    found, rows = {}, []
    for space, end_layer in SPACES.items():
        base, asked = (features(net, images, end_layer) for images in (known, queries))
        found[space] = nearest(asked, base, 5)
        right = [float((vote(labels[found[space][:, :k]]) == truth).mean()) for k in (1, 5)]
        rows.append([space, base.shape[1], *right])
    print(f"{len(queries)} digits of the test set, {len(known)} of the training set to be near to:")
    table(["space", "numbers", "k = 1", "k = 5"], rows)
    if plt := pyplot():
        differ = labels[found["pixels"][:, 0]] != truth
        asked = np.flatnonzero(differ & (labels[found["ip1"][:, 0]] == truth))[
            : 2 if args.small else 6
        ]
        figure, axes = plt.subplots(max(len(asked), 1), 11, figsize=(8, 4.4), squeeze=False)
        for row, query in zip(axes, asked, strict=False):
            show(row[0], queries[query, 0])
            for i, space in ((1, "pixels"), (6, "ip1")):
                for j, near in enumerate(found[space][query]):
                    show(row[i + j], known[near, 0])
                    wrong = labels[near] != truth[query]
                    row[i + j].spines[:].set(color="tab:red" if wrong else "tab:green", linewidth=2)
        axes[0, 0].set_title("asked", fontsize=9)
        axes[0, 3].set_title("nearest by pixels", fontsize=9)
        axes[0, 8].set_title("nearest by ip1", fontsize=9)
        save(figure, args.out, "nearest_neighbours.png")
    end()
    return {row[0]: row[2] for row in rows}


if __name__ == "__main__":
    main()
