"""Engines of a user's own: registered, refused, called in every pass, also where others are replayed."""

import importlib.util
import io
import sys

import numpy as np
import pytest
from kit import refusal

from minicaffe import Engine, Net, Solver, SpecError, parse, register_engine
from minicaffe.backends.device import device
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune_cache, reference
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

pytestmark = pytest.mark.usefixtures("engines")
CPU = device("cpu")
MODEL = """
layers:
  - {name: x, type: Input, shape: {dim: [3, 2, 6, 7]}}
  - {name: t, type: Input, shape: {dim: [3, 4, 5, 6]}}
  - {name: y, type: Convolution, bottom: x, num_output: 4, kernel_size: 2, engine: ENGINE}
  - {name: loss, type: EuclideanLoss, bottom: [y, t]}
solver: {base_lr: 0.01, momentum: 0.9, max_iter: 9, display: 0}
"""


@pytest.fixture
def counted():
    """An engine that computes as the definition says, and how often each of its passes was called."""
    calls = dict.fromkeys(("forward", "input", "weight"), 0)

    @register_engine
    class Counted(Engine):
        name = "counted"

        def forward(self, x, weight, bias, g, out, work):
            calls["forward"] += 1
            return reference.forward(x, weight, bias, g, out)

        def input_gradient(self, dy, weight, g, out, work):
            calls["input"] += 1
            return reference.input_gradient(dy, weight, g, out)

        def weight_gradient(self, x, dy, g, out, work):
            calls["weight"] += 1
            return reference.weight_gradient(x, dy, g, out)

    return calls


@pytest.fixture(params=["compiled", "numpy"])
def loops(request, monkeypatch):
    """With compiled loops, and without any."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: False)


def feed(net, seed):
    rng = np.random.default_rng(seed)
    for name in ("x", "t"):
        blob = net.blobs[name].data
        blob[...] = rng.normal(size=blob.shape)


def trained(engine):
    solver = Solver(parse(MODEL.replace("ENGINE", engine)), device="cpu", dtype="float64")
    for seed in range(8):
        feed(solver.net, seed)
        solver.step(1)
    return solver.net.params["y"][0].data


def test_it_is_called_in_each_iteration_whatever_else_is_replayed(loops, counted):
    """Nothing of it is in the trace; the weights are those of the definition."""
    np.testing.assert_allclose(trained("counted"), trained("direct"), rtol=1e-10)
    assert counted["forward"] == counted["weight"] == 8


@pytest.fixture
def slow(monkeypatch):
    """Without compiled loops, so that any engine is a candidate."""
    monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: False)


def test_what_was_measured_of_an_engine_is_not_of_another_of_its_name(slow, tmp_path, monkeypatch):
    """It goes by the engine's file; where there is none, by the class itself."""
    g, keys = ConvGeometry(2, 3, (9, 9), 4, Window((3, 3))), []

    def key():
        return autotune_cache._key(Case(g, np.dtype("f4"), CPU, conv.CAP))

    passes = dict.fromkeys(("forward", "input_gradient", "weight_gradient"), lambda self, *_: None)
    for module, text in (("file", "1"), ("file", "1"), ("file", "2"), ("none", ""), ("none", "")):
        if text:
            (tmp_path / "a.py").write_text(text)
            spec = importlib.util.spec_from_file_location(module, tmp_path / "a.py")
            monkeypatch.setitem(sys.modules, module, importlib.util.module_from_spec(spec))
        register_engine(type("Own", (Engine,), {**passes, "name": "own", "__module__": module}))
        keys.append(key())
        del conv.ENGINES["own"]
    assert keys[0] == keys[1] and len({*keys}) == 4
    assert "own" not in key()


def test_a_key_names_it_once_it_is_registered(counted):
    net = Net(parse(MODEL.replace("ENGINE", "counted")))
    assert set(net.layers["y"].plan.names.values()) == {"counted"}
    told = r"expected one of auto, direct.*, counted, got 'count'; did you"
    with pytest.raises(SpecError, match=told):
        parse(MODEL.replace("ENGINE", "count"))


def lacks_a_pass():
    class Half(Engine):
        name = "half"

        def forward(self, x, weight, bias, g, out, work): ...

        def weight_gradient(self, x, dy, g, out, work): ...

    return Half


