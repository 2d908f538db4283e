"""Markdown of what zoo.py measured, made from its result file alone.

python examples/benchmarks/zoo_tables.py
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from measure import fastest, geometric_mean
from peer_tables import NOT_YET, faster, read
from tables import lay_out
from zoo_names import ALONE, NETS, PEERS

SHOWN = 4  # kinds of layers
OURS = ("minicaffe", ALONE, "before")
LIMITED, LIMIT = ("alexnet", "googlenet", "resnet50"), 6 * 1024  # whose step takes under 6 GiB


def zoo(found: dict | None) -> str:
    """Inference and training of every net, ours first, then by how much ours is faster than the others."""
    if found is None:
        return NOT_YET
    nets = {name: found["nets"][name] for name in NETS if name in found["nets"]}
    parts = [
        "Inference of one sample: ms, and by how much minicaffe is faster (below 1x: slower).",
        table(nets, "infer", peers(nets)),
        "A training step: forward, backward and SGD's update, and its number of samples.",
        table(nets, "train", ("torch",)),
        "Peak memory of the process, MiB.",
        memory(nets),
        *refusals(nets),
        reading(nets),
        where(found),
    ]
    return "\n\n".join(parts)


def peers(nets: dict) -> tuple[str, ...]:
    """Those that were asked to infer."""
    asked = {"torch"}
    for net in nets.values():
        asked |= {*net["infer"]["ms"], *net["infer"].get("refused", {})}
    return tuple(who for who in PEERS if who in asked)


def means(found: dict | None) -> str:
    """All of it in a line."""
    if found is None:
        return NOT_YET
    return reading(found["nets"])


def layers(found: dict | None) -> str:
    """Where our own time goes, a row a net: the kinds of layers that take most of it."""
    if found is None:
        return NOT_YET
    rows = []
    for name, net in found["nets"].items():
        row = [NETS[name]]
        for way in ("infer", "train"):
            ms = {
                kind: one["forward"] + one["backward"] for kind, one in net["layers"][way].items()
            }
            whole = sum(ms.values())
            most = sorted(ms, key=lambda kind: -ms[kind])[:SHOWN]
            row.append(", ".join(f"{kind} {100 * ms[kind] / whole:.0f}%" for kind in most))
        rows.append(row)
    return lay_out(["net", "inference of one", "a training step"], rows)


def rates(found: dict | None) -> str:
    """The least ms at the cores' rate of multiply-adds, and the share of that rate which contenders reach."""
    if found is None:
        return NOT_YET
    rows = []
    for name, net in found["nets"].items():
        row = [NETS[name]]
        for way, passes in (("infer", 1), ("train", 3)):  # forward; forward, dx and dweight
            one, samples = net[way], net["batch"][way]
            gflop = 2e-9 * net["multiply_adds"] * passes * samples
            least = 1e3 * gflop / statistics.mean(one["gflops"])
            others = {who: ms["median"] for who, ms in one["ms"].items() if who not in OURS}
            fastest = min(others, key=others.__getitem__)
            title = PEERS[fastest.partition(" ")[0]]
            ours = least / one["ms"]["minicaffe"]["median"]
            row += [
                f"{three(least)}",
                f"{100 * ours:.0f}%",
                f"{100 * least / others[fastest]:.0f}%, {title}",
            ]
        rows.append(row)
    head = ["least ms", "minicaffe", "fastest other"]
    return lay_out(["inference of one", *head, "training: least ms", *head[1:]], rows)


def before(found: dict | None) -> str:
    """Every net beside the checkout that was measured with it: by how much this one is faster."""
    if found is None:
        return NOT_YET
    rows = []
    for name, net in found["nets"].items():
        ones = [net[way] for way in ("infer", "train")]
        if all("before" in one["ratios"] for one in ones):
            told = [(faster(one["ratios"]["before"]), one["ms"]) for one in ones]
            rows.append([NETS[name]])
            for ratio, ms in told:
                rows[-1] += [ratio, *(milliseconds(ms[who]) for who in ("minicaffe", "before"))]
    if not rows:
        return "Not measured beside another checkout."
    head = ["net", "inference of one", "ms", "before", "a training step", "ms", "before"]
    return lay_out(head, rows)


