"""The slow references: every op as loops in float64, straight from its definition.

Nothing here calls minicaffe. `window` is anything with kernel, stride, pad and dilation, each
(rows, columns); images are (c, h, w) or (n, c, h, w).
"""

import hashlib
import itertools
import math

import numpy as np


def conv_count(size, kernel, stride, pad, dilation):
    """Windows whose first and last kernel element lie in the padded image."""
    starts = range(-pad, size + pad, stride)
    return sum(start + dilation * (kernel - 1) < size + pad for start in starts)


def pool_count(size, kernel, stride, pad, ceil):
    """Windows that lie in the padded image; rounding up, also the one that crosses its far edge.

    With padding, that one counts only if it begins in the image.
    """
    start, count = -pad, 0
    while start + kernel <= size + pad:
        start, count = start + stride, count + 1
    reached = start - stride + kernel == size + pad
    if ceil and not reached and not (pad and start >= size):
        count += 1
    return count


def conv_sizes(image, window):
    parts = zip(image, window.kernel, window.stride, window.pad, window.dilation, strict=True)
    return tuple(conv_count(*part) for part in parts)


def pool_sizes(image, window, ceil=True):
    parts = zip(image, window.kernel, window.stride, window.pad, strict=True)
    return tuple(pool_count(*part, ceil) for part in parts)


def taps(image, window, out):
    """(oy, ox, i, j, y, x): element (i, j) of window (oy, ox) lies on pixel (y, x) of the image."""
    found = []
    for oy, ox in np.ndindex(*out):
        for i, j in np.ndindex(*window.kernel):
            y = oy * window.stride[0] - window.pad[0] + i * window.dilation[0]
            x = ox * window.stride[1] - window.pad[1] + j * window.dilation[1]
            if 0 <= y < image[0] and 0 <= x < image[1]:
                found.append((oy, ox, i, j, y, x))
    return found


def im2col(x, window):
    out, (kh, kw) = conv_sizes(x.shape[1:], window), window.kernel
    col = np.zeros((x.shape[0] * kh * kw, *out))
    for c in range(x.shape[0]):
        for oy, ox, i, j, y, xx in taps(x.shape[1:], window, out):
            col[(c * kh + i) * kw + j, oy, ox] = x[c, y, xx]
    return col


def col2im(col, window, shape):
    kh, kw = window.kernel
    image = np.zeros(shape)
    for c in range(shape[0]):
        for oy, ox, i, j, y, x in taps(shape[1:], window, col.shape[1:]):
            image[c, y, x] += col[(c * kh + i) * kw + j, oy, ox]
    return image


