"""A convolution as im2col and a product for each band of output rows, one after the other in the cache.

`sizes` are the groups, the filters and the channels of one, and how many output rows a band has; `axis` is
the first of the image's among three; `shapes` are those of image, window and outputs. A band is the window
that starts so much further down. `work` has room for the columns of one band and group, and for sums. Of a
1 x 1 convolution (`is_point`) the image is its own column matrix, and nothing is copied.
"""

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.blas import gemm
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.kernels.im2col import fold, unroll


@helper
def _band(shapes, axis, row, most):
    """The window and the outputs of the rows from `row` on, their first place, and their number."""
    _, (kernel, stride, (pd, ph, pw), dilation), (od, oh, ow) = shapes
    sd, sh, sw = stride
    if axis == 0:
        rows, across = min(most, od - row), oh * ow
        pad, some = (pd - row * sd, ph, pw), (rows, oh, ow)
    elif axis == 1:
        rows, across = min(most, oh - row), ow
        pad, some = (pd, ph - row * sh, pw), (od, rows, ow)
    else:
        rows, across = min(most, ow - row), 1
        pad, some = (pd, ph, pw - row * sw), (od, oh, rows)
    return (kernel, stride, pad, dilation), some, row * across, rows * across


@helper
def _lengths(shapes, axis):
    """Rows of outputs, places of an image, elements of a kernel."""
    _, ((kd, kh, kw), _, _, _), out = shapes
    return out[axis], out[0] * out[1] * out[2], kd * kh * kw


@helper
def _unroll(x, plane, c, image, window, out, n, tile):
    """The columns of `c` planes of x, each row of n places."""
    kd, kh, kw = window[0]
    for i in range(c):
        unroll(x, plane + i, image, window, out, tile, i * kd * kh * kw * n, n)


@compiled
def forward(epilogue, y, blas, sizes, axis, shapes, is_point, parts, x, w, bias, tile, first, last):
    """y[s, g, :, band] = w[g] im2col(x[s])[g, :, band] + bias[g].

    A unit is a sample's band of a group, or one of `parts` of its filters: columns are kept for the next.
    """
    groups, f, c, most = sizes
    high, p, kernel = _lengths(shapes, axis)
    bands, k, unrolled = (high + most - 1) // most, c * kernel, -1
    for unit in range(first, last):
        part, whole = unit % parts, unit // parts
        g, s = whole % groups, whole // groups // bands
        window, out, start, n = _band(shapes, axis, whole // groups % bands * most, most)
        if whole != unrolled and not is_point:
            _unroll(x, (s * groups + g) * c, c, shapes[0], window, out, n, tile)
            unrolled = whole
        top, end = g * f + f * part // parts, g * f + f * (part + 1) // parts
        to = (s * groups * f + top) * p + start
        in_x = (s * groups + g) * c * p + start
        columns = (x, in_x, p, False) if is_point else (tile, 0, n, False)
        gemm(blas, (end - top, n, k), (w, top * k, k, False), columns, False, (y, to, p))
        for i in range(top, end):
            for q in range(to, to + n if bias.size else to):
                y[at(q)] += bias[at(i)]
            finish(y, to, n, epilogue)
            to += p


@compiled
def input_gradient(blas, sizes, axis, shapes, is_point, parts, dy, w, dx, tile, first, last):
    """dx[s] = sum over bands of col2im(w[g]' dy[s, g, :, band]); a unit is a part of a group's channels."""
    groups, f, c, most = sizes
    high, p, kernel = _lengths(shapes, axis)
    for unit in range(first, last):
        part, whole = unit % parts, unit // parts
        top, end = c * part // parts, c * (part + 1) // parts
        start = whole % groups * f * c * kernel + top * kernel
        for row in range(0, high, most):
            window, out, here, n = _band(shapes, axis, row, most)
            left, right = (w, start, c * kernel, True), (dy, whole * f * p + here, p, False)
            if is_point:
                to = (whole * c + top) * p + here
                gemm(blas, (end - top, n, f), left, right, False, (dx, to, p))
                continue
            gemm(blas, ((end - top) * kernel, n, f), left, right, False, (tile, 0, n))
            for i in range(end - top):
                plane = whole * c + top + i
                fold(tile, i * kernel * n, n, dx, plane, shapes[0], window, out, row == 0)


@compiled
def weight_gradient(blas, sizes, axis, shapes, room, x, dy, work, first, last):
    """sums[g] (k, f) = im2col(x[s])[g, :, band] dy[s, g, :, band]', at work[room]; a unit: a sample's band."""
    groups, f, c, most = sizes
    high, p, kernel = _lengths(shapes, axis)
    bands, k = (high + most - 1) // most, c * kernel
    for q in range(room, room + groups * k * f):
        work[at(q)] = 0
    for unit in range(first, last):
        s = unit // bands
        window, out, start, n = _band(shapes, axis, unit % bands * most, most)
        for g in range(groups):
            whole = s * groups + g
            _unroll(x, whole * c, c, shapes[0], window, out, n, work)
            left, right = (work, 0, n, False), (dy, whole * f * p + start, p, True)
            gemm(blas, (k, f, n), left, right, True, (work, room + g * k * f, f))


@compiled
def weight_rows_gradient(
    blas, sizes, axis, shapes, is_point, n, room, x, dy, dw, work, first, last
):
    """dw[:, channels] += the sum over n samples of dy im2col(x[:, channels])', transposed at work[room]."""
    groups, f, c, most = sizes
    high, p, kernel = _lengths(shapes, axis)
    for g in range(first // c, (last - 1) // c + 1):
        top, end = max(first, g * c), min(last, (g + 1) * c)
        k = (end - top) * kernel
        for s in range(n if is_point else 0):
            left = dy, (s * groups + g) * f * p, p, False
            right = x, (s * groups * c + top) * p, p, True
            gemm(blas, (f, k, p), left, right, True, (dw, g * f * c + top - g * c, c))
        if is_point:
            continue
        for s in range(n):
            for row in range(0, high, most):
                window, out, start, many = _band(shapes, axis, row, most)
                _unroll(x, s * groups * c + top, end - top, shapes[0], window, out, many, work)
                left = work, 0, many, False
                right = dy, (s * groups + g) * f * p + start, p, True
                gemm(blas, (k, f, many), left, right, s + row > 0, (work, room, f))
        for i in range(f if n else 0):
            to = (g * f + i) * c * kernel + (top - g * c) * kernel
            for j in range(k):
                dw[at(to + j)] += work[at(room + j * f + i)]