def slower(found: dict | None) -> str:
    """The nets in whose inference another is faster, and the kinds of layers that lose most to PyTorch."""
    if found is None:
        return NOT_YET
    rows = []
    for name, net in found["nets"].items():
        one, kinds = net["infer"], net["layers"]["infer"]
        keys = {who: fastest(one["ms"]) if who == "torch" else who for who in PEERS}
        ratios = {
            who: one["ratios"][key]["median"] for who, key in keys.items() if key in one["ratios"]
        }
        faster = [f"{PEERS[who]} {ratio:.2f}x" for who, ratio in ratios.items() if ratio < 1]
        if not faster:
            continue
        whole = sum(row["forward"] for row in kinds.values())
        lost = {kind: row["forward"] - row["torch"] for kind, row in kinds.items()}
        lost = {kind: ms for kind, ms in lost.items() if ms > 0.02 * whole}
        most = sorted(lost, key=lambda kind: -lost[kind])[:SHOWN]
        told = (
            f"{kind} {three(kinds[kind]['forward'])} ({three(kinds[kind]['torch'])})"
            for kind in most
        )
        rows.append(
            [NETS[name], ", ".join(faster), ", ".join(told) or "no kind of layer by itself"]
        )
    head = [
        "inference of one",
        "minicaffe's speed beside",
        "kinds of layers that take longer, ms (PyTorch's)",
    ]
    alone = [net["infer"]["ratios"].get(ALONE) for net in found["nets"].values()]
    mean = geometric_mean([ratio["median"] for ratio in alone if ratio])
    told = f"On one thread instead of {found['threads']} minicaffe's inference of one sample takes"
    return lay_out(head, rows) + f"\n\n{told} {mean:.2f}x the time (geometric mean)."


