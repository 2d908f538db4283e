"""Markdown of the result files: each table of README.md and docs/ that shows a measurement, and sentences.

`python examples/benchmarks/readme.py` puts them between their marks.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import tables
from measure import NETS, RESULTS, ROOT, fastest, geometric_mean
from tables import lay_out, plain
from turns import FORMS

from minicaffe.core.ops.conv.plan import RENAMED

PEERS = {
    "torch": "PyTorch",
    "opencv": "OpenCV 4",
    "onnxruntime": "onnxruntime",
    "openvino": "OpenVINO",
}
PACKAGES = PEERS | {"numpy": "NumPy", "numba": "Numba", "cupy": "CuPy"}
WAYS = ("forward", "input_gradient", "weight_gradient")
EXAMPLES = ROOT / "examples"


def read(name: str) -> dict:
    """A result file of this folder."""
    return json.loads((RESULTS / f"{name}.json").read_text())


# words and figures


def span(values: list[float], digits: int = 2, unit: str = "x") -> str:
    """The least and the most of some ratios.

    >>> span([1.5, 3.2, 1.42], 1)
    '1.4x to 3.2x'
    """
    return " to ".join(f"{value:.{digits}f}{unit}" for value in (min(values), max(values)))


def joined(parts: list[str]) -> str:
    """A list in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def three(ms: float) -> str:
    """Three digits."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def milliseconds(value: dict, spread: bool = False) -> str:
    """A median in three digits, with half the interquartile range if asked for."""
    half = f" ± {three((value['high'] - value['low']) / 2)}" if spread else ""
    return three(value["median"]) + half


def faster(ratio: dict) -> str:
    """A ratio, with half the interquartile range."""
    return f"**{ratio['median']:.2f}x** ± {(ratio['high'] - ratio['low']) / 2:.2f}"


def place(report: dict) -> str:
    """The machine of a result, its date and commit."""
    machine = report["machine"]
    name = machine.get("gpu") or machine["processor"]
    if report.get("runs") and "NVIDIA" in str(report["runs"]):
        name = report["runs"][0]["device"]
    if "NVIDIA" in name:
        name = name.partition("NVIDIA ")[2].partition(" ")[0]
    else:
        name = f"{name}, {report.get('threads') or machine['cores']} cores"
    return f"{name}, {report['date']}, {report['commit'][:8]}"


def versions(report: dict) -> str:
    """The packages that took part."""
    machine = report["machine"]
    packages = ("torch", "numpy", "cupy") if machine.get("cupy") else PACKAGES
    return ", ".join(f"{PACKAGES[name]} {machine[name]}" for name in packages if machine.get(name))


def where(report: dict, spreads: bool = True) -> str:
    """What a table was measured on."""
    text = f"{place(report)}; {versions(report)}"
    return text + ("; medians, ± half the interquartile range." if spreads else ".")


# the zoo


def zoo_nets() -> str:
    """The nets of models/ from their files: layers, parameters, multiply-adds of a sample, in TEST."""
    from minicaffe import Net

    rows = []
    for name, title in (NETS | {"lenet_paper": "LeNet, the paper's"}).items():
        path = ROOT / "models" / f"{name}.yaml"
        net = Net(path, "TEST", device="cpu", shapes_only=True)
        batch, *image = net.steps[0].tops[0].shape
        statistics = [
            param.size
            for step in net.steps
            if step.spec.type == "BatchNorm"
            for param in step.layer.params
        ]
        params = sum(param.size for param in net.learnable) - sum(statistics)
        rows.append(
            [
                f"[{title}{', of a step' * (name == 'lstm')}](../models/{name}.yaml)",
                " x ".join(map(str, image)),
                str(len(net.steps)),
                f"{params:,}" + (f" + {sum(statistics):,}" if statistics else ""),
                f"{sum(step.layer.multiply_adds for step in net.steps) // batch / 1e6:,.2f} M",
            ]
        )
    head = ["net", "sample", "layers", "parameters", "multiply-adds"]
    return lay_out(head, rows)


def zoo(report: dict) -> str:
    """Speed and memory of every net, ours first, then by how much ours is faster than the others."""
    nets = report["nets"]
    peers = [who for who in PEERS if any(ratio_of(net["infer"], who) for net in nets.values())]
    parts = [
        "The ms of minicaffe, and by how much it is faster than the others (below 1x: slower).",
        zoo_table(nets, peers),
        "Peak memory of the process, MiB.",
        zoo_memory(nets, peers),
        *refusals(nets),
        where(report),
    ]
    return "\n\n".join(parts)


def ratio_of(row: dict, who: str) -> dict | None:
    """By how much ours is faster than a contender, than PyTorch's fastest mode."""
    return row["ratios"].get(fastest(row["ms"]) if who == "torch" else who)


