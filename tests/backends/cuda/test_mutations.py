"""Faults planted in the kernels' source: what checks the kernels finds each."""

import functools
import re

import kit
import numpy as np
import pytest
from backends.cuda import test_fusion, test_implicit_gemm, test_launch
from core.ops import test_lrn, test_normalize, test_random, test_softmax
from core.ops.cases import blank, close, numbers, put, same
from core.ops.conv import test_depthwise

from minicaffe.backends import device as backend
from minicaffe.backends.cuda import capture, implicit_gemm, launch
from minicaffe.backends.step_constants import Slots
from minicaffe.core.ops import random, update
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.ops.rows import Norm, Past, Statistics, by_channel, statistics, workspace


def sums(cuda, monkeypatch):
    test_implicit_gemm.test_the_bias_has_its_gradient_from_the_same_kernel(
        cuda, monkeypatch, 17, np.float32
    )


def parts(cuda, monkeypatch):
    for _ in range(2):  # what the first leaves behind, the second meets
        test_implicit_gemm.test_parts_of_the_depth_are_summed_apart(
            cuda, monkeypatch, 50, np.float32, "weight_gradient", 1
        )


def tiles(cuda, monkeypatch):
    arrays = test_implicit_gemm.drawn(test_implicit_gemm.LARGE, 1, np.float32)
    monkeypatch.setattr(implicit_gemm, "_share", lambda *_: ((4, 4), 1))
    test_implicit_gemm.check(cuda, test_implicit_gemm.LARGE, arrays)


def packs(cuda, monkeypatch):
    for way in ("1 x 1", "3 x 3"):
        test_implicit_gemm.test_neighbours_are_read_at_once(
            cuda, monkeypatch, way, (4, 4), np.float32
        )


def long_kernels(cuda, monkeypatch):
    test_implicit_gemm.test_kernels_of_more_elements_than_bits(cuda, 1)


def cores(cuda, monkeypatch):
    """Inputs of 16 bits and float32 that is rounded, on tensor cores."""
    device = cuda.of_precision("tf32")
    for way, tile in (("F16", (4, 4)), ("Tf32", (2, 2)), ("Tf32", (4, 8))):
        test_implicit_gemm.test_tensor_cores(cuda, device, monkeypatch, way, tile, 1, "forward")
    test_implicit_gemm.test_tf32_is_rounded_as_it_is_defined(cuda, device)


def three(cuda, monkeypatch):
    """Float32 by three products."""
    monkeypatch.setattr(implicit_gemm, "FAST", range(80, 999))
    test_implicit_gemm.test_three_products_are_float32s(cuda, cuda)


def planes(cuda, monkeypatch):
    """Depthwise convolutions."""
    for way in ("forward", "input_gradient", "weight_gradient"):
        for kernel, stride in ((3, 1), (3, 2)):
            test_depthwise.test_columns_of_cuda_are_summed_in_parts(cuda, way, kernel, stride)


def responses(cuda, monkeypatch):
    """Local response normalisation across channels, of more than one thread's."""
    given = (2, 18, 2, 2), False, 5, 3.0, 0.75, 1.0, np.float64, 1
    test_lrn.test_forward_and_back_against_loops.hypothesis.inner_test(cuda, *given)


def pieces(cuda, monkeypatch):
    test_launch.test_squares_of_a_piece_that_begins_anywhere(cuda, np.float32)


def halves(cuda, monkeypatch):
    test_launch.test_windows_2_x_2_in_images_of_any_size(cuda, monkeypatch, np.float32, "forward")


def totals(cuda, monkeypatch):
    as_numpy(cuda, "sums", np.float64, 1e-12)


def tables(cuda, monkeypatch):
    """Sums longer than a table, all in one and in parts; and gradients of convolutions in strides."""
    a, b, out = numbers(1, (5, 900), (900, 7), (5, 7), dtype=float)
    for work in (None, blank(cuda, 10**4, float)):
        there = [put(cuda, array) for array in (a, b, out)]
        implicit_gemm.product(*there, work)
        close(cuda, there[2], a @ b)
    for stride, pad in (((2, 3), (1, 0)), ((3, 5), (4, 2))):
        g = ConvGeometry(2, 2, (9, 8), 3, Window((3, 4), stride, pad))
        test_implicit_gemm.check(cuda, g, test_implicit_gemm.drawn(g, 1, float))


