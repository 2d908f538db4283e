"""The tables of docs/scale.md, from the results of ranks.py.

python examples/scale/scale_tables.py
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "scale.md"


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


def tables() -> dict[str, str]:
    """The page's tables, by name."""
    measured = json.loads((HERE / "results" / "ranks_2.json").read_text("utf-8"))
    return {"scale_measured": seen_here(measured), "scale_elsewhere": seen_elsewhere()}


def main() -> None:
    """Write them into the page."""
    text = PAGE.read_text("utf-8")
    for name, table in tables().items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.S
        )
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
