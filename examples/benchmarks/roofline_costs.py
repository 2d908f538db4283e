"""What an operation of a step costs: bytes moved and floating-point operations, from its arguments alone.

An operation is what `python -m dry_run operations` lists: kind, name, arrays (use, address, shape, type),
numbers by name, grid. Nothing here knows what a kernel computes, but for two small tables: DEPTH, by which
numbers a product is recognized, and PARTS, for kernels that touch a part of a buffer only.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from roofline_instructions import instructions

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
BYTES |= {"uint8": 1, "bool": 1, "uint64": 8}
FAST_TF32 = 77  # cuBLAS's CUBLAS_COMPUTE_32F_FAST_TF32
# A product: its result's sizes and its depth, by the names its kernel gives them.
DEPTH = {("rows", "columns", "depth"): "implicit.cu", ("m", "n", "k"): "cuBLAS"}


@dataclass(frozen=True)
class Row:
    """Equal launches of one kernel: what each moves and computes.

    `turns`: how many entries of its result a thread writes one after the other, where a thread is for each.
    `instructions`: of all its warps, 0 where they are not counted. Of a kernel of ours `blocks` of `threads`,
    and its template arguments; of a product "Tf32" if tensor cores may round what they multiply.
    """

    kind: str
    name: str
    bytes: int
    flops: int
    turns: int = 1
    launches: int = 1
    instructions: int = 0
    blocks: int = 0
    threads: int = 0
    template: str = ""

    @property
    def tf32(self) -> bool:
        """Whether tensor cores multiply its float32."""
        return self.template.endswith("Tf32")

    def line(self) -> str:
        """As the result file has it."""
        numbers = self.launches, self.bytes, self.flops, self.turns
        more = self.instructions, self.blocks, self.threads
        return " ".join([self.kind, self.name, *map(str, (*numbers, *more)), self.template]).strip()


def read(line: str) -> Row:
    """The row of a line of the result file."""
    kind, name, *words = line.split()
    launches, size, flops, turns, *more = map(int, words[:7])
    return Row(kind, name, size, flops, turns, launches, *more, "".join(words[7:]))


def rows(operations: Iterable[dict]) -> list[Row]:
    """Operations, equal ones together, in the order in which they first come."""
    return joined(map(row, operations))


def row(op: dict) -> Row:
    """What one operation costs."""
    block, fast = op.get("block", [0]), op["numbers"].get("computeType") == FAST_TF32
    return Row(
        op["kind"],
        op["name"],
        moved(op),
        flops(op),
        turns(op),
        instructions=instructions(op),
        blocks=math.prod(op["grid"]) if "grid" in op else 0,
        threads=block[0],
        template=op.get("template", "Tf32" if fast else "").replace(" ", ""),
    )


def joined(found: Iterable[Row]) -> list[Row]:
    """Equal rows as one."""
    counts: Counter[Row] = Counter()
    for one in found:
        counts[replace(one, launches=1)] += one.launches
    return [replace(one, launches=times) for one, times in counts.items()]


def sizes(op: dict) -> tuple[int, int, int] | None:
    """Rows, columns and depth of a product, None of anything else."""
    for names in DEPTH:
        if set(names) <= set(op["numbers"]):
            return tuple(op["numbers"][name] for name in names)
    return None


def products(op: dict) -> int:
    """How many products of these sizes a launch is: groups, or the matrices of a stack.

    With strides it is as many products again, together of these sizes: see `rests`.
    """
    numbers = op["numbers"]
    if "batchCount" in numbers:
        return numbers["batchCount"]
    grid = op.get("grid", [1])
    return (grid[2] if len(grid) > 2 else 1) // numbers.get("splits", 1) // rests(op)


def rests(op: dict) -> int:
    """Products of an input gradient with strides: each has some pixels, and some elements of the kernel."""
    return math.prod(op["numbers"].get(stride, 1) for stride in ("sd", "sh", "sw"))


def flops(op: dict) -> int:
    """Of a product 2 x multiply-adds, those with the zeros of a pad too, as they are done.

    Of all others one for each entry of the largest array: an estimate, which no bound here depends on. Fills
    and copies have none.
    """
    if found := sizes(op):
        return 2 * math.prod(found) * products(op) // rests(op)
    if op["kind"] in ("fill", "copy", "upload"):
        return 0
    return max((touched(op, name) for name in op["arrays"]), default=0)


def moved(op: dict) -> int:
    """Bytes: each distinct array once where it is read, and once where it is written.

    As if a kernel read nothing twice and found nothing in a cache. A copy reads and writes its bytes, an
    upload's come from the host and are written.
    """
    if op["kind"] in ("fill", "copy", "upload"):
        return op["numbers"]["size"] * (2 if op["kind"] == "copy" else 1)
    found: dict[tuple[str, int], int] = {}
    for name, array in op["arrays"].items():
        size = touched(op, name) * BYTES[array["dtype"]]
        for use in array["use"]:
            at = use, array["at"]
            found[at] = max(found.get(at, 0), size)
    return sum(found.values())


def turns(op: dict) -> int:
    """Entries that a thread writes one after the other: those of the largest result, by `total` threads."""
    written = [touched(op, name) for name, array in op["arrays"].items() if "w" in array["use"]]
    total = op["numbers"].get("total", 0)
    return max(1, max(written, default=0) // total) if total else 1


def touched(op: dict, name: str) -> int:
    """How many entries of an array a launch reads or writes: all, or the part that PARTS tells of."""
    whole = math.prod(op["arrays"][name]["shape"])
    part = PARTS.get(op["name"], {}).get(name)
    return whole if part is None else min(whole, part(op))


def _of(first: str, second: str) -> Callable[[dict], int]:
    """Of a product's operand, no more than so many entries times so many, in each product."""
    return lambda op: op["numbers"][first] * op["numbers"][second] * products(op)


def _like(other: str) -> Callable[[dict], int]:
    """As many entries as another array has."""
    return lambda op: math.prod(op["arrays"][other]["shape"])


def _of_parts(size: str, each: int = 1) -> Callable[[dict], int]:
    """A number for each of the grid's parts (its second axis), of so many."""

    def part(op: dict) -> int:
        grid = op["grid"]
        return each * op["numbers"][size] * (grid[1] if len(grid) > 1 else 1)

    return part


# Arrays that are larger than what is touched of them: the data set a batch is gathered from; work, of which
# there is enough for every layer; images whose stride leaves entries out.
PARTS: dict[str, dict[str, Callable[[dict], int]]] = {
    "gather": {"images": _like("out"), "labels": _like("out_labels")},
    "implicit": {
        "left": _of("rows", "depth"),
        "entries": _of("columns", "depth"),
        "out": _of("rows", "columns"),
        "partials": lambda op: 2 * op["numbers"]["splits"] * op["numbers"]["part"],  # and read
        "arrived": lambda op: math.prod(op["grid"][:2]),
    },
    "softmax_loss": {
        "losses": lambda op: op["grid"][0],
        "valid": lambda op: op["grid"][0],
        "arrived": lambda op: 1,
    },
    "judge": {"partial": lambda op: op["numbers"]["count"]},
    "sums": {"out": _of_parts("kept")},
    "moments": {"parts": _of_parts("count", 2), "arrived": lambda op: op["grid"][0]},
    "gradients": {"parts": _of_parts("count", 4), "arrived": lambda op: op["grid"][0]},
    "squares": {"partial": lambda op: op["grid"][0]},
}
