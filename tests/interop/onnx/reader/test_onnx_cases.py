"""The operator cases of the onnx package: what is read computes what the case says, all else is refused."""

import functools
import warnings

import numpy as np
import pytest

from minicaffe import MinicaffeError
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.reader.source import OPSETS
from minicaffe.interop.onnx.table import READERS
from minicaffe.interop.onnx.writer import check

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@functools.cache
def cases():
    """The cases of a single operator, by operator. To collect them the package computes all: some seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases' own arithmetic
        every = collect_testcases(None)
    chosen: dict[str, list] = {}
    for case in every:
        if case.model is None or not case.data_sets:
            continue
        kinds = {node.op_type for node in case.model.graph.node}
        if len(kinds) == 1:
            chosen.setdefault(kinds.pop(), []).append(case)
    return chosen


def variants(case):
    """The case's model with all inputs computed, and with all but one made constants."""
    arrays = case.data_sets[0][0]
    version = case.model.opset_import[0].version
    model = case.model
    if version not in OPSETS:
        model = onnx.version_converter.convert_version(model, OPSETS[-1])
    for kept in (range(len(arrays)), (0,), (1,)):
        variant = onnx.ModelProto()
        variant.CopyFrom(model)
        names = [value.name for value in case.model.graph.input]
        for i, (name, array) in enumerate(zip(names, arrays, strict=False)):
            if i not in kept and isinstance(array, (np.ndarray, np.generic)):
                tensor = onnx.numpy_helper.from_array(np.asarray(array), name)
                variant.graph.initializer.append(tensor)
        made = {tensor.name for tensor in variant.graph.initializer}
        for value in [value for value in variant.graph.input if value.name in made]:
            variant.graph.input.remove(value)
        if variant.graph.input or not arrays:  # of constants alone, nothing is left to be said
            yield variant


def outcome(case, path):
    """The largest difference of an output from the case's, or the error that refuses it."""
    errors = []
    for variant in variants(case):
        path.write_bytes(variant.SerializeToString())
        try:
            imported = from_onnx(path)
            net = imported.net()
        except MinicaffeError as mistake:
            errors.append(mistake)
            continue
        arrays, wanted = case.data_sets[0]
        given = dict(zip([value.name for value in case.model.graph.input], arrays, strict=False))
        if not all(isinstance(given[name], np.ndarray) for name in imported.source.inputs):
            return None  # of a type that NumPy has no name for
        blobs = {name: imported.tensors.get(name, name) for name in imported.source.inputs}
        net.forward(**{blob: given[name].astype(np.float32) for name, blob in blobs.items()})
        outputs = (net.blobs[imported.tensors[one.name]].data for one in case.model.graph.output)
        pairs = zip(outputs, wanted, strict=True)
        return max(check.difference(np.asarray(a), np.asarray(b, np.float32)) for a, b in pairs)
    return errors[min(1, len(errors) - 1)]  # of the first input alone, where there are more


# Operators whose every case is refused: the reason is in the case, not in the operator.
NEVER = {"Erf", "CastLike", "Dropout", "LayerNormalization", "MeanVarianceNormalization"}
NEVER |= {
    "Celu",
    "GlobalMaxPool",
    "Cast",
}  # or it is of an opset that the converter leaves as it is
NEVER |= {"MaxUnpool", "If"}  # whose places, or condition, are inputs
NEVER |= {"Scan"}  # but for that of an LSTM that an export writes
NO_CASES = {"MaxRoiPool"}
FOUR_DIGITS = {"test_averagepool_2d_ceil_last_window_starts_on_pad"}


def most(case):
    """The largest difference of a right answer; cases of 16 bits are computed in float32 here."""
    if case.name in FOUR_DIGITS:
        return 1e-3
    return 2e-2 if "16" in case.name else 1e-4


@pytest.mark.parametrize("kind", sorted(READERS.keys() - NO_CASES))
def test_an_operators_cases(kind, tmp_path):
    """Each is right or refused, and of an operator that is read some are right."""
    right = 0
    for case in cases()[kind]:
        try:
            result = outcome(case, tmp_path / "case.onnx")
        except RuntimeError as mistake:  # of the package's converter: a case of a later opset
            assert "version_converter" in str(mistake)
            continue
        if isinstance(result, float):
            assert result < most(case), case.name
            right += 1
    assert right or kind in NEVER


def test_operators_without_cases():
    assert NO_CASES.isdisjoint(cases())
