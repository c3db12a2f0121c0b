"""An If one of whose branches does not fit to the shapes of a call: the other runs, the host hears of a wrong turn."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart

from ..platforms import ON_CPUS

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x, bool c) => (float[2,3] y) {
    y = If (c) <
        then_branch = t () => (float[2,3] a) { a = Add(x, x) },
        else_branch = e () => (float[2,3] b) { b = MatMul(x, x) }
    >
}"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_the_fitting_branch_runs_and_the_other_raises() -> None:
    fn, params = popart.to_jax(onnx.parser.parse_model(MODEL))
    call = jax.jit(lambda c: fn(params, {"x": X, "c": c})["y"])
    np.testing.assert_array_equal(call(np.bool_(True)), X + X)
    with pytest.raises(Exception, match="does not fit to the shapes of this call"):
        jax.block_until_ready(call(np.bool_(False)))
    text = call.lower(np.bool_(True)).as_text()
    assert "case" in text  # the host is called under a condition, not at every run


def test_rows_of_a_vmap_ask_for_themselves() -> None:
    fn, params = popart.to_jax(onnx.parser.parse_model(MODEL))
    call = jax.jit(jax.vmap(lambda c: fn(params, {"x": X, "c": c})["y"]))
    np.testing.assert_array_equal(call(np.array([True, True])), [X + X, X + X])
    with pytest.raises(Exception, match="does not fit to the shapes of this call"):
        jax.block_until_ready(call(np.array([True, False])))


@ON_CPUS
def test_weights_that_are_fixed_keep_the_short_call() -> None:
    fn, params = popart.to_jax(onnx.parser.parse_model(MODEL))
    infer = fn.with_weights(params)
    for _ in range(2):
        np.testing.assert_array_equal(infer({"x": X, "c": np.bool_(True)})["y"], X + X)
        with pytest.raises(popart.popart_exception, match="does not fit to the shapes of this call"):
            jax.block_until_ready(infer({"x": X, "c": np.bool_(False)}))
    assert infer._programs._shortest is not None


@ON_CPUS
def test_the_functions_own_jit_raises_it_as_ours() -> None:
    fn, params = popart.to_jax(onnx.parser.parse_model(MODEL))
    with pytest.raises(popart.popart_exception, match=r"^An If took a branch that does not fit"):
        jax.block_until_ready(fn.jit(params, {"x": X, "c": np.bool_(False)}))


def test_a_condition_that_the_jitted_function_closes_over_picks_its_branch() -> None:
    """Decoders merged from two: one branch for the first token, one for cached keys and values."""
    text = MODEL.replace("float[2,3] y", "float[N,3] y").replace("MatMul(x, x)", "Concat<axis=0>(x, x)")
    fn, params = popart.to_jax(onnx.parser.parse_model(text))
    for cached, rows in ((np.array([True]), 2), (np.array([False]), 4)):
        assert jax.jit(lambda x, cached=cached: fn(params, {"x": x, "c": cached[0]})["y"])(X).shape == (rows, 3)
    with pytest.raises(popart.popart_exception, match="close over what the condition is made of"):
        fn.jit(params, {"x": X, "c": np.array(True)})
