"""A training step on 1 to 1,024 ranks: from what one rank computes, and what a sum over ranks costs.

    python examples/scale/model.py                  docs/scale.md's tables and chart anew, from results/*.json

What is computed was measured (compute.py), so was the sum on this machine (ranks.py); networks are as
published (simulate.py). All that comes out is modelled, but for the steps that it is checked against.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from simulate import PUBLISHED, Network, Step, simulated

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE, CHART = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.svg"
RANKS = [2**i for i in range(11)]
FAST = 100.0  # times as fast as a core
NETS = {
    "lenet": 256,
    "cifar10_quick": 100,
    "squeezenet": 8,
    "resnet50": 4,
}  # batch, of a rank in weak scaling
STRONG = {"lenet": 256, "cifar10_quick": 1024, "squeezenet": 1024, "resnet50": 1024}


def step_of(found: dict, batch: float) -> Step:
    """A step of a batch: as measured, between two measured ones in proportion, below the least as that."""
    known = sorted(map(int, found))
    low = max([b for b in known if b <= batch], default=known[0])
    high = min([b for b in known if b >= batch], default=known[-1])
    share = 0.0 if low == high else (batch - low) / (high - low)
    more = batch / known[-1] if batch > known[-1] else 1.0

    def between(get) -> float:
        return more * ((1 - share) * get(found[str(low)]) + share * get(found[str(high)]))

    layers = list(reversed(found[str(low)]["backward_ms"]))
    sizes = tuple(found[str(low)]["gradient_bytes"][name] for name in layers)
    update = found[str(low)]["update_ms"]["median"]
    back = [between(lambda one, name=name: one["backward_ms"][name]) for name in layers]
    forward = between(lambda one: one["forward_ms"])
    whole = between(lambda one: one["step_ms"]["median"]) - more * update
    factor = max(whole, 0.0) / (
        forward + sum(back)
    )  # layers one by one take longer than a replayed step
    return Step(forward * factor, tuple(ms * factor for ms in back), sizes, update)


def this_machine(measured: dict) -> Network:
    """Its shared memory, fitted to the sums of 2 ranks: a long one gives the rate, a short one the latency."""
    table = {int(size): ms["median"] for size, ms in measured["sums"].items()}
    size = max(size for size in table if size <= 2**22)
    latency = table[min(table)] / 2
    rate = size / (table[size] - 2 * latency)
    return Network("this machine", latency, rate, "measured", apart=False)


def checked(compute: dict, measured: dict[int, dict]) -> list[tuple[str, int, float, float]]:
    """Measured steps beside the model's: net and batch, ranks, both in ms. On few cores they take turns."""
    here, rows = this_machine(measured[2]), []
    for ranks, report in sorted(measured.items()):
        crowd = max(1.0, ranks / report["machine"]["cores"])
        for name, one in report["nets"].items():
            net, batch = name.split(":")
            if net not in compute["nets"]:
                continue
            step = step_of(compute["nets"][net], int(batch) / ranks)
            wall = Network(here.name, here.latency, here.rate / crowd, "", apart=False)
            times = [step.forward, *step.backward, step.update]
            slow = Step(
                times[0] * crowd,
                tuple(ms * crowd for ms in times[1:-1]),
                step.sizes,
                times[-1] * crowd,
            )
            rows.append(
                (name, ranks, one["ms"]["all ranks"]["median"], simulated(slow, wall, ranks)["ms"])
            )
            if ranks == 2:
                alone = simulated(step_of(compute["nets"][net], int(batch)), wall, 1)["ms"]
                rows.append((name, 1, one["ms"]["one rank"]["median"], alone))
    return sorted(rows, key=lambda row: (row[0], row[1]))


def scaled(
    compute: dict, net: str, network: Network, strong: bool, faster: float = 1.0
) -> list[tuple[int, dict[str, float]]]:
    """The model's steps of a net on 1 to 1,024 ranks, as far as a batch has a sample for each.

    Ranks are so many times as fast as the core that was measured.
    """
    found, rows = compute["nets"][net], []
    for ranks in RANKS:
        batch = STRONG[net] / ranks if strong else NETS[net]
        if batch >= 1:
            one = step_of(found, batch)
            back = tuple(ms / faster for ms in one.backward)
            one = Step(one.forward / faster, back, one.sizes, one.update / faster)
            rows.append((ranks, simulated(one, network, ranks)))
    return rows


def bound(row: dict[str, float]) -> str:
    """What most of a step beyond computing goes to, if anything."""
    waits = row["ms"] - row["compute"]
    return "computing" if waits < 0.1 * row["ms"] else f"sums ({waits / row['ms']:.0%})"


