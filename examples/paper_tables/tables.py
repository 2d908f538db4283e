"""Markdown and a chart of the paper's tables, made from a result file alone.

python examples/paper_tables/tables.py cpu                  the Markdown
python examples/paper_tables/tables.py cpu --chart FILE     the chart too: .svg or .png (extra `pictures`)
"""

import argparse
import json
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {
    "caffe": "Caffe's lowering",
    "loopfree": "loop-free lowering",
    "auto": "our fastest (`auto`)",
}
# The paper's own numbers, on an NVIDIA K80.
PAPER_RATES = {  # Table 3: iterations a second
    "caffe": {"32": 85.2, "64": 44.3, "128": 22.8, "256": 11.6},
    "loopfree": {"32": 100.1, "64": 53.3, "128": 27.2, "256": 13.7},
}
PAPER_MS = {  # Table 4: ms at batch 128
    "caffe": {
        "conv1 forward": 6.01,
        "conv1 backward": 11.49,
        "conv2 forward": 10.90,
        "conv2 backward": 14.00,
    },
    "loopfree": {
        "conv1 forward": 4.63,
        "conv1 backward": 10.26,
        "conv2 forward": 9.54,
        "conv2 backward": 10.94,
    },
}
NOT_YET = "Not yet measured."


def read(name: str) -> dict | None:
    """The result file of a device, None if nobody has measured there."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def markdown(report: dict | None) -> str:
    """Both tables, im2col alone, as far as they were measured, and what on."""
    if report is None:
        return NOT_YET
    parts = {"table3": table3, "table4": table4, "im2col": im2col}
    told = [table(report) for part, table in parts.items() if part in report]
    return "\n\n".join([*told, measured_on(report)])


def table3(report: dict) -> str:
    """Iterations a second, ratios first."""
    found = report["table3"]
    head = ["Table 3: iterations/s, batch", *found]
    rows = [
        ratio_row(engine, [found[n]["ratios"][engine]["median"] for n in found])
        for engine in ("loopfree", "auto")
    ]
    rows.append(
        ["the paper's ratio, K80"]
        + [f"{PAPER_RATES['loopfree'][n] / PAPER_RATES['caffe'][n]:.2f}x" for n in found]
    )
    rows += [
        [NAMES[engine], *(plain(found[n]["rates"][engine], ".1f") for n in found)]
        for engine in NAMES
    ]
    rows += [
        [f"paper, K80: {NAMES[engine]}", *(f"{PAPER_RATES[engine][n]:.1f}" for n in found)]
        for engine in PAPER_RATES
    ]
    return lay_out(head, rows)


def table4(report: dict) -> str:
    """Milliseconds of the convolutions, ratios first."""
    found = report["table4"]
    head = [f"Table 4: ms, batch {report['batch']}", *found]
    rows = [
        ratio_row(engine, [found[one]["ratios"][engine]["median"] for one in found])
        for engine in ("loopfree", "auto")
    ]
    rows.append(
        ["the paper's ratio, K80"]
        + [f"{PAPER_MS['caffe'][one] / PAPER_MS['loopfree'][one]:.2f}x" for one in found]
    )
    rows += [
        [NAMES[engine], *(plain(found[one]["ms"][engine], ".2f") for one in found)]
        for engine in NAMES
    ]
    rows += [
        [f"paper, K80: {NAMES[engine]}", *(f"{PAPER_MS[engine][one]:.2f}" for one in found)]
        for engine in PAPER_MS
    ]
    return lay_out(head, rows)


def im2col(report: dict) -> str:
    """The kernel alone."""
    found = report["im2col"]
    copy = found["copy_gb_s"]["median"]
    head = [
        f"im2col alone at conv2's shape (a copy: {copy:.1f} GB/s)",
        "batch",
        "share of a copy",
        "GB/s",
    ]
    rows = [
        [row["form"], str(row["batch"]), f"{row['share_of_copy']:.0%}", plain(row["gb_s"], ".1f")]
        for row in found["rows"]
    ]
    return lay_out(head, rows)


def measured_on(report: dict) -> str:
    """One paragraph: machine, form, and what must be known to read the tables."""
    machine = report["machine"]
    place = f"{machine['processor']}, {report['threads']} threads"
    if report["form"] == "CUDA":
        place = report["device"]
    text = (
        f"{place}, {report['form']} form, NumPy {machine['numpy']}; medians of interleaved repeats, "
        f"± half the interquartile range."
    )
    if "plan" in report:
        plans = report["plan"].items()
        choice = "; ".join(f"{name} {', '.join(names.values())}" for name, names in plans)
        text += f" `auto` chose, for y, dx and dweight: {choice}."
    if report["form"] != "CUDA":
        text += (
            " On the CPU the loop-free lowering is Caffe's, the same loops: their ratio shows the noise."
            " It is a different kernel on CUDA only."
        )
    return text


def ratio_row(engine: str, values: list[float]) -> list[str]:
    """A row of ratios, in bold."""
    return [f"**{NAMES[engine]} : Caffe's**", *(f"**{value:.2f}x**" for value in values)]


def plain(spread: dict, form: str) -> str:
    """A median with half its interquartile range."""
    half = (spread["high"] - spread["low"]) / 2
    return f"{spread['median']:{form}} ± {half:{form}}"


def lay_out(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right.

    >>> print(lay_out(["a", "b"], [["c", "1"]]))
    | a | b |
    |---|--:|
    | c | 1 |
    """
    rule = "|---" + "|--:" * (len(head) - 1) + "|"
    lines = [f"| {' | '.join(row)} |" for row in [head, *rows]]
    return "\n".join([lines[0], rule, *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", help="cpu, cuda, or the path of a result file")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the chart: .svg or .png")
    args = parser.parse_args()
    path = Path(args.result)
    report = json.loads(path.read_text()) if path.suffix == ".json" else read(args.result)
    print(markdown(report))
    if args.chart is not None:
        if report is None:
            sys.exit(f"there is no result of {args.result} to draw")
        from chart import draw

        draw(report, args.chart)


if __name__ == "__main__":
    main()
