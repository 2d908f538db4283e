"""A net of minicaffe as PyTorch would compute it: the same steps, weights and losses, by torch's functions.

What each layer is stands in RECIPES: a function of the parameters and the bottoms. What PyTorch has one
function for is one: a BatchNorm and the Scale behind it, a whole LSTM. What works in place here does so there,
where autograd lets it, and a value is dropped behind its last reader.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as PyTorch's users write it

from minicaffe.core.net import Net
from minicaffe.core.net.step import Step

Call = Callable[..., object]
RECIPES: dict[str, Callable[[Step, "Use"], Call]] = {}


class Use:
    """The parameters that steps use: each once, by number, with the order in which PyTorch has its rows."""

    def __init__(self, net: Net, weights: Mapping[str, np.ndarray] | None):
        self.owners, self.orders = [], []
        named = reversed(
            net.named_params.items()
        )  # a shared parameter is saved under its first name
        self.names = {id(param.owner): name for name, param in named}
        self.weights = weights

    def __call__(self, param, order: Sequence[int] | None = None) -> int | None:
        """The number of a parameter; `order` are our rows in PyTorch's order."""
        if param is None:
            return None
        for i, owner in enumerate(self.owners):
            if owner is param.owner:
                return i
        self.owners.append(param.owner)
        self.orders.append(None if order is None else np.asarray(order))
        return len(self.owners) - 1

    def array(self, param) -> np.ndarray:
        """The numbers of a parameter: those of the weights that were given, else the net's own."""
        if self.weights is None:
            return param.to_host()
        return self.weights[self.names[id(param.owner)]]


def recipe(*types: str):
    """Make a function the recipe of layers of these types."""

    def register(function):
        RECIPES.update(dict.fromkeys(types, function))
        return function

    return register


def in_place(step: Step) -> bool:
    """Whether a step may write over what it reads: nobody else reads that."""
    return step.spec.tops[0] == step.bottoms[0].name and step.bottoms[0].readers == 1


def pick(weights, i: int | None):
    """A parameter that may be missing."""
    return None if i is None else weights[i]


@recipe("Convolution")
def convolution(step: Step, use: Use) -> Call:
    layer, window = step.layer, step.layer.geometry.window
    w, b = use(layer.weight), use(layer.bias)
    keys = window.stride, window.pad, window.dilation, layer.group
    return lambda p, x: F.conv2d(x, p[w], pick(p, b), *keys)


@recipe("Deconvolution")
def deconvolution(step: Step, use: Use) -> Call:
    layer, window = step.layer, step.layer.geometry.window
    w, b = use(layer.weight), use(layer.bias)
    keys = window.stride, window.pad, 0, layer.group, window.dilation
    return lambda p, x: F.conv_transpose2d(x, p[w], pick(p, b), *keys)


@recipe("InnerProduct")
def inner_product(step: Step, use: Use) -> Call:
    layer, axis = step.layer, step.layer.axis
    w, b = use(layer.weight), use(layer.bias)
    return lambda p, x: F.linear(x.flatten(axis), p[w], pick(p, b))


@recipe("Pooling")
def pooling(step: Step, use: Use) -> Call:
    layer, window = step.layer, step.layer.window
    ceil = layer.round_mode == "CEIL"
    if layer.pool == "STOCHASTIC" or len(step.tops) > 1:
        raise NotImplementedError("such a pooling has no recipe in PyTorch")
    if layer.global_pooling:
        pool = F.adaptive_max_pool2d if layer.pool == "MAX" else F.adaptive_avg_pool2d
        return lambda p, x: pool(x, 1)
    keys = window.kernel, window.stride, window.pad
    if layer.pool == "MAX":
        return lambda p, x: F.max_pool2d(x, *keys, ceil_mode=ceil)
    return lambda p, x: F.avg_pool2d(x, *keys, ceil_mode=ceil, count_include_pad=True)


