"""Direct convolution of three spatial axes, a row of pixels times one weight at a time; all three directions.

`numbers` are c, f, groups, and the image's, the window's and the outputs' sizes.
"""

from minicaffe.backends.cpu import at, compiled_sums, helper
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.kernels.im2col import span


@helper
def _spans(image, window, out, a, i, j):
    """The outputs along each axis that see pixels by kernel element (a, i, j)."""
    (d, h, w), (od, oh, ow) = image, out
    _, (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    return (
        span(d, od, a * dd - pd, sd),
        span(h, oh, i * dh - ph, sh),
        span(w, ow, j * dw - pw, sw),
    )


@compiled_sums
def forward(epilogue, y, x, weight, bias, numbers, first, last):
    """y[s, k] = bias[k] + sum over b of weight[k, b] * x[s, b], for planes first..last of y."""
    c, f, group, image, window, out = numbers
    (_, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    d, cg, fg = image[0], c // group, f // group
    for top in range(first, last):
        s, k = top // f, top % f
        value = bias[at(k)] if bias.size else y.dtype.type(0)
        for q in range(top * od * oh * ow, (top + 1) * od * oh * ow):
            y[at(q)] = value
        element = k * cg * kd * kh * kw
        for b in range(cg):
            bottom = s * c + k // fg * cg + b
            for a in range(kd):
                for i in range(kh):
                    for j in range(kw):
                        (z0, z1), (y0, y1), (x0, x1) = _spans(image, window, out, a, i, j)
                        value = weight[at(element)]
                        element += 1
                        for z in range(z0, z1):
                            for r in range(y0, y1):
                                plane = bottom * d + z * sd + a * dd - pd
                                here = (plane * h + r * sh + i * dh - ph) * w + j * dw - pw
                                place = ((top * od + z) * oh + r) * ow
                                if sw == 1:
                                    for q in range(x0, x1):
                                        y[at(place + q)] += value * x[at(here + q)]
                                else:
                                    for q in range(x0, x1):
                                        y[at(place + q)] += value * x[at(here + q * sw)]
        finish(y, top * od * oh * ow, od * oh * ow, epilogue)


@compiled_sums
def input_gradient(dy, weight, dx, numbers, first, last):
    """dx[s, b] = sum over k of weight[k, b] * dy[s, k], each back to the pixels it saw, for planes of dx."""
    c, f, group, image, window, out = numbers
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    cg, fg = c // group, f // group
    for bottom in range(first, last):
        s, b = bottom // c, bottom % c
        for q in range(bottom * d * h * w, (bottom + 1) * d * h * w):
            dx[at(q)] = 0
        for k in range(b // cg * fg, b // cg * fg + fg):
            top, element = s * f + k, (k * cg + b % cg) * kd * kh * kw
            for a in range(kd):
                for i in range(kh):
                    for j in range(kw):
                        (z0, z1), (y0, y1), (x0, x1) = _spans(image, window, out, a, i, j)
                        value = weight[at(element)]
                        element += 1
                        for z in range(z0, z1):
                            for r in range(y0, y1):
                                plane = bottom * d + z * sd + a * dd - pd
                                here = (plane * h + r * sh + i * dh - ph) * w + j * dw - pw
                                place = ((top * od + z) * oh + r) * ow
                                if sw == 1:
                                    for q in range(x0, x1):
                                        dx[at(here + q)] += value * dy[at(place + q)]
                                else:
                                    for q in range(x0, x1):
                                        dx[at(here + q * sw)] += value * dy[at(place + q)]


@compiled_sums
def weight_gradient(x, dy, n, dweight, numbers, first, last):
    """dweight[k, b] += sum over samples and places of dy[s, k] times the pixels it met, for some filters."""
    c, f, group, image, window, out = numbers
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    cg, fg = c // group, f // group
    for k in range(first, last):
        for s in range(n):
            top, element = s * f + k, k * cg * kd * kh * kw
            for b in range(cg):
                bottom = s * c + k // fg * cg + b
                for a in range(kd):
                    for i in range(kh):
                        for j in range(kw):
                            (z0, z1), (y0, y1), (x0, x1) = _spans(image, window, out, a, i, j)
                            total = dweight.dtype.type(0)
                            for z in range(z0, z1):
                                for r in range(y0, y1):
                                    plane = bottom * d + z * sd + a * dd - pd
                                    here = (plane * h + r * sh + i * dh - ph) * w + j * dw - pw
                                    place = ((top * od + z) * oh + r) * ow
                                    for q in range(x0, x1):
                                        total += dy[at(place + q)] * x[at(here + q * sw)]
                            dweight[at(element)] += total
                            element += 1
