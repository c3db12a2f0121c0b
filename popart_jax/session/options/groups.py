"""Groups of session options: small settings objects that `SessionOptions` holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeVar, overload

from ..._calls import checked, overloaded
from ...enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
)
from ...model.settings import Settings

C = TypeVar("C", bound=Settings)
plain = partial(dataclass, eq=False, repr=False)
"""Decorator of groups whose constructor takes every field, in order; `Settings` checks and copies the values."""


def nothing_or(least: int) -> Callable[[type[C]], type[C]]:
    """Decorator of groups whose constructor takes no argument, or at least the first `least` fields."""

    def decorate(cls: type[C]) -> type[C]:
        made = plain(cls)
        init, every = made.__init__, list(cls.__annotations__)

        @wraps(init)
        def checked_init(self: C, *args: Any, **kwargs: Any) -> None:
            missing = [name for name in every[len(args) : least] if name not in kwargs]
            if missing and (args or kwargs):
                raise TypeError(f"{cls.__name__}() takes no argument, or {every[:least]} at least; missing: {missing}")
            init(self, *args, **kwargs)

        made.__init__ = checked_init
        return made

    return decorate


@nothing_or(1)
class AccumulateOuterFragmentSettings(Settings):
    """Schedule of the weight updates behind gradient accumulation."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: list[int] = field(default_factory=list[int])


@plain
class AutodiffSettings(Settings):
    """How the backward pass of a subgraph gets forward tensors."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@plain
class AutomaticLossScalingSettings(Settings):
    """Automatic loss scaling: which gradients are tracked, and when the scale changes."""

    enabled: bool = False
    toTrackTensors: list[str] | None = None
    binEdgeLocation: float = 0.125
    thresholdUpperCountProportion: float = 1e-07
    updatePeriod: int = 1
    gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
    )


@nothing_or(4)
class BatchSerializationSettings(Settings):
    """Splitting the batch into pieces that run one after the other."""

    factor: int = 0
    concatOnVirtualGraphChange: bool = True
    concatOnExecutionPhaseChange: bool = True
    concatOnPipelineStageChange: bool = True
    transformContext: BatchSerializationTransformContext = BatchSerializationTransformContext.Fwd
    method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic
    batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic


_Io = ExecutionPhaseIOSchedule


class ExecutionPhaseSettings(Settings):
    """Phased execution. The constructor calls `schedule` ``optimizerSchedule``, as upstream does."""

    phases: int
    stages: int
    weightIOSchedule: ExecutionPhaseIOSchedule
    activationIOSchedule: ExecutionPhaseIOSchedule
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule
    accumulatorIOSchedule: ExecutionPhaseIOSchedule
    schedule: ExecutionPhaseSchedule

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(
        self,
        phases: int,
        stages: int,
        weightIOSchedule: ExecutionPhaseIOSchedule,
        activationIOSchedule: ExecutionPhaseIOSchedule,
        optimizerStateIOSchedule: ExecutionPhaseIOSchedule,
        accumulatorIOSchedule: ExecutionPhaseIOSchedule,
        optimizerSchedule: ExecutionPhaseSchedule,
    ) -> None: ...
    @overloaded
    def __init__(
        self,
        phases: int = 0,
        stages: int = 2,
        weightIOSchedule: Any = _Io.Preload,
        activationIOSchedule: Any = _Io.Preload,
        optimizerStateIOSchedule: Any = _Io.OnDemand,
        accumulatorIOSchedule: Any = _Io.Preload,
        optimizerSchedule: Any = ExecutionPhaseSchedule.Interleaving,
    ) -> None:
        self.phases = phases
        self.stages = stages
        self.weightIOSchedule = weightIOSchedule
        self.activationIOSchedule = activationIOSchedule
        self.optimizerStateIOSchedule = optimizerStateIOSchedule
        self.accumulatorIOSchedule = accumulatorIOSchedule
        self.schedule = optimizerSchedule


class ExperimentalSettings(Settings):
    """Experimental switches. Custom transforms are named per checkpoint; none is registered in this package."""

    customTransformApplierSettings: dict[str, list[str]]
    createHostTransferableTensorWithOffset: bool

    @checked
    def __init__(self) -> None:
        self.customTransformApplierSettings = {}
        self.createHostTransferableTensorWithOffset = False

    @property
    def _customTransformApplierSettings(self) -> dict[str, list[str]]:
        return self.customTransformApplierSettings

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name.removeprefix("_"), value)


@plain
class ReplicatedCollectivesSettings(Settings):
    """Merging of collectives."""

    prepareScheduleForMergingCollectives: bool = False
    mergeAllReduceCollectives: bool = False
    mergeReduceScatterCollectives: bool = False
    mergeAllGatherCollectives: bool = False


class DeveloperSettings(Settings):
    """Switches for developers of the runtime; none has a meaning here."""


class NumIOTiles:
    """A number of tiles reserved for transfers; accepted wherever `SessionOptions.numIOTiles` takes an int."""

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, value: int, /) -> None: ...
    @overloaded
    def __init__(self, value: int = 0) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, (int, NumIOTiles)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"NumIOTiles({self._value})"