def zoo_table(nets: dict, peers: list[str]) -> str:
    """A row a net: inference of one sample, then a training step."""
    rows, batch = [], max(net["batch"]["train"] for net in nets.values())
    for name, net in nets.items():
        own = net["batch"]["train"]
        row = [NETS[name] if own == batch else f"{NETS[name]} (training step of {own})"]
        for way, others in (("infer", peers), ("train", ["torch"])):
            row.append(milliseconds(net[way]["ms"]["minicaffe"], spread=True))
            for who in others:
                ratio = ratio_of(net[way], who)
                row.append(faster(ratio) if ratio else "-")
        rows.append(row)
    head = ["inference of one sample", "ms", *(PEERS[who] for who in peers)]
    return lay_out([*head, f"training step of {batch}, ms", PEERS["torch"]], rows)


def zoo_memory(nets: dict, peers: list[str]) -> str:
    """A row a net: inference, then training."""
    rows = []
    for name, net in nets.items():
        row = [NETS[name]]
        for way, shown in (("infer", ("minicaffe", *peers)), ("train", ("minicaffe", "torch"))):
            memory = net[way]["memory"]
            for who in shown:
                key = fastest(net[way]["ms"]) if who == "torch" else who
                row.append(f"{memory[key]['peak']:,.0f}" if key in memory else "-")
        rows.append(row)
    head = ["minicaffe", *map(PEERS.get, peers), "training: minicaffe", PEERS["torch"]]
    return lay_out(["inference of", *head], rows)


def refusals(nets: dict) -> list[str]:
    """Who does not take which net."""
    lines = []
    for who, title in PEERS.items():
        names = [NETS[name] for name, net in nets.items() if who in net["infer"].get("refused", {})]
        if names:
            lines.append(f"{title} does not take {', '.join(names)}.")
    return lines


def zoo_ratios(report: dict, way: str, who: str) -> list[float]:
    """By how much ours is faster than a contender, net by net."""
    ratios = [ratio_of(net[way], who) for net in report["nets"].values()]
    return [ratio["median"] for ratio in ratios if ratio]


def zoo_means(report: dict) -> str:
    """Geometric means, and how far the contenders' numbers are apart."""
    nets, means = report["nets"], []
    for way, title, peers in (("infer", "inference", PEERS), ("train", "training", ["torch"])):
        for who in peers:
            if ratios := zoo_ratios(report, way, who):
                mean = f"**{geometric_mean(ratios):.2f}x**"
                means.append(f"{title} {mean} {PEERS[who]}'s speed ({len(ratios)})")
    apart = max(net["infer"]["apart"].get("onnxruntime", 0.0) for net in nets.values())
    gradients = {name: net["train"]["apart"]["gradients"] for name, net in nets.items()}
    rounded = gradients.pop("mnist_siamese", 0.0)
    text = f"Geometric means, with the number of nets in brackets: {', '.join(means)}. "
    text += f"onnxruntime's outputs are within {apart:.0e} of minicaffe's, PyTorch's gradients, in "
    text += f"float64, within {max(gradients.values(), default=0):.0e}"
    if rounded:
        text += (
            f" (of the siamese net, whose loss rounds a distance as Caffe's does, {rounded:.0e})"
        )
    return text + "."


def zoo_behind(report: dict) -> str:
    """The nets in which another is faster than minicaffe."""
    infer, train = {}, {}
    for name, net in report["nets"].items():
        ratios = [ratio_of(net["infer"], who) for who in PEERS]
        infer[NETS[name]] = min(ratio["median"] for ratio in ratios if ratio)
        train[NETS[name]] = ratio_of(net["train"], "torch")["median"]
    lines = []
    for title, ratios in (("Inference", infer), ("Training", train)):
        slower = [f"{name} ({ratio:.2f}x)" for name, ratio in ratios.items() if ratio < 0.995]
        lines.append(
            f"{title} is slower than by the fastest of the others in {joined(slower or ['none'])}."
        )
    return " ".join(lines)


