"""If: the branch of a constant condition stands in its place; any other condition is refused."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import onnx_runs, refusal

from minicaffe import SpecError
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.writer import check

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import normal  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

helper = onnx.helper
node = helper.make_node
FLOAT = onnx.TensorProto.FLOAT


def graph(nodes, outputs, arrays=()):
    """A branch: its outputs by name, its own arrays."""
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in dict(arrays).items()]
    return helper.make_graph(nodes, "branch", [], results, tensors)


def saved(path, nodes, outputs, arrays, shape=(2, 3, 4, 4), opset=17):
    """A file of nodes of x."""
    made = graph(nodes, outputs, arrays)
    made.input.append(helper.make_tensor_value_info("x", FLOAT, shape))
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for output in model.graph.output:
        output.ClearField("type")
    model = onnx.shape_inference.infer_shapes(model)
    for output in model.graph.output:
        if not output.type.tensor_type.HasField("shape"):
            output.CopyFrom(helper.make_tensor_value_info(output.name, FLOAT, shape))
    path.write_bytes(model.SerializeToString())
    return path


def imported(path):
    """What a file becomes, once it is written and computes what onnxruntime does."""
    result = from_onnx(path, path.parent / "net")
    compare(result, path)
    return result


def compare(result, path, theirs=onnx_runs):
    """Whether a net's outputs are those that onnxruntime computes."""
    (shape,) = result.source.inputs.values()
    x = normal(*shape, seed=3)
    net = result.net()
    net.forward(x=x)
    for name, array in theirs(path, x=x).items():
        blob = np.asarray(net.blobs[result.tensors[name]].data)
        assert blob.shape == array.shape
        assert check.difference(blob, array) < 1e-5, name


def referred(path, **arrays):
    """The outputs of ONNX's reference, by name."""
    evaluator = ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, arrays), strict=True))


def kinds(result):
    """The types of a net's layers but for its inputs."""
    return [layer.type for layer in result.spec.layers if layer.type != "Input"]


def either(condition, outputs, then, otherwise):
    """An If."""
    branches = {"then_branch": then, "else_branch": otherwise}
    return node("If", [condition], outputs, name=f"if_{outputs[0]}", **branches)


RELU = graph([node("Relu", ["x"], ["inner"])], ["inner"])
TANH = graph([node("Tanh", ["x"], ["inner"])], ["inner"])


@pytest.mark.parametrize(("value", "kind"), [(True, "ReLU"), (False, "TanH")])
def test_the_branch_that_is_taken(value, kind, tmp_path):
    """Its output is called as the If's."""
    nodes = [either("c", ["y"], RELU, TANH)]
    result = imported(saved(tmp_path / "it.onnx", nodes, ["y"], {"c": np.array(value)}))
    layers = [(layer.type, layer.name) for layer in result.spec.layers]
    assert layers == [("Input", "x"), (kind, "y")]


def test_a_condition_of_shapes_and_an_array_of_a_branch(tmp_path):
    """As torch writes a squeeze of an axis that may be 1; a convolution within is called after its weight."""
    conv = node("Conv", ["x", "body.conv.weight"], ["d"])
    squeezed = [conv, node("Squeeze", ["d", "axes"], ["e"])]
    arrays = {"body.conv.weight": normal(1, 3, 1, 1), "axes": np.array([1])}
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["channels"]),
        node("Equal", ["channels", "three"], ["c"]),
        either("c", ["y"], graph(squeezed, ["e"], arrays), TANH),
    ]
    result = imported(saved(tmp_path / "it.onnx", nodes, ["y"], {"one": [1], "three": [3]}))
    assert [layer.name for layer in result.spec.layers] == ["x", "body.conv", "y"]


def test_names_within_that_are_taken_elsewhere(tmp_path):
    """A name of a branch that shadows one of the graph is another tensor, in a graph within the branch too."""
    deep = graph([node("Add", ["h", "w"], ["x1"]), node("Neg", ["x1"], ["o"])], ["o"])
    deeper = graph([node("Exp", ["h"], ["h2"])], ["h2"])
    inner = [node("Tanh", ["x"], ["h3"]), node("Mul", ["h3", "w"], ["h4"])]
    inner.append(either("no", ["z"], deeper, deep))
    first = graph(inner, ["z"], {"w": np.float32(3), "no": np.array(False)})
    second = graph([node("Abs", ["h"], ["h3"]), node("Mul", ["h3", "w"], ["h4"])], ["h4"])
    nodes = [
        node("Relu", ["x"], ["h"]),
        either("yes", ["first"], first, TANH),
        either("yes", ["second"], second, TANH),
        node("Add", ["first", "second"], ["y"]),
    ]
    imported(saved(tmp_path / "it.onnx", nodes, ["y"], {"w": np.float32(2), "yes": np.array(True)}))


def test_results_that_no_node_of_the_branch_computes(tmp_path):
    """An array of the branch, and one result twice."""

    def path(*results):
        then = graph([node("Relu", ["x"], ["r"])], results, {"a": normal(2, 3, 4, 4)})
        no = graph([node("Tanh", ["x"], [name]) for name in "bd"], list("bd"))
        nodes = [either("c", ["p", "q"], then, no), node("Add", ["p", "q"], ["y"])]
        return saved(tmp_path / "it.onnx", nodes, ["y", "q"], {"c": np.array(True)})

    imported(path("r", "a"))
    for results in ("rr", "aa"):  # onnxruntime refuses them, the reference does not
        file = path(*results)
        compare(from_onnx(file), file, referred)


