"""The paper's tables as a picture (extra `pictures`)."""

import sys
from pathlib import Path

from tables import NAMES, PAPER_MS, PAPER_RATES

COLOURS = {"caffe": "#7f8c9b", "loopfree": "#e07b39", "auto": "#1f77b4"}


def draw(report: dict, path: Path) -> None:
    """Speed-ups over Caffe's lowering: ours in colour, the paper's hatched."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("the chart needs matplotlib: pip install -e '.[pictures]'")
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": "minicaffe", "font.size": 9, "axes.axisbelow": True}
    )
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    batches, passes = list(report["table3"]), list(report["table4"])
    ours3 = {
        engine: [report["table3"][n]["ratios"][engine]["median"] for n in batches]
        for engine in ("loopfree", "auto")
    }
    theirs3 = [PAPER_RATES["loopfree"][n] / PAPER_RATES["caffe"][n] for n in batches]
    speed_ups(left, [f"batch {n}" for n in batches], ours3, theirs3)
    left.set_title("Table 3: LeNet, iterations a second")
    ours4 = {
        engine: [report["table4"][one]["ratios"][engine]["median"] for one in passes]
        for engine in ("loopfree", "auto")
    }
    theirs4 = [PAPER_MS["caffe"][one] / PAPER_MS["loopfree"][one] for one in passes]
    speed_ups(right, [one.replace(" ", "\n") for one in passes], ours4, theirs4)
    right.set_title(f"Table 4: convolutions at batch {report['batch']}")
    left.set_ylabel("times as fast as Caffe's lowering\non the same machine")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    where = report["device"] if report["form"] == "CUDA" else report["machine"]["processor"]
    figure.suptitle(f"minicaffe on {where}, {report['form']} form")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    print(f"-> {path}")


def speed_ups(axes, groups: list[str], ours: dict[str, list[float]], paper: list[float]) -> None:
    """Grouped bars with their values; a line where Caffe's lowering is."""
    bars = [("the paper's loop-free lowering, K80", paper, {"facecolor": "white", "hatch": "////"})]
    bars += [
        (f"{NAMES[engine].replace('`', '')}, here", values, {"facecolor": COLOURS[engine]})
        for engine, values in ours.items()
    ]
    width = 0.8 / len(bars)
    for i, (label, values, look) in enumerate(bars):
        places = [k + (i - (len(bars) - 1) / 2) * width for k in range(len(groups))]
        drawn = axes.bar(places, values, 0.92 * width, label=label, edgecolor="#444444", **look)
        axes.bar_label(drawn, [f"{value:.2f}" for value in values], padding=2, fontsize=7)
    axes.axhline(1, color=COLOURS["caffe"], linewidth=1.5, label="Caffe's lowering = 1")
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(0, 1.15 * max(max(values) for _, values, _ in bars))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
