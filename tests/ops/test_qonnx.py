"""Quantisers of QONNX: worked values of its formulas, and PyTorch's gradients of fake quantisation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart
from popart_jax.ops.qonnx import DOMAINS

VALUES = np.array([-9.3, -1.5, -0.5, 0.0, 0.5, 0.7, 1.5, 9.3], np.float32)


def loaded(op: str, operands: list[Any], domain: str = DOMAINS[0], version: int = 1, **attributes: Any) -> Any:
    names = [f"i{i}" for i in range(len(operands))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], "n", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.asarray(x, np.float32), n) for n, x in zip(names, operands, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, version)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.warns(UserWarning, match="no trainable"):  # scales and zero points are settings
        return popart.to_jax(model)


def found(op: str, operands: list[Any], x: np.ndarray = VALUES, **facts: Any) -> Any:
    fn, params = loaded(op, operands, **facts)
    return fn(params, x)["y"]


ROUNDINGS = {
    "ROUND": [-4, -2, 0, 0, 0, 1, 2, 3],
    "half_even": [-4, -2, 0, 0, 0, 1, 2, 3],
    "CEIL": [-4, -1, 0, 0, 1, 1, 2, 3],
    "FLOOR": [-4, -2, -1, 0, 0, 0, 1, 3],
    "UP": [-4, -2, -1, 0, 1, 1, 2, 3],
    "DOWN": [-4, -1, 0, 0, 0, 0, 1, 3],
    "HALF_UP": [-4, -2, -1, 0, 1, 1, 2, 3],
    "HALF_DOWN": [-4, -1, 0, 0, 0, 1, 1, 3],
}


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_three_bits_by_every_rounding(mode: str) -> None:
    np.testing.assert_array_equal(found("Quant", [1, 0, 3], rounding_mode=mode), ROUNDINGS[mode])


@pytest.mark.parametrize(
    ("signed", "narrow", "least", "most"), [(1, 0, -8, 7), (1, 1, -7, 7), (0, 0, 0, 15), (0, 1, 0, 14)]
)
@pytest.mark.parametrize("domain", DOMAINS)
def test_four_bits_have_these_limits(domain: str, signed: int, narrow: int, least: int, most: int) -> None:
    y = found("IntQuant", [0.5, 0, 4], domain=domain, signed=signed, narrow=narrow)
    assert (y.min(), y.max()) == (max(least * 0.5, -9.5), most * 0.5)


def test_a_zero_point_shifts_the_limits_and_one_signed_bit_is_a_sign() -> None:
    shifted = found("Quant", [0.5, 2, 3], signed=0)  # integers 0 to 7, less the zero point
    np.testing.assert_array_equal(shifted, [-1, -1, -0.5, 0, 0.5, 0.5, 1.5, 2.5])
    np.testing.assert_array_equal(found("Quant", [0.5, 0, 1]), np.where(VALUES >= 0, 0.5, -0.5))
    np.testing.assert_array_equal(found("BipolarQuant", [0.5]), np.where(VALUES >= 0, 0.5, -0.5))


def test_truncated_integers_lose_their_last_bits() -> None:
    x = np.array([-130, -9, -1, 0, 7, 8, 100], np.float32)
    np.testing.assert_array_equal(found("Trunc", [1, 0, 8, 5], x), [-17, -2, -1, 0, 0, 1, 12])
    newer = found("Trunc", [1, 0, 8, 8, 4], x, version=2)  # by 8, within -8 and 7
    np.testing.assert_array_equal(newer, [-64, -16, -8, 0, 0, 8, 56])


def test_gradients_are_those_of_fake_quantisation() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(0, 3, 50).astype(np.float32)
    fn, params = loaded("Quant", [0.25, 0, 4])
    theirs = torch.tensor(x, requires_grad=True)
    (torch.fake_quantize_per_tensor_affine(theirs, 0.25, 0, -8, 7) ** 2).sum().backward()
    ours = jax.grad(lambda x: (fn(params, x)["y"] ** 2).sum())(x)
    inside = (x / 0.25 >= -8) & (x / 0.25 <= 7)  # QONNX limits before it rounds
    np.testing.assert_allclose(ours[inside], theirs.grad.numpy()[inside], rtol=1e-6)
    np.testing.assert_array_equal(ours[~inside], 0)


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(popart.popart_exception, match="rounding_mode 'NEAREST' is none of ROUND"):
        found("Quant", [1, 0, 8], rounding_mode="NEAREST")
