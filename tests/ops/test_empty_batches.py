"""Batches of nothing, as a program feeds them that sorts its samples first: results of nothing, of the right shape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import popart_jax

from .single import model, run


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


STEPS = {"hidden_size": 6}
# operator, operands (some have no elements), shape of the first result, attributes
CASES: dict[str, tuple[str, list[Any], tuple[int, ...], dict[str, Any]]] = {
    "Conv": ("Conv", [ones(0, 64, 28, 28), ones(64, 64, 3, 3)], (0, 64, 26, 26), {}),
    "Conv of groups": ("Conv", [ones(0, 4, 6, 6), ones(4, 2, 3, 3)], (0, 4, 4, 4), {"group": 2}),
    "Conv of channels": ("Conv", [ones(0, 4, 9), ones(8, 1, 3)], (0, 8, 7), {"group": 4}),
    "Conv of no channels": ("Conv", [ones(1, 0, 4, 4), ones(2, 0, 2, 2)], (1, 2, 3, 3), {}),
    "Conv of no channels, pointwise": ("Conv", [ones(1, 0, 4, 4), ones(2, 0, 1, 1)], (1, 2, 4, 4), {}),
    "Conv to no channels": ("Conv", [ones(1, 1, 4, 4), ones(0, 1, 2, 2)], (1, 0, 3, 3), {}),
    "DeformConv": ("DeformConv", [ones(0, 2, 5, 5), ones(3, 2, 3, 3), ones(0, 18, 3, 3)], (0, 3, 3, 3), {}),
    "GridSample": ("GridSample", [ones(0, 2, 6, 6), ones(0, 3, 4, 2)], (0, 2, 3, 4), {}),
    "Col2Im": ("Col2Im", [ones(0, 4, 9), np.int64([4, 4]), np.int64([2, 2])], (0, 1, 4, 4), {}),
    "LSTM": ("LSTM", [ones(7, 0, 8), ones(1, 24, 8), ones(1, 24, 6)], (7, 1, 0, 6), STEPS),
    "GRU without steps": ("GRU", [ones(0, 2, 8), ones(1, 18, 8), ones(1, 18, 6)], (0, 1, 2, 6), STEPS),
    "RNN": ("RNN", [ones(7, 0, 8), ones(1, 6, 8), ones(1, 6, 6)], (7, 1, 0, 6), STEPS),
    "LayerNormalization": ("LayerNormalization", [ones(0, 3, 4), ones(4), ones(4)], (0, 3, 4), {}),
    "GroupNormalization": ("GroupNormalization", [ones(0, 4, 5), ones(4), ones(4)], (0, 4, 5), {"num_groups": 2}),
    "InstanceNormalization": ("InstanceNormalization", [ones(0, 3, 4), ones(3), ones(3)], (0, 3, 4), {}),
    "Attention": ("Attention", [ones(0, 2, 8)] * 3, (0, 2, 8), {"q_num_heads": 2, "kv_num_heads": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:The model has no trainable parameters")
def test_results_and_gradients_of_an_empty_batch(case: str) -> None:
    op, operands, shape, attributes = CASES[case]
    fn, params = popart_jax.to_jax(with_stored_operands(model(op, operands, at=23, **attributes), operands))
    feeds = {f"x{i}": jnp.asarray(x) for i, x in enumerate(operands) if not x.size}
    (result,) = fn.outputs
    assert fn(params, feeds)[result].shape == shape

    def total(params: Any, feeds: Any) -> jax.Array:
        return jnp.sum(fn(params, feeds)[result])

    slopes = jax.jit(jax.grad(total, argnums=(0, 1)))(params, feeds)
    assert not any(slope.any() for slope in jax.tree.leaves(slopes))


def test_the_range_of_no_numbers_is_that_of_zero() -> None:
    data, scale, zero = run("DynamicQuantizeLinear", [ones(0, 3)], 3)
    assert data.shape == (0, 3)
    assert (scale, zero) == (0, 0)


def with_stored_operands(proto: onnx.ModelProto, operands: list[np.ndarray]) -> onnx.ModelProto:
    """The model with all operands that have elements as initializers."""
    stored = {f"x{i}": x for i, x in enumerate(operands) if x.size}
    fed = [info for info in proto.graph.input if info.name not in stored]
    del proto.graph.input[:]
    proto.graph.input.extend(fed)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in stored.items())
    return proto