def zoo_cuda(report: dict) -> str:
    """Training, then inference of every net on CUDA, a column a net; ratios of the fastest first."""
    shown = [
        cuda_table(report["nets"], way, title)
        for way, title in (("train", "a training step"), ("infer", "inference"))
    ]
    stamp = f"{report['date']}, {report['commit'][:8]}; {versions(report)}"
    note = f"{stamp}; ms. TF32 is off unless named."
    return "\n\n".join([*filter(None, shown), note])


def cuda_table(nets: dict, way: str, title: str) -> str:
    """Of one way; empty where no net has been measured."""
    ones = {name: nets[name][way] for name in nets if nets[name].get(way, {}).get("ms")}
    if not ones:
        return ""
    names, times, ratios = {"minicaffe": "minicaffe", "PyTorch": "torch"}, {}, []

    def ratio(title: str, ours: str, theirs: str) -> None:
        pairs = zip(times[f"minicaffe, {ours}"], times[f"PyTorch, {theirs}"], strict=True)
        cells = (f"**{other / own:.2f}x**" if own and other else "-" for own, other in pairs)
        ratios.append([f"**minicaffe : PyTorch, {title}**", *cells])

    for precision in ("float32", "TF32", "float16"):
        for name, word in names.items():
            times[f"{name}, {precision}"] = [
                least(one["ms"], word, precision) for one in ones.values()
            ]
        ratio(precision, precision, precision)
    ratio("by default", "float32", "TF32")
    gpus = (nets[name]["machine"]["gpu"].removeprefix("NVIDIA ").split() for name in ones)
    rows = [*ratios, ["GPU", *(gpu[0] for gpu in gpus)]]
    for name, values in times.items():
        rows.append([name, *(three(ms) if ms else "-" for ms in values)])
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    return lay_out([title, *(f"{NETS[name]}, {one['batch']}" for name, one in ones.items())], rows)


def least(ms: dict, word: str, precision: str) -> float | None:
    """The ms of the fastest way of minicaffe or PyTorch that multiplies in a precision."""
    ways = [
        spread["median"]
        for who, spread in ms.items()
        if who.startswith(word)
        and precision == next((one for one in ("TF32", "float16") if one in who), "float32")
    ]
    return min(ways, default=None)


# LeNet


def lenet_step(report: dict) -> str:
    """LeNet's training step and its memory, ratios to the fastest PyTorch first."""
    forms = {form: by_batch for form, by_batch in report["lenet"].items() if by_batch}
    batches = sorted(set.intersection(*map(set, forms.values())), key=int)
    rows, details = [], []
    for form, by_batch in forms.items():
        ones = [by_batch[n] for n in batches]
        ratios = (one["ratios"][fastest(one["ratios"])] for one in ones)
        rows.append([f"**{FORMS[form]} : PyTorch**", *map(faster, ratios)])
        ours = [plain(one["rates"]["minicaffe"], ".0f") for one in ones]
        details.append([f"{FORMS[form]}, iter/s", *ours])
    for name, by_batch in report.get("memory", {}).items():
        peaks = [f"{by_batch[n]['peak']:.0f}" if n in by_batch else "-" for n in batches]
        details.append([f"{FORMS.get(name, 'PyTorch')}, peak memory, MiB", *peaks])
    head = ["LeNet's training step, batch", *batches]
    return f"{lay_out(head, rows + details)}\n\n{where(report)}"


def numba_gain(report: dict) -> str:
    """By how much the extra [cpu] makes LeNet's step faster, over the batches of the table."""
    compiled, numpy = (
        [one["rates"]["minicaffe"]["median"] for one in report["lenet"][form].values()]
        for form in ("numba", "numpy")
    )
    return span([a / b for a, b in zip(compiled, numpy, strict=True)], 1, "")


def beside_torch(report: dict, form: str) -> str:
    """LeNet's step of one form beside the fastest PyTorch, over the batches of the table."""
    ratios = [one["ratios"] for one in report["lenet"][form].values()]
    return span([ratio[fastest(ratio)]["median"] for ratio in ratios])


def lenet_mnist(report: dict) -> str:
    """Accuracy, time and memory of LeNet's training, a row a seed."""
    rows = [
        [
            str(run["seed"]),
            f"{run['accuracies']['500']:.4f}",
            f"{run['accuracy']:.4f}",
            f"{run['seconds'] / 60:.1f}",
            f"{run['peak_memory_mib']:.0f} MiB",
        ]
        for run in report["runs"]
    ]
    head = ["seed", "after 500", "final accuracy", "minutes", "peak memory"]
    mean = f"Mean {report['mean_accuracy']:.4f}"
    return f"{lay_out(head, rows)}\n\n{mean}; {where(report, spreads=False)}"


