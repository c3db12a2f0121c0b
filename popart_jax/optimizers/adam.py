"""The Adam family: Adam, AdaMax, Lamb, and their forms without bias correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._calls import checked
from ..enums import AdamMode, DataType, WeightDecayMode
from ..errors import popart_exception
from .base import Optimizer, logger
from .clip_norm import ClipNormSettings
from .values import OptimizerValueMap


class Adam(Optimizer):
    """Adam and its relatives as PopART defines them.

    Parameters
    ----------
    values : dict
        ``{name: (value, isConst)}`` of defaultLearningRate (0.1), defaultWeightDecay (0), defaultBeta1 (0.9),
        defaultBeta2 (0.999), defaultEps (1e-6), lossScaling (1), defaultMaxWeightNorm (10).
    mode : AdamMode
        Adam, AdamNoBias, Lamb, LambNoBias or AdaMax.
    weight_decay_mode : WeightDecayMode
        Decoupled (times the learning rate), or added to the gradient.
    accum_type, accl1_type, accl2_type : DataType
        Types of the gradient accumulator (UNDEFINED is the weight's) and the two moments.
    clip_norm_settings : list of ClipNormSettings
        Groups of weights whose gradients are clipped by their norm.
    scaled_optimizer_state : bool
        The moments keep the loss scale's factor.

    Raises
    ------
    popart_exception
        Unknown names, values outside their ranges, unsupported types.
    """

    _family = "Adam"
    _defaults = {  # noqa: RUF012
        "learningRate": 0.1, "weightDecay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "lossScaling": 1.0,
        "maxWeightNorm": 10.0,
    }  # fmt: skip
    _specific = ("learningRate", "weightDecay", "beta1", "beta2", "eps", "maxWeightNorm")
    _aliases = {"maxWeightNorm": "maxWeightNorm"}  # noqa: RUF012
    _groups = {  # noqa: RUF012
        "lossScaling": "loss scaling", "learningRate": "learning rates", "weightDecay": "weight decays",
        "beta1": "beta1s", "beta2": "beta2s", "eps": "eps", "maxWeightNorm": "mwn",
    }  # fmt: skip

    @checked
    def __init__(
        self,
        values: dict[Any, Any],
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: list[ClipNormSettings] = [],  # noqa: B006 - the public default
        scaled_optimizer_state: bool = False,
        debugContext: Any = "adam",
    ) -> None:
        self.mode, self.decay_mode = mode, weight_decay_mode
        self.accum_type = accum_type
        self.accl1_type = accl1_type
        self.accl2_type = accl2_type
        self.scaled_state = scaled_optimizer_state
        if "maxWeightNorm" in values:
            logger.warning("Adam: the optimizer value 'maxWeightNorm' has been deprecated, use 'defaultMaxWeightNorm'.")
        self._set_values(values, clip_norm_settings)

    def _check_values(self) -> None:
        super()._check_values()
        self._refuse_negative("beta1", "beta1")
        self._refuse_negative("beta2", "beta2")
        self._refuse_not_positive("eps", "eps")
        if any(v.val() < 0 for v in self._maps["maxWeightNorm"]):
            raise popart_exception("Negative max weight norm in Adam")

    def corrects_bias(self) -> bool:
        """Whether the moments are divided by 1 - beta^t."""
        return self.mode in (AdamMode.Adam, AdamMode.Lamb, AdamMode.AdaMax)

    def is_lamb(self) -> bool:
        """Whether steps are scaled by the ratio of the norms of weight and update."""
        return self.mode in (AdamMode.Lamb, AdamMode.LambNoBias)

    def _differs(self, other: Adam) -> str:
        if self.mode is not other.mode:
            return "Adam modes do not match"
        return "" if self.decay_mode is other.decay_mode else "Weight decay modes do not match"

    def _state_types(self) -> Sequence[tuple[str, DataType, bool]]:
        moments = (("Accl1___", self.accl1_type, False), ("Accl2___", self.accl2_type, False))
        return ("Accum___", self.accum_type, True), *moments

    def _structure(self) -> Mapping[str, Any]:
        return {
            "mode": self.mode,
            "weight decay mode": self.decay_mode,
            "accumulator types": (self.accum_type, self.accl1_type, self.accl2_type),
            "scaled optimizer state": self.scaled_state,
        }

    def learningRates(self) -> OptimizerValueMap:
        """Learning rates."""
        return self._maps["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Weight decays."""
        return self._maps["weightDecay"]

    def beta1s(self) -> OptimizerValueMap:
        """Decay rates of the first moment."""
        return self._maps["beta1"]

    def beta2s(self) -> OptimizerValueMap:
        """Decay rates of the *first* moment: upstream's accessor returns the wrong map, and programs see that."""
        return self._maps["beta1"]

    def epss(self) -> OptimizerValueMap:
        """Numbers added to the root of the second moment."""
        return self._maps["eps"]

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Limits of the weight norm in Lamb's ratio."""
        return self._maps["maxWeightNorm"]