def cuda(found: dict | None) -> str:
    """Training, then inference of every net on CUDA, a column a net; ratios of the fastest of each first."""
    if found is None:
        return NOT_YET
    parts = [
        cuda_table(found["nets"], way, title)
        for way, title in (("train", "a training step"), ("infer", "inference"))
    ]
    machine = found["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "numpy", "cupy"))
    told = f"{versions}; ms, in brackets samples a second. TF32 is off unless named."
    return "\n\n".join([*filter(None, parts), told])


def cuda_table(nets: dict, way: str, title: str) -> str:
    """Of one way; empty where no net has been measured."""
    nets = {name: nets[name] for name in NETS if name in nets}
    ones = {name: net[way] for name, net in nets.items() if net.get(way, {}).get("ms")}
    if not ones:
        return ""
    rows = []
    for precision in ("float32", "TF32"):
        row = [f"**minicaffe : PyTorch, {precision}**"]
        for one in ones.values():
            ms = {who: way for who, way in one["ms"].items() if precision_of(who) == precision}
            mine = [way["median"] for who, way in ms.items() if who.startswith("minicaffe")]
            theirs = [way["median"] for who, way in ms.items() if who.startswith("torch")]
            row.append(f"**{min(theirs) / min(mine):.2f}x**" if mine and theirs else "-")
        rows.append(row)
    rows.append(["GPU", *(gpu_of(nets[name]) for name in ones)])
    for who in dict.fromkeys(who for one in ones.values() for who in one["ms"]):
        row = [f"PyTorch{who.removeprefix('torch')}" if who.startswith("torch") else who]
        for one in ones.values():
            ms = one["ms"].get(who, {}).get("median")
            row.append("-" if ms is None else f"{three(ms)} ({1e3 * one['batch'] / ms:,.0f})")
        rows.append(row)
    return lay_out([title, *(f"{NETS[name]}, {one['batch']}" for name, one in ones.items())], rows)


def gpu_of(net: dict) -> str:
    """The GPU that a net was measured on, in two words at most."""
    return " ".join(net["machine"]["gpu"].removeprefix("NVIDIA ").split()[:2])


def precision_of(who: str) -> str:
    """In what a contender multiplies."""
    return next((one for one in ("TF32", "float16") if one in who), "float32")


def table(nets: dict, way: str, peers: tuple[str, ...]) -> str:
    """A row a net."""
    rows = []
    for name, net in nets.items():
        one = net[way]
        row = [NETS[name], milliseconds(one["ms"]["minicaffe"], spread=True)]
        if way == "infer":
            row[1:1] = [f"{net['parameters']:,}", f"{net['multiply_adds'] / 1e6:,.2f} M"]
        else:
            row[1:1] = [str(net["batch"]["train"])]
        rows.append(row + [ratio(one, who) for who in peers])
    head = {"infer": ["parameters", "multiply-adds"], "train": ["samples"]}[way]
    return lay_out(["net", *head, "minicaffe, ms", *(PEERS[who] for who in peers)], rows)


def ratio(one: dict, who: str) -> str:
    """How much faster ours is than a peer, and the peer's ms."""
    key = fastest(one["ms"]) if who == "torch" else who
    if key not in one["ratios"]:
        return "-"
    found = one["ratios"][key]
    half = (found["high"] - found["low"]) / 2
    way = f" {key.removeprefix('torch ')}" if who == "torch" else ""
    return f"**{found['median']:.2f}x** ± {half:.2f}, {milliseconds(one['ms'][key])}{way}"


def memory(nets: dict) -> str:
    """A row a net: inference, then training."""
    rows, asked = [], peers(nets)
    for name, net in nets.items():
        row = [NETS[name]]
        for way, who_of in (("infer", ("minicaffe", *asked)), ("train", ("minicaffe", "torch"))):
            peaks = {who.partition(" ")[0]: one for who, one in net[way]["memory"].items()}
            row += [f"{peaks[who]['peak']:,.0f}" if who in peaks else "-" for who in who_of]
        rows.append(row)
    head = ["minicaffe", *map(PEERS.get, asked), "training: minicaffe", PEERS["torch"]]
    return lay_out(["inference of", *head], rows)


def refusals(nets: dict) -> list[str]:
    """Who does not take which net."""
    found = []
    for who, title in PEERS.items():
        names = [NETS[name] for name, net in nets.items() if who in net["infer"].get("refused", {})]
        if names:
            found.append(f"{title} does not take {', '.join(names)}.")
    return found


def reading(nets: dict) -> str:
    """Geometric means; how far the outputs are apart; the nets whose memory is promised."""
    told = []
    for way, title in (("infer", "inference"), ("train", "training")):
        for who in PEERS if way == "infer" else ("torch",):
            ones = [net[way] for net in nets.values()]
            keys = [(one, fastest(one["ms"]) if who == "torch" else who) for one in ones]
            values = [one["ratios"][key]["median"] for one, key in keys if key in one["ratios"]]
            if values:
                mean = geometric_mean(values)
                told.append(f"{title} **{mean:.2f}x** {PEERS[who]}'s speed ({len(values)})")
    apart = [net["infer"]["apart"].get("onnxruntime", 0.0) for net in nets.values()]
    gradients = {name: net["train"]["apart"]["gradients"] for name, net in nets.items()}
    rounded = gradients.pop("mnist_siamese", None)
    text = f"Geometric means, with the number of nets in brackets: {', '.join(told)}. "
    text += f"onnxruntime's outputs are within {max(apart):.0e} of minicaffe's, "
    text += f"PyTorch's gradients, in float64, within {max(gradients.values(), default=0):.0e}"
    if rounded is not None:
        text += (
            f" (of the siamese net, whose loss rounds a distance as Caffe's does, {rounded:.0e})"
        )
    text += "."
    peaks = {NETS[name]: peak(nets[name]) for name in LIMITED if name in nets}
    if peaks:
        under = "all" if max(peaks.values()) < LIMIT else "not all"
        shown = ", ".join(f"{name} {mib / 1024:.2f} GiB" for name, mib in peaks.items())
        text += f" A training step of eight takes, at its peak: {shown}: {under} under 6 GiB."
    return text


def peak(net: dict) -> float:
    """The peak memory of our training step, MiB."""
    return net["train"]["memory"]["minicaffe"]["peak"]


def milliseconds(value: dict, spread: bool = False) -> str:
    """A median in three digits, with half the interquartile range if asked for."""
    half = f" ± {three((value['high'] - value['low']) / 2)}" if spread else ""
    return three(value["median"]) + half


def three(ms: float) -> str:
    """Three digits."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def where(found: dict) -> str:
    """What it was measured on."""
    machine = found["machine"]
    names = PEERS | {"opencv": "OpenCV", "numpy": "NumPy", "numba": "Numba"}
    versions = [f"{title} {machine[key]}" for key, title in names.items() if machine.get(key)]
    text = f"{machine['processor']}, {found['threads']} threads each, {', '.join(versions)}; "
    return text + "medians of interleaved repeats, ± half the interquartile range."


if __name__ == "__main__":
    print(zoo(read("zoo", "cpu")))
