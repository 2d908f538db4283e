"""What an import refuses: a table of nodes, and the line that says why."""

import numpy as np
import pytest

from minicaffe.interop.onnx.reader import from_onnx, proof

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import normal  # noqa: E402
from interop.onnx.reader.test_hostile import of_nodes, refusal, saved  # noqa: E402

node = onnx.helper.make_node
IMAGE = {"shape": (1, 4, 5, 5)}
LENGTHS = {"w": normal(1, 8, 3), "r": normal(1, 8, 2)}
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
UNPOOLED = [
    node("MaxPool", ["x"], ["p", "i"], **POOL),
    node("MaxUnpool", ["p", "i"], ["y"], **POOL),
]
UP = np.float32([1, 1, 1.3, 1.3])
GONE = [node("Hardmax", ["x"], ["h"]), node("Det", ["x"], ["d"]), node("Add", ["h", "d"], ["y"])]
TYPE = onnx.helper.make_tensor_type_proto(1, [2])


def relu(*nodes, read="r"):
    return [*nodes, node("Relu", [read], ["y"])]


REFUSED = [
    ([node("Pow", ["x", "e"], ["y"])], {"e": np.float32([1, 2, 3])}, "its exponents are several"),
    ([node("Gemm", ["x", "x"], ["y"], transB=1)], {}, "its second matrix "),
    ([node("Gemm", ["x", "w"], ["y"], transA=1)], {"w": normal(2, 2)}, "transA turns the samples into features"),
    ([node("LayerNormalization", ["x", "s"], ["r", "m"]), node("Add", ["r", "m"], ["y"])], {"s": normal(3)},
     "its mean and deviation are read; a LayerNorm returns none"),
    ([node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2])], IMAGE,
     "it is over the axes [0, 2]; MVN's are the last ones, and not the samples'"),
    ([node("MaxUnpool", ["x", "p"], ["y"], kernel_shape=[2, 2])], {**IMAGE, "p": np.zeros((1, 4, 5, 5), int)},
     "its places are not those of a MaxPool"),
    ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[3, 3], pads=[1] * 4, ceil_mode=1)],
     {"shape": (1, 2, 4, 4)}, "its last window starts behind the image, where opsets differ"),
    ([node("RNN", ["x", "w", "r"], ["y"], hidden_size=2, layout=1)],
     {"shape": (5, 1, 3), "w": normal(1, 2, 3), "r": normal(1, 2, 2)}, "layout 1 has the samples first, a Caffe RNN the steps"),
    ([node("TopK", ["x", "k"], ["y", "i"], largest=0)], {"k": np.array([1])}, "it takes the smallest; an ArgMax takes the largest"),
    ([node("Resize", ["x", "roi", "s"], ["y"], coordinate_transformation_mode="tf_crop_and_resize")],
     {**IMAGE, "roi": np.float32([0] * 4 + [1] * 4), "s": UP}, "it crops and resizes by regions"),
    ([node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode="align_corners")], {**IMAGE, "s": UP},
     "with align_corners its scales make no whole sizes, where runtimes differ"),
    ([node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)], {**IMAGE, "opset": 18, "s": np.float32([1, 1, 0.5, 0.5])},
     "it smooths what it makes smaller (antialias), where runtimes differ at the borders"),
    ([node("Resize", ["x", "", "s"], ["y"])], {**IMAGE, "s": np.float32([1, 1, 5000, 5000])},
     "its output (1, 4, 25000, 25000) is larger than any net's"),
    ([node("Conv", ["x", "w"], ["y"], pads=[-1] * 4)], {**IMAGE, "w": normal(2, 4, 1, 1)},
     "its pads [-1, -1, -1, -1] cut the image; a layer's do not|must not contain negative"),
    ([node("ConvTranspose", ["x", "w"], ["y"], pads=[-1] * 4)], {**IMAGE, "w": normal(4, 2, 3, 3)},
     "its pads are below 0; a layer's are not|must not contain negative"),
    (relu(node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["r"])),
     {"s": np.float32(1), "z": np.uint8(0)}, "it is a quantised model: export the float32 one, and see `minicaffe calibrate`"),
    ([node("TfIdfVectorizer", ["x"], ["y"], max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF",
           ngram_counts=[0], ngram_indexes=[0], pool_int64s=[1])], {"kind": 7}, "text is no blob"),
    (relu(node("RandomNormalLike", ["x"], ["n"]), node("Add", ["x", "n"], ["r"])), {}, "random numbers in inference have no layer"),
    ([node("LpPool", ["x"], ["y"], kernel_shape=[2, 2])], IMAGE, "no layer takes a window's norm: say it as Mul, AveragePool, Mul, Sqrt"),
    ([node("Mul", ["x", "x"], ["z"]), node("Cast", ["z"], ["y"], to=1)], {"kind": 7},
     "it computes whole numbers, and a blob's are floating point"),
    (GONE, {"shape": (2, 3, 3)}, " (and another node is refused); nothing was written"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "more", "told"), REFUSED, ids=[told[:40] for *_, told in REFUSED]
)
def test_nodes_that_no_layer_says(nodes, more, told, tmp_path):
    line = refusal(saved(of_nodes(*nodes, **more), tmp_path / "it.onnx"))
    assert any(one in line for one in told.split("|"))  # onnx says it first, of late


