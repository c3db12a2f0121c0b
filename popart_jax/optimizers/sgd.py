"""Stochastic gradient descent, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._calls import checked
from ..enums import DataType, SGDAccumulatorAndMomentum
from ..errors import popart_exception
from .base import Optimizer, check_state_type
from .clip_norm import ClipNormSettings
from .values import OptimizerValueMap


class SGD(Optimizer):
    """SGD as PopART defines it.

    Parameters
    ----------
    pyd : dict
        ``{name: (value, isConst)}`` of defaultLearningRate (0.1), defaultWeightDecay (0), defaultMomentum (0),
        defaultDampening (0), defaultVelocityScaling (1), lossScaling (1), nesterov (0). A number stands for a learning
        rate that may change (older spelling).
    clip_norm_settings : list of ClipNormSettings
        Groups of weights whose gradients are clipped by their norm.
    accumulatorAndMomentum : SGDAccumulatorAndMomentum
        One tensor for gradient accumulation and momentum, or two.
    accumType, accl1Type : DataType
        Types of the two; UNDEFINED is the weight's.

    Raises
    ------
    popart_exception
        Unknown names and values outside their ranges.
    """

    _family = "SGD"
    _defaults = {  # noqa: RUF012
        "learningRate": 0.1, "weightDecay": 0.0, "momentum": 0.0, "dampening": 0.0, "velocityScaling": 1.0,
        "lossScaling": 1.0, "nesterov": 0.0,
    }  # fmt: skip
    _specific = ("learningRate", "weightDecay", "momentum", "dampening", "velocityScaling", "nesterov")
    _aliases = {"nesterov": "nesterov"}  # noqa: RUF012
    _groups = {  # noqa: RUF012 - dampening is not compared upstream either
        "lossScaling": "loss scaling", "learningRate": "learning rates", "weightDecay": "weight decays",
        "momentum": "momentums", "velocityScaling": "velocity scalings", "nesterov": "nesterov",
    }  # fmt: skip

    @checked
    def __init__(
        self,
        pyd: dict | float,
        clip_norm_settings: list[ClipNormSettings] = [],  # noqa: B006 - the public default
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        debugContext: Any = "sgd",
    ) -> None:
        self.accumulator = accumulatorAndMomentum
        self.accum_type = check_state_type(accumType, "accumType of SGD", undefined=True)
        self.accl1_type = check_state_type(accl1Type, "accl1Type of SGD", undefined=True)
        values = pyd if isinstance(pyd, dict) else {"defaultLearningRate": (pyd, False)}
        self._set_values(values, clip_norm_settings)

    def _check_values(self) -> None:
        super()._check_values()
        self._refuse_negative("momentum", "momentum")
        self._refuse_negative("dampening", "dampening")
        self._refuse_negative("velocityScaling", "velocity scaling", positive=True)
        damped = any(v.val() > 0 for v in self._maps["dampening"])
        if damped and any(v.val() != 0 for v in self._maps["nesterov"]):
            raise popart_exception("Nesterov momentum requires zero dampening in SGD")

    def has_momentum(self, weight: str) -> bool:
        """Whether a weight needs a velocity: its momentum is non-zero, or may become so."""
        momentum = self.value("momentum", weight)
        return not momentum.isConst() or momentum.val() != 0

    def has_nesterov(self, weight: str) -> bool:
        """Whether a weight takes Nesterov steps."""
        return self.has_momentum(weight) and self.value("nesterov", weight).val() != 0

    def _structure(self) -> Mapping[str, Any]:
        momentum = self._maps["momentum"]
        facts: dict[str, Any] = {
            "velocity tensors": [not v.isConst() or v.val() != 0 for v in momentum],
            "weight decay": [not v.isConst() or v.val() != 0 for v in self._maps["weightDecay"]],
            "accumulatorAndMomentum": self.accumulator,
        }
        if self.accumulator is SGDAccumulatorAndMomentum.Separate:
            facts |= {"accumType": self.accum_type, "accl1Type": self.accl1_type}
        return facts

    def learningRates(self) -> OptimizerValueMap:
        """Learning rates."""
        return self._maps["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Weight decays."""
        return self._maps["weightDecay"]

    def momentums(self) -> OptimizerValueMap:
        """Momentums."""
        return self._maps["momentum"]

    def dampenings(self) -> OptimizerValueMap:
        """Dampenings."""
        return self._maps["dampening"]

    def velocityScalings(self) -> OptimizerValueMap:
        """Velocity scalings."""
        return self._maps["velocityScaling"]

    def nesterov(self) -> OptimizerValueMap:
        """Nesterov flags."""
        return self._maps["nesterov"]


class ConstSGD(SGD):
    """SGD without momentum whose values never change."""

    @checked
    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: list[ClipNormSettings] = [],  # noqa: B006 - the public default
    ) -> None:
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            "lossScaling": (loss_scaling, True),
        }
        clips: Sequence[ClipNormSettings] = clip_norm_settings
        super().__init__(values, list(clips))