def _conv_terms(x_shape, w_shape, window, group):
    """Every product of a convolution: the indices of y, of x and of the weight."""
    filters, channels = w_shape[0] // group, w_shape[1]
    places = taps(x_shape[2:], window, conv_sizes(x_shape[2:], window))
    for n, f, c in np.ndindex(x_shape[0], w_shape[0], channels):
        for oy, ox, i, j, y, x in places:
            yield (n, f, oy, ox), (n, f // filters * channels + c, y, x), (f, c, i, j)


def conv(x, weight, bias, window, group):
    y = np.zeros((x.shape[0], weight.shape[0], *conv_sizes(x.shape[2:], window)))
    for at_y, at_x, at_w in _conv_terms(x.shape, weight.shape, window, group):
        y[at_y] += float(x[at_x]) * float(weight[at_w])
    return y if bias is None else y + np.float64(bias)[:, None, None]


def conv_input_gradient(dy, weight, x_shape, window, group):
    dx = np.zeros(x_shape)
    for at_y, at_x, at_w in _conv_terms(x_shape, weight.shape, window, group):
        dx[at_x] += float(dy[at_y]) * float(weight[at_w])
    return dx


def conv_weight_gradient(dy, x, w_shape, window, group):
    dw = np.zeros(w_shape)
    for at_y, at_x, at_w in _conv_terms(x.shape, w_shape, window, group):
        dw[at_w] += float(dy[at_y]) * float(x[at_x])
    return dw


def conv_bias_gradient(dy):
    return np.array([math.fsum(dy[:, f].ravel()) for f in range(dy.shape[1])])


def matmul(a, b):
    out = np.zeros((a.shape[0], b.shape[1]))
    for i, j in np.ndindex(*out.shape):
        out[i, j] = math.fsum(float(a[i, k]) * float(b[k, j]) for k in range(a.shape[1]))
    return out


def max_pool(x, window, out):
    """The maxima and who won: the first of the largest pixels; -1, and 0, where there is none."""
    y, which = np.zeros((*x.shape[:2], *out)), np.full((*x.shape[:2], *out), -1)
    places = taps(x.shape[2:], window, out)
    for n, c in np.ndindex(*x.shape[:2]):
        for oy, ox, i, j, row, column in places:
            at, value = (n, c, oy, ox), x[n, c, row, column]
            if which[at] < 0 or value > y[at]:
                y[at], which[at] = value, i * window.kernel[1] + j
    return y, which


def max_pool_gradient(dy, which, window, shape):
    dx = np.zeros(shape)
    for n, c in np.ndindex(*shape[:2]):
        for oy, ox, i, j, y, x in taps(shape[2:], window, dy.shape[2:]):
            if which[n, c, oy, ox] == i * window.kernel[1] + j:
                dx[n, c, y, x] += dy[n, c, oy, ox]
    return dx


def area(image, window, oy, ox):
    """How many positions of a window lie in the padded image."""
    inside = 1
    for size, kernel, stride, pad, o in zip(
        image, window.kernel, window.stride, window.pad, (oy, ox), strict=True
    ):
        inside *= sum(-pad <= o * stride - pad + k < size + pad for k in range(kernel))
    return inside


def ave_pool(x, window, out):
    y = np.zeros((*x.shape[:2], *out))
    for oy, ox, _, _, row, column in taps(x.shape[2:], window, out):
        y[:, :, oy, ox] += np.float64(x[:, :, row, column]) / area(x.shape[2:], window, oy, ox)
    return y


def ave_pool_gradient(dy, window, shape):
    dx = np.zeros(shape)
    for oy, ox, _, _, y, x in taps(shape[2:], window, dy.shape[2:]):
        dx[:, :, y, x] += np.float64(dy[:, :, oy, ox]) / area(shape[2:], window, oy, ox)
    return dx


def _exp(x):
    return math.inf if x > 709 else math.exp(x)


def softmax(x):
    """p[k] = 1 / sum over j of exp(x[j] - x[k])."""
    p = np.zeros(x.shape)
    for n, k, s in np.ndindex(*x.shape):
        own = float(x[n, k, s])
        p[n, k, s] = 1 / math.fsum(_exp(float(other) - own) for other in x[n, :, s])
    return p


def softmax_gradient(dy, y):
    """dx = J' dy with the Jacobian written out: J[j, k] = dy[j] / dx[k] = y[j] ([j = k] - y[k])."""
    dx = np.zeros(y.shape)
    for n, k, s in np.ndindex(*y.shape):
        column = [float(v) for v in y[n, :, s]]
        dx[n, k, s] = math.fsum(
            float(dy[n, j, s]) * column[j] * ((j == k) - column[k]) for j in range(len(column))
        )
    return dx


def nll(prob, labels, ignore, floor):
    losses, valid = np.zeros(labels.shape), np.zeros(labels.shape)
    for n, s in np.ndindex(*labels.shape):
        if labels[n, s] != ignore:
            losses[n, s] = -math.log(max(float(prob[n, int(labels[n, s]), s]), floor))
            valid[n, s] = 1
    return losses, valid


def nll_gradient(prob, labels, ignore, scale):
    dx = np.zeros(prob.shape)
    for n, k, s in np.ndindex(*prob.shape):
        if labels[n, s] != ignore:
            dx[n, k, s] = scale * (float(prob[n, k, s]) - (k == labels[n, s]))
    return dx


def accuracy(scores, labels, top_k, ignore):
    """A hit: fewer than top_k other classes are not lower than the label's."""
    hits, valid = np.zeros(labels.shape), np.zeros(labels.shape)
    for n, s in np.ndindex(*labels.shape):
        if labels[n, s] == ignore:
            continue
        label = int(labels[n, s])
        own, others = scores[n, label, s], np.delete(scores[n, :, s], label)
        hits[n, s] = sum(not other < own for other in others) < top_k
        valid[n, s] = 1
    return hits, valid


def class_accuracy(hits, valid, labels, classes):
    shares = np.zeros(classes)
    for k in range(classes):
        mine = [h for h, v, label in zip(hits, valid, labels, strict=True) if v and label == k]
        shares[k] = sum(mine) / len(mine) if mine else 0
    return shares


def random_key(seed, *names):
    text = "\0".join(map(str, (seed, *names)))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def philox(key, count):
    """Philox4x64-10 on Python's integers: floats of 24 bits, the low half of each word first."""
    mask = 2**64 - 1
    numbers = []
    for block in itertools.count(1):
        if len(numbers) >= count:
            return np.array(numbers[:count], np.float32)
        word, k0, k1 = [block, 0, 0, 0], key & mask, key >> 64
        for _ in range(10):
            one, two = word[0] * 0xD2E7470EE14C6C93, word[2] * 0xCA5A826395121157
            word = [two >> 64 ^ word[1] ^ k0, two & mask, one >> 64 ^ word[3] ^ k1, one & mask]
            k0, k1 = k0 + 0x9E3779B97F4A7C15 & mask, k1 + 0xBB67AE8584CAA73B & mask
        for value in word:
            numbers += [(value & 2**32 - 1) / 2**32, (value >> 32) / 2**32]
            numbers[-2:] = [math.floor(number * 2**24) / 2**24 for number in numbers[-2:]]


def gather(images, index, crop, mirror, mean, scale, shape):
    out = np.zeros(shape)
    for b, k, y, x in np.ndindex(*shape):
        row, column = crop[b][0] + y, crop[b][1] + (shape[3] - 1 - x if mirror[b] else x)
        pixel = float(images[index[b], k, row, column])
        out[b, k, y, x] = (pixel - float(mean[k, row, column])) * scale
    return out
