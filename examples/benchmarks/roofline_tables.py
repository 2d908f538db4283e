"""Markdown of what roofline.py wrote, made from its result file alone.

python examples/benchmarks/roofline_tables.py
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from peer_tables import NOT_YET
from peer_tables import read as result
from roofline_costs import Row, read
from roofline_devices import DEVICES, LAUNCH, NODE, captured, ideal, launched
from tables import NAMES, PAPER_MS, PAPER_RATES, lay_out
from zoo_sizes import NAMES as NETS

SHOWN = "a100_80"  # the device whose roofline the kernels are ordered by


def of(lines: list[str]) -> list[Row]:
    """The rows of a part of the result file."""
    return [read(line) for line in lines]


def devices() -> str:
    """What is published of each device."""
    rows = [
        [one.name, f"{one.tflops:g}", f"{one.gbs:,.0f}", one.source] for one in DEVICES.values()
    ]
    return lay_out(["published", "TFLOP/s, float32", "GB/s", "source"], rows)


def steps(found: dict | None) -> str:
    """A step's launches, bytes and arithmetic, and the bound on each device, beside PyTorch's."""
    if found is None:
        return NOT_YET
    counts, bounds = [], []
    for name, net in found["nets"].items():
        title = f"{NETS[name]}, {net['batch']}"
        ours, graphs, theirs = (of(net[who]) for who in ("minicaffe", "captured", "torch"))
        cells = [title]
        for value in (launches, gigabytes, gigaflops):
            cells += [value(rows) for rows in (ours, graphs, theirs)]
        counts.append(cells)
        ways: dict[str, Callable] = {
            "roofline": ideal,
            "launched": launched,
            "in graphs": captured,
        }
        for way, bound in ways.items():
            mine = graphs if way == "in graphs" else ours
            cells = [f"{title}: {way}"]
            for device in DEVICES.values():
                a, b = bound(mine, device), bound(theirs, device)
                cells.append(f"{a:.3g}, {b:.3g} ({b / a:.2f}x)")
            bounds.append(cells)
    head = [
        "modelled: net, batch",
        *("launches", "in graphs", "PyTorch's"),
        *("GB", "in graphs", "PyTorch's"),
        *("GFLOP", "in graphs", "PyTorch's"),
    ]
    text = lay_out(head, counts)
    head = [
        "modelled, ms of a step: minicaffe, PyTorch (ratio)",
        *(device.name for device in DEVICES.values()),
    ]
    return f"{text}\n\n{lay_out(head, bounds)}\n\n{devices()}\n\n{note(found)}"


def note(found: dict) -> str:
    """What the numbers rest on."""
    return (
        f"Modelled, not measured: engine `{found['engine']}`, float32. "
        f"Floors: {LAUNCH:g} us a launch, {NODE:g} us a kernel in a graph."
    )


def launches(rows: list[Row]) -> str:
    """How many."""
    return f"{sum(row.launches for row in rows):,}"


def gigabytes(rows: list[Row]) -> str:
    """Of all launches."""
    return f"{sum(row.launches * row.bytes for row in rows) / 1e9:.3g}"


def gigaflops(rows: list[Row]) -> str:
    """Of all launches."""
    return f"{sum(row.launches * row.flops for row in rows) / 1e9:.3g}"


def kernels(found: dict | None) -> str:
    """Each kernel in each net: launches, bytes, flops; those first that take the longest on one device."""
    if found is None:
        return NOT_YET
    by_name: dict[str, dict[str, list[Row]]] = defaultdict(dict)
    head = ["modelled: kernel"]
    for name, net in found["nets"].items():
        head += [f"{NETS[name]}: launches", "MB", "GFLOP"]
        for row in of(net["minicaffe"]):
            by_name[row.name].setdefault(name, []).append(row)
    device = DEVICES[SHOWN]

    def longest(kernel: str) -> float:
        return -sum(ideal(rows, device) for rows in by_name[kernel].values())

    body = []
    for kernel in sorted(by_name, key=longest):
        body.append([kernel])
        for name in found["nets"]:
            rows = by_name[kernel].get(name, [])
            size, work = (
                sum(row.launches * getattr(row, what) for row in rows)
                for what in ("bytes", "flops")
            )
            cells = [launches(rows), f"{size / 1e6:,.3f}", f"{work / 1e9:,.3f}"]
            body[-1] += cells if rows else ["", "", ""]
    return f"{lay_out(head, body)}\n\nModelled, not measured; ordered by the roofline of an {device.name}."


def paper(found: dict | None) -> str:
    """Tables 3 and 4 as the model has them for the K80, beside the paper's."""
    if found is None:
        return NOT_YET
    return f"{table3(found)}\n\n{table4(found)}\n\n{paper_note()}"