def rests(cuda, monkeypatch):
    """Input gradients with strides."""
    for way in ("3 x 3", "dilated", "three axes"):
        test_implicit_gemm.test_a_strided_input_gradient_multiplies_what_meets(
            cuda, monkeypatch, test_implicit_gemm.STRIDED[way], 2
        )


def sides(cuda, monkeypatch):
    g = ConvGeometry(2, 4, (3, 7), 4, Window((1, 1)))
    test_implicit_gemm.check(cuda, g, test_implicit_gemm.drawn(g, 1, np.float32))


def losses(cuda, monkeypatch):
    for columns in ((300, 1), (2, 700)):
        test_softmax.test_the_loss_of_many_columns_in_many_blocks(cuda, columns)
    x, ignored = np.zeros((2, 3, 1)), np.full((2, 1), 7.0)
    same(cuda, test_softmax.loss(cuda, x, ignored, 7, counts=True)[0], 0)


def lost(cuda, monkeypatch):
    test_fusion.test_a_loss_goes_on_to_its_gradient(cuda, (5, 7, 3), 2, np.float32)


def masks(cuda, monkeypatch):
    for work in (test_fusion.max_pool, test_fusion.input_gradient):
        test_fusion.test_a_gradient_ends_in_that_of_a_relu(cuda, work, np.float32)


def relu(cuda, monkeypatch):
    test_fusion.test_a_product_ends_in_a_relu(cuda, test_fusion.convolution, np.float32)


def pools(cuda, monkeypatch):
    for name, tile in (("strides", (4, 4)), ("parts", (2, 4))):
        test_fusion.test_a_product_pools_what_it_writes(cuda, monkeypatch, name, tile, np.float32)


def as_numpy(cuda, name, dtype, tolerance):
    """A row of the kernels' table against its NumPy form."""
    results = []
    for device in (cuda, backend.device("cpu")):
        run, written = test_launch.ROWS[name](device, dtype)
        run()
        results.append([device.to_host(array) for array in written])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance)


def rules(cuda, monkeypatch):
    """Entries that go by several rows of numbers."""
    for name in update.FORMS:
        as_numpy(cuda, f"update, {name}", np.float64, 1e-12)


def judged(cuda, monkeypatch):
    as_numpy(cuda, "judge", np.float32, 1e-5)


def drawn(cuda, monkeypatch):
    slots, x, y = Slots(cuda), put(cuda, np.ones(101)), blank(cuda, 101, np.float64)
    mask = random.Mask(slots, (101,))
    mask.draw(0.4, 7, "drop", 3)
    slots.send()
    random.dropout(x, mask, 0.4, y)
    noise = test_random.ref.philox(test_random.ref.random_key(7, "drop", 3), 101)
    same(cuda, mask.kept, noise >= np.float32(0.4))
    np.testing.assert_allclose(cuda.to_host(y), (noise >= np.float32(0.4)) / 0.6)


def norms(cuda, monkeypatch):
    for kind in ("variance", "length"):
        test_normalize.test_long_rows_are_summed_in_parts(cuda, (1, 3, 2, 4000), kind)
    for name in ("whole", "parts"):
        test_fusion.test_a_batch_norm_goes_on_to_what_follows(cuda, monkeypatch, name, np.float16)


def remembered(cuda, monkeypatch):
    shape, sums = (2, 70, 5), [put(cuda, np.ones(n)) for n in (70, 70, 1)]
    rows, norm, x = by_channel(shape), Norm("variance", 0.1), np.random.default_rng(1).random(shape)
    work, past = blank(cuda, workspace(cuda.xp, x.size, rows), np.float64), Past(0.5, 10, *sums)
    found = Statistics.empty(cuda.xp, rows, np.float64)
    statistics(put(cuda, x), rows, norm, found, work, past)
    by = [x.mean(axis=(0, 2)), x.var(axis=(0, 2)) * 10 / 9, 1]
    for mine, new in zip(sums, by, strict=True):
        np.testing.assert_allclose(cuda.to_host(mine), 0.5 + new * np.ones(mine.size))


def held(cuda, monkeypatch):
    """Rows in shared memory."""
    test_launch.test_both_devices_agree(cuda, "resident_moments", np.float32)
    test_fusion.test_a_batch_norm_goes_on_to_what_follows(cuda, monkeypatch, "held", np.float32)


