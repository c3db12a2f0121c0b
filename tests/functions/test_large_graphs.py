"""Graphs of several nodes called outside `jit` are compiled as a whole, unless results depend on data."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def chain(count: int, last: str, y: str) -> onnx.ModelProto:
    names = ["x", *(f"v{i}" for i in range(count))]
    nodes = "".join(f"{b} = {'Mul' if i % 2 else 'Add'}({a}, w) " for i, (a, b) in enumerate(zip(names, names[1:])))  # noqa: B905, RUF007
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g(float[N,3] x) => ({y} y) <float[3] w = {{0.9, 1.1, -0.8}}> '
        f"{{ {nodes} y = {last}({names[-1]}) }}"
    )


@pytest.mark.parametrize("count", [10, 80])
def test_several_nodes_are_one_program(count) -> None:
    model = chain(count, "Relu", "float[N,3]")
    fn, params = popart.to_jax(model)
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})[0]
    for x in (X, X[:1]):
        np.testing.assert_allclose(fn(params, x)["y"], np.asarray(theirs)[: len(x)], rtol=1e-4)
    assert fn._compiled.__wrapped__._cache_size() == 2
    gradient = jax.grad(lambda p: fn(p, X)["y"].sum())(params)["w"]
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(lambda p: fn(p, X)["y"].sum()))(params)["w"], rtol=1e-4)


def test_results_that_depend_on_data_stay_exact() -> None:
    model = chain(80, "NonZero", "int64[2,M]")
    fn, params = popart.to_jax(model)
    for x in (X, np.zeros((1, 3), np.float32), X[:1]):
        theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_array_equal(fn(params, x)["y"], theirs)
    assert fn._never_whole  # what fills results up is cut off
    assert not fn._never_compiled


def test_a_wrong_input_is_named_and_does_not_change_how_it_runs() -> None:
    fn, params = popart.to_jax(chain(80, "Relu", "float[N,3]"))
    with pytest.raises(popart.popart_exception, match=r"'x' has shape \[2, 4\]"):
        fn(params, np.zeros((2, 4), np.float32))
    fn(params, X)
    assert not fn._never_compiled
