"""Damaged .onnx files: small models, and ways to damage them, for a process whose memory is limited.

`python tests/interop/onnx/reader/mutants.py FOLDER SEED COUNT` reads so many of them, and prints, as JSON, how many became
nets, how many were refused, and what should not have happened.
"""

import json
import os
import random
import resource
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402

MEMORY = 3 * 2**29  # bytes that a process may take on top of what it has after its imports
NUMBERS = [0, 1, -1, 2, 3, 7, -5, 255, 65536, 2**31 - 1, 2**31, -(2**31), 10**12, 2**62, -(2**63)]
FLOATS = [0.0, -1.0, 1e-38, 1e38, 0.5, float("inf"), float("nan")]


def model_of(nodes, inputs, outputs, arrays, opset=17, ir=8, **more):
    """A model of float32 inputs {name: shape}, checked."""
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    graph = helper.make_graph(nodes, "small", infos, results, initializers)
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir, **more)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)  # outputs get their types
    onnx.checker.check_model(model)
    return model


WORDS = {
    word: np.float32(n)
    for n, word in enumerate(["zero", "one", "two", "three", "four", "five", "six"])
}
WORDS |= {"half": np.float32(0.5), "root": np.sqrt(np.float32(2))}


def said(text, shape=(1, 4, 5, 5), opset=17, **arrays):
    """A model of nodes from x to y, as onnx.parser reads them; numbers by their words."""
    nodes = parser.parse_graph(f"g (float x) => (float y) {{ {text} }}").node
    read = {name for node in nodes for name in node.input} - {
        name for node in nodes for name in node.output
    }
    numbers = {name: np.asarray(array) for name, array in (WORDS | arrays).items() if name in read}
    return model_of(nodes, {"x": shape}, ["y"], numbers, opset)


