"""How many instructions warps execute in a launch, of the kernels for which that is counted.

Of all others 0: their bytes bound them. The counts are those of sm_90, and are taken for every device:

    implicit    of a slab of the depth, by a warp. The inner loop of the tile 8 x 8 has 142 instructions for
                128 FFMA (SASS); Nsight Compute counted 1,333 of a slab, 299 by TF32, 404 by float16
                (results/gpu/fifth.txt). What is beyond products and their operands is put down to the numbers
                that a thread brings: BESIDES for each, and READ by how they lie, as loops in SASS differ.
    moments     of 32 entries, at the most: 13 and 12 in two sums, 98 for what becomes of the entries (SASS)
    gradients   of 32 entries, at the most: 99 and 70 in its two loops (SASS). Both without the divisions that
                a row of whole channels jumps over, but with both sides of other branches

What blocks do at their begin and end is left out.
"""

import math

BESIDES = {"Fma": 14.3, "Tf32": 15.7, "F16": 22.2, "Bf16": 22.2}
READ = {"Packs": 0, "Each": 2, "Deep": 4}
PER_ENTRY = {"moments": ("x", 123), "gradients": ("dy", 169)}  # of the entries of an array
WARPS, WORDS = 8, 16  # of a block of the implicit product; of a slab, numbers or pairs of 16 bits


def instructions(op: dict) -> int:
    """Of all warps of a launch."""
    if op["name"] == "implicit":
        words, numbers = op["template"].split(", "), op["numbers"]
        at_once = WORDS * (2 if words[-1] in ("F16", "Bf16") else 1)
        strides = math.prod(
            numbers.get(name, 1) for name in ("sd", "sh", "sw")
        )  # each rest has a part of k
        slabs = math.ceil(numbers["depth"] / strides / at_once / numbers["splits"])
        each = of_slab(int(words[2]), int(words[3]), words[4], words[5], words[-1])
        return round(math.prod(op["grid"]) * WARPS * slabs * each)
    if op["name"] in PER_ENTRY:
        of, each = PER_ENTRY[op["name"]]
        return math.prod(op["arrays"][of]["shape"]) * each // 32
    return 0


def of_slab(tm: int, tn: int, left: str, right: str, way: str) -> float:
    """Of a warp and a slab, whose threads keep tm x tn sums and bring tm and tn numbers.

    >>> of_slab(8, 8, "Packs", "Each", "Fma"), of_slab(8, 8, "Packs", "Each", "Tf32")
    (1332.8, 299.2)
    """
    packs = math.ceil(tm / 4) + math.ceil(tn / 4)  # of four operands, each read at once
    mma = tm * tn // 2  # of 16 x 8 x 8, or of 16 x 8 x 16 of 16 bits
    products = WORDS * (tm * tn + packs) if way == "Fma" else mma
    return products + BESIDES[way] * (tm + tn) + READ[left] * tm + READ[right] * tn
