"""Prototxts with mistakes of every kind: each works, or is refused in one line."""

import functools
import itertools
import random
import re
import tracemalloc

import caffe_nets
import numpy as np
import pytest
from test_fuzz import fates, passes
from test_fuzz import texts as yaml_texts

from minicaffe.core.config import tree
from minicaffe.core.config.model import model
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import parse
from minicaffe.core.net.yaml_text import comments_of, yaml_text
from minicaffe.errors import SpecError
from minicaffe.interop.caffe import model as prototxt_model
from minicaffe.interop.caffe import text as prototxt_text
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.interop.caffe.text import TOKEN

SAID = r"""
0 -0 1 2 3 -1 7 010 09 0x10 0x 1.f .5 . 1e3 1e999 -1e400 inf nan -inf 1e-400 1_0 2147483648 9223372036854775808
99999999999999999999999999 true false t TRUE MAX AVE TRAIN TEST DATA RELU xavier null "" "a" 'b' "data" "conv1"
"ReLU" "Convolution" "Input" "Data" "\377" "\q" "\u0000" "\ud800" "\U00110000" "\n" 'x" "é" {} {{}} <> [] [1]
[1,2] ["a"] [{}] { } < > [ ] , ; : - # layer layers name type bottom top param shape dim input input_dim net
base_lr solver_mode include phase stage state minicaffe_param blobs convolution_param kernel_size num_output
pooling_param "/dev/null" "../../etc" "~nobody" é ? ! $ \ @
"""
WORDS = [*SAID.split(), "\0", "\a", "\x7f", "\ud800"]
WORDS += ["9" * 400, '"' + "x" * 5000 + '"']
WORDS += [word * 300 for word in ("layer {", "[", "{", "input_dim: 1 ")]


@functools.cache
def texts() -> dict[str, str]:
    """Nets of every layer, written as prototxt; old nets; solvers with their nets in them."""
    found = {name: prototxt(parse(text), REGISTRY) for name, text in yaml_texts().items()}
    for name in ("lenet_v0.prototxt", "lenet_v1.prototxt", "cifar10_quick.prototxt"):
        found[name] = (caffe_nets.NETS / name).read_text().replace("64", "2")
    solver = (caffe_nets.NETS / "lenet_solver.prototxt").read_text().replace("net:", "# ")
    found["solver"] = f"{solver}\nnet_param {{\n{found['lenet_v1.prototxt']}\n}}"
    return found


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to three things wrong in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, count = rng.randrange(len(text) + 1), rng.choice((0, 1, 1, 2, 9))
        pieces = [match.group() for match in TOKEN.finditer(text)]
        i, j = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(7):
            case 0:
                new = rng.choice(("", rng.choice(text), rng.choice(WORDS)))
                text = text[:at] + new + text[at + count :]
                continue
            case 1:
                pieces[i] = rng.choice(WORDS)
            case 2:
                pieces[i], pieces[j] = pieces[j], pieces[i]
            case 3:
                pieces[i] = pieces[j]
            case 4:
                del pieces[i : i + rng.choice((1, 2, 5, 40))]
            case 5:
                pieces[i:i] = pieces[j : j + rng.choice((1, 3, 40, 200))]
            case _:
                numbers = [k for k, piece in enumerate(pieces) if piece[0].isdigit()]
                pieces[rng.choice(numbers or [i])] = rng.choice(WORDS[:28])
        text = "".join(pieces)
        if not text:
            return "x"
    return text


def read_and_written(path):
    """The model of a prototxt, which is the same once it is written as YAML, or as a prototxt."""
    found = prototxt_model.read_text(path, REGISTRY)
    spec = model(found.root, REGISTRY, path)
    for write, read in ((yaml_text, tree.parse), (prototxt, None)):
        out = write(spec, REGISTRY, found.comments)
        root = read(out) if read else prototxt_model.text_of(out, "out", REGISTRY).root
        assert caffe_nets.resolved(model(root, REGISTRY)) == caffe_nets.resolved(spec)
    return spec


@np.errstate(all="ignore")
def attempt(text: str, path) -> str:
    """How far a prototxt goes."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    spec = read_and_written(path)
    types = [layer.type for layer in spec.layers]
    return passes(spec, not any("Data" in kind or kind == "Python" for kind in types))


@pytest.mark.parametrize("name", texts())
def test_a_prototxt_works_before_it_is_spoilt(name, tmp_path):
    assert attempt(texts()[name], tmp_path / "a.prototxt") in ("ran", "shapes")


def test_a_spoilt_prototxt_works_or_is_refused_in_one_line(request, tmp_path, here):
    count = 5000 if request.config.getoption("--long") else 300
    models, path = itertools.cycle(texts().values()), tmp_path / "a.prototxt"
    spoilt = (mutated(next(models), random.Random(f"spoilt {i}")) for i in range(count))
    counts = fates(spoilt, attempt, path, rf"({re.escape(str(path))}|out|<text>):")
    assert counts["ran"] + counts["shapes"] > count // 20 and counts["SpecError"] > count // 4


def test_any_bytes_are_refused_in_one_line_and_little_memory(request, tmp_path, monkeypatch):
    """As much as so many values take, at a tenth of the limit: to watch memory is slow."""
    monkeypatch.setattr(prototxt_text, "MAX_VALUES", 10_000)
    rng, path = random.Random(5), tmp_path / "a.prototxt"
    tracemalloc.start()
    for _ in range(5000 if request.config.getoption("--long") else 500):
        soup = " ".join(rng.choices(WORDS, k=rng.randrange(30))).encode("utf-8", "surrogatepass")
        path.write_bytes(rng.randbytes(rng.randrange(30)) if rng.random() < 0.3 else soup)
        with pytest.raises(SpecError) as caught:
            prototxt_model.read_prototxt(path, REGISTRY)
        assert str(caught.value).isprintable() and str(caught.value).startswith(f"{path}:")
    path.write_bytes(b"layer { name: 'x' } " * 200_000)
    with pytest.raises(SpecError, match="more than 10000 values"):
        prototxt_model.read_prototxt(path, REGISTRY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25 << 20


def test_comments_of_any_yaml_are_found_where_they_are():
    rng = random.Random(3)
    for _ in range(200):
        lines, wanted = [], []
        for number in range(1, 8):
            key = f"k{number}: " + rng.choice(("1", "'# no'", '"# no"', "[a#b, c]"))
            alone, text = rng.random() < 0.3, f"c{rng.randrange(99)}"
            line = f"{key}  # {text}" if rng.random() < 0.5 else key
            lines.append(f"# {text}" if alone else line)
            if "# c" in lines[-1]:
                wanted.append((number, text, alone))
        found = comments_of("\n".join(lines) + "\n")
        assert [(one.line, one.text, one.alone) for one in found] == wanted
