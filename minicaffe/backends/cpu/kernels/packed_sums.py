"""The gradient of a weight as sums over places, of tiles that stay in registers; filters fill a vector.

dy is turned, some places at a time, so that filters are neighbours; pixels are read from where they lie.
"""

import numpy as np

from minicaffe.backends.cpu import at, compiled
from minicaffe.backends.cpu.microkernel import ADD, multiply_sparse
from minicaffe.backends.cpu.vector_ir import lanes_of, to_lanes


@compiled
def weight_gradient(x, dy, dw, sizes, where, places, turned, work, first, last):
    """dw += sums over places of dy times x, for the channels first..last.

    sizes are samples, groups, channels and filters of one, pixels of a channel, filters that are turned at a
    time; turned[q] is where those of place q lie. A place's first pixel is at places[p] of a channel, that of
    element t of the kernel at where[t] more. The sums (taps, channels, filters) lie behind what is turned.
    """
    (n, groups, c, f, pixels, width), p, taps = sizes, len(places), len(where)
    vector, steps = lanes_of(x), np.empty((len(turned), 2), np.int32)
    apart, total = -(-f // vector) * vector, len(turned) * width
    for g in range(first // c, (last - 1) // c + 1):
        top, channels = max(first, g * c) - g * c, min(last, (g + 1) * c) - max(first, g * c)
        for q in range(total, total + taps * channels * apart):
            work[at(q)] = 0
        for q in range(0, n * p, len(turned)):
            deep, of_image = min(len(turned), n * p - q), groups * c * pixels
            here = q // p * of_image + (g * c + top) * pixels
            for j in range(deep):
                sample, place = divmod(q + j, p)
                steps[at(j), 0] = (sample - q // p) * of_image + places[at(place)]
                steps[at(j), 1] = turned[at(j)]
            for r in range(0, f, width):
                some, j = min(width, f - r), 0
                while j < deep:  # of one sample after the other
                    sample, place = divmod(q + j, p)
                    count = min(deep - j, p - place)
                    to = ((sample * groups + g) * f + r) * p + place
                    for v in range(0, some, vector):
                        of_v = to + v * p, p, min(vector, some - v), count
                        to_lanes(dy, *of_v, turned, 0, work, j * width + v)
                    j += count
                for t in range(taps):
                    of_x, sums = (x, here + where[t], pixels), total + t * channels * apart + r
                    table, vectors = (steps, 0, deep), -(-some // vector)
                    of_dy, of_dw = (work, 0, width, 0), (work, sums, apart)
                    multiply_sparse(of_x, of_dy, of_dw, table, vectors, channels, ADD, (dw, 0))
        for i in range(f if n else 0):
            for k in range(channels):
                element = ((g * f + i) * c + top + k) * taps
                for t in range(taps):
                    dw[at(element + t)] += work[at(total + (t * channels + k) * apart + i)]
