"""Halves add up in single precision, and what is infinite or no number stays where it is: ONNX Runtime's values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import popart_jax as popart

KINDS = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}
NAN, INF = np.nan, np.inf
LARGE = np.array([[300, 300, -300, 6e4, -6e4, 3]], np.float16)


def results(op: str, inputs: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> list[list[np.ndarray]]:
    """What ONNX Runtime, the function and the jitted function make of a node."""
    infos = [helper.make_tensor_value_info(n, KINDS[v.dtype], v.shape) for n, v in inputs.items()]
    first = next(iter(inputs.values())).dtype
    kinds = [KINDS[first], TensorProto.INT64][:outputs]
    made = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)]
    node = helper.make_node(op, list(inputs), [m.name for m in made], **attributes)
    graph = helper.make_graph([node], "g", infos, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    with pytest.warns(UserWarning, match="no trainable parameters"):
        fn, params = popart.to_jax(model)
    ours = (fn(params, inputs), jax.jit(fn)(params, inputs))
    return [[np.asarray(x) for x in theirs], *([np.asarray(o[m.name]) for m in made] for o in ours)]


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("ReduceSum", LARGE),
        ("ReduceMean", LARGE),
        ("ReduceProd", np.array([[300, 300, 1 / 256, 1 / 256]], np.float16)),
        ("ReduceL2", np.array([[300, 400]], np.float16)),
        ("ReduceLogSum", np.array([[6e4, 6e4]], np.float16)),
    ],
)
def test_reductions_of_halves(op: str, values: np.ndarray) -> None:
    theirs, *ours = results(op, {"x": values}, keepdims=0)
    for found in ours:
        np.testing.assert_array_equal(found[0], theirs[0])


@pytest.mark.parametrize(("op", "attributes"), [("AveragePool", {"kernel_shape": [2, 2]}), ("GlobalAveragePool", {})])
def test_averages_of_halves(op: str, attributes: dict[str, Any]) -> None:
    theirs, *ours = results(op, {"x": np.full((1, 1, 2, 2), 6e4, np.float16)}, **attributes)
    for found in ours:
        np.testing.assert_array_equal(found[0], theirs[0])


@pytest.mark.parametrize(("op", "values"), [("Mean", [6e4, 6e4]), ("Sum", [6e4, 6e4, -6e4])])
def test_sums_of_several_halves(op: str, values: list[float]) -> None:
    theirs, *ours = results(op, {f"x{i}": np.array([v], np.float16) for i, v in enumerate(values)})
    for found in ours:
        np.testing.assert_array_equal(found[0], theirs[0])


def test_the_index_of_a_window_of_nan_is_inside() -> None:
    theirs, *ours = results("MaxPool", {"x": np.full((1, 1, 2, 2), NAN, np.float32)}, 2, kernel_shape=[2, 2])
    for found in ours:
        np.testing.assert_array_equal(found[0], theirs[0])
        np.testing.assert_array_equal(found[1], theirs[1])


def test_regions_round_halves_up() -> None:
    rois = np.array([[0, 0.5, 0.5, 4.5, 2.5], [0, 1.5, 2.5, 3.5, 4.5]], np.float32)
    data = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    theirs, *ours = results("MaxRoiPool", {"x": data, "rois": rois}, pooled_shape=[2, 2], spatial_scale=1.0)
    for found in ours:
        np.testing.assert_array_equal(found[0], theirs[0])


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize(("groups", "channels"), [(32, 1), (8, 4), (4, 2)])
def test_groups_of_a_convolution_keep_to_themselves(value: float, groups: int, channels: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, groups * channels, 6, 6)).astype(np.float32)
    x[0, 1, 2, 2] = value
    w = rng.normal(size=(groups * 2, channels, 3, 3)).astype(np.float32)
    theirs, *ours = results("Conv", {"x": x, "w": w}, group=groups)
    for found in ours:
        np.testing.assert_allclose(found[0], theirs[0], rtol=1e-4, atol=1e-4)
