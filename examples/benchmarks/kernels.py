"""Every CUDA kernel that a net can ask for, compiled without a GPU: what it takes of a multiprocessor.

    python examples/benchmarks/kernels.py                        some 10 minutes on 2 CPU cores
    python examples/benchmarks/kernels.py --sm 90 --into /tmp    for one architecture

Needs `pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12`, or `cupy-cuda13x
nvidia-cuda-nvrtc nvidia-cuda-runtime`. Which kernels there are, and for which types, the dry run of the tests
says, which walks every layer, engine and type; the tiles of the implicit product and the other update rules
are added. NVRTC compiles each with the source and options that CuPy is given, and its assembler tells
registers, spilled bytes and shared memory. Nothing runs: this is no time.
The result goes to results/kernels_cuda.json.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

import nvrtc
from machine import describe
from measure import ROOT, parsed, parser, write

from minicaffe.backends.cuda.device import TF32_SINCE
from minicaffe.backends.cuda.implicit_gemm import CORES, FAST, tiles
from minicaffe.backends.cuda.launch import CTYPES, OPTIONS, source
from minicaffe.backends.cuda.moments import CLUSTERS, HOLDING
from minicaffe.backends.formulas import RULES

ARCHITECTURES = (75, 80, 90)  # of a T4, an A100, an H100
NUMBERS = "registers", "stack", "spilled", "shared"  # of a kernel, all but the first in bytes
Instance = tuple[str, str]  # a file of kernels, and template arguments


def main() -> None:
    words = parser(__doc__)
    words.add_argument("--sm", nargs="+", type=int, choices=ARCHITECTURES, default=ARCHITECTURES)
    args = parsed(words)
    if lacking := nvrtc.lacking():
        sys.exit(f"not installed: {', '.join(lacking)}")
    result = {
        "machine": describe(),
        "nvrtc": nvrtc.version(),
        "options": [*OPTIONS, *nvrtc.CUPY],
        "kernels": {},
    }
    for sm in args.sm:
        result["kernels"][str(sm)] = as_lines(compiled(instances(sm), sm))
    write(args.into / "kernels_cuda.json", result)
    spilling = [row for row in rows_of(result) if row["spilled"]]
    for row in spilling:
        print(f"spills {row['spilled']} bytes: {row['kernel']}, sm_{row['sm']}", file=sys.stderr)
    sys.exit(1 if spilling else 0)


def instances(sm: int) -> list[Instance]:
    """All that the code can ask for, of the real CuPy's dry run and of the tiles."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "tools")))
    run = subprocess.run(
        [sys.executable, "-m", "dry_run", "kernels"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return with_tiles(((file, template) for file, template in json.loads(run.stdout)), sm)


def with_tiles(found: Iterable[Instance], sm: int) -> list[Instance]:
    """The same, the implicit product in all tiles that its launcher may choose, by all that multiplies.

    And the update by all rules, of which the dry run's solver has one, and clusters of all sizes.
    """
    made = set()
    for file, template in found:
        if file == "resident.cu" and sm not in HOLDING:
            continue
        if file == "update.cu":
            made |= {(file, f"{template.split(', ')[0]}, {rule}") for rule in RULES}
            continue
        if file != "implicit.cu":
            made.add((file, template))
            continue
        first, second, *_ = template.split(", ")
        if sm in HOLDING and first == second != "double":
            made |= {("resident.cu", f"{first}, {blocks}") for blocks in CLUSTERS}
        kinds = [name for name, ctype in CTYPES.items() if ctype == first]
        kinds = ["tf32", *["high"] * (sm in FAST)] if first == "float" else kinds
        cores = [CORES[kind] for kind in kinds if kind in CORES and sm >= TF32_SINCE]
        for way in ["Fma", *cores]:
            if way == "Fma" and cores and first != "float":
                continue  # 16 bits are multiplied there and nowhere else
            for tm, tn in tiles(way, 8 if "double" in (first, second) else 4):
                for reads in readings(tm, tn):
                    words = first, second, str(tm), str(tn), *reads, way
                    made.add((file, ", ".join(words)))
    return sorted(made)


def readings(tm: int, tn: int) -> list[tuple[str, ...]]:
    """How a tile's numbers are read in y = weight x, in dx, in dweight, in strided dx, of a long kernel."""
    along, across = ("Packs" if many > 3 else "Deep" for many in (tm, tn))
    ways = [
        (along, "Each", "Bits", "false"),
        ("Each", "Each", "Bits", "false"),
        (along, across, "Bits", "false"),
        ("Each", "Each", "Bits", "true"),
    ]
    return [*ways, ("Deep", "Each", "Spot", "false")] if (tm, tn) == (4, 4) else ways


def compiled(of: list[Instance], sm: int) -> list[dict]:
    """What the assembler says of every kernel, compiled by as many processes as there are cores."""
    with ProcessPoolExecutor() as pool:
        found = pool.map(one, of, [sm] * len(of), chunksize=4)
        return [row for rows in found for row in rows]


def one(instance: Instance, sm: int) -> list[dict]:
    """The kernels of an instance."""
    file, template = instance
    expressions, rows = named(instance), []
    code = source(file, template)[0]
    for name, built in zip(expressions, nvrtc.built(code, expressions, OPTIONS, sm), strict=True):
        rows.append({"file": file, "kernel": name, "sm": sm, **built.dict()})
    return rows


def named(instance: Instance) -> list[str]:
    """The kernels of an instance as C++ calls them."""
    file, template = instance
    return [f"{name}<{template}>" for name in source(file, template)[1]]


def as_lines(rows: list[dict]) -> dict[str, str]:
    """Rows of an architecture as the result file has them: by file and kernel, the numbers of NUMBERS."""
    lines = {}
    for row in rows:
        lines[f"{row['file']} {row['kernel']}"] = " ".join(str(row[key]) for key in NUMBERS)
    return lines


def rows_of(result: dict) -> list[dict]:
    """The rows of a result file."""
    rows = []
    for sm, lines in result["kernels"].items():
        for name, numbers in lines.items():
            file, _, kernel = name.partition(" ")
            counts = [int(number) for number in numbers.split()[: len(NUMBERS)]]
            counted = dict(zip(NUMBERS, counts, strict=True))
            rows.append({"file": file, "kernel": kernel, "sm": int(sm), **counted})
    return rows


if __name__ == "__main__":
    main()
