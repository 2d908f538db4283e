"""The table of docs/scale.md, from the result of ranks.py.

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
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|"]
    for name, one in report["nets"].items():
        ms = {who: found["median"] for who, found in one["ms"].items()}
        ratios = {who: found["median"] for who, found in one["ratios"].items()}
        beside = one["torch"]["ratios"] if "torch" in one else {}
        ddp = min(
            (beside[who]["median"] for who in beside if who.endswith("DDP / all ranks")),
            default=None,
        )
        cells = [name, f"{ms['one rank']:.2f}", f"{ms['all ranks']:.2f}"]
        cells += [
            f"**{ratios['one rank / all ranks']:.2f}x**",
            f"{ratios['one rank / all ranks'] / ratios['sums left out / all ranks']:.2f}x",
            f"{ddp:.2f}x" if ddp else "not measured",
        ]
        cells.append(f"{ms['its sums alone']:.2f} ms")
        lines.append(f"| {' | '.join(cells)} |")
    machine = report["machine"]
    told = f"{machine['processor']}, {machine['cores']} cores, a thread a rank; medians of interleaved turns."
    torch = (
        f" PyTorch {machine['torch']}, the faster of eager and channels_last."
        if "torch" in machine
        else ""
    )
    return "\n".join([*lines, "", told + torch])


def tables() -> dict[str, str]:
    """The page's tables, by name."""
    measured = json.loads((HERE / "results" / "ranks_2.json").read_text("utf-8"))
    return {"scale_measured": seen_here(measured)}


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
