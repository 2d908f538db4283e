"""What the loops of a few CUDA kernels consist of, in machine code, without a GPU.

    python examples/benchmarks/sass.py                        a minute on 2 CPU cores
    python examples/benchmarks/sass.py --sm 90 --into /tmp    for one architecture

Needs `pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-nvdisasm`. NVRTC compiles the kernels
with the options that CuPy gives it, nvdisasm writes down their machine code (SASS), and sass_loops.py finds
the loops.

- The implicit product, in tiles of 128 x 128: which share of the instructions multiplies, in the loop over a
  slab, and in a turn of the loop over all slabs, which also loads the next one. That is counted without the
  tables of k, which are made once in many slabs, and without the sums of `left`.
- normalize.cu: how many instructions an entry takes, at the most, in each loop over entries; and how many
  without a division of integers, where a way without one reads and writes all entries.

Nothing runs: this is a count of code, no time. The result goes to results/sass_cuda.json; `table` makes the
Markdown.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nvrtc
from kernels import readings
from machine import describe
from measure import write
from peer_tables import lay_out
from sass_loops import Block, Loop, counts, divisions, functions, longest, loops, within

from minicaffe.cuda.launch import OPTIONS, source

RESULTS = Path(__file__).resolve().parent / "results"
ARCHITECTURES = 80, 90
TILE = 8, 8  # TM x TN: 128 x 128 entries of a block
DIRECTIONS = "y", "dx of 1 x 1", "dweight", "dx with a stride"  # as `readings` has them
# What multiplies, and how often for each slab: a thread's numbers in float32, a warp's pieces on tensor cores
WAYS = {
    "float, float, Fma": ("FFMA", 16 * TILE[0] * TILE[1]),
    "float, float, Tf32": ("HMMA", TILE[0] * TILE[1] // 2),
    "__half, __half, F16": ("HMMA", TILE[0] * TILE[1] // 2),
}
# The loops over entries, in the order of the code, with an instruction and how often an entry issues it
ENTRIES = {
    "moments": (
        ("sum", "LDG", 1),
        ("sum of squares", "LDG", 1),
        ("y, scaled, and a sum", "STG", 3),
    ),
    "gradients": (("sums, and g", "STG", 1), ("dx", "STG", 1)),
    "normalise": (("y, scaled, and a sum", "STG", 3),),
    "normalise_gradient": (("dx", "STG", 1),),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sm", nargs="+", type=int, choices=ARCHITECTURES, default=[*ARCHITECTURES]
    )
    parser.add_argument("--into", type=Path, help="folder of the result; default: results/")
    args = parser.parse_args()
    if names := lacking():
        sys.exit(f"not installed: {', '.join(names)}")
    result = {
        "machine": describe(),
        "nvrtc": nvrtc.version(),
        "nvdisasm": nvdisasm_version(),
        "options": [*OPTIONS, *nvrtc.CUPY],
        "products": [row for sm in args.sm for row in products(sm)],
        "entries": [row for sm in args.sm for row in entries("float", sm)],
    }
    write((args.into or RESULTS) / "sass_cuda.json", result)


def lacking() -> list[str]:
    """The wheels that are needed and not installed."""
    return nvrtc.lacking() + ([] if nvdisasm() else ["nvidia-cuda-nvdisasm"])


def nvdisasm() -> str | None:
    """NVIDIA's disassembler, of its wheel or of a toolkit."""
    path = nvrtc.wheel("cu13/bin/nvdisasm")
    return str(path) if path else shutil.which("nvdisasm")


def nvdisasm_version() -> str:
    """As `13.5.37`."""
    said = subprocess.run([nvdisasm(), "--version"], capture_output=True, text=True, check=True)
    return re.search(r"V([\d.]+)", said.stdout)[1]


