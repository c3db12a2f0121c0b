"""The adaptive family: AdaGrad, RMSProp, centred RMSProp, AdaDelta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._calls import checked
from ..enums import AdaptiveMode, DataType, WeightDecayMode
from ..errors import popart_exception
from .base import Optimizer
from .values import OptimizerValueMap


class Adaptive(Optimizer):
    """AdaGrad, RMSProp, centred RMSProp and AdaDelta as PopART defines them.

    Parameters
    ----------
    values : dict
        ``{name: (value, isConst)}`` of defaultLearningRate (0.01), defaultWeightDecay (0), defaultAlpha (0.99),
        defaultMomentum (0), defaultEps (1e-6), lossScaling (1).
    mode : AdaptiveMode
        Member of the family.
    weight_decay_mode : WeightDecayMode
        Decoupled, or added to the gradient.
    accum_type, accl1_type, accl2_type, accl3_type : DataType
        Types of the gradient accumulator, the two moments and the momentum; UNDEFINED is the weight's.
    rmsprop_tf_variant : bool
        TensorFlow's RMSProp: epsilon under the root, learning rate inside the momentum.

    Raises
    ------
    popart_exception
        Unknown names, values outside their ranges, unsupported types, the variant with another mode.
    """

    _family = "Adaptive"
    _defaults = {  # noqa: RUF012
        "learningRate": 0.01, "weightDecay": 0.0, "alpha": 0.99, "momentum": 0.0, "eps": 1e-6, "lossScaling": 1.0,
    }  # fmt: skip
    _specific = ("learningRate", "weightDecay", "alpha", "momentum", "eps")
    _groups = {  # noqa: RUF012
        "lossScaling": "loss scaling", "learningRate": "learning rates", "weightDecay": "weight decays",
        "alpha": "alphas", "momentum": "momentums", "eps": "eps",
    }  # fmt: skip

    @checked
    def __init__(
        self,
        values: dict[Any, Any],
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
        debugContext: Any = "adaptive",
    ) -> None:
        if rmsprop_tf_variant and mode not in (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp):
            raise popart_exception(
                "The rmspropTFVariant parameter is only valid with the RMSProp and CenteredRMSProp optimizers."
            )
        self.mode, self.decay_mode, self.tf_variant = mode, weight_decay_mode, rmsprop_tf_variant
        self.accum_type = accum_type
        self.accl1_type = accl1_type
        self.accl2_type = accl2_type
        self.accl3_type = accl3_type
        self._set_values(values)

    def _check_values(self) -> None:
        super()._check_values()
        self._refuse_negative("alpha", "alpha")
        self._refuse_negative("momentum", "momentum", shown="alpha")
        self._refuse_not_positive("eps", "eps")

    def has_momentum(self, weight: str) -> bool:
        """Whether a weight needs a momentum buffer."""
        momentum = self.value("momentum", weight)
        return not momentum.isConst() or momentum.val() != 0

    def _differs(self, other: Adaptive) -> str:
        if self.mode is not other.mode:
            return "Adaptive modes do not match"
        return "" if self.decay_mode is other.decay_mode else "Weight decay modes do not match"

    def _state_types(self) -> Sequence[tuple[str, DataType, bool]]:
        moments = (("Accl1___", self.accl1_type, False), ("Accl2___", self.accl2_type, False))
        return ("Accum___", self.accum_type, True), *moments, ("Accl3___", self.accl3_type, True)

    def _structure(self) -> Mapping[str, Any]:
        return {
            "mode": self.mode,
            "weight decay mode": self.decay_mode,
            "accumulator types": (self.accum_type, self.accl1_type, self.accl2_type, self.accl3_type),
            "TensorFlow variant": self.tf_variant,
            "momentum buffers": [not v.isConst() or v.val() != 0 for v in self._maps["momentum"]],
        }

    def learningRates(self) -> OptimizerValueMap:
        """Learning rates."""
        return self._maps["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Weight decays."""
        return self._maps["weightDecay"]

    def alphas(self) -> OptimizerValueMap:
        """Smoothing factors."""
        return self._maps["alpha"]

    def momentums(self) -> OptimizerValueMap:
        """Momentums."""
        return self._maps["momentum"]

    def epss(self) -> OptimizerValueMap:
        """Numbers added to the root."""
        return self._maps["eps"]
