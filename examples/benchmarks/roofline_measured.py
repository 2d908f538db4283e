"""What the model says of an H100 beside what was measured: steps, BatchNorm's kernels, our product's tiles.

python examples/benchmarks/roofline_measured.py

The model's times are of roofline_cuda.json, the measured ones of files of earlier runs. They were there before
the model counted waves and instructions: this is no prediction.
"""

import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables
from peer_tables import NOT_YET
from peer_tables import read as result
from roofline_costs import Row, read
from roofline_devices import DEVICES, captured, roofline
from roofline_instructions import WARPS, WORDS, of_slab
from zoo_sizes import NAMES as NETS

GPU = Path(__file__).resolve().parent / "results" / "gpu"
DEVICE = DEVICES["h100"]
STEPS = {  # a part of the model's result: how it is called, and in nets_h100.json
    "captured": ("minicaffe", "minicaffe, auto"),
    "captured_tf32": ("minicaffe, TF32", "minicaffe, auto, TF32"),
    "torch": ("PyTorch", "torch, graph"),
    "torch_tf32": ("PyTorch, TF32", "torch, TF32, graph"),
}
MULTIPLIERS = {"Fma": "float32", "Tf32": "TF32"}
LINE = re.compile(r"([\d.]+) us +([\d.]+) x void (moments|gradients)<float>.*\[(\d+), 1, 1\]")


def beside(model: dict | None) -> str:
    """All three tables."""
    if model is None:
        return NOT_YET
    return "\n\n".join([steps(model), batch_norm(model), products()])


def steps(model: dict) -> str:
    """ms of a step."""
    body = []
    for name, part in model["nets"].items():
        for key, (who, _) in STEPS.items():
            if ms := measured(name, part["batch"], key):
                modelled = captured(map(read, part[key]), DEVICE)
                title = f"{NETS[name]}, {part['batch']}: {who}"
                body.append([title, *_pair(modelled, ms)])
    return tables.lay_out(_head("ms of a step"), body)


def measured(name: str, batch: int, key: str) -> float | None:
    """ms of a step on an H100, None if there is none; LeNet's is that of the paper's tables."""
    if name == "lenet_paper":
        paper = tables.read("cuda")
        rates = paper["table3"].get(str(batch), {}).get("rates", {}) if paper else {}
        return 1e3 / rates["auto"]["median"] if key == "captured" and "auto" in rates else None
    runs = json.loads((GPU / "nets_h100.json").read_text())
    what, step = STEPS[key][1], f"{name}, {batch}"
    both = runs["ms a training step, before that day's kernel"], runs["ms a training step"]
    return {**both[0].get(step, {}), **both[1].get(step, {})}.get(what)


def batch_norm(model: dict) -> str:
    """us of a launch of BatchNorm's kernels in ResNet-50, by the number of their blocks."""
    rows = defaultdict(list)
    for row in map(read, model["nets"]["resnet50"]["captured_tf32"]):
        rows[row.name, row.blocks] += [roofline(row, DEVICE)] * row.launches
    body = []
    for us, launches, name, blocks in sorted(profiled(), key=lambda one: one[2:]):
        modelled = rows[name, blocks]
        if len(modelled) == launches:
            pair = _pair(statistics.mean(modelled), us / launches)
            body.append([f"`{name}`, {blocks:,} blocks, {launches}", *pair])
    return tables.lay_out(_head("us of a launch: ResNet-50, 32, kernel, launches"), body)


def profiled() -> Iterator[tuple[float, int, str, int]]:
    """us, launches, kernel and blocks, as CUPTI told of ResNet-50's step with TF32."""
    text = (GPU / "fifth.txt").read_text()
    part = text.split("resnet50 32 {'precision': 'tf32'}")[1].split("resnet50 32 {}")[0]
    for us, launches, name, blocks in LINE.findall(part):
        yield float(us), round(float(launches)), name, int(blocks)


def products() -> str:
    """The model of `implicit` against every tile that was timed for convolutions of ResNet-50 and LeNet."""
    body = []
    for way, title in MULTIPLIERS.items():
        ratios, fastest = [], []
        for product in json.loads((GPU / "tiles_h100.json").read_text()):
            if product["by"] != way:
                continue
            these = [
                roofline(tile(product["sizes"], *of, product["way"], way), DEVICE) / us
                for us, *of in product["all"]
            ]
            fastest.append(these[0])
            ratios += these
        cells = [f"{statistics.geometric_mean(part):.2f}x" for part in (fastest, ratios)]
        cells += [f"{min(ratios):.2f}x", f"{max(ratios):.2f}x"]
        body.append([f"{title}: {len(fastest)} products, {len(ratios)} tiles", *cells])
    head = ["`implicit`, modelled : measured", "fastest tiles, mean", "all, mean", "least", "most"]
    return tables.lay_out(head, body)


def tile(sizes: list[int], shape: list[int], splits: int, direction: str, way: str) -> Row:
    """A launch of the product with a tile; what it reads is as in most layers, entries' bytes left out.

    >>> row = tile([128, 25088, 1152], [8, 8], 1, "forward", "Tf32")
    >>> row.blocks, row.instructions  # Nsight Compute counted 33.8 million
    (196, 33778483)
    """
    (rows, columns, depth), (tm, tn) = sizes, shape
    left, right = ("Packs", "Each") if direction == "forward" else ("Deep", "Each")
    if direction == "dW":
        left, right = "Packs", "Deep"
    blocks = -(-columns // (16 * tn)) * -(-rows // (16 * tm)) * splits
    slabs = -(-depth // (WORDS * splits))
    return Row(
        "kernel",
        "implicit",
        4 * (rows * depth + rows * columns),
        2 * rows * columns * depth,
        instructions=round(blocks * WARPS * slabs * of_slab(tm, tn, left, right, way)),
        blocks=blocks,
        threads=32 * WARPS,
        template=f"float,float,{tm},{tn},{left},{right},Bits,false,{way}",
    )


def _head(what: str) -> list[str]:
    return [what, "modelled", "measured", "modelled : measured"]


def _pair(modelled: float, ms: float) -> list[str]:
    return [f"{modelled:.3g}", f"{ms:.3g}", f"{modelled / ms:.2f}x"]


if __name__ == "__main__":
    print(beside(result("roofline", "cuda")))