def kernels_of(file: str, template: str, sm: int) -> dict[str, list[Block]]:
    """The machine code of a file's kernels, by their names in it."""
    code, names = source(file, template)
    words, symbols = nvrtc.machine_code(
        code, [f"{name}<{template}>" for name in names], OPTIONS, sm
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as kept:
        Path(kept.name).write_bytes(words)
        command = [nvdisasm(), "--print-code", kept.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_symbol = functions(text)
    return {name: by_symbol[symbol] for name, symbol in zip(names, symbols, strict=True)}


def products(sm: int, ways: tuple[str, ...] = tuple(WAYS)) -> list[dict]:
    """The implicit product of that tile in every direction: what its loops issue, and what multiplies."""
    rows = []
    for way in ways:
        first, second, cores = way.split(", ")
        for direction, reads in zip(DIRECTIONS, readings(*TILE), strict=True):
            template = ", ".join([first, second, *map(str, TILE), *reads, cores])
            (blocks,) = kernels_of("implicit.cu", template, sm).values()
            row = {"kernel": f"implicit<{template}>", "direction": direction, "sm": sm}
            rows.append({**row, **product(blocks, *WAYS[way])})
    return rows


def product(blocks: list[Block], name: str, each_slab: int) -> dict:
    """The loops that multiply by instructions of a name: a slab's, if it has one, and that over all slabs."""
    every = loops(blocks)
    multiply = [loop for loop in every if counts(_of(blocks, loop))[name]]
    over = next(loop for loop in multiply if counts(_of(blocks, loop))["LDG"])
    row, turns, skipped = {"multiplies": name}, {}, within(over, every)
    if (inner := multiply[0]) != over:
        issued = counts(_of(blocks, inner))
        row["inner"] = {"instructions": issued.total(), "multiply": issued[name]}
        turns = {inner.head: each_slab // issued[name]}
        skipped -= inner.blocks
    issued = longest(blocks, over, skipped | _dividing(blocks, over), turns)
    if issued[name] != each_slab:
        raise ValueError(f"a slab has {each_slab} {name}, and {issued[name]} are in its code")
    return {**row, "slab": {"instructions": issued.total(), "multiply": issued[name]}}


def entries(ctype: str, sm: int) -> list[dict]:
    """The loops over entries of normalize.cu: what a turn issues, of how many entries, and how it divides."""
    rows = []
    for kernel, blocks in kernels_of("normalize.cu", ctype, sm).items():
        every = loops(blocks)
        over = [loop for loop in every if not within(loop, every) and _reads(_of(blocks, loop))]
        over.sort(key=lambda loop: loop.head)
        known = ENTRIES.get(kernel)
        if known is None:
            continue
        if len(over) != len(known):
            raise ValueError(f"{kernel} has {len(over)} loops over entries, not {len(known)}")
        for loop, (what, name, each) in zip(over, known, strict=True):
            most = longest(blocks, loop, frozenset(), {})
            plain = longest(blocks, loop, _dividing(blocks, loop), {})
            row = {"kernel": f"{kernel}<{ctype}>", "loop": what, "sm": sm}
            row["entries"], rest = divmod(most[name], each)
            if rest:
                raise ValueError(f"{kernel}, {what}: {most[name]} {name}, {each} for each entry")
            row["divisions"] = divisions(_of(blocks, loop))
            row["at_most"] = most.total()
            as_much = plain["STG"] == most["STG"] and plain["LDG"] >= row["entries"]
            row["without_division"] = plain.total() if as_much else None
            rows.append(row)
    return rows


def _of(blocks: list[Block], loop: Loop) -> list[Block]:
    return [blocks[i] for i in loop.blocks]


def _dividing(blocks: list[Block], loop: Loop) -> frozenset[int]:
    return frozenset(i for i in loop.blocks if divisions([blocks[i]]))


def _reads(blocks: list[Block]) -> bool:
    """Whether they read an array; what other blocks of threads wrote is read by stronger instructions."""
    every = [one for block in blocks for one in block.instructions]
    return any(one.name == "LDG" and "STRONG" not in one.rest for one in every)


def table(result: dict | None) -> str:
    """The products, and the loops over entries, each with its architectures side by side."""
    if result is None:
        return "Not yet measured."
    sms = sorted({row["sm"] for row in result["products"]})
    parts: dict[tuple[str, ...], dict[int, dict]] = {}
    for row in result["products"]:
        template = row["kernel"].rstrip(">").split(", ")
        kind = {"Fma": "float32"}.get(template[-1], f"{template[-1]}, tensor cores")
        parts.setdefault((kind, row["direction"], row["multiplies"]), {})[row["sm"]] = row
    head = ["tile of 128 x 128", "direction", "instruction"]
    head += [f"{what}, sm_{sm}" for what in ("a slab's loop", "a slab") for sm in sms]
    body = [
        [*names, *(_share(by_sm[sm].get(part)) for part in ("inner", "slab") for sm in sms)]
        for names, by_sm in parts.items()
    ]
    text = lay_out(head, body)
    loops_of: dict[tuple[str, ...], dict[int, dict]] = {}
    for row in result["entries"]:
        loops_of.setdefault((row["kernel"].split("<")[0], row["loop"]), {})[row["sm"]] = row
    head = ["kernel", "loop", *(f"entries a turn, sm_{sm}" for sm in sms)]
    for what in ("instructions an entry", "without a division", "divisions in the code"):
        head += [f"{what}, sm_{sm}" for sm in sms]
    body = []
    for names, by_sm in loops_of.items():
        cells = [str(by_sm[sm]["entries"]) for sm in sms]
        for key in ("at_most", "without_division"):
            cells += [_each(by_sm[sm][key], by_sm[sm]["entries"]) for sm in sms]
        cells += [str(by_sm[sm]["divisions"]) for sm in sms]
        body.append([*names, *cells])
    text += "\n\n" + lay_out(head, body)
    return text + f"\n\nNVRTC {result['nvrtc']}, nvdisasm {result['nvdisasm']}."


def _share(part: dict | None) -> str:
    if part is None:
        return "-"
    share = 100 * part["multiply"] / part["instructions"]
    return f"{share:.1f} % ({part['multiply']} of {part['instructions']})"


def _each(number: int | None, entries: int) -> str:
    return "-" if number is None else f"{number / entries:.1f}"


if __name__ == "__main__":
    main()