def named(name):
    passes = dict.fromkeys(("forward", "input_gradient", "weight_gradient"), lambda self, *_: None)
    return type("Named", (Engine,), {**passes, "name": name})


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (lacks_a_pass(), "engine Half: does not define input_gradient"),
        (named("auto"), "engine Named: expected a name that is a word, got 'auto'"),
        (named("two words"), "engine Named: expected a name that is a word, got 'two words'"),
        (named(3), "engine Named: expected a name that is a word, got 3"),
        (
            named("caffe"),
            "engine 'caffe': minicaffe.core.ops.conv.caffe has an engine of that name",
        ),
        (
            type("One", (named("mine"),), {"one_product": True}),
            "engine 'mine': one_product is for the engines that InnerProduct knows",
        ),
        (int, "register_engine: int is no subclass of Engine"),
    ],
    ids=["a pass", "auto", "words", "number", "taken", "a product", "no engine"],
)
def test_mistakes_are_named(cls, message):
    before = dict(conv.ENGINES)
    assert refusal(register_engine, cls, error=SpecError) == message
    assert before == conv.ENGINES


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("pointwise", "it was removed: take 'implicit' or 'batched'"),
        ("lanes", "it was removed: take 'auto' or 'winograd'"),
        ("places", "it is called 'packed' now"),
        ("mine", "--import FILE brings engines of one's own"),
        ("bached", "did you mean 'batched'?"),
        ("7", "engine: expected one of auto, direct, .*, got 7"),
    ],
)
def test_a_name_that_is_not_there_is_told_what_to_do(engine, told):
    """In a model; and, but for what is no text, as an argument."""
    with pytest.raises(SpecError, match=told.replace("?", r"\?")):
        parse(MODEL.replace("ENGINE", engine))
    if engine != "7":
        with pytest.raises(SpecError, match=told.replace("?", r"\?")):
            Net(parse(MODEL.replace("ENGINE", "auto")), device="cpu", engine=engine)


def test_what_is_measured_beside_an_engine_of_no_file_is_not_kept_in_one(
    slow, monkeypatch, tmp_path
):
    monkeypatch.setattr(autotune_cache.caches, "folder", lambda: tmp_path)
    passes = {
        way: lambda self, *given, way=way: getattr(reference, way)(*given[:-1])
        for way in ("forward", "input_gradient", "weight_gradient")
    }
    case = Case(ConvGeometry(1, 2, (6, 7), 3, Window((2, 2))), np.dtype("f4"), CPU, conv.CAP)
    register_engine(type("Own", (Engine,), {**passes, "name": "own", "__module__": "none"}))
    found, origin = autotune_cache.findings(case)
    assert "own" in found["forward"].ms and origin.startswith("measured now")
    assert autotune_cache.findings(case)[1].startswith("remembered from ")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel name: 2\n", "Some CPU @ 3 GHz"),
     ("processor: 0\nFeatures: fp asimd\n", "other"), (None, "other")],
)  # fmt: skip
def test_a_processor_is_known_by_its_model_or_else_its_kind(monkeypatch, text, name):
    def opened(path, encoding):
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(autotune_cache, "open", opened, raising=False)
    monkeypatch.setattr(autotune_cache.platform, "processor", lambda: "")
    monkeypatch.setattr(autotune_cache.platform, "machine", lambda: "other")
    assert autotune_cache._cpu.__wrapped__() == name


@pytest.mark.parametrize("built_in", ["caffe", "batched", "implicit", "direct"])
@pytest.mark.parametrize("says", [{}, {"is_compiled": lambda self, dtype: False}], ids=["", "says"])
def test_what_a_subclass_of_a_built_in_engine_adds_is_done_in_each_pass(
    built_in, says, loops, monkeypatch
):
    """Its NumPy is in no trace: a replay that knew only the built-in's loops would leave it out."""
    kind = type(conv.ENGINES[built_in])

    def forward(self, x, weight, bias, g, out, work):
        kind.forward(self, x, weight, bias, g, out, work)
        return np.maximum(out, 0, out=out)

    own = type("Own", (kind,), {"name": "own", "forward": forward, "__module__": "users", **says})
    monkeypatch.setitem(conv.ENGINES, "own", own())
    net = Net(parse(MODEL.replace("ENGINE", "own")), "TEST", device="cpu")
    lowest = []
    for seed in range(7):
        feed(net, seed)
        net.forward()
        lowest.append(float(net.blobs["y"].data.min()))
    assert lowest == [0.0] * 7