def test_numbers_of_four_bits_are_read(tmp_path):
    """Two in a byte, of which an array holds half as many as its shape promised."""
    four = onnx.helper.make_tensor("c", onnx.TensorProto.INT4, [3], b"\x21\x03", raw=True)
    nodes = [
        node("Constant", [], ["c"], value=four),
        node("DequantizeLinear", ["c", "s"], ["w"]),
        node("Add", ["x", "w"], ["y"]),
    ]
    path = saved(of_nodes(*nodes, opset=21, s=np.float32(0.5)), tmp_path / "it.onnx")
    (array,) = from_onnx(path, tmp_path / "net").arrays.values()
    assert array.ravel().tolist() == [0.5, 1.0, 1.5]


def test_a_branch_that_is_not_read(tmp_path):
    """With numbers that are sparse."""
    helper, value = onnx.helper, onnx.helper.make_tensor_value_info("r", 1, (2, 3))
    yes, no = (helper.make_graph([node("Relu", ["x"], ["r"])], "g", [], [value]) for _ in range(2))
    two, at = helper.make_tensor("two", 1, [1], [2.0]), helper.make_tensor("at", 7, [1], [1])
    yes.sparse_initializer.append(helper.make_sparse_tensor(two, at, [3]))
    made = node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    told = refusal(saved(of_nodes(made, c=np.array(True)), tmp_path / "it.onnx"))
    assert "its then_branch has sparse arrays, which are not read" in told


def test_what_is_no_graph_and_no_tensor(tmp_path):
    path = tmp_path / "it.onnx"
    told = refusal(saved(onnx.ModelProto(ir_version=8, producer_name="a\n"), path))
    assert told == f"{path}: is not a whole .onnx file: it holds no graph"
    model = of_nodes(node("Relu", ["x"], ["y"]))
    model.graph.input.append(onnx.helper.make_tensor_sequence_value_info("s", 1, None))
    assert "input 's': is no tensor, which a blob is" in refusal(saved(model, path))


def test_memory_that_a_proof_does_not_have(tmp_path, monkeypatch):
    def none(*given):
        raise MemoryError

    monkeypatch.setattr(proof.check, "run", none)
    path = saved(of_nodes(node("Relu", ["x"], ["y"])), tmp_path / "it.onnx")
    assert refusal(path) == f"{path}: there is not enough memory to compute it; nothing was written"


def test_what_is_said_in_other_layers_is_told(tmp_path):
    path = saved(of_nodes(node("HardSwish", ["x"], ["y"])), tmp_path / "it.onnx")
    notes = from_onnx(path, tmp_path / "net", target="caffe").notes
    assert any(note.startswith("1 HardSwish said in layers of ") for note in notes), notes


TARGETS = [
    ("caffe", UNPOOLED, {"shape": (1, 4, 4, 4)}, "where a pixel goes depends on the mask"),
    ("nvdla", [node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], {},
     "axes of 1 move by a Reshape; put the others where they are wanted before the export"),
    ("nvdla", [node("Reshape", ["x", "s"], ["y"])], {"s": np.array([1, 2, 2, 25])},
     "keep axes of 1, as keepdim=True does; leave other shapes to the host"),
    ("nvdla", [node("Slice", ["x", "a", "b", "c"], ["y"])], {"a": np.array([1]), "b": np.array([3]), "c": np.array([2])},
     "leave the parts whole, and cut them on the host"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "nodes", "arrays", "told"), TARGETS)
def test_what_to_do_instead_is_told(target, nodes, arrays, told, tmp_path):
    path = saved(of_nodes(*nodes, **{**IMAGE, **arrays}), tmp_path / "it.onnx")
    assert told in refusal(path, target=target)
