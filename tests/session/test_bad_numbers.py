"""Values no training can use."""

from __future__ import annotations

import pytest

import popart_jax as popart
from popart_jax import popart_exception

NAN, INFINITE = (float("nan"), True), (float("inf"), False)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: popart.ConstSGD(float("nan")), "learningRate"),
        (lambda: popart.SGD({"defaultWeightDecay": NAN}), "weightDecay"),
        (lambda: popart.SGD({"lossScaling": NAN}), "lossScaling"),
        (lambda: popart.Adam({"defaultLearningRate": NAN}), "learningRate"),
        (lambda: popart.Adam({"defaultEps": NAN}), "eps"),
        (lambda: popart.Adaptive({"defaultLearningRate": NAN}), "learningRate"),
        (lambda: popart.SGD({"defaultLearningRate": INFINITE}), "learningRate"),
        (lambda: popart.SGD({"defaultLearningRate": (1e39, True)}), "learningRate"),
        (lambda: popart.SGD({"defaultMomentum": INFINITE}), "momentum"),
        (lambda: popart.Adam({"lossScaling": INFINITE}), "lossScaling"),
        (lambda: popart.Adaptive({"defaultEps": INFINITE}), "eps"),
        (lambda: popart.SGD({}).insertSpecific("w", {"weightDecay": INFINITE}), "weightDecay"),
    ],
)
def test_values_that_are_no_numbers(make, field: str) -> None:
    with pytest.raises(popart_exception, match=rf"{field} must be a finite number in \w+, got (nan|inf)"):
        make()


def test_an_infinite_limit_of_the_weight_norm_is_none() -> None:
    assert popart.Adam({"defaultMaxWeightNorm": INFINITE}, mode=popart.AdamMode.Lamb).maxWeightNorms()


@pytest.mark.parametrize("norm", [float("inf"), float("nan"), -1.0])
def test_norms_that_nothing_can_be_clipped_to(norm: float) -> None:
    with pytest.raises(popart_exception, match="maxNorm must be a finite number of at least 0"):
        popart.SGD({}, [popart.ClipNormSettings.clipAllWeights(norm)])
