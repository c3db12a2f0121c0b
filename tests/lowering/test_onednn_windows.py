"""Windows at which oneDNN's sums were wrong, or it ended the process: results are those of NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax.lowering.kernels import ordered_weights
from popart_jax.lowering.kernels.correlation import suits_library
from popart_jax.ops.windows import Window, window

from ..fuzz.windows import Drawn, by_library, by_numpy, may_be_called, start
from .sums import needs_library

# data, weights, groups, strides, begins and ends of padding, dilations
CASES = {
    "one column at stride 2": ((1, 64, 1, 1), (3, 3, 1, 24), 1, (2, 2), (1, 1, 1, 1), (1, 1)),
    "one column of many channels": ((2, 28, 3, 16), (3, 2, 16, 8), 1, (2, 3), (0, 0, 1, 0), (1, 1)),
    "one column, stride 2 along it alone": ((2, 66, 3, 1), (3, 3, 1, 24), 1, (1, 2), (0, 0, 0, 0), (1, 1)),
    "one column, more data than is read": ((1, 16, 5, 1), (3, 4, 1, 8), 1, (1, 3), (1, 0, 1, 0), (1, 1)),
    "one column of a volume": ((2, 3, 5, 1, 1), (3, 2, 3, 1, 8), 1, (3, 1, 2), (2, 0, 1, 1, 1, 1), (2, 1, 1)),
    "one place that is padding": ((1, 4, 1, 1), (2, 1, 1, 4), 1, (1, 3), (0, 2, 0, 0), (1, 1)),
    "padding as large as the window": ((1, 2, 8), (2, 8, 1), 1, (3,), (1, 2), (1,)),
    "places that are padding": ((1, 16, 1, 24), (2, 1, 3, 16), 8, (1, 3), (1, 2, 0, 1), (1, 2)),
    "padding in volumes": ((1, 8, 8, 1, 8), (3, 1, 1, 4, 2), 2, (1, 1, 2), (2, 0, 1, 2, 0, 2), (1, 1, 2)),
    "a volume of one plane": ((1, 1, 8, 3, 2), (3, 2, 3, 2, 24), 1, (1, 1, 2), (1, 0, 1, 2, 0, 2), (1, 2, 1)),
    "by channel, padding as large as the window": ((1, 16, 24), (1, 1, 24), 24, (3,), (2, 3), (2,)),
    "by channel, windows as large as the data": ((1, 7, 24), (7, 1, 24), 24, (3,), (3, 2), (1,)),
    "by channel, dilated": ((8, 14, 40), (7, 1, 40), 40, (3,), (3, 1), (2,)),
    "by channel, larger than the data": ((1, 56, 1, 8), (3, 3, 1, 8), 8, (2, 2), (0, 3, 3, 1), (2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["bytes", "floats", "floats and a bias"])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_those_of_numpy(case: str, kind: str) -> None:
    """Whole numbers, so that sums are exact in any order."""
    data, weights, group, strides, pads, dilations = CASES[case]
    win = window(data[1:-1], weights[:-2], strides, dilations, pads, "NOTSET")
    rng = np.random.default_rng(0)
    floats = kind != "bytes"
    x = rng.integers(0, 256, data).astype(np.float32 if floats else np.uint8)
    w = rng.integers(-128, 128, weights).astype(np.float32 if floats else np.int8)
    bias = rng.integers(-9, 9, weights[-1]).astype(np.float32) if "bias" in kind else None
    needs_library()
    drawn = Drawn(x, w, bias, group, win, stored=False)
    if not may_be_called(drawn):
        pytest.skip("floats in groups are XLA's on this processor")
    for found in by_library(drawn):
        np.testing.assert_array_equal(found, by_numpy(drawn))


@pytest.mark.parametrize("number", range(40))
def test_drawn_windows(number: int) -> None:
    """The first of ``python -m tests.fuzz windows``."""
    needs_library()
    assert start()(number, print) in ("equal", "not called")


@pytest.mark.parametrize("sizes", [(64, 1), (64, 2), (1, 64)])
@pytest.mark.parametrize("strides", [(2, 2), (1, 2), (2, 1)])
def test_integer_convolutions_of_one_column(sizes: Sequence[int], strides: Sequence[int]) -> None:
    """Of a recogniser of texts whose image is one column wide, by `ConvInteger` with zero points."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.integers(0, 256, (24, 1, 3, 3)).astype(np.uint8), "a": np.uint8(100), "b": np.uint8(121)}
    node = onnx.helper.make_node("ConvInteger", ["x", *weights], ["y"], pads=[1] * 4, strides=strides)
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, (1, 1, *sizes))
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = onnx.helper.make_graph([node], "g", [given], [made], stored)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    x = rng.integers(0, 256, (1, 1, *sizes)).astype(np.uint8)
    with pytest.warns(UserWarning, match="no trainable parameters"):
        fn, params = popart_jax.to_jax(model)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(np.asarray(jax.jit(fn)(params, {"x": x})["y"]), wanted)


def test_groups_are_computed_by_xla_on_processors_with_short_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes beyond its memory there."""
    win = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), (112, 112), (0, 0))
    x = jax.ShapeDtypeStruct((8, 112, 112, 96), np.float32)
    by_channel, whole = (jax.ShapeDtypeStruct((3, 3, c, 96), np.float32) for c in (1, 96))
    for long in (True, False):
        monkeypatch.setattr(ordered_weights, "_orders", lambda _, long=long: long)
        assert suits_library(x, by_channel, 96, win) == long
        assert suits_library(x, whole, 1, win)
