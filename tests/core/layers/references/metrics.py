"""Losses of distances, and of distributions."""
# ruff: noqa: N802

import itertools
import math

import numpy as np
from core.layers.references.draws import drawn


def L1Loss(layer, a, b):
    return sum(abs(p - q) for p, q in zip(a.flat, b.flat, strict=True)) / len(a)


ManhattanLoss = L1Loss


def WeightedEuclideanLoss(layer, a, b, weight):
    every = zip(a.flat, b.flat, weight.flat, strict=True)
    return sum(abs(w) * (p - q) ** 2 for p, q, w in every) / (2 * len(a))


def dice(a, b):
    """Of each sample, the coefficient and what it is divided by."""
    for p, q in zip(a.reshape(len(a), -1), b.reshape(len(b), -1), strict=True):
        over = (p**2).sum() + (q**2).sum() + 1
        yield (2 * (p * q).sum() + 1) / over, over


def DiceCoefLoss(layer, a, b):
    return 1 - np.mean([coefficient for coefficient, _ in dice(a, b)])


def DiceCoefLoss_gradient(layer, pulls, a, b):
    """That of n times the loss, as the forks have it."""
    coefficient, over = np.reshape(list(dice(a, b)), (len(a), 2, 1)).transpose(1, 0, 2)
    p, q = a.reshape(len(a), -1), b.reshape(len(b), -1)
    da, db = (pulls[0] * 2 * (coefficient * x - y) / over for x, y in ((p, q), (q, p)))
    return da.reshape(a.shape), db.reshape(b.shape)


@drawn("DiceCoefLoss", n=(1, 4), count=10)
def dice_case(random, n):
    return {}, [random.random((n, 2, 2)), (random.random((n, 4)) > 0.5) * 1.0]


def triplets(layer, x, labels):
    """Squared distances, pairs of a run of a label, and of each triplet i, j, k what it loses and is learnt from."""
    d = [[((p - q) ** 2).sum() for q in x] for p in x]
    runs = [list(run) for _, run in itertools.groupby(range(len(x)), key=lambda i: labels[i])]
    pairs = [pair for run in runs for pair in itertools.permutations(run, 2)]
    every = {}
    for (i, j), k in itertools.product(pairs, range(len(x))):
        if labels[k] != labels[i]:
            loss = layer.margin + d[i][j] - d[i][k]
            every[i, j, k] = loss, loss > 0 and (not layer.sample or d[i][k] > d[i][j])
    return d, pairs, every


def BatchTripletLoss(layer, x, labels):
    d, pairs, every = triplets(layer, x, labels)
    if not every:
        return 0, 1, np.zeros((1, 1, 1, 5))
    rank = np.mean([max(loss, 0) for loss, _ in every.values()])
    right = np.mean([d[i][j] < d[i][k] for i, j, k in every])
    pair = np.mean([d[i][j] for i, j in pairs]) if layer.mu < 1 else 0
    chosen = [loss for loss, learnt in every.values() if learnt]
    counts = [np.mean(chosen or 0), rank, pair, len(every), len(chosen)]
    return layer.mu * rank + (1 - layer.mu) * pair, right, np.reshape(counts, (1, 1, 1, 5))


def BatchTripletLoss_gradient(layer, pulls, x, labels):
    """The mean over the triplets that are learnt from, as the authors have it."""
    _, pairs, every = triplets(layer, x, labels)
    dx, below = np.zeros(x.shape), [triplet for triplet, (_, learnt) in every.items() if learnt]
    for i, j, k in below:
        scale = 2 * layer.mu / len(below)
        dx[i] += scale * (x[k] - x[j])
        dx[j] += scale * (x[j] - x[i])
        dx[k] += scale * (x[i] - x[k])
    for i, j in pairs if every else []:
        dx[i] += (1 - layer.mu) * 2 / len(pairs) * (x[i] - x[j])
        dx[j] += (1 - layer.mu) * 2 / len(pairs) * (x[j] - x[i])
    return pulls[0] * dx, None


# Of the last but one, the last label's samples stand in two places, and are no pairs across them.
TRIPLETS = [[0, 0, 1, 1], [2, 2, 0, 0, 0, 1], [3, 3, 3, 1, 1, 2, 2, 3, 3], [0, 1, 2]]


@drawn("BatchTripletLoss", labels=TRIPLETS, mu=[1.0, 0.3], sample=[False, True], tops=(1, 3))
def triplet_case(random, labels, tops, **keys):
    x = random.normal(size=(len(labels), 2))
    return {"margin": 0.8, "top": ["it", "right", "counts"][:tops], **keys}, [x, labels]


def spread(a, b):
    """The mean squared distance of two different samples."""
    every = [*a.reshape(len(a), -1), *b.reshape(len(b), -1)]
    return sum(((p - q) ** 2).sum() for p in every for q in every) / (len(every) * (len(every) - 1))