def mnist_parts(*reports: dict) -> str:
    """Where the seconds until 99 % go: a row a part; columns for empty and filled caches of each device."""
    from mnist_parts import PARTS

    runs = [run for report in reports for run in (report["empty"], report["filled"])]
    rows = [[title, *(f"{run[part]:.2f}" for run in runs)] for part, title in PARTS.items()]
    rows.append(["in all", *(f"**{sum(run[part] for part in PARTS):.2f}**" for run in runs)])
    head, notes = ["seconds until 99 %"], []
    for report, name in zip(reports, ("CPU", "GPU"), strict=True):
        head += [f"{name}, caches empty", "filled"]
        run = report["filled"]
        gpu = report | {"runs": [{"device": run["on"]}]}
        notes.append(
            f"{name}: {run['iteration_count']} iterations, {run['accuracy']:.4f}; {place(gpu)}."
        )
    return f"{lay_out(head, rows)}\n\n{' '.join(notes)}"


# single convolutions


def ladder(*reports: dict) -> str:
    """The geometric means of each device, and every convolution on each, ratios first."""
    head, parts = ["convolution"], []
    for report, name in zip(reports, ("CPU", "CUDA"), strict=True):
        head += [f"{name}: forward", "backward", "ms", "chosen: forward, dx, dweight"]
        parts.append(f"{name}: {ladder_means(report)} {where(report, spreads=False)}")
    rows = []
    for name, one in reports[0]["rungs"].items():
        row = [f"{name} ({one['shape']})"]
        for report in reports:
            row += rung(report["rungs"].get(name))
        rows.append(row)
    return "\n\n".join([*parts, lay_out(head, rows)])


def rung(one: dict | None) -> list[str]:
    """A convolution's cells of one device."""
    if one is None:
        return ["-"] * 4
    ways = [one[way] for way in ("forward", "backward")]
    return [
        *(f"**{way['ratio']['median']:.2f}x**" for way in ways),
        " + ".join(milliseconds(way["ms"]["minicaffe"]) for way in ways),
        ", ".join(RENAMED.get(one["plan"][way], one["plan"][way]) for way in WAYS),
    ]


def ladder_means(report: dict) -> str:
    """The ladder in a line."""
    mean, rungs = report["geometric_means"], report["rungs"].values()
    worst = max(max(one["error"].values()) for one in rungs)
    most = max(one["workspace_mib"] for one in rungs)
    memory = [one["memory_mib"] for one in rungs if "memory_mib" in one]
    less = sum(one["minicaffe"] <= one["torch"] for one in memory)
    said = f"; peak memory no higher than PyTorch's in {less} of {len(rungs)}" if memory else ""
    return (
        f"geometric means over {len(rungs)} convolutions in float32: forward "
        f"**{mean['forward']:.2f}x**, backward **{mean['backward']:.2f}x** PyTorch's speed; "
        f"largest error against float64 {worst:.0e}, "
        f"largest workspace {most:.0f} MiB{said}."
    )


# other pages


def paper_tables() -> str:
    """The paper's tables on a GPU."""
    report = tables.read("cuda")
    return f"{tables.markdown(report)} Measured {report['date']}, {report['commit'][:8]}."


def paper_cpu() -> str:
    """By how much the fastest engine makes an iteration of the paper's LeNet faster than Caffe's lowering."""
    report = tables.read("cpu")
    gains = [row["ratios"]["auto"]["median"] for row in report["table3"].values()]
    return f"{span(gains)} the speed of Caffe's lowering ({place(report)})"


def inference_memory(report: dict) -> str:
    """Peak memory of inference, MiB: blobs apart → sharing."""
    rows = []
    for row in report["rows"]:
        pair = row["apart"], row["sharing"]
        peaks = [one["peak_mib"] - one["loaded_mib"] for one in pair]
        beyond = [peak - one["weights_mib"] for peak, one in zip(peaks, pair, strict=True)]
        cells = [f"{row['model']}, {row['batch']}", f"{pair[0]['weights_mib']:,.0f}"]
        for a, b in ([one["blobs_mib"] for one in pair], beyond):
            cells.append(f"{a:,.0f} → {b:,.0f}: **{a / b:.1f}x**")
        rows.append([*cells, " → ".join(f"{peak:,.0f}" for peak in peaks)])
    head = ["net, batch", "weights", "blobs", "all but weights", "all"]
    return f"{lay_out(head, rows)}\n\n{where(report, spreads=False)}"


