"""Model files with mistakes of every kind: each works, or is refused in one line."""

import itertools
import math
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import my_layers  # noqa: F401  (of which a model speaks)
import numpy as np
import pytest

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net, parse, read
from minicaffe.errors import MinicaffeError, SpecError

FIXTURES = Path(__file__).resolve().parent / "fixtures"
MODELS = Path(__file__).resolve().parent.parent / "models"
# Models that hold every layer with most of its keys
SPOILT = Path(__file__).parent / "nets" / "spoilt"
SMALL = 20 << 20  # bytes of a net that is run, not only measured
WORK = 10**8  # multiply-adds of such a net

WORDS = """
0 -0 -0.0 -1 1 2 3 7 31 010 0x10 0o17 1e3 1e999 -1e400 .nan .inf 1e-400 1.5 1_000 12:30
1000000000 1000000000000000 9223372036854775807 9223372036854775808 99999999999999999999999999
~ null true false yes no on off Null TRUE '' "" "\\0" "\\n" "\\ud800" "\\UFFFFFFFF" é 日本
[] {} [[]] [1] [1,2] [1,2,3] [[1],[2]] {a:1} {a:&x} [~] [TRAIN,TEST] {type:constant} {dim:[]}
data label conv1 a b ip loss TRAIN TEST MAX AVE SUM PROD xavier msra bilinear positive_unitball
ReLU Convolution Pooling Input Data Softmax Accuracy Concat Eltwise Dropout Flatten digits mnist
*f *nope &f &f<<:*f !!int !!str !!float !!bool !!python/object:os.system !local !!set ? | > % @ `
<<: --- ... # : - , ] } [ { & * ! ' " . .. / /dev/null ../../etc ~nobody
"""
NASTY = [*WORDS.split(), "\t", "\0", "\ufeff", "\x07", "\x85", "\u2028", "\ud800", "dim: 0"]
NASTY += ["9" * 400, "9" * 5000, "x" * 5000, "[" * 300, "{a: " * 300, "- " * 300]
DIGITS = """
0 1 2 3 4 5 6 7 8 10 12 28 30 64 1000 -1 -2 0.5 1.0 1e3 1e200 -1e299 1e-300
1000000000 2147483647 3000000000 1000000000000 1000000000000000 9223372036854775807
"""
NUMBERS = DIGITS.split()


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to three things wrong in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng)
    return text


def characters(text: str, rng: random.Random) -> str:
    at, count = rng.randrange(len(text) + 1), rng.choice((0, 1, 1, 2, 9))
    new = rng.choice(("", rng.choice(text or " "), rng.choice(":-[]{},#&*!|>'\"%@ \t\n\r\0~0é?")))
    return text[:at] + new + text[at + count :]


def lines(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(4):
        case 0:
            rows[i], rows[j] = rows[j], rows[i]
        case 1:
            del rows[i]
        case 2:
            rows.insert(j, rows[i])
        case _:
            by = rng.choice((-4, -2, -1, 1, 2, 4))
            rows[i] = " " * by + rows[i] if by > 0 else rows[i][-by:]
    return "\n".join(rows)


def values(text: str, rng: random.Random) -> str:
    return _replaced(text, rng, lambda word: rng.choice(NASTY))


def numbers(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"(?<![\w.])-?[0-9.]+\b", text))
    if not found:
        return text
    at = rng.choice(found)
    new = rng.choice(NUMBERS) if rng.random() < 0.7 else f"[{rng.choice(NUMBERS)}, 2]"
    return text[: at.start()] + new + text[at.end() :]


def keys(text: str, rng: random.Random) -> str:
    known = ["name", "type", "top", "bottom", "axis", "pad", "param", "shape", "dim", "solver", "x"]
    return _replaced(
        text, rng, lambda word: rng.choice((word[:-1], word + word[-1], *known)), key=True
    )