def seen_here(report: dict) -> str:
    """What two ranks take here, beside one and beside PyTorch's fastest."""
    head = "| net:batch | 1 rank ms | 2 ranks ms | speed-up | without sums | PyTorch DDP | sums |"
    head += " begun meanwhile | mpi4py |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for name, one in report["nets"].items():
        ms = {who: found["median"] for who, found in one["ms"].items()}
        ratios = {who: found["median"] for who, found in one["ratios"].items()}
        beside = one["torch"]["ratios"] if "torch" in one else {}
        ddp = min(
            (beside[who]["median"] for who in beside if who.endswith("DDP / all ranks")),
            default=None,
        )
        meanwhile = ratios["sums meanwhile / all ranks"] - 1
        alone = ratios["mpi4py's Allreduce / its sums alone"]
        cells = [name, f"{ms['one rank']:.2f}", f"{ms['all ranks']:.2f}"]
        cells += [
            f"**{ratios['one rank / all ranks']:.2f}x**",
            f"{ratios['one rank / all ranks'] / ratios['sums left out / all ranks']:.2f}x",
            f"{ddp:.2f}x" if ddp else "not measured",
        ]
        cells += [f"{ms['its sums alone']:.2f} ms", f"{meanwhile:+.0%} of the step", f"{alone:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    machine = report["machine"]
    told = f"{machine['processor']}, {machine['cores']} cores, a thread a rank; medians of interleaved turns."
    torch = (
        f" PyTorch {machine['torch']}, the faster of eager and channels_last."
        if "torch" in machine
        else ""
    )
    ends = " 'mpi4py': the time of its Allreduce of one array as long, over that of a step's sums alone."
    return "\n".join([*lines, "", told + torch + ends])


def seen_elsewhere() -> str:
    """The same speed-ups on other machines, a line each."""
    lines = []
    for path in sorted((HERE / "results").glob("*/ranks_2.json"), reverse=True):
        report = json.loads(path.read_text())
        gains = []
        for name, one in report["nets"].items():
            ratios = {who: spread["median"] for who, spread in one["ratios"].items()}
            gain = ratios["one rank / all ranks"]
            alone = gain / ratios["sums left out / all ranks"]
            gains.append(f"{name} {gain:.2f}x (without sums {alone:.2f}x)")
        machine = report["machine"]
        where = f"results/{path.parent.name}, {machine['processor']}, {machine['cores']} cores"
        lines.append(f"- {where}: {', '.join(gains)}.")
    return "\n".join(lines)


def tables(compute: dict, measured: dict[int, dict]) -> dict[str, str]:
    """The page's tables, by name."""
    lines = [
        "| net:batch | ranks | measured ms | modelled ms | modelled / measured |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, ranks, seen, told in checked(compute, measured):
        lines.append(f"| {name} | {ranks} | {seen:.2f} | {told:.2f} | {told / seen:.2f} |")
    found = {"scale_checked": "\n".join(lines), "scale_measured": seen_here(measured[2])}
    found["scale_elsewhere"] = seen_elsewhere()
    ways = (("scale_weak", False, 1.0), ("scale_strong", True, 1.0), ("scale_fast", False, FAST))
    for name, strong, faster in ways:
        shown = [4, 16, 64, 256] if strong else [16, 128, 1024]
        head = "".join(f" {ranks:,} ranks |" for ranks in shown)
        lines = [f"| net | network |{head} bound by |", "|---|---|" + "--:|" * len(shown) + "---|"]
        for net in NETS:
            for network in PUBLISHED:
                rows = dict(scaled(compute, net, network, strong, faster))
                one, ends = rows[1]["ms"], [ranks for ranks in shown if ranks in rows]
                times = {n: one / rows[n]["ms"] * (1 if strong else n) for n in ends}
                cells = [f"{times[n]:,.0f}x" if n in times else "" for n in shown]
                last = bound(rows[ends[-1]])
                lines.append(f"| {net} | {network.name} | {' | '.join(cells)} | {last} |")
        found[name] = "\n".join(lines)
    return found


def chart(compute: dict) -> None:
    """Weak scaling of fast ranks and strong scaling, a line a network, a panel a net."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("the chart needs matplotlib: pip install 'minicaffe[pictures]'")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scale"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(NETS), figsize=(3.2 * len(NETS), 6), sharex=True, sharey=True
    )
    for i, net in enumerate(NETS):
        for j, strong in enumerate((False, True)):
            axis = axes[j][i]
            for network in PUBLISHED:
                rows = scaled(compute, net, network, strong, 1.0 if strong else FAST)
                one = rows[0][1]["ms"]
                speed = [one / row["ms"] * (1 if strong else ranks) for ranks, row in rows]
                axis.loglog([ranks for ranks, _ in rows], speed, label=network.name, base=2)
            axis.plot(RANKS, RANKS, ":", color="grey")
            batch = f"{STRONG[net]} in all" if strong else f"{NETS[net]} a rank, {FAST:g} x"
            axis.set_title(f"{net}, {batch}", fontsize=9)
        axes[1][i].set_xlabel("ranks")
    axes[0][0].set_ylabel("times one rank (weak, fast ranks)")
    axes[1][0].set_ylabel("times one rank (strong)")
    axes[0][0].legend(fontsize=7)
    figure.suptitle("Modelled, not measured", fontsize=10)
    figure.tight_layout()
    figure.savefig(CHART, metadata={"Date": None})


def load() -> tuple[dict, dict[int, dict]]:
    """What was measured."""
    results = HERE / "results"
    measured = {
        int(path.stem.rpartition("_")[2]): json.loads(path.read_text())
        for path in results.glob("ranks_*.json")
    }
    return json.loads((results / "compute.json").read_text()), measured


def main() -> None:
    """Write tables and chart."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-chart", dest="chart", action="store_false")
    args = parser.parse_args()
    compute, measured = load()
    text = PAGE.read_text()
    for name, table in tables(compute, measured).items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.S
        )
    PAGE.write_text(text)
    if args.chart:
        chart(compute)


if __name__ == "__main__":
    main()
