"""README's one table: each claim with its figure, made from the result files.

    python examples/benchmarks/readme.py

puts it between its marks.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from measure import fastest, geometric_mean
from peer_tables import read
from sentences import beside_torch
from tables import lay_out

EXAMPLES = Path(__file__).resolve().parent.parent
SHARE = EXAMPLES / "caffe_models" / "results" / "share_read.txt"
OPENED = EXAMPLES / "caffe_models" / "results" / "cpu.json"
NEWCOMER = EXAMPLES / "benchmarks" / "results" / "newcomer.json"
# three runs of BVLC Caffe 1.0 with its own LeNet and solver: 10,000 iterations, the 10,000 test images
CAFFES = (0.9904, 0.9904, 0.9913)


def claims() -> str:
    """A row a claim: what was measured, minicaffe's figure, what it is compared with, where."""
    rows = [*lenet(), *own_pictures(), *steps(), *convolutions(), *zoo(), *files()]
    return lay_out(["measured", "minicaffe", "compared with", "on"], rows).replace("--:", "---")


def lenet() -> list[list[str]]:
    """LeNet trained to the end on MNIST, on the CPU and on a GPU."""
    cpu, cuda = read("lenet_mnist", "cpu"), read("lenet_mnist", "cuda")
    minutes = max(run["seconds"] / 60 for run in cpu["runs"])
    longest = max(run["seconds"] for run in cuda["runs"])
    theirs = f"Caffe's three runs: {', '.join(f'{accuracy:.4f}' for accuracy in CAFFES)}"
    figure = f"**{cpu['mean_accuracy']:.4f}**, mean of {len(cpu['runs'])} runs"
    figure += f"; each within {minutes:.1f} minutes"
    return [
        ["LeNet's share of right answers on MNIST's test digits", figure, theirs, processor(cpu)],
        [
            "the same, on CUDA",
            f"**{cuda['mean_accuracy']:.4f}**, in {longest:.1f} s",
            "",
            gpu(cuda),
        ],
    ]


def own_pictures() -> list[list[str]]:
    """A new user's first minutes, from `pip install` to a trained net: newcomer.py."""
    found = json.loads(NEWCOMER.read_text())
    plain, cpu = (found["runs"][name] for name in ("plain NumPy", "[cpu]"))
    minutes = [run["seconds"]["all"] / 60 for run in (plain, cpu)]
    count, seen = found["pictures"] - plain["never_seen"], plain["accuracy"]
    figure = (
        f"**{seen['never_seen']:.2f}** on {plain['never_seen']} others, {minutes[0]:.1f} minutes"
    )
    figure += f" after `pip install` began; with `[cpu]` {minutes[1]:.1f}"
    title = (
        f"a net trained on {count} pictures of one's own, in three commands: share of right answers"
    )
    said = f"{seen['held_out']:.2f}, as the training said"
    return [[title, figure, said, processor(found)]]


def steps() -> list[list[str]]:
    """LeNet's training step beside the fastest PyTorch."""
    cpu, cuda = read("peers", "cpu"), read("peers", "cuda")
    return [
        [f"a training step of LeNet, {form}", speed(beside_torch(found, key)), "PyTorch", place]
        for form, found, key, place in (
            ("extra `[cpu]`", cpu, "numba", processor(cpu)),
            ("plain NumPy", cpu, "numpy", processor(cpu)),
            ("CUDA", cuda, "cuda", gpu(cuda)),
        )
    ]


def convolutions() -> list[list[str]]:
    """Single convolutions beside PyTorch: geometric means."""
    rows = []
    for device, place in (("cpu", processor), ("cuda", gpu)):
        found = read("ladder", device)
        mean = found["geometric_means"]
        forward, backward = (f"{mean[way]:.2f}x" for way in ("forward", "backward"))
        figure = f"{speed(forward)} forward, **{backward}** backward"
        title = f"{len(found['rungs'])} single convolutions"
        rows.append([title, figure, "PyTorch", place(found)])
    return rows


def zoo() -> list[list[str]]:
    """The nets of the zoo, on two machines: a training step, inference of one sample; geometric means."""
    rows = []
    for found in (read("zoo", "cpu"), read("xeon/zoo", "cpu")):
        for what, way, who, name in (
            ("a training step", "train", "torch", "PyTorch"),
            ("inference of one sample", "infer", "torch", "PyTorch"),
            ("inference of one sample", "infer", "onnxruntime", "onnxruntime"),
            ("inference of one sample", "infer", "openvino", "OpenVINO"),
        ):
            ones = [net[way] for net in found["nets"].values()]
            keys = [fastest(one["ms"]) if who == "torch" else who for one in ones]
            if all(key in one["ratios"] for one, key in zip(ones, keys, strict=True)):
                ratios = [one["ratios"][key]["median"] for one, key in zip(ones, keys, strict=True)]
                mean = speed(f"{geometric_mean(ratios):.2f}x")
                rows.append([f"{what}, {len(ones)} nets of the zoo", mean, name, processor(found)])
    return rows


def files() -> list[list[str]]:
    """Files of other people's Caffe: which are read, and whether published weights compute the same."""
    text = SHARE.read_text()
    counts = dict(re.findall(r"^\| ([\w, ]+?) \| *(\d.*?) *\|$", text, re.M))
    every, read_, converted = (part.strip() for part in counts["all"].split("|")[:3])
    deploy, ours = (part.strip() for part in counts["deploy"].split("|")[:2])
    theirs = re.search(r"^\| deploy, by OpenCV 4 \| *\| *(.*?) *\|", text, re.M)[1]
    many = re.search(r"^(\d+) repositories", text, re.M)[1]
    opened = json.loads(OPENED.read_text())
    worst = max(model["difference"] for model in opened["models"].values())
    return [
        [
            f"{int(every):,} real Caffe files of {many} repositories",
            f"**{read_}** read, **{converted}** converted",
            f"deploy nets among them, {deploy}: {ours} read, by OpenCV 4 {theirs}",
            "",
        ],
        [
            f"outputs of {len(opened['models'])} models trained with Caffe",
            f"equal within **{worst:.0e}**",
            f"OpenCV {opened['machine']['opencv']}'s",
            processor(opened),
        ],
    ]


def speed(ratio: str) -> str:
    """A ratio of speeds, in bold."""
    return f"**{ratio}** the speed"


def processor(found: dict) -> str:
    """The machine of a measurement on the CPU."""
    machine = found["machine"]
    return f"{machine['processor']}, {found.get('threads', machine['cores'])} cores"


def gpu(found: dict) -> str:
    """The GPU of a measurement on CUDA."""
    name = found["machine"].get("gpu") or found["runs"][0]["device"]
    return name.partition("NVIDIA ")[2].partition(" ")[0]
