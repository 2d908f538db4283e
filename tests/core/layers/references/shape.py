"""Layers that move numbers and resize images."""
# ruff: noqa: N802

import numpy as np
from core.layers.references.points import between


def Permute(layer, x):
    return x.transpose([*layer.order, *[i for i in range(x.ndim) if i not in layer.order]])


def ShuffleChannel(layer, x):
    per = x.shape[1] // layer.group
    return x[:, [i % layer.group * per + i // layer.group for i in range(x.shape[1])]]


def Upsample(layer, x, *mask):
    """Each number where the mask says, or all over its window."""
    (h, w), scale = x.shape[2:], (layer.scale_h or layer.scale, layer.scale_w or layer.scale)
    pads = layer.pad_out_h, layer.pad_out_w
    out = [n * s - bool(pad) for n, s, pad in zip((h, w), scale, pads, strict=True)]
    if layer.upsample_h:
        out = [layer.upsample_h, layer.upsample_w]
    y = np.zeros((*x.shape[:2], *out))
    for place, _ in np.ndenumerate(x if mask else y):
        if not mask:
            y[place] = x[(*place[:2], place[2] // scale[0], place[3] // scale[1])]
        elif mask[0][place] >= 0:
            y[place[:2]].reshape(-1)[int(mask[0][place])] += x[place]
    return y


def Interp(layer, x, *like):
    first, last = -layer.pad_beg, layer.pad_end or None
    x = x[:, :, first:last, first:last]
    shrink, zoom, out = layer.shrink_factor or 1, layer.zoom_factor or 1, []
    for n in x.shape[2:]:
        less = (n - 1) // shrink + 1
        out.append(less + (less - 1) * (zoom - 1))
    if like or layer.height:
        out = like[0].shape[2:] if like else (layer.height, layer.width)
    y = np.zeros((*x.shape[:2], *out))
    steps = [(n - 1) / max(m - 1, 1) for n, m in zip(x.shape[2:], out, strict=True)]
    for n, k, i, j in np.ndindex(y.shape):
        y[n, k, i, j] = between(x[n, k], i * steps[0], j * steps[1])
    return y
