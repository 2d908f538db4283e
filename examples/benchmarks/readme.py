"""Put tables, and sentences that sum them up, from the result files into README.md and docs/, between marks.

    python examples/benchmarks/readme.py            write
    python examples/benchmarks/readme.py --check    only say whether they are there, exit code 1 if not
    python examples/benchmarks/readme.py --from DIR    keep the result files that on_a_gpu.py left, and write

A mark is `<!-- NAME -->`, up to the next `<!-- end -->`, on lines of their own or within a sentence.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import result_tables as made
import tables
from claims import ENGINES, claims
from machine import commit
from measure import RESULTS, ROOT
from result_tables import read

FROM_COURSE = "lenet_step", "ladder", "lenet_mnist", "mnist_parts", "zoo"  # what on_a_gpu.py leaves
PAGES = (
    "README.md",
    "docs/convolution.md",
    "docs/concepts.md",
    "docs/data.md",
    "docs/export.md",
    "docs/onnx-to-caffe.md",
    "docs/zoo.md",
    "docs/performance.md",
)
SECTIONS = {
    "claims": claims,
    "engines": lambda: str(len(ENGINES)),
    "numba_gain_cpu": lambda: made.numba_gain(read("lenet_step_cpu")),
    "lenet_mnist_cpu": lambda: made.lenet_mnist(read("lenet_mnist_cpu")),
    "mnist_parts": lambda: made.mnist_parts(read("mnist_parts_cpu"), read("mnist_parts_cuda")),
    "lenet_step_cpu": lambda: made.lenet_step(read("lenet_step_cpu")),
    "lenet_step_cuda": lambda: made.lenet_step(read("lenet_step_cuda")),
    "numpy_beside_torch_cpu": lambda: made.beside_torch(read("lenet_step_cpu"), "numpy"),
    "zoo_nets": made.zoo_nets,
    "zoo_cpu": lambda: made.zoo(read("zoo_cpu")),
    "zoo_means_cpu": lambda: made.zoo_means(read("zoo_cpu")),
    "zoo_behind_cpu": lambda: made.zoo_behind(read("zoo_cpu")),
    "zoo_cuda": lambda: made.zoo_cuda(read("zoo_cuda")),
    "ladder": lambda: made.ladder(read("ladder_cpu"), read("ladder_cuda")),
    "paper_cpu": made.paper_cpu,
    "paper_tables": made.paper_tables,
    "inference_memory_cpu": lambda: made.inference_memory(read("inference_memory_cpu")),
    "photos_cpu": lambda: made.photos(read("photos_cpu")),
    "onnx_export": lambda: made.onnx_export(read("onnx_export")),
    "onnx_nets": lambda: made.onnx_nets(read("onnx_import")),
    "onnx_cases": lambda: made.onnx_cases(read("onnx_import")),
    "after_opencv_5": made.after_opencv_5,
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
    """Copy the results of whole measurements on CUDA to where the pages take them from.

    Where they were made there was no git to ask: they are of this checkout's commit.
    """
    places = {f"{name}_cuda.json": RESULTS for name in FROM_COURSE}
    for name, place in (places | {"cuda.json": tables.RESULTS}).items():
        path = folder / name
        if not path.exists() or (report := json.loads(path.read_text())).get("quick"):
            continue
        report["commit"] = report.get("commit") or commit()
        (place / name).write_text(json.dumps(report, indent=1) + "\n")
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