# What goes wrong, in which file, what stands there, what is planted in its place, and the check that finds it.
MUTATIONS = kit.rows(r"""
a missing barrier | implicit | __syncthreads();  // the next slab is there, and this one is used up |  | tiles
a missing barrier of tensor cores | implicit | __syncthreads();  // the next slab is there, and this one is used up |  | cores
a table that is not made anew | implicit | if (row_of_table == 0) | if (next == begin) | tables
a table of the slabs before | implicit | tabulate(next) | tabulate(next == begin ? next : k0) | tables
a slab that is read a stage early | implicit | slab = slabs[which_slab]; | slab = slabs[which_slab ^ 1]; | tiles
a slab written over the one that is read | implicit | slab = slabs[which_slab ^ 1]; | slab = slabs[which_slab]; | tiles
places that have every element | implicit | to.bits |= 1u << bit | to.bits |= 0 | tiles
elements of a column for those of a row | implicit | at_x = axes.d + axes.h + inner | at_x = axes.d + inner | tiles
a row of packs for its neighbour | implicit | / CHUNKS + i * STEP | / CHUNKS + i | tiles
a pack of the k's before | implicit | *(const Pack<T, V>*)at | *(const Pack<T, V>*)(from + mine.at) | packs
a position that is passed over | implicit | && lies(a.x + b.x, w); | && a.x > NOWHERE && b.x > NOWHERE; | long_kernels
a rest of pixels left out | implicit | which % p.sw, | which % p.sw / 2, | rests
elements of every rest | implicit | while (next * each % stride) ++next; |  | rests
elements of another rest | implicit | pixel + place + begin * each) % s | place) % s | rests
the first of the elements for all | implicit | + inner % k.w * step[2] |  | rests
a pixel for its neighbour | implicit | + inner % column.w * p.sw | + inner % column.w | rests
a part that is summed twice | implicit | + (size_t)mine * FAN * step * part; | + (size_t)mine * (FAN - 1) * step * part; | parts
neighbours written where they do not lie side by side | implicit | return number % VN == 0; | return number + 1 > 0; | sides
rows summed but for the first of a slab | implicit | int k = 0; k < SLAB && has_row | int k = 1; k < SLAB && has_row | sums
half a slab left out | implicit | i < COUNT; i += PAIR | i < COUNT / 2; i += PAIR | tiles
a slab that goes on into the next part | implicit | (split + 1) / splits) * | (split + 1) / splits + 1) * | parts
an off-by-one in the split | implicit | units * split / splits) * UNIT | units * split / splits + 1) * UNIT | parts
a wrong offset of the rows' sums | implicit | to[behind + t] | to[row_at + t] | sums
the last few parts of a tree forgotten | implicit | count = (count + FAN - 1) / FAN; | count /= FAN; | parts
counters that are not set back | block | if (last) *arrived = 0; |  | parts
the first to arrive taken for the last | block | == blocks - 1 | == 0 | parts
fragments of the left exchanged | mma | matrix() % 2 * 8 + line()] + matrix() / 2 * 4 | matrix() / 2 * 8 + line()] + matrix() % 2 * 4 | cores
fragments of the right exchanged | mma | BESIDE] + matrix() % 2 * 4 | BESIDE] + 4 - matrix() % 2 * 4 | cores
sums of a lane's columns exchanged | mma | sums[i][j] = d[0], sums[i][j + BESIDE] = d[1] | sums[i][j] = d[1], sums[i][j + BESIDE] = d[0] | cores
a float that is cut off, not rounded | mma | fmaf(power, 0x1p-11f, value) | value + 0 * power | cores
a float that is rounded twice as far | mma | 0x1p-11f | 0x1p-10f | cores
a sum of all slabs that the unit cuts | mma | float d[4] = {0, 0, 0, 0}; | float d[4] = {sums[i][j], sums[i][j + BESIDE], sums[i + 1][j], sums[i + 1][j + BESIDE]}; sums[i][j] = sums[i][j + BESIDE] = sums[i + 1][j] = sums[i + 1][j + BESIDE] = 0; | three
a factor that is cut off | mma | mma_tf32(d, a, low_b); | mma_tf32(d, low_a, low_b); | three
low words of half a slab | mma | Way::rest(d, a[1], both[1]); |  | three
zero times infinity in the low words | mma | d[k] = d[k] == d[k] ? d[k] : 0; |  | three
a NaN that is cut to infinity | mma | *value == *value ? __float_as_uint(*value) : 0x7fffffffu | __float_as_uint(*value) | three
rows that are not moved up | depthwise | window[i][j] = window[i + STRIDE][j]; | window[i][j] = window[i][j]; | planes
rows of a gradient that are not moved up | depthwise | window[i][j] = window[i + 1][j]; | window[i][j] = window[i][j]; | planes
a column outside that is read | depthwise | && (unsigned)(x + j) < (unsigned)w | && (unsigned)(y * w + x + j) < (unsigned)(h * w) | planes
places exchanged in a gradient | depthwise | window[M - 1 - a][M - 1 - b] | window[a][b] | planes
a part left out | depthwise | p < parts && t | p < parts - 1 && t | planes
half a warp's sums | depthwise | int half = 16 | int half = 8 | planes
sums of a warp for all warps | depthwise | sum += of_warps[warp][t] | sum += of_warps[0][t] | planes
a barrier missing before the warps' sums | depthwise | __syncthreads();  // the sums of all warps are there |  | planes
a window that does not move | lrn_across | of[i] = of[i + 1] | of[i] = of[i] | responses
a channel of the next sample | lrn_across | (unsigned)channel < (unsigned)c; | channel >= 0; | responses
a gradient that its place gives to others | lrn_across | direct.of[0] | direct.of[REACH] | responses
what lies before the first pack left out | watch | if (thread < (unsigned)before) add(x[thread]); |  | pieces
packs that are looked at twice | watch | i += AHEAD * threads | i += threads | pieces
every other number of 16 bits lost | mma | (&both)[1] = values[1] | (&both)[1] = values[0] | cores
columns of a warp for its neighbour | mma | / 32 % 4 * 4 * TN | / 32 % 2 * 4 * TN | cores
a ReLU left out | implicit | if (relu && value <= 0) value = 0; |  | relu
two of a row that lie apart | pool | paired = w % 2 == 0 && | paired = | halves
a mask that begins between two | pool | (size_t)mask | (size_t)dx | halves
a zero below zero | pool | 0 + S(dy[window]) | S(dy[window]) | halves
a window of the next row | pool | oy < oh && ox < ow | oy < oh | halves
an entry of the next row | pool | if (2 * ox + 1 < w) |  | halves
four pixels of a row for a window | implicit | * wide + window % | * 2 + window % | pools
the last of equal pixels | implicit | (pair.of[k] > best) | (pair.of[k] >= best) | pools
a bias left out of what is pooled | implicit | finished(sums[i][j + v + k], at + k, row) | O(sums[i][j + v + k]) | pools
a mask that lets zero pass | types | S(mask[at]) > 0 | S(mask[at]) >= 0 | masks
a row of numbers of the neighbours | update | entry < parts | entry + 1 < parts | rules
numbers that are always the first row's | update | parts[2 * part + 1] * columns | 0 | rules
an end of a part within a pack | update | i + many <= (unsigned)parts | i < (unsigned)parts | rules
neighbours that stay in a part | update | while (entry >= (unsigned)parts[2 * part]) ++part; |  | rules
a second history that may lie anywhere | update | (size_t)second) % | 0) % | rules
half a key | random | key[0], key[1] | key[0], key[0] | drawn
a gradient of the sum, not the mean | softmax | dx ? S(*dloss) / S(*normalizer) | dx ? S(*dloss) | lost
ignored labels that learn | nll | label == T(ignore) | label == T(ignore - 1) | lost
a normalizer of zero | softmax | count < 1 && counts == 1 ? 1 : count | count | losses
a loss of one block alone | softmax | __ldcg(losses + i) | __ldcg(losses) | losses
parts of rows that all weigh the same | normalize | size(p) * center_of(p) | center_of(p) | norms
a part's own mean taken for the row's | normalize | apart = center_of(p) - center | apart = center_of(p) - center_of(p) | norms
sums of the part before the last | normalize | __ldcg(from + (size_t)p * 4 * count) | __ldcg(from) | norms
a scale's gradient of what is not rounded | normalize | fma(dy, y ? at.y : plain, all[1]) | fma(dy, plain, all[1]) | norms
a sum with what is not rounded | normalize | end(S(T(value)) + beside, true) | end(value + beside, true) | norms
a lane that is left out | share | e += many * lanes | e += (many + 1) * lanes | norms
rows that are summed before all is there | share | *mine = value;\n    __syncthreads(); | *mine = value; | norms
a variance that is remembered as it is | normalize | rounded(correction, of) | of | remembered
batches that every row counts | normalize | if (row == 0) *batches | *batches | remembered
a warp that is left out | resident | int w = 0; w < WARPS | int w = 1; w < WARPS | held
warps that are summed before all are there | resident | __syncthreads(); |  | held
a block's sum in another's place | resident | &blocks[n][blockIdx.y], t | &blocks[n][t], t | held
a block that is not met behind its sum | resident | return;\n  cluster_meets<K>(); | return; | held
a block that may not have begun | resident | if (K > 1) cluster_meets<K>(); |  | held
the mean of a block's part for the row's | resident | center[0] /= float(outer * inner) | center[0] /= float((share.last - share.first) * V) | held
a pack for the one before | resident | const Many pack = own[p * THREADS] | const Many pack = own[0] | held
a gradient kept where x is | resident | own[packs++ * THREADS + beside] | own[packs++ * THREADS] | held
statistics that every block remembers | resident | blockIdx.y == 0 && threadIdx.x == 0) st | threadIdx.x == 0) st | held
a gradient that every block adds | resident | if (blockIdx.y == 0 && threadIdx.x == 0) { | if (threadIdx.x == 0) { | held
a gradient that a ReLU stops by its neighbour | resident | top.of, v) | top.of, 0) | held
what passes a ReLU is x | resident | passed)[i] = at.of.dy | passed)[i] = at.of.x | held
a scale's gradient of x for y | resident | if (y) at.y = from(y) | if (y) at.y = from(x) | held
a norm of half the blocks | watch | i < count; i += BLOCK | 2 * i < count; i += BLOCK | judged
""")
WITHIN = {
    "mma": "implicit",
    "types": "softmax",
    "block": "softmax",
    "share": "normalize",
    "nll": "softmax",
}
CHECKS = sorted({row.values[-1] for row in MUTATIONS})


