"""Fine-tuning: LeNet learns the digits 0 to 5, then 6 to 9 from few samples, its lower layers slowly or not.

python examples/finetuning.py [--small] [--iterations N] [--out FOLDER]

Explained in docs/examples/training.md.
"""

import itertools
from string import Template

import numpy as np
from teaching import CPU, digits, end, options, pyplot, save, table

import minicaffe

NET = Template("""
name: LeNet for $classes classes
layers:
  - name: data
    type: MemoryData
    top: [data, label]
    batch_size: $batch
    channels: 1
    height: 28
    width: 28
  - name: conv1
    type: Convolution
    bottom: data
    num_output: 20
    kernel_size: 5
    param: [&weight {lr_mult: $lower}, &bias {lr_mult: $twice}]
  - {name: pool1, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: conv2, type: Convolution, num_output: 50, kernel_size: 5, param: [*weight, *bias]}
  - {name: pool2, type: Pooling, pool: MAX, kernel_size: 2, stride: 2}
  - {name: ip1, type: InnerProduct, num_output: 500, param: [*weight, *bias]}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: $last, type: InnerProduct, num_output: $classes, param: [{lr_mult: 1}, {lr_mult: 2}]}
  - {name: accuracy, type: Accuracy, bottom: [$last, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [$last, label]}
solver: {base_lr: 0.01, momentum: 0.9, weight_decay: 0.0005, max_iter: 1000}
""")
OLD, NEW = range(6), range(6, 10)
WAYS = {  # how: (begins with the weights for 0 to 5, lr_mult of the layers below the last)
    "from scratch": (False, 1),
    "fine-tuned, all layers alike": (True, 1),
    "fine-tuned, lower layers lr_mult 0.1": (True, 0.1),
    "fine-tuned, lower layers lr_mult 0": (True, 0),
}


def net_for(classes: int, last: str, batch: int, lower: float = 1) -> minicaffe.Solver:
    """LeNet for so many classes, whose layers below the last learn at `lower` times the rate."""
    text = NET.substitute(classes=classes, last=last, batch=batch, lower=lower, twice=2 * lower)
    return minicaffe.Solver(minicaffe.parse(text), **CPU)


def train(solver: minicaffe.Solver, images, labels, iterations: int, seed: int = 0) -> None:
    """Train with these samples in a random order, as many as fill whole batches."""
    batch = solver.net.blobs["data"].shape[0]
    order = np.random.default_rng(seed).permutation(len(images))[: len(images) // batch * batch]
    solver.net.layers["data"].reset(images[order], labels[order])
    solver.step(iterations)


def accuracy(solver: minicaffe.Solver, images, labels) -> float:
    """The share of the test digits that the net gets right."""
    net = minicaffe.Net(solver.net.spec, "TEST", **CPU)
    net.share_with(solver.net)
    net.reshape(data=images.shape, label=(len(labels), 1, 1, 1))
    return float(net.forward(data=images, label=labels.reshape(-1, 1, 1, 1))["accuracy"])


def tune(weights, lower: float, images, labels, iterations: int, seed: int) -> minicaffe.Solver:
    """The net for 6 to 9 after training with few samples; it begins with `weights`, if there are any."""
    solver = net_for(len(NEW), "ip2_new", min(len(images), 40), lower)
    if weights:
        solver.net.load(weights, strict=False)
    train(solver, images, labels - NEW[0], iterations, seed)
    return solver


def main() -> dict[str, dict[int, float]]:
    args = options(__doc__, 1000, 100, samples=(2, 5, 20, 100), repeats=3)
    if args.small:
        args.samples, args.repeats = [2], 1
    images, labels = digits("train", 10_000, NEW)
    if (most := min(np.bincount(labels)[NEW]) // args.repeats) < max(args.samples):
        raise SystemExit(f"--samples: at most {most} a class with --repeats {args.repeats}")

    old = net_for(len(OLD), "ip2", 32 if args.small else 64)
    train(old, *digits("train", 20_000, OLD), args.iterations)
    right = accuracy(old, *digits("test", 2000, OLD))
    print(f"digits 0 to 5, {args.iterations} iterations: accuracy {right:.3f}")
    weights = old.net.weights()
    report = net_for(len(NEW), "ip2_new", 40).net.load(weights, strict=False)
    print(f"loading: {report}")

    tested, truth = digits("test", 2000, NEW)
    found: dict[str, dict[int, float]] = {how: {} for how in WAYS}
    for size, (how, (pretrained, lower)) in itertools.product(args.samples, WAYS.items()):
        scores = []
        for seed in range(args.repeats):  # each with other samples
            few = [np.flatnonzero(labels == c)[seed * size : (seed + 1) * size] for c in NEW]
            few = np.concatenate(few)
            given = lower, images[few], labels[few], args.iterations // 5, seed
            new = tune(weights if pretrained else None, *given)
            scores.append(accuracy(new, tested, truth - NEW[0]))
        found[how][size] = float(np.mean(scores))
    print(f"digits 6 to 9, accuracy on {len(tested)} test digits, mean of {args.repeats}:")
    head = ["samples a class", *map(str, args.samples)]
    table(head, [[how, *found[how].values()] for how in found])
    if plt := pyplot():
        figure, axes = plt.subplots(figsize=(5, 3.2))
        for how, scores in found.items():
            axes.plot(list(scores), list(scores.values()), "o-", label=how)
        axes.set(xscale="log", xlabel="samples a class", ylabel="accuracy, digits 6 to 9")
        axes.set_xticks(args.samples, args.samples)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        save(figure, args.out, "finetuning.png")
    end()
    return found


if __name__ == "__main__":
    main()
