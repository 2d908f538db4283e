"""Convolution as a packed GEMM: panels of a few vectors of places, multiplied by tiles of weights.

`plane` and `phases` are the layout of the sources (`cpu.kernels.space_to_depth`). `target` is that of targets:
the distances from line to line, from target to target, and from channel to channel; and of the weight, the
elements of a group, and the distance from target to target. The other tables are those of `conv.packed_gemm`.
Columns that are left and would fill little of a vector are summed along the elements of the kernel instead. In
a `sparse` product, that of dx, the weights of a target are no neighbours. Where the columns of a 1 x 1
convolution are whole vectors of an image, it is read as it is, without panels.
"""

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels.filters import pool, rectify
from minicaffe.backends.cpu.kernels.space_to_depth import block_at, gather, lay, scatter
from minicaffe.backends.cpu.microkernel import (
    ADD,
    BIAS,
    COLUMNS,
    ROWS,
    ZERO,
    add_sums,
    multiply,
    multiply_sparse,
)
from minicaffe.backends.cpu.vector_ir import lanes_of, to_lanes

CHUNK = 8 * ROWS  # channels of targets computed from one panel before the next


@compiled
def correlate(
    epilogue, y, x, w, bias, plane, target, parts, phases, tables, sparse, left, work, first, last
):
    """Writes targets y of sources x: a unit is one of `parts` of a group's channels, for a block of places."""
    (c, f, groups), (d, h, wide), _, _, _, _, (_, room, start, width, depth, laid) = plane
    jobs, steps, where, blocks, pieces, runs = tables
    (line, step, places), (group, row) = target
    before, tiles, vector = -1, -(-f // ROWS), lanes_of(x)
    for unit in range(first, last):
        part, which = unit % parts, unit // parts
        g, (s, many, top, fewer) = which % groups, block_at(which // groups, plane)
        if room and which != before and laid == c:
            lay(x, s, many, g, (0, c), plane, phases, top, work)
            before = which
        here = ((s * groups + g) * c * d * h + top) * wide
        r, stop = tiles * part // parts * ROWS, min(f, tiles * (part + 1) // parts * ROWS)
        to = ((s * groups + g) * f + r) * places + top * line
        for j in range(len(jobs)):
            columns, p, end, a, e = blocks[2 * j + fewer]
            few = columns % vector  # to be summed
            if few > len(left[0]):
                few = 0
            vectors = -(-(columns - few) // vector)
            straight = e - a == 1 and step == 1 and columns == vectors * vector + few
            if straight:  # targets are one run of whole vectors, and few more
                results, begins, apart = y, to + runs[a, 2], places
            else:
                results, begins, apart = work, start + room, (vectors + (few > 0)) * vector
            as_it_is = straight and many == 1 and not (room or sparse) and row == c  # of 1 x 1
            to_gather = end - (few > 0) if as_it_is else p
            turned = start - len(left[0]) * depth
            k, ke = jobs[j]
            begin = BIAS if bias.size else ZERO
            while True:  # once at the least: targets that see nothing are 0
                deep = min(k + depth, ke)
                if room and laid < c:  # there is one job
                    channel = k // depth * laid
                    of_them = channel, min(channel + laid, c)
                    lay(x, s, many, g, of_them, plane, phases, top, work)
                if room:
                    gather(work, start, where, (k, deep), pieces, (p, end), width, work)
                elif to_gather < end:
                    gather(x, here, where, (k, deep), pieces, (to_gather, end), width, work)
                if few:
                    from_ = -(-vectors // COLUMNS) * (depth * width + vector)  # behind all tiles
                    _turn_columns(work, from_, width, few, deep - k, turned, depth)
                for t in range(r, stop, CHUNK):
                    some, numbers = min(CHUNK, stop - t), (bias, g * f + t)
                    of_w = w, g * group + t * row + (0 if sparse else k), row
                    panel = work, 0, width, depth * width + vector
                    result = results, begins + (t - r) * apart, apart
                    if sparse:
                        table = steps, k, deep
                        multiply_sparse(of_w, panel, result, table, vectors, some, begin, numbers)
                        continue
                    if as_it_is:
                        panel = x, here + where[k] + pieces[p, 0], d * h * wide, 0
                    multiply(of_w, panel, result, deep - k, vectors, some, begin, numbers)
                    if few:
                        result = results, begins + (t - r) * apart + columns - few, apart
                        if begin != ADD:
                            _fill(result, (some, few), numbers, begin)
                        of_columns, of_steps = (left[0], 0, few), (left[1], 0, (deep - k) // vector)
                        add_sums(result, (work, turned), of_w, of_columns, of_steps, some)
                k, begin = deep, ADD
                if k >= ke:
                    break
            if not straight:
                scatter(work, begins, (stop - r, apart), runs, (a, e), y, (to, places, step))
            for i in range(stop - r if epilogue[0] else 0):
                start_of_row = to + i * places
                for q in range(a, e):
                    rectify(y, start_of_row + runs[q, 2], runs[q, 1], epilogue)
                begin_of_row = runs[a, 2]
                end_of_row = runs[e - 1, 2] + runs[e - 1, 1]
                pool(start_of_row + begin_of_row, end_of_row - begin_of_row, epilogue)


@helper
def _fill(result, sizes, bias, begin):
    """What sums of so many rows and columns begin with: see ZERO and BIAS."""
    (sums, start, apart), (rows, columns), (numbers, first) = result, sizes, bias
    for i in range(rows):
        for q in range(columns):
            number = numbers[at(first + i)] if begin == BIAS else sums.dtype.type(0)
            sums[at(start + i * apart + q)] = number


@helper
def _turn_columns(panels, start, width, some, count, to, apart):
    """Some columns of a panel, the first at `start`, as rows of `count` numbers, `apart` from each other."""
    for q in range(count):
        for j in range(some):
            panels[at(to + j * apart + q)] = panels[at(start + q * width + j)]


@compiled
def weight_gradient(x, dy, dw, plane, target, phases, tables, turned, work, first, last):
    """dw += sums over places of dy times x, for the channels first..last.

    Here filters fill a vector. dy is transposed into the panel, len(turned) columns at a time, and the pixels
    of the planes take the place of the weights. The sums (taps, channels, filters) lie behind the planes.
    """
    (c, f, groups), (d, h, wide), _, _, (layers, lines, pitch), (n, samples, _, bands), more = plane
    (_, room, start, width, _, _), (where, steps, blocks, runs) = more, tables
    (line, _, places), (_, row) = target
    vector, taps, size = lanes_of(x), len(where), layers * lines * pitch * len(phases)
    apart, total = -(-f // vector) * vector, start + room
    for g in range(first // c, (last - 1) // c + 1):
        top, stop = max(first, g * c) - g * c, min(last, (g + 1) * c) - g * c
        channels = stop - top
        for q in range(total, total + taps * channels * apart):
            work[at(q)] = 0
        for block in range(-(-n // samples) * bands):
            s, many, begun, fewer = block_at(block, plane)
            if room:
                lay(x, s, many, g, (top, stop), plane, phases, begun, work)
                source, pixels = work, start
            else:
                source, pixels = x, (((s * groups + g) * c + top) * d * h + begun) * wide
            to = (s * groups + g) * f * places + begun * line
            column, end, a, e = blocks[fewer]
            for q in range(column, end, len(turned)):
                deep, columns = min(q + len(turned), end), (runs, a, e, q - column)
                for r in range(0, f, width):
                    some = min(width, f - r)
                    _turn(dy, to + r * places, places, some, columns, deep - q, turned, width, work)
                    for t in range(taps):
                        multiply_sparse(
                            (source, pixels + where[t], size),
                            (work, 0, width, 0),
                            (work, total + t * channels * apart + r, apart),
                            (steps, q, deep),
                            -(-some // vector),
                            channels,
                            ADD,
                            (dw, 0),
                        )
        for i in range(f if n else 0):
            for k in range(channels):
                element = (g * f + i) * row + (top + k) * taps
                for t in range(taps):
                    dw[at(element + t)] += work[at(total + (t * channels + k) * apart + i)]


@helper
def _turn(dy, to, places, filters, columns, count, turned, width, work):
    """panel[q, l] = dy of filter l at column first + q of a block, for q < count.

    columns = (runs, the block's first run, the end of its runs, `first`); filters are `places` apart.
    """
    (runs, a, e, first), vector = columns, lanes_of(dy)
    for v in range(0, filters, vector):
        for i in range(a, e):
            begin = max(first, runs[at(i), 0])
            end = min(first + count, runs[at(i), 0] + runs[at(i), 1])
            if begin < end:
                here = to + v * places + runs[at(i), 2] + begin - runs[at(i), 0]
                column, some = (begin - first) * width + v, min(vector, filters - v)
                to_lanes(dy, here, places, some, end - begin, turned, 0, work, column)
