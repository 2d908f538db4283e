"""Every CUDA kernel that a net can ask for, compiled without a GPU: what it takes of a multiprocessor.

    python examples/benchmarks/kernels.py                        some 10 minutes on 2 CPU cores
    python examples/benchmarks/kernels.py --sm 90 --into /tmp    for one architecture

Needs `pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12`, or `cupy-cuda13x
nvidia-cuda-nvrtc nvidia-cuda-runtime`. Which kernels there are, and for which types, the dry run of the tests
says, which walks every layer, engine and type; the tiles of the implicit product and the other update rules
are added. NVRTC compiles each with the source and options that CuPy is given, and its assembler tells
registers, spilled bytes and shared memory, from which the occupancy follows. Nothing runs: this is no time.
The result goes to results/kernels_cuda.json; `table` makes the Markdown.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nvrtc
from machine import describe
from measure import ROOT, write
from peer_tables import lay_out

from minicaffe.backends.cuda.launch import CTYPES, OPTIONS, THREADS, source
from minicaffe.backends.device import TF32_SINCE
from minicaffe.backends.formulas import RULES
from minicaffe.core.ops.conv.implicit_gemm import CORES, LARGE, SMALL

RESULTS = Path(__file__).resolve().parent / "results"
ARCHITECTURES = {75: "T4", 80: "A100", 90: "H100"}
REGISTERS = 65536  # of a multiprocessor of each of these
WARPS = {75: 32, 80: 64, 90: 64}  # of it, at the most
SHARED = {75: 64 << 10, 80: 164 << 10, 90: 228 << 10}  # bytes of it, at the most
RESERVED = {75: 0, 80: 1 << 10, 90: 1 << 10}  # bytes of them that CUDA takes for each block
NUMBERS = "registers", "stack", "spilled", "shared", "occupancy"  # of a kernel, in bytes
Instance = tuple[str, str]  # a file of kernels, and template arguments


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sm", nargs="+", type=int, choices=ARCHITECTURES, default=[*ARCHITECTURES]
    )
    parser.add_argument("--into", type=Path, help="folder of the result; default: results/")
    args = parser.parse_args()
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
    write((args.into or RESULTS) / "kernels_cuda.json", result)
    spilling = [row for row in rows_of(result) if row["spilled"]]
    for row in spilling:
        print(f"spills {row['spilled']} bytes: {row['kernel']}, sm_{row['sm']}", file=sys.stderr)
    sys.exit(1 if spilling else 0)


def instances(sm: int) -> list[Instance]:
    """All that the code can ask for, of the real CuPy's dry run and of the tiles."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
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

    And the update by all rules, of which the dry run's solver has one.
    """
    made = set()
    for file, template in found:
        if file == "update.cu":
            made |= {(file, f"{template.split(', ')[0]}, {rule}") for rule in RULES}
            continue
        if file != "implicit.cu":
            made.add((file, template))
            continue
        first, second, *_ = template.split(", ")
        cores = [CORES[name] for name, ctype in CTYPES.items() if ctype == first and name in CORES]
        cores = cores if sm >= TF32_SINCE else []
        tiles = SMALL if "double" in (first, second) else (*SMALL, *LARGE)
        for way in ["Fma", *cores]:
            if way == "Fma" and cores and first != "float":
                continue  # 16 bits are multiplied there and nowhere else
            for tm, tn in tiles:
                if way != "Fma" and tm == 1:
                    continue
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
        full = occupancy(built.registers, built.shared, sm)
        rows.append({"file": file, "kernel": name, "sm": sm, **built.dict(), "occupancy": full})
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
            *counts, full = numbers.split()
            found = dict(zip(NUMBERS, [*map(int, counts), float(full)], strict=True))
            rows.append({"file": file, "kernel": kernel, "sm": int(sm), **found})
    return rows


def occupancy(registers: int, shared: int, sm: int) -> float:
    """The share of a multiprocessor's warps that blocks of THREADS threads fill at once.

    A warp takes registers in units of 256, warps are placed four at a time, and a block takes shared memory in
    units of 128 bytes. Source: NVIDIA, CUDA C++ Programming Guide, Compute Capabilities.
    """
    per_block = THREADS // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // 4 * 4 // per_block
    blocks = min(WARPS[sm] // per_block, by_registers)
    taken = -(-shared // 128) * 128 + RESERVED[sm]
    if taken:
        blocks = min(blocks, SHARED[sm] // taken)
    return blocks * per_block / WARPS[sm]


def table(found: dict | None) -> str:
    """A row for each file, and for each tile of the implicit product."""
    if found is None:
        return "Not yet measured."
    parts = defaultdict(list)
    for row in rows_of(found):
        tile = row["kernel"].rstrip(">").split(", ")[2:] if row["file"] == "implicit.cu" else []
        way = "" if not tile or tile[-1] == "Fma" else ", tensor cores"
        parts[f"{row['file']} {' x '.join(tile[:2])}{way}".strip()].append(row)
    sms = sorted({row["sm"] for row in rows_of(found)})
    head = ["", "kernels", "registers", "shared, bytes", "spilled, bytes"]
    head += [f"occupancy, sm_{sm}" for sm in sms]
    body = []
    for name, rows in sorted(parts.items()):
        cells = [str(len({row["kernel"] for row in rows}))]
        cells += [span(row[key] for row in rows) for key in ("registers", "shared", "spilled")]
        for sm in sms:
            full = [round(100 * row["occupancy"]) for row in rows if row["sm"] == sm]
            cells.append(f"{span(full)} %" if full else "-")
        body.append([name, *cells])
    cards = ", ".join(f"sm_{sm} {ARCHITECTURES[sm]}" for sm in sms)
    return lay_out(head, body) + f"\n\nNVRTC {found['nvrtc']}; {cards}."


def span(values: Iterable[int]) -> str:
    """From the least to the most."""
    ordered = sorted(values)
    ends = dict.fromkeys((ordered[0], ordered[-1]))
    return " to ".join(map(str, ends))


if __name__ == "__main__":
    main()