def drawn_pairs(layer, *sizes):
    """As many pairs of each domain as the larger has samples."""
    most = max(sizes)
    for size in sizes:
        first = layer.stream.integers(size, size=most)
        yield first, (first + layer.stream.integers(1, size, size=most)) % size


def widths(first, mul, number):
    return [first * mul ** (i - number // 2) for i in range(number)]


def of_pairs(layer, sizes, kernel):
    """The mean of a kernel over pairs within the domains, less that over pairs across."""
    (s, s2), (t, t2) = drawn_pairs(layer, *sizes)
    total = 0.0
    for i in range(max(sizes)):
        total += kernel(0, s[i], 0, s2[i]) + kernel(1, t[i], 1, t2[i])
        total -= kernel(0, s[i], 1, t2[i]) + kernel(1, t[i], 0, s2[i])
    return total / max(sizes)


def kept(layer, name, value):
    """What the first pass found is kept if `fix_gamma` asks for it; and it has no gradient."""
    if name not in layer.constants or not (layer.fix_gamma or layer.moved):
        layer.constants[name] = value
    return layer.constants[name]


def MMDLoss(layer, source, target):
    xs = [one.reshape(len(one), -1) for one in (source, target)]
    gammas = widths(kept(layer, "gamma", 1 / spread(*xs)), layer.kernel_mul, layer.kernel_num)

    def kernel(a, p, b, q):
        square = ((xs[a][p] - xs[b][q]) ** 2).sum()
        return sum(math.exp(-gamma * square) for gamma in gammas)

    return of_pairs(layer, [len(x) for x in xs], kernel)


def JMMDLoss(layer, *bottoms):
    rows = [one.reshape(len(one), -1) for one in bottoms]
    xs, ys = rows[:2], rows[2:]
    gammas = widths(kept(layer, "gamma", 1 / spread(*xs)), layer.kernel_mul, layer.kernel_num)
    sigma = kept(layer, "sigma", spread(*ys)) if layer.auto_sigma else layer.sigma
    sigmas = widths(sigma, layer.label_kernel_mul, layer.label_kernel_num)

    def kernel(a, p, b, q):
        dx, dy = (((z[a][p] - z[b][q]) ** 2).sum() for z in (xs, ys))
        return sum(math.exp(-g * dx - dy / s) for g in gammas for s in sigmas)

    return of_pairs(layer, [len(x) for x in xs], kernel)


@drawn("MMDLoss", kernel_num=[1, 5], fix_gamma=[False, True], count=8)
def mmd_case(random, **keys):
    passes = [[random.normal(size=(4, 3)), random.normal(size=(6, 3)) + 0.5] for _ in range(2)]
    return {"kernel_mul": 1.7, **keys}, *passes


KERNELS = [(1, 1), (5, 1), (4, 3)]


@drawn("JMMDLoss", kernels=KERNELS, auto_sigma=[False, True], fix_gamma=[False, True], count=12)
def joint_case(random, kernels, **keys):
    """Features and answers."""
    keys |= {"kernel_num": kernels[0], "label_kernel_num": kernels[1]}
    keys |= {"kernel_mul": 1.7, "label_kernel_mul": 3.0, "sigma": 0.7}
    xs = [random.normal(size=(4, 3)), random.normal(size=(6, 3)) + 0.5]
    return keys, [*xs, random.random((4, 2)), random.random((6, 2))]


def EntropyLoss(layer, p):
    counted = [v for v in p.flat if v >= layer.threshold and layer.passes >= layer.iterations_num]
    return -sum(v * math.log(v) for v in counted) / len(p)


@drawn("EntropyLoss", first=(0, 2), count=6)
def entropy_case(random, first):
    """What is below the threshold does not count, and in the first passes nothing does."""
    p = random.dirichlet([0.3, 0.3, 0.3, 0.3], 5)
    return {"threshold": 0.05, "iterations_num": first}, [p], [p]


def L2Norm(layer, x):
    lengths = [math.sqrt(sum(v * v for v in row.flat)) for row in x]
    return np.reshape([row / (n or 1) for row, n in zip(x, lengths, strict=True)], x.shape)


def L2Norm_gradient(layer, pulls, x):
    """0 of a row of length 0."""
    dx = np.zeros(x.shape)
    for row, dy, out in zip(x, pulls[0], dx, strict=True):
        n = math.sqrt((row**2).sum())
        out[...] = (dy - row * (row * dy).sum() / n**2) / n if n else 0
    return [dx]


@drawn("L2Norm", nothing=(0, 2), count=3)
def norm_case(random, nothing):
    x = random.normal(size=(3, 2, 4))
    x[nothing] = 0
    return {}, [x]
