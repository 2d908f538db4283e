"""Markdown of what peers.py measured, made from its result files alone.

python examples/benchmarks/peer_tables.py cpu
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from forms import FORMS
from measure import fastest
from tables import lay_out, plain

HERE = Path(__file__).resolve().parent
NOT_YET = "Not yet measured."
WAYS = ("forward", "input_gradient", "weight_gradient")


def read(what: str, device: str) -> dict | None:
    """A result file, None if nobody has measured there."""
    path = HERE / "results" / f"{what}_{device}.json"
    return json.loads(path.read_text()) if path.exists() else None


def peers(found: dict | None) -> str:
    """LeNet's training step and its memory, ratios to the fastest PyTorch first."""
    if found is None:
        return NOT_YET
    forms = {form: by_batch for form, by_batch in found["lenet"].items() if by_batch}
    batches = sorted(set.intersection(*map(set, forms.values())), key=int)
    rows, details = [], []
    for form, by_batch in forms.items():
        ratios = [by_batch[n]["ratios"] for n in batches]
        ways = [fastest(ratio) for ratio in ratios]
        values = [faster(ratio[way]) for ratio, way in zip(ratios, ways, strict=True)]
        rows.append([f"**{FORMS[form]} : PyTorch**", *values])
        rates = [by_batch[n]["rates"] for n in batches]
        details.append(
            [f"{FORMS[form]}, iter/s", *(plain(rate["minicaffe"], ".0f") for rate in rates)]
        )
        theirs = [
            f"{plain(rate[way], '.0f')} {mode(way)}".rstrip()
            for rate, way in zip(rates, ways, strict=True)
        ]
        details.append([f"PyTorch, beside {FORMS[form]}, iter/s", *theirs])
    for name, by_batch in found.get("memory", {}).items():  # if it was asked for
        who, all_of = FORMS.get(name, "PyTorch"), [by_batch.get(n) for n in batches]
        peaks = (f"{one['peak']:.0f}" if one else "-" for one in all_of)
        details.append([f"{who}, peak memory, MiB", *peaks])
        beyond = (f"{one['peak'] - one['imports']:.0f}" if one else "-" for one in all_of)
        details.append([f"{who}, of that beyond its imports", *beyond])
    return (
        lay_out(["LeNet's training step, batch", *batches], rows + details) + "\n\n" + where(found)
    )


def faster(ratio: dict) -> str:
    """A ratio, with half the interquartile range."""
    return f"**{ratio['median']:.2f}x** ± {(ratio['high'] - ratio['low']) / 2:.2f}"


def mode(way: str) -> str:
    """What a way of PyTorch is called in a table."""
    return way.removeprefix("torch").strip()


def ladder(found: dict | None) -> str:
    """The geometric means, and every convolution, ratios first."""
    if found is None:
        return NOT_YET
    head = ["convolution", "forward", "backward", "ms, PyTorch's", "error", "peak MiB, PyTorch's"]
    measured = any("fma" in one for one in found["rungs"].values())
    head = [*head, "of the FMA rate: y, dx, dweight"] if measured else head
    head = [*head, "workspace", "columns", "chosen: forward, dx, dweight"]
    rows = [rung(name, one, measured) for name, one in found["rungs"].items()]
    return "\n\n".join([means(found), lay_out(head, rows), where(found)])


def means(found: dict | None) -> str:
    """The ladder in a line."""
    if found is None:
        return NOT_YET
    mean, count = found["geometric_means"], len(found["rungs"])
    worst = max(max(one["error"].values()) for one in found["rungs"].values())
    most = max(one["workspace_mib"] for one in found["rungs"].values())
    memory = [one["memory_mib"] for one in found["rungs"].values() if "memory_mib" in one]
    less = sum(one["minicaffe"] <= one["torch"] for one in memory)
    said = f"; peak memory no higher than PyTorch's in {less} of {count}" if memory else ""
    return (
        f"Geometric means over {count} convolutions: forward **{mean['forward']:.2f}x**, backward "
        f"**{mean['backward']:.2f}x** PyTorch's speed; largest error against float64 {worst:.0e}, "
        f"largest workspace {most:.0f} MiB{said}.{at_best(found)}"
    )


def at_best(found: dict) -> str:
    """What 1 x 1 convolutions, all of 64 channels and more, reach of the rate of multiply-adds."""
    rungs = [one for name, one in found["rungs"].items() if "fma" in one and "1x1" in name]
    if not rungs:
        return ""
    rates = [one["fma"]["gflops"] for one in rungs]
    said = []
    for way in ("forward", "dx", "dweight"):
        parts = [100 * one["fma"][way] for one in rungs]
        said.append(f"{way} {min(parts):.0f} to {max(parts):.0f} %")
    return (
        f" Of the rate of a loop of multiply-adds, {min(rates):.0f} to {max(rates):.0f} GFLOP/s, the 1 x 1 "
        f"convolutions reach {', '.join(said)}."
    )


def rung(name: str, one: dict, measured: bool) -> list[str]:
    """A row of the ladder; with what it reaches of the cores' multiply-adds, if that was measured of any."""
    ways = [one[way] for way in ("forward", "backward")]
    ms = [
        " + ".join(milliseconds(way["ms"]["minicaffe"]) for way in ways),
        " + ".join(theirs(way["ms"]) for way in ways),
    ]
    return [
        f"{name} ({one['shape']})",
        *(f"**{way['ratio']['median']:.2f}x**" for way in ways),
        ", ".join(ms),
        f"{max(one['error'].values()):.0e}",
        ", ".join(f"{one['memory_mib'][who]:.0f}" for who in one.get("memory_mib", ())) or "-",
        *([shares(one.get("fma"))] if measured else []),
        f"{one['workspace_mib']:.1f} MiB",
        f"{one['columns_mib']:.1f} MiB",
        ", ".join(one["plan"][way] for way in WAYS),
    ]


def shares(fma: dict | None) -> str:
    """The parts of the rate of multiply-adds that three directions reach."""
    if fma is None:
        return "-"
    return ", ".join(f"{100 * fma[way]:.0f} %" for way in ("forward", "dx", "dweight"))


def theirs(ms: dict) -> str:
    """The ms of the fastest PyTorch, and which it is."""
    way = fastest(ms)
    return f"{milliseconds(ms[way])} {mode(way)}".rstrip()


def milliseconds(spread: dict) -> str:
    """A median, three digits of it."""
    return f"{spread['median']:.0f}" if spread["median"] >= 100 else f"{spread['median']:.3g}"


def where(found: dict) -> str:
    """What it was measured on."""
    machine = found["machine"]
    place = machine.get("gpu", f"{machine['processor']}, {found['threads']} threads each")
    packages = ("torch", "numpy", "cupy" if found["device"] == "cuda" else "numba")
    versions = ", ".join(f"{name} {machine[name]}" for name in packages)
    return f"{place}, {versions}; medians of interleaved repeats, ± half the interquartile range."


if __name__ == "__main__":
    for device in sys.argv[1:] or ["cpu"]:
        print(peers(read("peers", device)), ladder(read("ladder", device)), sep="\n\n")