@pytest.fixture(autouse=True)
def stand_in(cuda, monkeypatch):
    """Not on a GPU, which may hang in a faulty kernel; in counters that it may leave as it likes."""
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only where a faulty kernel ends")
    monkeypatch.setattr(capture, "_kept", {})


# Behind it all threads read a sum that one alone uses: what the others read then does not matter
OTHERS = {"block": ["  const S sum = shared[0];\n  __syncthreads();"]}
# The checks of the barriers in each file of kernels
BARRIERS = {
    "block": ("losses", "parts", "judged"),
    "depthwise": ("planes",),
    "implicit": ("tiles", "tables", "rests"),
    "resident": ("held",),
    "share": ("norms",),
    "softmax": ("losses", "lost"),
    "sums": ("totals",),
}
BARRIER = re.compile(r".*\n *__syncthreads\(\);.*")  # with the line before


@pytest.mark.long
@pytest.mark.parametrize("file", BARRIERS)
def test_every_barrier_is_needed(cuda, monkeypatch, file):
    """Without it some order of threads computes something else, or is told; see OTHERS for what is not."""
    real, missed = launch.source, []
    monkeypatch.setattr(launch, "kernels", functools.cache(launch.kernels.__wrapped__))
    for place in BARRIER.findall((launch.FOLDER / f"{file}.cu").read_text()):

        def source(name, template, place=place):
            code, names = real(name, template)
            return code.replace(place, place.partition("\n")[0]), names

        monkeypatch.setattr(launch, "source", source)
        if not any(
            _finds(cuda, monkeypatch, order, file) for order in ("forward", "reversed", "random")
        ):
            missed.append(place)
    assert missed == OTHERS.get(file, [])


def _finds(cuda, monkeypatch, order, file):
    launch.kernels.cache_clear()
    monkeypatch.setattr(cuda.xp, "thread_order", order)
    try:
        for check in BARRIERS[file]:
            globals()[check](cuda, monkeypatch)
    except (AssertionError, RuntimeError):
        return True
    return False


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_fault_nothing_is_found(cuda, monkeypatch, check):
    globals()[check](cuda, monkeypatch)


@pytest.mark.parametrize(("fault", "file", "right", "wrong", "check"), MUTATIONS)
def test_a_fault_is_found(cuda, monkeypatch, fault, file, right, wrong, check):
    real = launch.source
    right, wrong = (text.replace("\\n", "\n") for text in (right, wrong))

    def source(name, template):
        code, names = real(name, template)
        return code.replace(right, wrong), names

    # A file that the other includes
    assert right in real(f"{WITHIN.get(file, file)}.cu", "float")[0]
    monkeypatch.setattr(launch, "source", source)
    monkeypatch.setattr(launch, "kernels", functools.cache(launch.kernels.__wrapped__))
    with pytest.raises((AssertionError, RuntimeError)):  # other numbers, or a misaligned address
        globals()[check](cuda, monkeypatch)