def test_what_leads_to_the_other_branch_may_be_refused(tmp_path):
    """It is not in the net. In the branch that is taken it is refused, as if it stood in the graph."""
    nodes = [
        node("Hardmax", ["x"], ["h"]),
        either("c", ["y"], graph([node("Relu", ["h"], ["i"])], ["i"]), TANH),
    ]
    path = tmp_path / "it.onnx"
    assert kinds(imported(saved(path, nodes, ["y"], {"c": np.array(False)}))) == ["TanH"]
    inner = graph([node("Hardmax", ["x"], ["h"], name="within")], ["h"])
    for wrong, told in (
        (nodes, "a node Hardmax of 'h': there is no layer for it"),
        ([either("c", ["y"], inner, TANH)], "node 'within' (Hardmax): there is no layer for it"),
    ):
        saved(path, wrong, ["y"], {"c": np.array(True)})
        assert told in refusal(from_onnx, path, error=SpecError)


def test_readers_within_a_branch_count(tmp_path):
    """A Dropout's mask that an If reads is refused as one that the graph around reads."""
    yes = graph([node("Cast", ["mask"], ["number"], to=FLOAT)], ["number"])
    nodes = [node("Dropout", ["x"], ["d", "mask"]), either("c", ["y"], yes, TANH)]
    path = saved(tmp_path / "it.onnx", nodes, ["d", "y"], {"c": np.array(True)})
    assert "its mask is read, which no layer returns" in refusal(from_onnx, path, error=SpecError)


@st.composite
def programs(draw, depth=0, outer=("x",), number=None):
    """Nodes and the name of their last result; names repeat in other branches, and behind a branch, conditions are constants."""
    number = number if number is not None else [0]
    nodes, arrays, known = [], {}, list(outer)
    own = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([f"t{i}" for i in range(4)]))
        if name in known:
            continue  # of the graphs around and of nodes before; onnx refuses it
        bottom = draw(st.sampled_from(known))
        if depth < 2 and draw(st.booleans()):
            branches = []
            for _ in range(2):
                inner, result, numbers = draw(programs(depth + 1, tuple(known), number))
                branches.append(graph(inner, [result], numbers))
            number[0] += 1
            condition = f"c{number[0]}"
            arrays[condition] = np.array(draw(st.booleans()))
            nodes.append(either(condition, [name], *branches))
        elif draw(st.booleans()):
            nodes.append(node(draw(st.sampled_from(["Relu", "Tanh", "Neg"])), [bottom], [name]))
        else:
            number[0] += 1
            arrays.setdefault(f"w{depth}", np.float32(number[0]))
            nodes.append(node("Mul", [bottom, f"w{depth}"], [name]))
        own.append(name)
        known.append(name)
    if not own:
        number[0] += 1
        own.append(f"last{number[0]}")
        nodes.append(node("Abs", [known[0]], own))
    return nodes, own[-1], arrays


@settings(max_examples=100)
@given(programs())
def test_nested_branches_whose_names_shadow(tmp_path_factory, program):
    nodes, result, arrays = program
    path = saved(tmp_path_factory.getbasetemp() / "it.onnx", nodes, [result], arrays, (1, 2))
    compare(from_onnx(path), path, referred)  # onnxruntime takes fewer names


TWO = graph([node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])], ["a", "b"])
COMPUTED = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"])]
WITH_INPUTS = onnx.GraphProto()  # as a Loop's body
WITH_INPUTS.CopyFrom(RELU)
WITH_INPUTS.input.append(helper.make_tensor_value_info("x", FLOAT, (2, 3, 4, 4)))


def without(key):
    """An If that lacks a branch."""
    made = either("c", ["y"], RELU, TANH)
    made.attribute.remove(next(one for one in made.attribute if one.name == key))
    return made


IF, YES = either("c", ["y"], RELU, TANH), {"c": np.array(True)}
HOSTILE = [
    ([*COMPUTED, IF], {"zero": np.float32(0)}, r"node 'if_y' \(If\): its condition is computed of the input"),
    ([either("c", ["y"], TWO, TANH)], YES, "then_branch returns 2 tensors, expected 1|onnx refuses it"),
    ([IF], {"c": np.float32(1)}, "its condition is float32 of shape|refuses"),
    ([IF], {"c": np.array([True, False])}, r"bool of shape \[2\], expected"),
    ([without("then_branch")], YES, "onnx refuses it"),
    ([without("else_branch")], {"c": np.array(False)}, "onnx refuses it"),
    ([either("c", ["y"], WITH_INPUTS, TANH)], YES, "its then_branch has inputs|onnx refuses it"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "given", "reason"), HOSTILE)
def test_what_is_refused(nodes, given, reason, tmp_path):
    """In one line."""
    told = refusal(from_onnx, saved(tmp_path / "it.onnx", nodes, ["y"], given), tmp_path / "net")
    assert re.search(reason, told) and "\n" not in told
    assert [one.name for one in tmp_path.iterdir()] == ["it.onnx"]