def normal(*shape, seed=0):
    """Random numbers, in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def image_net():
    """Convolutions, poolings, a resize, a padding, and shapes that are computed."""
    node = helper.make_node
    nodes = [
        node("Pad", ["x", "pads"], ["padded"], name="pad"),
        node("Conv", ["padded", "c1.weight", "c1.bias"], ["c1"], name="conv", strides=[2, 2]),
        node("BatchNormalization", ["c1", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["n1"]),
        node("Clip", ["n1", "low", "high"], ["r1"], name="clip"),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("AveragePool", ["r1"], ["p2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Resize", ["p2", "", "", "sizes"], ["up"], mode="linear"),
        node("Shape", ["p1"], ["shape"]),
        node("Gather", ["shape", "first"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "zero"], ["one"]),
        node("Concat", ["one", "minus"], ["flat"], axis=0),
        node("Reshape", ["p1", "flat"], ["rows"]),
        node("Gemm", ["rows", "fc.weight", "fc.bias"], ["logits"], transB=1, alpha=0.5),
        node("Softmax", ["logits"], ["prob"], axis=1),
        node("Slice", ["up", "starts", "ends", "axes", "steps"], ["cut"], name="slice"),
    ]
    arrays = {"c1.weight": normal(4, 3, 3, 3), "c1.bias": normal(4), "bn.mean": normal(4, seed=3)}
    arrays |= {"bn.weight": normal(4, seed=1), "bn.bias": normal(4, seed=2)}
    arrays |= {"bn.var": abs(normal(4, seed=4)) + 0.5, "fc.weight": normal(5, 36, seed=5)}
    arrays |= {"fc.bias": normal(5, seed=6), "low": np.float32(-1), "high": np.float32(4)}
    whole = {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "sizes": [1, 4, 9, 9], "zero": [0], "minus": [-1]}
    whole |= {"first": 0, "starts": [1, 0], "ends": [9, 9], "axes": [2, 3], "steps": [2, 1]}
    arrays |= {name: np.array(numbers) for name, numbers in whole.items()}
    return model_of(nodes, {"x": (1, 3, 12, 12)}, ["prob", "cut"], arrays)


def branch(kind):
    """A branch of an If: an operator of rows, times an array of its own."""
    nodes = [
        helper.make_node(kind, ["rows"], ["inner"]),
        helper.make_node("Mul", ["inner", "own"], ["result"]),
    ]
    results = [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)]
    own = numpy_helper.from_array(normal(5, seed=9), "own")
    return helper.make_graph(nodes, "branch", [], results, [own])


def other_net():
    """Operators that move and reduce, an LSTM, an RNN, an If, places of a pooling, a transposed convolution, and constants of constants."""
    node = helper.make_node
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [2.0])
    nodes = [
        node("ConstantOfShape", ["size"], ["twos"], value=value, name="constant"),
        node("Range", ["from", "to", "by"], ["range"], name="range"),
        node("Tile", ["twos", "times"], ["tiled"], name="tile"),
        node("Expand", ["tiled", "grown"], ["expanded"], name="expand"),
        node("Add", ["x", "expanded"], ["shifted"]),
        node("ConvTranspose", ["shifted", "up.weight"], ["up"], strides=[2, 2], pads=[1, 0, 0, 1]),
        node("Split", ["up", "parts"], ["a", "b"], axis=1),
        node("Mul", ["a", "b"], ["product"]),
        node("Transpose", ["product"], ["turned"], perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["turned", "ln.weight", "ln.bias"], ["ln"], axis=-1),
        node("ReduceMean", ["ln"], ["mean"], axes=[1, 3], keepdims=0),
        node("Gather", ["mean", "range"], ["picked"], axis=1),
        node("Sigmoid", ["picked"], ["y"]),
        node("ArgMax", ["picked"], ["place"], axis=1),
        node("DepthToSpace", ["x"], ["spread"], blocksize=2),
        node("Flatten", ["spread"], ["flat"], axis=3),
        node("MatMul", ["flat", "m"], ["rows"]),
        node("Unsqueeze", ["rows", "middle"], ["steps"]),
        node("LSTM", ["steps", "W", "R", "B"], ["h"], hidden_size=3),
        node("TopK", ["rows", "k"], ["top", "index"], axis=1),
        node("If", ["yes"], ["branch"], then_branch=branch("Neg"), else_branch=branch("Exp")),
        node("RNN", ["steps", "rW", "rR"], ["", "rh"], hidden_size=3),
        node("MaxPool", ["x"], ["pooled", "at"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxUnpool", ["pooled", "at"], ["unpooled"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    arrays = {"up.weight": normal(4, 4, 3, 3), "ln.weight": normal(2, seed=1)}
    arrays |= {"ln.bias": normal(2, seed=2), "m": normal(8, 5, seed=3)}
    arrays |= {"W": normal(1, 12, 5, seed=4), "R": normal(1, 12, 3, seed=5)}
    arrays |= {"rW": normal(1, 3, 5, seed=7), "rR": normal(1, 3, 3, seed=8)}
    arrays |= {"B": normal(1, 24, seed=6)}
    whole = {"size": [1, 1, 4], "times": [1, 4, 1], "grown": [1, 4, 4, 4]}
    whole |= {"from": 0, "to": 6, "by": 2}
    whole |= {"parts": [2, 2], "middle": [1], "k": [1], "yes": True}
    arrays |= {name: np.array(numbers) for name, numbers in whole.items()}
    outputs = ["y", "place", "h", "top", "branch", "rh", "unpooled"]
    return model_of(nodes, {"x": (1, 4, 4, 4)}, outputs, arrays)


def exported():
    """A net of minicaffe's own, exported."""
    from minicaffe import Net, parse
    from minicaffe.interop.onnx.writer import to_onnx

    text = """
layers:
  - {name: data, type: Input, shape: {dim: [1, 4, 8, 8]}}
  - {name: conv, type: Convolution, num_output: 8, kernel_size: 3, pad: 1, group: 2}
  - {name: bn, type: BatchNorm, use_global_stats: true}
  - {name: scale, type: Scale, bias_term: true}
  - {name: prelu, type: PReLU}
  - {name: lrn, type: LRN, local_size: 3}
  - {name: pool, type: Pooling, kernel_size: 3, stride: 2}
  - {name: up, type: Upsample, scale: 2}
  - {name: shuffle, type: ShuffleChannel, group: 2}
  - {name: slice, type: Slice, top: [left, right], axis: 1}
  - {name: sum, type: Eltwise, bottom: [left, right]}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: prob, type: Softmax}
"""
    net = Net(parse(text), "TEST", device="cpu", dtype="float32")
    for step in net.steps:
        for i, param in enumerate(step.layer.params):
            param.load(abs(normal(*param.shape, seed=i)) + 0.1)
    path = Path("exported.onnx")
    to_onnx(net, path)
    return onnx.load(str(path))


