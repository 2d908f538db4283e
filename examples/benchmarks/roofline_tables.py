"""Markdown of what roofline.py wrote, made from its result file alone.

python examples/benchmarks/roofline_tables.py
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from peer_tables import NOT_YET
from peer_tables import read as result
from roofline_costs import Row, read
from roofline_devices import DEVICES, LAUNCH, NODE, NOW, bounds, captured, ideal, launched
from tables import NAMES, PAPER_MS, PAPER_RATES, lay_out
from zoo_sizes import NAMES as NETS

SHOWN = "h100"  # the device of the tables that show one
PRECISIONS = {"": "float32", "_tf32": "TF32"}  # by the end of a key in the result


def of(lines: list[str]) -> list[Row]:
    """The rows of a part of the result file."""
    return [read(line) for line in lines]


def devices() -> str:
    """What is published of each device."""
    rows = []
    for one in DEVICES.values():
        more = [
            f"{value:g}" if value else "" for value in (one.tf32, one.multiprocessors, one.clock)
        ]
        rows.append([one.name, f"{one.tflops:g}", f"{one.gbs:,.0f}", *more, one.source])
    head = ["published", "TFLOP/s, float32", "GB/s", "TFLOP/s, TF32", "multiprocessors", "GHz"]
    return lay_out([*head, "source"], rows)


def steps(model: dict | None) -> str:
    """A step's launches, bytes, arithmetic; its time on each device beside PyTorch's; what bounds it."""
    if model is None:
        return NOT_YET
    return "\n\n".join([counts(model), times(model), bounding(model), devices(), note(model)])


def counts(model: dict) -> str:
    """Launches, bytes, arithmetic."""
    body = []
    for name, net in model["nets"].items():
        cells = [f"{NETS[name]}, {net['batch']}"]
        for value in (launches, gigabytes, gigaflops):
            cells += [value(of(net[who])) for who in ("minicaffe", "captured", "torch")]
        body.append(cells)
    parts = ("launches", "in graphs", "PyTorch's"), ("GB", "in graphs", "PyTorch's")
    head = ["modelled: net, batch", *parts[0], *parts[1], "GFLOP", *parts[1][1:]]
    return lay_out(head, body)


def times(model: dict) -> str:
    """ms of a step in graphs, of minicaffe and of PyTorch's kernels."""
    body = []
    for name, net in model["nets"].items():
        for end, precision in PRECISIONS.items():
            cells = [f"{NETS[name]}, {net['batch']}: {precision}"]
            for device in NOW.values():
                ours, theirs = (
                    captured(of(net[f"{who}{end}"]), device) for who in ("captured", "torch")
                )
                able = not end or device.tf32
                cells.append(f"{ours:.3g}, {theirs:.3g} ({theirs / ours:.2f}x)" if able else "")
            body.append(cells)
    head = ["modelled, ms of a step: minicaffe, PyTorch (ratio)"]
    return lay_out([*head, *(device.name for device in NOW.values())], body)


def bounding(model: dict) -> str:
    """The shares of minicaffe's time by what bounds it."""
    body = []
    for name, net in model["nets"].items():
        for end, precision in PRECISIONS.items():
            cells = [f"{NETS[name]}: {precision}"]
            for device in NOW.values():
                shares = bounds(of(net[f"captured{end}"]), device)
                whole = sum(shares.values()) if not end or device.tf32 else math.inf
                ordered = sorted(shares.items(), key=lambda one: -one[1])
                largest = [
                    f"{what} {ms / whole:.0%}" for what, ms in ordered if ms / whole >= 0.045
                ]
                cells.append(", ".join(largest))
            body.append(cells)
    return lay_out(
        ["modelled: what bounds a step", *(device.name for device in NOW.values())], body
    )


def note(model: dict) -> str:
    """What the numbers rest on."""
    return (
        f"Modelled, not measured: engine `{model['engine']}`, each step one CUDA graph. "
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
    total = sum(row.launches * row.flops for row in rows) / 1e9
    return f"{total:,.0f}" if total >= 100 else f"{total:.3g}"


def kernels(model: dict | None) -> str:
    """Each kernel in each net: launches and ms on one device; those first that take the longest."""
    if model is None:
        return NOT_YET
    device, nets = DEVICES[SHOWN], model["nets"]
    by_name: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for name, net in nets.items():
        for row in of(net["captured"]):
            by_name[row.name][name].append(row)

    def ms(rows: list[Row]) -> float:
        return captured(rows, device) - LAUNCH / 1e3

    body = []
    for kernel, of_nets in sorted(by_name.items(), key=lambda one: -sum(map(ms, one[1].values()))):
        cells = [kernel]
        for name in nets:
            rows = of_nets.get(name)
            cells += [launches(rows), f"{ms(rows):,.3f}"] if rows else ["", ""]
        body.append(cells)
    head = ["modelled: kernel in graphs"]
    for name in nets:
        head += [f"{NETS[name]}: launches", "ms"]
    return f"{lay_out(head, body)}\n\nModelled, not measured: {device.name}, float32."


def channels_last(model: dict | None) -> str:
    """What another layout would bring to the nets that were modelled in it too."""
    if model is None:
        return NOT_YET
    device, body = DEVICES[SHOWN], []
    for name, net in model["nets"].items():
        for end, precision in PRECISIONS.items():
            if f"channels_last{end}" not in net:
                continue
            now, then = of(net[f"captured{end}"]), of(net[f"channels_last{end}"])
            before, after = captured(now, device), captured(then, device)
            cells = [f"{NETS[name]}, {net['batch']}: {precision}", f"{before:.3g}", f"{after:.3g}"]
            for kernels in (("implicit",), ("moments", "gradients")):
                fewer = [
                    ideal([row for row in rows if row.name in kernels], device)
                    for rows in (now, then)
                ]
                cells.append(f"{fewer[0] - fewer[1]:.2f}")
            body.append([*cells, f"{1 - after / before:.1%}"])
    head = [
        "modelled, ms of a step",
        "now",
        "channels last",
        "less by products",
        "less by BatchNorm",
    ]
    text = lay_out([*head, "less, of the step"], body)
    return f"{text}\n\nModelled, not measured: {device.name}, engine `{model['engine']}`."


def paper(model: dict | None) -> str:
    """Tables 3 and 4 as the model has them for the K80, beside the paper's."""
    if model is None:
        return NOT_YET
    return f"{table3(model)}\n\n{table4(model)}\n\n{paper_note()}"


def table3(model: dict) -> str:
    """Iterations a second."""
    batches = list(PAPER_RATES["caffe"])
    ms, work = {}, {}
    for engine, steps in model["table3"].items():
        work[engine] = [of(steps[n]) for n in batches]
        ms["paper", engine] = [1e3 / PAPER_RATES[engine][n] for n in batches]
    rows = compared(ms, work, rate=True)
    return lay_out(["Table 3: iterations/s, batch", *batches], rows)


def table4(model: dict) -> str:
    """Milliseconds of the convolutions, and what the loop-free lowering saves a sample."""
    passes = list(PAPER_MS["caffe"])
    ms, work = {}, {}
    for engine, of_it in model["table4"].items():
        work[engine] = [of(of_it[one]) for one in passes]
        ms["paper", engine] = [PAPER_MS[engine][one] for one in passes]
    rows = compared(ms, work)
    batch = model["batch"]
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
    model = result("roofline", "cuda")
    print("\n\n".join([steps(model), kernels(model), channels_last(model), paper(model)]))


if __name__ == "__main__":
    main()
