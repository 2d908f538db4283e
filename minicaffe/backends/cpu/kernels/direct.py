"""Direct convolution of three spatial axes, a row of pixels times one weight at a time; all three directions.

`numbers` are c, f, groups, and the image's, the window's and the outputs' sizes.
"""

from minicaffe.backends.cpu import at, compiled_sums, helper
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.kernels.im2col import span


@helper
def _seen(numbers, element):
    """The outputs along each axis that see pixels by a kernel element, and the pixel that output 0 sees."""
    _, _, _, (d, h, w), (kernel, stride, pad, dilation), (od, oh, ow) = numbers
    (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = stride, pad, dilation
    row, j = divmod(element, kernel[2])
    z, y, x = row // kernel[1] * dd - pd, row % kernel[1] * dh - ph, j * dw - pw
    return span(d, od, z, sd), span(h, oh, y, sh), span(w, ow, x, sw), (z, y, x)


@compiled_sums
def forward(epilogue, y, x, weight, bias, numbers, first, last):
    """y[s, k] = bias[k] + sum over b of weight[k, b] * x[s, b], for planes first..last of y."""
    c, f, group, (d, h, w), (kernel, (sd, sh, sw), _, _), (od, oh, ow) = numbers
    cg, fg, size = c // group, f // group, kernel[0] * kernel[1] * kernel[2]
    for top in range(first, last):
        s, k = top // f, top % f
        value = bias[at(k)] if bias.size else y.dtype.type(0)
        for q in range(top * od * oh * ow, (top + 1) * od * oh * ow):
            y[at(q)] = value
        for b in range(cg):
            bottom = s * c + k // fg * cg + b
            for e in range(size):
                (z0, z1), (y0, y1), (x0, x1), (front, above, left) = _seen(numbers, e)
                value = weight[at((k * cg + b) * size + e)]
                for z in range(z0, z1):
                    for r in range(y0, y1):
                        here = ((bottom * d + z * sd + front) * h + r * sh + above) * w + left
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
    c, f, group, (d, h, w), (kernel, (sd, sh, sw), _, _), (od, oh, ow) = numbers
    cg, fg, size = c // group, f // group, kernel[0] * kernel[1] * kernel[2]
    for bottom in range(first, last):
        s, b = bottom // c, bottom % c
        for q in range(bottom * d * h * w, (bottom + 1) * d * h * w):
            dx[at(q)] = 0
        for k in range(b // cg * fg, b // cg * fg + fg):
            top = s * f + k
            for e in range(size):
                (z0, z1), (y0, y1), (x0, x1), (front, above, left) = _seen(numbers, e)
                value = weight[at((k * cg + b % cg) * size + e)]
                for z in range(z0, z1):
                    for r in range(y0, y1):
                        here = ((bottom * d + z * sd + front) * h + r * sh + above) * w + left
                        place = ((top * od + z) * oh + r) * ow
                        for q in range(x0, x1):
                            dx[at(here + q * sw)] += value * dy[at(place + q)]


@compiled_sums
def weight_gradient(x, dy, n, dweight, numbers, first, last):
    """dweight[k, b] += sum over samples and places of dy[s, k] times the pixels it met, for some filters."""
    c, f, group, (d, h, w), (kernel, (sd, sh, sw), _, _), (od, oh, ow) = numbers
    cg, fg, size = c // group, f // group, kernel[0] * kernel[1] * kernel[2]
    for k in range(first, last):
        for s in range(n):
            top = s * f + k
            for b in range(cg):
                bottom = s * c + k // fg * cg + b
                for e in range(size):
                    (z0, z1), (y0, y1), (x0, x1), (front, above, left) = _seen(numbers, e)
                    total = dweight.dtype.type(0)
                    for z in range(z0, z1):
                        for r in range(y0, y1):
                            here = ((bottom * d + z * sd + front) * h + r * sh + above) * w + left
                            place = ((top * od + z) * oh + r) * ow
                            for q in range(x0, x1):
                                total += dy[at(place + q)] * x[at(here + q * sw)]
                    dweight[at((k * cg + b) * size + e)] += total
