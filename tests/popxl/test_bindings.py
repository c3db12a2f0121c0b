"""What methods of Tensor, Graph and Ir call above their classes, and who may be driven as an inference session."""

from __future__ import annotations

import pytest

import popart_jax as popart
from popart_jax.popxl import ops
from popart_jax.popxl._building.bindings import Bindings, operators


def test_functions_are_called_by_the_name_they_were_entered_under() -> None:
    bindings = Bindings()

    @bindings.enter("twice")
    def double(x: int) -> int:
        return 2 * x

    bindings.enter_all({"thrice": lambda x: 3 * x})
    assert (bindings.twice(4), bindings.thrice(4), double(4)) == (8, 12, 8)
    with pytest.raises(AttributeError, match="nothing is bound to 'fourfold'"):
        bindings.fourfold(4)


def test_every_operator_is_bound() -> None:
    for name in ops.__all__:
        value = getattr(ops, name)
        if callable(value):
            assert getattr(operators, name) is value


def test_an_inference_session_takes_programs_alone() -> None:
    with pytest.raises(TypeError, match="fromIr takes the Ir of a PopXL program, got str"):
        popart.InferenceSession.fromIr("model.onnx", popart.DeviceManager().createCpuDevice())
