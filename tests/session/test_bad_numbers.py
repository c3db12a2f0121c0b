"""Values no training can use."""

from __future__ import annotations

import pytest

import popart_jax as popart
from popart_jax import popart_exception

NAN = (float("nan"), True)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: popart.ConstSGD(float("nan")), "learningRate"),
        (lambda: popart.SGD({"defaultWeightDecay": NAN}), "weightDecay"),
        (lambda: popart.SGD({"lossScaling": NAN}), "lossScaling"),
        (lambda: popart.Adam({"defaultLearningRate": NAN}), "learningRate"),
        (lambda: popart.Adam({"defaultEps": NAN}), "eps"),
        (lambda: popart.Adaptive({"defaultLearningRate": NAN}), "learningRate"),
    ],
)
def test_values_that_are_no_numbers(make, field: str) -> None:
    with pytest.raises(popart_exception, match=rf"optimizer value {field} is not a number \(nan\)"):
        make()
