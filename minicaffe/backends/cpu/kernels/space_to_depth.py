"""Images as planes of flat runs, panels that are read from them, and results that are written from sums.

`plane` tells how images are laid out (see `conv.planes`): (sources, targets) channels of a group, groups; the
image; the step and the pad at which planes take pixels; layers, lines and pitch of a plane; samples, and
those and the lines of a block, bands of a sample; how far samples' planes are apart, elements of work for
them (none: they are the images as they are) and for panels, numbers of a panel's row, its rows, channels that
are laid out at a time. `phases` are the planes of a channel: which pixels of a step each takes. The other
tables are those of `conv.packed_gemm`.
"""

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import clear_vector, lanes_of, mover

_move, _move_second, _move_fourth = mover(1), mover(2), mover(4)


@helper
def block_at(block, plane):
    """The first sample of a block, how many it has, its first line, and 1 if it may be smaller than others."""
    n, samples, band, bands = plane[5]
    s = block // bands * samples
    fewer = s + samples > n if bands == 1 else block % bands == bands - 1
    return s, min(samples, n - s), block % bands * band, int(fewer)


@helper
def lay(x, s, many, g, some, plane, phases, line, work):
    """The planes of some channels of a group, (first, end), of many samples from s on, from a line on."""
    (c, _, groups), (d, h, w), _, _, _, (_, samples, _, _), (apart, room, start, _, _, _) = plane
    first, end = some
    beyond = room - samples * apart - lanes_of(x)  # that lines reach, at the most
    for i in range(many):
        here = (((s + i) * groups + g) * c + first) * d * h * w
        to = _lay(x, here, end - first, plane, phases, line, work, start + i * apart)
        _clear(work, to, to + beyond)


@helper
def _lay(x, start, channels, plane, phases, line, to, k):
    """Channels of an image, from to[k] to before what it returns; pixels that are not there are zeros.

    Each line is written over what those before it wrote too much.
    """
    _, (d, h, w), (sd, sh, sw), (pd, ph, pw), (layers, lines, pitch), _, _ = plane
    for c in range(channels):
        for q in range(len(phases)):
            qd, qh, qw = phases[q, 0] - pd, phases[q, 1] - ph, phases[q, 2] - pw
            begin = min(pitch, max(0, -(qw // sw)))
            end = max(begin, min(pitch, (w - 1 - qw) // sw + 1))
            for z in range(layers):
                for r in range(lines):
                    i, j = z * sd + qd, (line + r) * sh + qh
                    if i < 0 or i >= d or j < 0 or j >= h:
                        _clear(to, k, k + pitch)
                    else:
                        here = start + ((c * d + i) * h + j) * w + qw + begin * sw
                        _clear(to, k, k + begin)
                        stepped(x, here, sw, to, k + begin, end - begin)
                        _clear(to, k + end, k + pitch)
                    k += pitch
    return k


@helper
def _clear(to, first, last):
    """Zeros, by whole vectors: some behind the last, too."""
    for u in range(first, last, lanes_of(to)):
        clear_vector(to, u)


@helper
def stepped(x, here, step, to, place, count):
    """Some numbers, each `step` behind the one before, by whole vectors: if they are few, some more."""
    lanes = lanes_of(x)
    if step not in (1, 2, 4) or here + max(count, lanes) * step > len(x):
        for u in range(count):
            to[at(place + u)] = x[at(here + u * step)]
        return
    for v in range(0, count, lanes):
        u = max(0, min(v, count - lanes))
        if step == 1:
            _move(x, here + u, to, place + u)
        elif step == 2:
            _move_second(x, here + 2 * u, to, place + u)
        else:
            _move_fourth(x, here + 4 * u, to, place + u)


@helper
def gather(x, begin, where, rows, pieces, some, width, panels):
    """Rows (first, end) of a block's panels, all panels' row by row, by its pieces (first, end)."""
    (first, last), (a, e), lanes = rows, some, lanes_of(x)
    to = reach = 0
    for i in range(a, e):
        reach = max(reach, pieces[at(i), 0])
    for k in range(first, last):
        here = begin + where[at(k)]
        if here + reach + lanes > len(x):  # of the last image, where that is the planes
            for i in range(a, e):
                pixel, column = here + pieces[at(i), 0], to + pieces[at(i), 1]
                for u in range(min(lanes, len(x) - pixel)):
                    panels[at(column + u)] = x[at(pixel + u)]
        else:
            for i in range(a, e):
                _move(x, here + pieces[at(i), 0], panels, to + pieces[at(i), 1])
        to += width


@helper
def scatter(sums, start, rows, runs, some, y, to):
    """Columns of sums to their targets y, by some of the runs.

    rows = (how many, how far apart); to = (the first row's targets, how far rows' are apart, and a run's).
    """
    (count, apart), (first, end), (begin, channel, step) = rows, some, to
    for r in range(count):
        for i in range(first, end):
            here = start + r * apart + runs[at(i), 0]
            target = begin + r * channel + runs[at(i), 2]
            if step == 1:
                for j in range(runs[at(i), 1]):
                    y[at(target + j)] = sums[at(here + j)]
            else:
                for j in range(runs[at(i), 1]):
                    y[at(target + j * step)] = sums[at(here + j)]
