"""Stochastic gradient descent, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import model
from .._calls import checked
from ..enums import DataType, SGDAccumulatorAndMomentum
from ..errors import popart_exception
from ..model.number_text import number_text
from .base import Optimizer, may_store
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
    _plain = ("lossScaling", "nesterov")
    _groups = {  # noqa: RUF012 - dampening is not compared upstream either
        "lossScaling": "loss scaling", "learningRate": "learning rates", "weightDecay": "weight decays",
        "momentum": "momentums", "velocityScaling": "velocity scalings", "nesterov": "nesterov",
    }  # fmt: skip

    @checked
    def __init__(
        self,
        pyd: dict[Any, Any] | float,
        clip_norm_settings: list[ClipNormSettings] = [],  # noqa: B006 - the public default
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        debugContext: Any = "sgd",
    ) -> None:
        self.accumulator = accumulatorAndMomentum
        self.accum_type = accumType
        self.accl1_type = accl1Type
        values = pyd if isinstance(pyd, dict) else {"defaultLearningRate": (pyd, False)}
        self._set_values(values, clip_norm_settings)

    def _check_values(self) -> None:
        super()._check_values()
        self._refuse_negative("momentum", "momentum")
        self._refuse_negative("dampening", "dampening")
        self._refuse_not_positive("velocityScaling", "velocity scaling")
        for nesterov, dampening in zip(self._maps["nesterov"], self._maps["dampening"], strict=True):
            if nesterov.val() != 0 and dampening.val() > 0:
                shown = number_text(dampening.val())
                raise popart_exception(f"When enable nesterov momentum, dampening ({shown}) in SGD shouled be zero")

    def has_momentum(self, weight: str) -> bool:
        """Whether a weight needs a velocity: its momentum is non-zero, or may become so."""
        momentum = self.value("momentum", weight)
        return not momentum.isConst() or momentum.val() != 0

    def has_nesterov(self, weight: str) -> bool:
        """Whether a weight takes Nesterov steps."""
        return self.has_momentum(weight) and self.value("nesterov", weight).val() != 0

    def _structure(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"accumulatorAndMomentum": self.accumulator}
        if self.accumulator is SGDAccumulatorAndMomentum.Separate:
            facts |= {"accumType": self.accum_type, "accl1Type": self.accl1_type}
        return facts

    def fixed(self) -> tuple[Any, ...]:
        """The facts of every optimizer, the types of the state, and which weights take Nesterov steps."""
        nesterov = {w: self.value("nesterov", w or None).val() != 0 for w in self._maps["nesterov"].fixed()}
        return *super().fixed(), self.accum_type, self.accl1_type, nesterov

    def _needs_velocity(self) -> bool:
        return any(not v.isConst() or v.val() != 0 for v in self._maps["momentum"])

    def _differs(self, other: SGD) -> str:
        if self._needs_velocity() != other._needs_velocity():
            return "this does not require a velocity tensor, but other does."
        if self.accumulator is not other.accumulator:
            mine, theirs = self.accumulator.name, other.accumulator.name
            return f"this has SGDAccumulatorAndMomentum {mine}, but other has {theirs}"
        return ""

    def check_state_types(self, weight: str) -> None:
        """Refuse types that the state of a weight cannot have; the text names the parameter, not the tensor."""
        types = {"accumType": self.accum_type, "accl1Type": self.accl1_type}
        if not self.has_momentum(weight):
            kind, names = "SGD0", ("accumType",)
        else:
            kind = "SGD2" if self.accumulator is SGDAccumulatorAndMomentum.Separate else "SGD1"
            names = ("accumType", "accl1Type")
        for name in names:
            if not may_store(types[name]):
                given = model.element_type(types[name]).lower
                raise popart_exception(
                    f"{kind} only supports FLOAT or FLOAT16 for DataType of {name}. You passed {given}."
                )

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