@recipe("LRN")
def lrn(step: Step, use: Use) -> Call:
    layer = step.layer
    size, alpha, beta = layer.local_size, layer.alpha, layer.beta
    if layer.norm_region == "ACROSS_CHANNELS":
        return lambda p, x: F.local_response_norm(x, size, alpha, beta, layer.k)
    return lambda p, x: x * (1 + alpha * F.avg_pool2d(x * x, size, 1, size // 2)).pow(-beta)


@recipe("BatchNorm")
def batch_norm(step: Step, use: Use) -> Call:
    return normalisation(step, None, use)


def normalisation(step: Step, scale: Step | None, use: Use) -> Call:
    """BatchNorm, with the Scale behind it if there is one; its sums are kept as PyTorch keeps them."""
    layer, learnt = step.layer, step.layer if scale is None else scale.layer
    first = learnt.params[3:] if scale is None else [learnt.weight, learnt.bias]
    w, b = (use(param) for param in (*first, None, None)[:2])
    mean, variance, count = (use.array(param) for param in layer.past)
    past = [torch.from_numpy(sums / max(count[0], 1e-30)) for sums in (mean, variance)]
    keys = not layer.by_past, 1 - layer.moving_average_fraction, layer.eps

    def call(p, x):
        past[:] = (sums.to(x.device) for sums in past)
        return F.batch_norm(x, *past, pick(p, w), pick(p, b), *keys)

    return call


@recipe("Scale")
def scale(step: Step, use: Use) -> Call:
    layer = step.layer
    behind = [1] * (len(step.bottoms[0].shape) - layer.axis - layer.num_axes)
    w, b = use(layer.weight), use(layer.bias)

    def call(p, x):
        y = x * p[w].reshape(*p[w].shape, *behind)
        return y if b is None else y + p[b].reshape(*p[b].shape, *behind)

    return call


@recipe("ReLU")
def relu(step: Step, use: Use) -> Call:
    slope, over = step.layer.negative_slope, in_place(step)
    if slope:
        return lambda p, x: F.leaky_relu(x, slope, inplace=over)
    return lambda p, x: F.relu(x, inplace=over)


@recipe("Sigmoid")
def sigmoid(step: Step, use: Use) -> Call:
    return lambda p, x: torch.sigmoid(x)


@recipe("AbsVal")
def absolute(step: Step, use: Use) -> Call:
    return lambda p, x: x.abs()


@recipe("Threshold")
def threshold(step: Step, use: Use) -> Call:
    bound = step.layer.threshold
    return lambda p, x: (x > bound).to(x.dtype)


@recipe("Power")
def power(step: Step, use: Use) -> Call:
    layer = step.layer
    if layer.power == 1:
        return lambda p, x: x * layer.scale + layer.shift
    return lambda p, x: (x * layer.scale + layer.shift) ** layer.power


@recipe("Dropout")
def dropout(step: Step, use: Use) -> Call:
    layer = step.layer
    if layer.phase == "TEST":
        return lambda p, x: x
    return lambda p, x: F.dropout(x, layer.dropout_ratio, training=True)


@recipe("Concat")
def concat(step: Step, use: Use) -> Call:
    if step.layer.concat_dim is not None:
        raise NotImplementedError("such a Concat has no recipe in PyTorch")
    axis = 1 if step.layer.axis is None else step.layer.axis
    return lambda p, *xs: torch.cat(xs, axis)


@recipe("Eltwise")
def eltwise(step: Step, use: Use) -> Call:
    coeff = step.layer.coeff
    if step.layer.operation != "SUM":
        raise NotImplementedError("such an Eltwise has no recipe in PyTorch")
    if coeff:
        return lambda p, *xs: sum(c * x for c, x in zip(coeff, xs, strict=True))
    return lambda p, *xs: sum(xs[1:], xs[0])


@recipe("Flatten")
def viewed(step: Step, use: Use) -> Call:
    shape = step.tops[0].shape
    return lambda p, x: x.reshape(shape)


@recipe("Crop")
def crop(step: Step, use: Use) -> Call:
    part = step.layer.part
    return lambda p, x, like: x[part]


@recipe("Embed")
def embed(step: Step, use: Use) -> Call:
    w, b = use(step.layer.weight), use(step.layer.bias)
    if b is None:
        return lambda p, x: F.embedding(x.long(), p[w])
    return lambda p, x: F.embedding(x.long(), p[w]) + p[b]


@recipe("LSTM")
def lstm(step: Step, use: Use) -> Call:
    """All of it in one call, for streams that begin with the pass and do not begin anew in it.

    torch.compile leaves it as it is, as it does nn.LSTM: it would else unroll every step.
    """
    layer, d = step.layer, step.layer.num_output
    if layer.static or layer.expose_hidden:
        raise NotImplementedError("such an LSTM has no recipe in PyTorch")
    order = np.concatenate([np.arange(d) + d * gate for gate in (0, 1, 3, 2)])  # i f o g -> i f g o
    w, b, h = (use(p, order) for p in (layer.weight, layer.bias, layer.state_weight))

    @torch.compiler.disable
    def call(p, x, cont):
        zeros = x.new_zeros(1, layer.n, d)
        given = [p[w], p[h], p[b], x.new_zeros(4 * d)]
        trains = torch.is_grad_enabled()  # else cuDNN has no way back
        keys = True, 1, 0.0, trains, False, False
        return torch.lstm(x.flatten(2), [zeros, zeros], given, *keys)[0]

    return call


@recipe("Softmax")
def softmax(step: Step, use: Use) -> Call:
    axis = step.layer.axis
    return lambda p, x: F.softmax(x, axis)


@recipe("SoftmaxWithLoss")
def softmax_loss(step: Step, use: Use) -> Call:
    layer, (n, c, s) = step.layer, step.layer.ncs
    ignored = -100 if layer.ignore_label is None else layer.ignore_label
    scores = step.bottoms[0].shape if layer.axis == 1 else (n, c) if s == 1 else (n, c, s)
    keys, factor = {"reduction": "mean", "ignore_index": ignored}, None
    if layer.how != "VALID":
        keys["reduction"] = "sum"
        factor = {"NONE": 1.0, "BATCH_SIZE": 1 / n, "FULL": 1 / (n * s)}[layer.how]
    labels = (scores[0], *scores[2:])

    def call(p, x, label):
        loss = F.cross_entropy(x.reshape(scores), label.reshape(labels).long(), **keys)
        return loss if factor is None else loss * factor

    return call


@recipe("SigmoidCrossEntropyLoss")
def sigmoid_loss(step: Step, use: Use) -> Call:
    layer, shape = step.layer, step.bottoms[0].shape
    factor = {"NONE": 1.0, "BATCH_SIZE": 1 / shape[0]}.get(layer.how, 1 / math.prod(shape))
    loss = F.binary_cross_entropy_with_logits
    return lambda p, x, t: loss(x, t.reshape(shape), reduction="sum") * factor


@recipe("EuclideanLoss")
def euclidean_loss(step: Step, use: Use) -> Call:
    factor = 0.5 / step.bottoms[0].shape[0]
    return lambda p, a, b: F.mse_loss(a, b.reshape(a.shape), reduction="sum") * factor


@recipe("ContrastiveLoss")
def contrastive_loss(step: Step, use: Use) -> Call:
    layer, n = step.layer, step.bottoms[0].shape[0]
    if layer.legacy_version:
        raise NotImplementedError("a ContrastiveLoss of old has no recipe in PyTorch")

    def call(p, a, b, similar):
        distance = (a - b).square().sum(1).clamp_min(1e-16).sqrt()
        apart = F.relu(layer.margin - distance).square()
        return torch.where(similar.reshape(-1) != 0, distance.square(), apart).sum() / (2 * n)

    return call


class Module(nn.Module):
    """The net. Gives its outputs in the order of `net.outputs`, in TRAIN the weighted sum of its losses."""

    def __init__(self, net: Net, weights: Mapping[str, np.ndarray] | None = None):
        super().__init__()
        self.train(net.phase == "TRAIN")
        use, numbers = Use(net, weights), {}
        self.inputs: list[str] = []
        self.plan: list[tuple[Call, list[int], list[int], list[int]]] = []
        last, steps = {}, fused(net)
        for i, (step, _) in enumerate(steps):
            last |= dict.fromkeys(step.bottoms, i)
        outputs = list(net.graph.losses if self.training else net.graph.outputs.values())
        for i, (step, scale) in enumerate(steps):
            tops = list((scale or step).tops)
            for value in tops:
                numbers[value] = len(numbers)
            if not step.bottoms:
                self.inputs += [value.name for value in tops]
                continue
            if step.spec.type not in RECIPES:
                raise NotImplementedError(f"{step.spec.type} has no recipe in PyTorch")
            call = normalisation(step, scale, use) if scale else RECIPES[step.spec.type](step, use)
            done = {v for v in step.bottoms if last[v] == i and v not in outputs}
            done |= {v for v in tops if v not in last and v not in outputs}
            places = [[numbers[v] for v in group] for group in (step.bottoms, tops, done)]
            self.plan.append((call, *places))
        self.kept = [numbers[v] for v in outputs]
        self.loss_weights = [v.loss_weight for v in net.graph.losses]
        self.count, self.use = len(numbers), use
        arrays = [self.theirs(i, use.array(owner)) for i, owner in enumerate(use.owners)]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.from_numpy(array), requires_grad=owner.learns)
            for array, owner in zip(arrays, use.owners, strict=True)
        )

    def forward(self, *inputs):
        values = [*inputs, *[None] * (self.count - len(inputs))]
        for call, bottoms, tops, done in self.plan:
            results = call(self.weights, *[values[i] for i in bottoms])
            results = results if isinstance(results, (tuple, list)) else (results,)
            for i, one in zip(tops, results, strict=True):
                values[i] = one
            for i in done:
                values[i] = None
        outputs = [values[i] for i in self.kept]
        if self.training:
            return sum(weight * one for weight, one in zip(self.loss_weights, outputs, strict=True))
        return outputs

    def theirs(self, i: int, array: np.ndarray) -> np.ndarray:
        """A parameter of ours as PyTorch has it."""
        order = self.use.orders[i]
        return np.ascontiguousarray(array if order is None else array[order])

    def gradients(self) -> list[tuple[object, np.ndarray]]:
        """Our parameters that learn, each with the gradient that PyTorch found."""
        gradients = []
        for owner, order, weight in zip(
            self.use.owners, self.use.orders, self.weights, strict=True
        ):
            if owner.learns:
                array = weight.grad.numpy()
                gradients.append((owner, array if order is None else array[np.argsort(order)]))
        return gradients

    def groups(self, rate: float, decay: float) -> list[dict]:
        """What an optimiser of PyTorch takes: parameters by their multipliers of rate and decay."""
        params: dict[tuple[float, float], list] = {}
        for owner, weight in zip(self.use.owners, self.weights, strict=True):
            if owner.learns:
                params.setdefault((owner.lr_mult, owner.decay_mult), []).append(weight)
        return [
            {"params": some, "lr": rate * lr, "weight_decay": decay * wd}
            for (lr, wd), some in params.items()
        ]


def fused(net: Net) -> list[tuple[Step, Step | None]]:
    """The steps, each BatchNorm together with a Scale that alone reads it and stands right behind it."""
    steps, behind = [], None
    for i, step in enumerate(net.steps):
        if step is behind:
            continue
        behind = net.steps[i + 1] if i + 1 < len(net.steps) else None
        joined = (
            step.spec.type == "BatchNorm"
            and not step.layer.learnt
            and behind.spec.type == "Scale"
            and behind.bottoms == step.tops
            and step.tops[0].readers == 1
            and behind.layer.axis == behind.layer.num_axes == 1
        )
        behind = behind if joined else None
        steps.append((step, behind))
    return steps
