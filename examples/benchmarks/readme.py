"""Put tables, and sentences that sum them up, from the result files into README.md and docs/, between marks.

    python examples/benchmarks/readme.py            write
    python examples/benchmarks/readme.py --check    only say whether they are there, exit code 1 if not
    python examples/benchmarks/readme.py --from DIR    keep the result files that on_a_gpu.py left, and write

A mark is `<!-- NAME -->`, up to the next `<!-- end -->`, on lines of their own or within a sentence.
"""

import json
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import bridges_tables
import claims
import inference_memory
import kernels
import mnist_parts
import onnx_tables
import opencv_tables
import peer_tables
import tables
import zoo_sizes
import zoo_tables
from sentences import SENTENCES

ROOT = Path(__file__).resolve().parent.parent.parent
FROM_COURSE = "peers", "ladder", "lenet_mnist", "mnist_parts", "zoo"  # what on_a_gpu.py leaves
PAGES = (
    "README.md",
    "docs/convolution.md",
    "docs/memory.md",
    "docs/pictures.md",
    "docs/after-opencv-5.md",
    "docs/export.md",
    "docs/onnx-to-caffe.md",
    "docs/zoo.md",
    "docs/testing.md",
    "docs/performance.md",
)


def paper_tables(device: str) -> str:
    """The tables of a device, and its chart if it has been drawn."""
    chart = tables.RESULTS / f"{device}.svg"
    text = tables.markdown(tables.read(device))
    if chart.exists():
        text += f"\n\n![The tables as a chart](../{chart.relative_to(ROOT).as_posix()})"
    return text


def lenet_mnist(found: dict) -> str:
    """Accuracy, time and memory of LeNet's training, a row a seed."""
    rows = [
        [
            str(run["seed"]),
            f"{run['accuracies']['500']:.4f}",
            f"{run['accuracy']:.4f}",
            f"{run['seconds'] / 60:.1f}",
            f"{run['peak_memory_mib']:.0f} MiB",
        ]
        for run in found["runs"]
    ]
    machine = found["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, NumPy {machine['numpy']}"
    head = ["seed", "after 500", "final accuracy", "minutes", "peak memory"]
    return tables.lay_out(head, rows) + f"\n\nMean {found['mean_accuracy']:.4f}; {where}."


def photos(found: dict) -> str:
    """How photographs of digits are read, a row a condition, with the code of each run."""
    runs = {name: run["conditions"] for name, run in found["runs"].items()}
    head = ["photographs of"]
    for name in runs:
        head += [f"{name}: right", "unsure", "wrong without warning", "of those, ≥ 90 % confident"]
    rows = []
    for condition, sums in runs["now"].items():
        rows.append([f"{condition} ({sums['pictures']})"])
        for counts in runs.values():
            keys = ("right", "unsure", "wrong_unsaid", "sure_and_wrong")
            rows[-1] += [str(counts[condition][key]) for key in keys]
    revisions = ", ".join(f"{name}: {run['revision']}" for name, run in found["runs"].items())
    return tables.lay_out(head, rows) + f"\n\nCommits: {revisions}."


SECTIONS = {
    "inference_memory_cpu": lambda: inference_memory.table(
        peer_tables.read("inference_memory", "cpu")
    ),
    "kernels_cuda": lambda: kernels.table(peer_tables.read("kernels", "cuda")),
    "lenet_mnist_cpu": lambda: lenet_mnist(peer_tables.read("lenet_mnist", "cpu")),
    "paper_tables_cpu": lambda: paper_tables("cpu"),
    "paper_tables_cuda": lambda: paper_tables("cuda"),
    "peers_cpu": lambda: peer_tables.peers(peer_tables.read("peers", "cpu")),
    "peers_cuda": lambda: peer_tables.peers(peer_tables.read("peers", "cuda")),
    "ladder_means_cpu": lambda: peer_tables.means(peer_tables.read("ladder", "cpu")),
    "ladder_cpu": lambda: peer_tables.ladder(peer_tables.read("ladder", "cpu")),
    "photos_cpu": lambda: photos(peer_tables.read("photos", "cpu")),
    "mnist_parts_cpu": lambda: mnist_parts.table(peer_tables.read("mnist_parts", "cpu")),
    "mnist_parts_cuda": lambda: mnist_parts.table(peer_tables.read("mnist_parts", "cuda")),
    "zoo_nets": zoo_sizes.sizes,
    "zoo_cpu": lambda: zoo_tables.zoo(peer_tables.read("zoo", "cpu")),
    "zoo_cuda": lambda: zoo_tables.cuda(peer_tables.read("zoo", "cuda")),
    "zoo_means_cpu": lambda: zoo_tables.means(peer_tables.read("zoo", "cpu")),
    "zoo_slower_cpu": lambda: zoo_tables.slower(peer_tables.read("zoo", "cpu")),
    "zoo_layers_cpu": lambda: zoo_tables.layers(peer_tables.read("zoo", "cpu")),
    "zoo_before_cpu": lambda: zoo_tables.before(peer_tables.read("zoo", "cpu")),
    "zoo_rates_cpu": lambda: zoo_tables.rates(peer_tables.read("xeon/zoo", "cpu")),
    "zoo_onnx": onnx_tables.differences,
    "onnx_nets": bridges_tables.nets,
    "onnx_cases": bridges_tables.cases,
    "after_opencv_5": opencv_tables.differences,
    "claims": claims.claims,
    "ladder_cuda": lambda: peer_tables.ladder(peer_tables.read("ladder", "cuda")),
    **SENTENCES,
}


def sections(text: str) -> dict[str, str]:
    """What stands between the marks of a page, by name, of those that are made here."""
    marked = re.findall(r"<!-- (\w+) -->(.*?)<!-- end -->", text, re.S)
    return {name: body.strip("\n") for name, body in marked if name in SECTIONS}


def filled(text: str) -> str:
    """The page with every such section made anew."""
    for name in sections(text):
        pattern = rf"(<!-- {name} -->\n?).*?(\n?<!-- end -->)"
        body = SECTIONS[name]()
        text = re.sub(pattern, lambda m, body=body: m[1] + body + m[2], text, flags=re.S)
    return text


def keep(folder: Path) -> None:
    """Copy the results of whole measurements on CUDA to where the pages take them from."""
    results = ROOT / "examples" / "benchmarks" / "results"
    places = {f"{name}_cuda.json": results for name in FROM_COURSE}
    for name, place in (places | {"cuda.json": tables.RESULTS}).items():
        path = folder / name
        if path.exists() and not json.loads(path.read_text()).get("quick"):
            shutil.copyfile(path, place / name)
            print(f"{path} -> {place / name}")


def main(check: bool) -> int:
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        if filled(text) != text:
            stale.append(page)
            if not check:
                path.write_text(filled(text))
    print(
        f"not what the result files say: {', '.join(stale)}"
        if check and stale
        else f"written: {', '.join(stale)}"
        if stale
        else "nothing to do"
    )
    return int(check and bool(stale))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--from"]:
        keep(Path(sys.argv[2]))
    sys.exit(main("--check" in sys.argv[1:]))