def damaged_bytes(data, chance):
    """Bytes flipped, left out, repeated, or cut off."""
    data, how = bytearray(data), chance.randrange(5)
    if how == 0:
        return bytes(data[: chance.randrange(len(data))])
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        at = chance.randrange(len(data))
        if how == 1:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 2:
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif how == 3:
            del data[at : at + chance.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + chance.randrange(1, 9)]
    return bytes(data)


def change_array(model, chance):
    """Another number, size, type, or name of an array."""
    tensor = chance.choice(model.graph.initializer)
    how = chance.randrange(6)
    array = numpy_helper.to_array(tensor)
    if how == 0 and tensor.dims:
        tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(NUMBERS)
    elif how == 1:
        tensor.data_type = chance.randrange(0, 25)
    elif how == 2:
        empty = np.zeros(chance.choice([(0,), (0, 3), (), (1, 1, 1, 1, 1)]), array.dtype)
        tensor.CopyFrom(numpy_helper.from_array(empty, tensor.name))
    elif how == 3 and array.dtype == np.int64:
        whole = np.array([chance.choice(NUMBERS) for _ in range(array.size)])
        tensor.CopyFrom(numpy_helper.from_array(whole.reshape(array.shape), tensor.name))
    elif how == 4 and array.dtype == np.float32:
        array = np.full(array.shape, chance.choice(FLOATS), np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    else:
        changed = array.copy().reshape(-1)
        if changed.size and changed.dtype == np.int64:
            changed[chance.randrange(len(changed))] = chance.choice(NUMBERS)
        kind = chance.choice([array.dtype, np.float16, np.float64, np.int32, np.uint8, bool])
        with np.errstate(all="ignore"):
            changed = changed.reshape(array.shape).astype(kind)
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def change_attribute(model, chance):
    """Another value, kind or number of values of an attribute; one more, or one less."""
    node = chance.choice(model.graph.node)
    if not node.attribute or chance.random() < 0.15:
        names = ["axis", "pads", "strides", "group", "mode", "to", "value", "blocksize", "axes"]
        value = chance.choice([chance.choice(NUMBERS), [1, 2], "linear", 0.5, [-1, 0, 99]])
        node.attribute.append(helper.make_attribute(chance.choice(names), value))
        return
    one = chance.choice(node.attribute)
    how = chance.randrange(5)
    if how == 0:
        node.attribute.remove(one)
    elif how == 1:
        one.type = chance.randrange(0, 15)
    elif one.ints and how < 4:
        one.ints[chance.randrange(len(one.ints))] = chance.choice(NUMBERS)
    elif one.ints:
        del one.ints[len(one.ints) - chance.choice([1, len(one.ints)]) :]
    elif one.s:
        one.s = chance.choice([b"", b"cubic", b"nearest", b"SAME_UPPER", b"SAME_LOWER", b"\xff"])
    elif one.HasField("f"):
        one.f = chance.choice(FLOATS)
    else:
        one.i = chance.choice(NUMBERS)


def change_node(model, chance):
    """Another operator, input, output or order; a node twice, or gone."""
    nodes = model.graph.node
    index = chance.randrange(len(nodes))
    node, other = nodes[index], chance.choice(nodes)
    how = chance.randrange(9)
    names = [name for one in nodes for name in (*one.input, *one.output)]
    names += [value.name for value in model.graph.input] + ["", "nowhere"]
    if how == 0:
        node.op_type = chance.choice([*{one.op_type for one in nodes}, "Loop", "Erf", "GRU", "Nix"])
    elif how == 1 and node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice(names)
    elif how == 2 and node.output:
        node.output[chance.randrange(len(node.output))] = chance.choice(names)
    elif how == 3:
        nodes.remove(node)
    elif how == 4:
        nodes.add().CopyFrom(node)
    elif how == 5:
        del node.input[chance.randrange(len(node.input) + 1) :]
    elif how == 6:
        node.input.append(chance.choice(names))
    elif how == 7:
        node.domain = chance.choice(["ai.onnx", "ai.onnx.ml", "com.microsoft", "x"])
    else:
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        node.CopyFrom(other)
        other.CopyFrom(kept)


def change_model(model, chance):
    """Another opset, shape or type of an input, name, or output."""
    how, graph = chance.randrange(8), model.graph
    if how == 0:
        model.opset_import[0].version = chance.choice([*range(24), -1, 2**40])
    elif how == 1:
        dims = graph.input[0].type.tensor_type.shape.dim
        chance.choice(dims).dim_value = chance.choice(NUMBERS)
    elif how == 2:
        dims = graph.input[0].type.tensor_type.shape.dim
        chance.choice(dims).dim_param = "n"
    elif how == 3:
        graph.input[0].type.tensor_type.elem_type = chance.randrange(0, 25)
    elif how == 4:
        graph.output[0].name = chance.choice(["", "x", "nowhere", graph.initializer[0].name])
    elif how == 5:
        graph.initializer.add().CopyFrom(chance.choice(graph.initializer))
    elif how == 6:
        chance.choice([graph.node[0], graph]).name = chance.choice(["", "a\nb", "\0", "ü" * 300])
    else:
        model.ir_version = chance.choice([0, 3, 8, 99])
        chance.choice([graph.input, graph.output, graph.initializer]).pop()


CHANGES = [change_array, change_array, change_attribute, change_attribute, change_node]
CHANGES += [change_node, change_model]


def mutant(models, seed):
    """The bytes of a damaged model; the same for the same seed."""
    chance = random.Random(seed)
    original = chance.choice(models)
    if chance.random() < 0.3:
        return damaged_bytes(original.SerializeToString(), chance)
    model = onnx.ModelProto()
    model.CopyFrom(original)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        try:
            chance.choice(CHANGES)(model, chance)
        except (ValueError, TypeError, IndexError, KeyError):
            continue  # what an earlier change left cannot be changed so
    return model.SerializeToString()


def main(folder, seed, count):
    from minicaffe import MinicaffeError
    from minicaffe.interop.onnx.reader import from_onnx

    os.chdir(folder)
    warnings.simplefilter("error")
    models = [image_net(), other_net(), exported()]
    path = Path("it.onnx")
    for model in models:  # whole, they are read
        path.write_bytes(model.SerializeToString())
        from_onnx(path, "whole")
    before = sorted(os.listdir("."))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
    counts, faults = Counter(), {}
    for number in range(seed, seed + count):
        path.write_bytes(mutant(models, number))
        Path("seed").write_text(str(number))
        try:
            from_onnx(path, "net", folded=bool(number % 2))
            counts["read"] += 1
            files = ["net.caffemodel", "net.prototxt"]
        except MinicaffeError as error:
            counts["refused"] += 1
            files = []
            if "\n" in str(error):
                faults[number] = f"several lines: {error}"
        except Exception:
            faults[number] = traceback.format_exc()
            files = []
        made = sorted(set(os.listdir(".")) - {*before, "seed"})
        if not set(made) <= set(files) or (files and "net.prototxt" not in made):
            faults[number] = f"{faults.get(number, '')} files: {made}"
        for name in made:
            os.unlink(name) if os.path.isfile(name) else None
    print(json.dumps({"counts": counts, "faults": faults}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