def table3(found: dict) -> str:
    """Iterations a second."""
    batches = list(PAPER_RATES["caffe"])
    ms, work = {}, {}
    for engine, steps in found["table3"].items():
        work[engine] = [of(steps[n]) for n in batches]
        ms["paper", engine] = [1e3 / PAPER_RATES[engine][n] for n in batches]
    rows = compared(ms, work, rate=True)
    return lay_out(["Table 3: iterations/s, batch", *batches], rows)


def table4(found: dict) -> str:
    """Milliseconds of the convolutions, and what the loop-free lowering saves a sample."""
    passes = list(PAPER_MS["caffe"])
    ms, work = {}, {}
    for engine, of_it in found["table4"].items():
        work[engine] = [of(of_it[one]) for one in passes]
        ms["paper", engine] = [PAPER_MS[engine][one] for one in passes]
    rows = compared(ms, work)
    batch = found["batch"]
    for who, said in (("model, waited for", "waited"), ("paper", "paper")):
        saved = [a - b for a, b in zip(ms[said, "caffe"], ms[said, "loopfree"], strict=True)]
        rows.append([f"saved a sample, us: {who}", *(f"{1e3 * one / batch:.1f}" for one in saved)])
    return lay_out([f"Table 4: ms, batch {batch}", *passes], rows)


def compared(
    ms: dict[tuple[str, str], list[float]], work: dict[str, list[list[Row]]], rate: bool = False
) -> list[list[str]]:
    """The rows that both tables have; the model's times are put beside the paper's, in `ms`."""
    device = DEVICES["k80"]
    for engine, columns in work.items():
        ms["launched", engine] = [launched(rows, device) for rows in columns]
        ms["waited", engine] = [launched(rows, device, waited=True) for rows in columns]
    said = {"launched": "model", "waited": "model, each launch waited for", "paper": "paper"}
    body = []
    for who, title in said.items():
        pairs = zip(ms[who, "caffe"], ms[who, "loopfree"], strict=True)
        ratios = (f"{a / b:.2f}x" for a, b in pairs)
        body.append([f"loop-free lowering : Caffe's, {title}", *ratios])
    for engine in work:
        for who, title in said.items():
            shown = (f"{1e3 / one:.1f}" if rate else f"{one:.2f}" for one in ms[who, engine])
            body.append([f"{NAMES[engine]}, {title}", *shown])
        body.append([f"{NAMES[engine]}: launches", *map(launches, work[engine])])
        pairs = zip(ms["paper", engine], work[engine], strict=True)
        each = (f"{1e3 * one / sum(row.launches for row in rows):.1f}" for one, rows in pairs)
        body.append([f"{NAMES[engine]}: the paper's us for each of these", *each])
    return body


def paper_note() -> str:
    """What the K80's numbers rest on."""
    device = DEVICES["k80"]
    return (
        f"Modelled, not measured, except the paper's figures: {device.name}, {device.tflops:g} TFLOP/s, "
        f"{device.gbs:g} GB/s, {LAUNCH:g} us a launch, {device.latency:g} ns from a load to its store."
    )


def main() -> None:
    found = result("roofline", "cuda")
    print("\n\n".join([steps(found), kernels(found), paper(found)]))


if __name__ == "__main__":
    main()