def swaps(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    mine, other = rows[i].split(" "), rows[j].split(" ")
    a, b = rng.randrange(len(mine)), rng.randrange(len(other))
    if i != j:
        mine[a], other[b] = other[b], mine[a]
    rows[i], rows[j] = " ".join(mine), " ".join(other)
    return "\n".join(rows)


MUTATIONS = (characters, lines, values, numbers, numbers, numbers, keys, swaps)


def _replaced(text, rng, new, key=False):
    """One word of the text, a key or a value, replaced by new(word)."""
    rows = text.split("\n")
    i = rng.choice([i for i, row in enumerate(rows) if ":" in row] or [0])
    parts = rows[i].replace(",", " ,").replace("}", " }").split(" ")
    at = [k for k, part in enumerate(parts) if part and part.endswith(":") == key] or [0]
    k = rng.choice(at)
    parts[k] = new(parts[k].rstrip(":") or "x") + (":" if key else "")
    rows[i] = " ".join(parts)
    return "\n".join(rows)


@np.errstate(all="ignore")  # a net of absurd numbers may overflow
def attempt(text: str, path: Path) -> str:
    """How far a model file goes."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    spec = read(path)
    return passes(spec, all(layer.type not in ("Data", "WindowData") for layer in spec.layers))


def passes(spec: NetSpec, runs: bool) -> str:
    """How far the nets of a spec go: to their shapes, or through both passes if they are small."""
    nets = [Net(spec, phase, device="cpu", shapes_only=True) for phase in ("TRAIN", "TEST")]
    if not (runs and all(map(small, nets))):
        return "shapes"
    for phase in ("TRAIN", "TEST"):
        net = Net(spec, phase, device="cpu")
        net.forward()
        net.backward()
    return "ran"


def fates(
    texts: Iterable[str], attempt: Callable[[str, Path], str], path: Path, where: str = ""
) -> Counter[str]:
    """How far so many texts go, or the class of the error that refuses one, at a place like `where`.

    None hangs, or fails otherwise.
    """
    counts: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for i, text in enumerate(texts):
        signal.alarm(600)
        try:
            counts[attempt(text, path)] += 1
        except MinicaffeError as error:
            assert str(error).isprintable() and re.match(where, str(error)), error
            counts[type(error).__name__] += 1
        except BaseException as error:
            pytest.fail(f"mutation {i}: {error!r}:\n{text!r}")
        finally:
            signal.alarm(0)
    print(dict(counts))
    return counts


def small(net: Net) -> bool:
    """Whether a net may be run: few bytes, few multiplications."""
    arrays = [value for step in net.steps for value in step.tops] + net.learnable
    size = 2 * sum(math.prod(array.shape) for array in arrays) + net.context.workspace_size
    return 4 * size < SMALL and all(step.layer.multiply_adds < WORK for step in net.steps)


def texts() -> dict[str, str]:
    """Models small enough to be run often."""
    return {
        path.name: path.read_text().replace("FIXTURES", str(FIXTURES))
        for path in [*sorted(SPOILT.glob("*.yaml")), *sorted(MODELS.glob("lenet*.yaml"))]
    }


def test_the_models_hold_every_layer():
    built_in = {name for name, cls in REGISTRY.items() if cls.__module__.startswith("minicaffe.")}
    assert {layer.type for text in texts().values() for layer in parse(text).layers} == built_in


@pytest.mark.parametrize("name", texts())
def test_a_model_works_before_it_is_spoilt(name, tmp_path):
    done = ("ran", "shapes") if "type: Data" in texts()[name] else ("ran",)
    assert attempt(texts()[name], tmp_path / "model.yaml") in done


def test_a_spoilt_model_works_or_is_refused_in_one_line(request, tmp_path, here):
    count = 2000 if request.config.getoption("--long") else 150
    models, path = itertools.cycle(texts().values()), tmp_path / "model.yaml"
    spoilt = (mutated(next(models), random.Random(f"spoilt {i}")) for i in range(count))
    counts = fates(spoilt, attempt, path, f"{re.escape(str(path))}:")
    assert counts["ran"] > count // 50 and counts["SpecError"] > count // 4


def test_any_bytes_are_refused_in_one_line(request, tmp_path):
    rng, path = random.Random(5), tmp_path / "model.yaml"
    soup = [*NASTY[:-6], "\n", "\n  ", "\n- ", ": ", "- ", "? ", "a", "&a ", "*a "]
    soup += ['"\\U', "%YAML 1."]
    for _ in range(5000 if request.config.getoption("--long") else 500):
        if rng.random() < 0.3:
            data = rng.randbytes(rng.randrange(30))
        else:
            data = "".join(rng.choices(soup, k=rng.randrange(30))).encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        with pytest.raises(SpecError) as caught:
            read(path)
        assert str(caught.value).isprintable(), data
        assert re.match(rf"{re.escape(str(path))}:\d+:\d+: \S", str(caught.value)), data