def photos(report: dict) -> str:
    """How photographs of digits are read, over all conditions."""
    conditions = report["runs"]["now"]["conditions"].values()
    keys = ("pictures", "right", "unsure", "wrong_unsaid")
    pictures, right, unsure, wrong = (sum(row[key] for row in conditions) for key in keys)
    return (
        f"of {pictures} photographs {right} are read right, {unsure} reported as unsure, and {wrong} "
        f"wrong without a warning ({place(report)})"
    )


def onnx_export(report: dict) -> str:
    """The largest difference of outputs and of all blobs, and the nets that are measured beside float64."""
    rows, apart = report["nets"], []
    outputs = max(row["outputs"] for row in rows.values())
    near = max(row["worst"] for row in rows.values() if "from_float64" not in row)
    for name, row in rows.items():
        if far := row.get("from_float64"):
            figures = joined([f"{who} {value:.0e}" for who, value in far.items()])
            apart.append(f"`{name}` {row['worst']:.0e} (from float64: {figures})")
    return (
        f"Of {len(rows)} nets, outputs differ by at most {outputs:.0e}, blobs by {near:.0e}, "
        f"but for {joined(apart or ['none'])}; onnxruntime {report['machine']['onnxruntime']}."
    )


def onnx_nets(report: dict) -> str:
    """The nets that are read, and the largest differences of their blobs and of OpenCV's outputs."""
    rows, machine = report["nets"], report["machine"]
    worst = max(rows, key=lambda name: rows[name]["worst"])
    outputs = {
        name: row["opencv"]["outputs"] for name, row in rows.items() if "outputs" in row["opencv"]
    }
    others = "; ".join(f"`{name}` has none" for name in rows if name not in outputs)
    packages = ("torch", "torchvision", "onnx", "onnxruntime")
    versions = ", ".join(f"{name} {machine[name]}" for name in packages)
    return (
        f"{', '.join(f'`{name}`' for name in rows)}: of all blobs the largest difference is "
        f"{rows[worst]['worst']:.0e}, in `{worst}`; of OpenCV's outputs {max(outputs.values()):.0e}"
        f" ({others}). {versions}, OpenCV {machine['opencv']}."
    )


def onnx_cases(report: dict) -> str:
    """The sums of the operators' cases."""
    every = report["cases"].values()
    right, later = (sum(one[key] for one in every) for key in ("right", "later_opset"))
    wrong = sum(len(one["wrong"]) for one in every)
    refused = sum(sum(one["refused"].values()) for one in every)
    return (
        f"Of {right + wrong + refused + later:,} cases of {len(every)} operators (onnx "
        f"{report['machine']['onnx']}), {right} are right, {wrong} wrong, and {refused} refused. "
        f"{later} are of an opset behind 21, which onnx's converter does not bring down."
    )


def after_opencv_5() -> str:
    """The largest difference of each reader from minicaffe, a row a net; which versions they were."""
    small, others = EXAMPLES / "after_opencv_5" / "results", EXAMPLES / "caffe_models" / "results"
    paths = (
        small / "opencv_4.json",
        small / "opencv_5.json",
        others / "onnx.json",
        others / "cpu.json",
    )
    four, five, onnx, caffe = (json.loads(path.read_text()) for path in paths)
    names = {"detect": "WeChat's `detect`", "sr": "WeChat's `sr`", "resnet": "the ResNet"}
    rows = []
    for name, net in five["nets"].items():
        runs = [(net["runs"], "onnxruntime"), (net["runs"], "opencv")]
        runs.append((four["nets"][name]["runs"], "opencv"))
        worst = [max(run[who] for run in some) for some, who in runs]
        rows.append([f"`{name}.prototxt`", *(f"{value:.1e}" for value in worst)])
    for name, net in onnx["models"].items():
        worst = [*net["worst"].values(), caffe["models"][name]["difference"]]
        rows.append([names[name], *(f"{value:.1e}" for value in worst)])
    versions = [machine["opencv"] for machine in (five["machine"], caffe["machine"])]
    head = ["net", f"onnxruntime {onnx['machine']['onnxruntime']}"]
    return lay_out(head + [f"OpenCV {version}" for version in versions], rows)
