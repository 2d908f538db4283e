"""The slow references: every op as loops in float64, straight from its definition.

Nothing here calls minicaffe. `window` is anything hashable with kernel, stride, pad and dilation, one
size an axis; images are (n, c, h, w), those of a convolution (n, c, *image) with 1 to 3 axes.
"""

import functools
import hashlib
import itertools
import math

import numpy as np

ALL = slice(None)


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
    reached = start - stride + kernel >= size + pad  # by the window before, be there one or not
    if ceil and not reached and not (pad and start >= size):
        count += 1
    return count


def conv_sizes(image, window):
    parts = zip(image, window.kernel, window.stride, window.pad, window.dilation, strict=True)
    return tuple(conv_count(*part) for part in parts)


def pool_sizes(image, window, ceil=True):
    parts = zip(image, window.kernel, window.stride, window.pad, strict=True)
    return tuple(pool_count(*part, ceil) for part in parts)


@functools.lru_cache(maxsize=256)
def taps(image, window, out):
    """(o, k, i): element k of window o lies on pixel i of the image; each an index along the axes."""
    found = []
    steps = list(zip(window.stride, window.pad, window.dilation, strict=True))
    for o, k in itertools.product(np.ndindex(*out), np.ndindex(*window.kernel)):
        i = tuple(o[a] * s - p + k[a] * d for a, (s, p, d) in enumerate(steps))
        if all(0 <= at < size for at, size in zip(i, image, strict=True)):
            found.append((o, k, i))
    return found


def im2col(x, window):
    """Columns (n, c * kernel, places) of images (n, c, *image)."""
    (n, c), image = x.shape[:2], x.shape[2:]
    out = conv_sizes(image, window)
    col = np.zeros((n, c, *window.kernel, *out))
    for o, k, i in taps(image, window, out):
        col[(ALL, ALL, *k, *o)] = x[(ALL, ALL, *i)]
    return col.reshape(n, c * math.prod(window.kernel), math.prod(out))


def col2im(col, window, shape):
    """Images of a shape (n, c, *image) of columns (n, c * kernel, places)."""
    out, image = conv_sizes(shape[2:], window), np.zeros(shape)
    col = col.reshape(*shape[:2], *window.kernel, *out)
    for o, k, i in taps(shape[2:], window, out):
        image[(ALL, ALL, *i)] += col[(ALL, ALL, *k, *o)]
    return image


def arranged(col, layout, c):
    """Columns (n, r, p) of c channels in a layout: as they are, samples side by side, turned and stacked."""
    r = col.shape[1]
    if layout == "columns":
        return np.hstack([np.zeros((r, 0)), *col])
    if layout == "rows":
        return np.vstack([np.zeros((0, r)), *(one.T for one in col)])
    if layout == "patches":
        k = r // c
        parts = [one[i * k : (i + 1) * k].T for i in range(c) for one in col]
        return np.vstack([np.zeros((0, k)), *parts])
    if layout == "points":
        n, k, p = len(col), r // c, col.shape[2]
        return col.reshape(n, c, k, p).transpose(2, 1, 3, 0).reshape(k, c * p * n)
    assert layout == "caffe"
    return col


def _conv_terms(x_shape, w_shape, window, group):
    """Where the matrices lie whose products make a convolution: in y (n, f), x (n, c), weight (f, c)."""
    filters, channels = w_shape[0] // group, w_shape[1]
    for o, k, i in taps(x_shape[2:], window, conv_sizes(x_shape[2:], window)):
        for g in range(group):
            fs, cs = (slice(g * many, (g + 1) * many) for many in (filters, channels))
            yield (ALL, fs, *o), (ALL, cs, *i), (fs, ALL, *k)


def conv(x, weight, bias, window, group):
    x, weight = np.float64(x), np.float64(weight)
    y = np.zeros((x.shape[0], weight.shape[0], *conv_sizes(x.shape[2:], window)))
    for at_y, at_x, at_w in _conv_terms(x.shape, weight.shape, window, group):
        y[at_y] += x[at_x] @ weight[at_w].T
    if bias is not None:
        for f in range(len(bias)):
            y[:, f] += float(bias[f])
    return y


def conv_input_gradient(dy, weight, x_shape, window, group):
    dy, weight, dx = np.float64(dy), np.float64(weight), np.zeros(x_shape)
    for at_y, at_x, at_w in _conv_terms(x_shape, weight.shape, window, group):
        dx[at_x] += dy[at_y] @ weight[at_w]
    return dx


def conv_weight_gradient(dy, x, w_shape, window, group):
    dy, x, dw = np.float64(dy), np.float64(x), np.zeros(w_shape)
    for at_y, at_x, at_w in _conv_terms(x.shape, w_shape, window, group):
        dw[at_w] += dy[at_y].T @ x[at_x]
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
    for n, c in np.ndindex(*x.shape[:2]):
        for o, (i, j), pixel in taps(x.shape[2:], window, out):
            at, value = (n, c, *o), x[(n, c, *pixel)]
            if which[at] < 0 or value > y[at]:
                y[at], which[at] = value, i * window.kernel[1] + j
    return y, which


def max_pool_gradient(dy, which, window, shape):
    dx = np.zeros(shape)
    for n, c in np.ndindex(*shape[:2]):
        for o, (i, j), pixel in taps(shape[2:], window, dy.shape[2:]):
            if which[(n, c, *o)] == i * window.kernel[1] + j:
                dx[(n, c, *pixel)] += dy[(n, c, *o)]
    return dx


def area(image, window, place):
    """How many positions of a window lie in the padded image."""
    parts = zip(image, window.kernel, window.stride, window.pad, place, strict=True)
    return math.prod(
        sum(-pad <= o * stride - pad + k < size + pad for k in range(kernel))
        for size, kernel, stride, pad, o in parts
    )


def ave_pool(x, window, out):
    y = np.zeros((*x.shape[:2], *out))
    for o, _, i in taps(x.shape[2:], window, out):
        y[(ALL, ALL, *o)] += np.float64(x[(ALL, ALL, *i)]) / area(x.shape[2:], window, o)
    return y


def ave_pool_gradient(dy, window, shape):
    dx = np.zeros(shape)
    for o, _, i in taps(shape[2:], window, dy.shape[2:]):
        dx[(ALL, ALL, *i)] += np.float64(dy[(ALL, ALL, *o)]) / area(shape[2:], window, o)
    return dx


def random_key(seed, *names):
    text = "\0".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


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
