"""Where the options place a variable: on chip or off, whole or sharded. Only the IPU model uses this."""

from __future__ import annotations

import math

from ...enums import ReplicatedTensorSharding, TensorStorage
from ...ir_view.locations import ACCUMULATORS
from ..preparing import Prepared


def location_of(prepared: Prepared, name: str) -> tuple[bool, bool]:
    """Whether a variable rests on chip, and whether it is sharded over the replicas."""
    options = prepared.request.options
    override = options.tensorLocationSettingsOverride.get(name)
    elements = math.prod(prepared.program.variables[name].type.shape)
    if override is not None:
        return (
            override.storage is TensorStorage.OnChip,
            override.replicatedTensorSharding is ReplicatedTensorSharding.On,
        )
    settings = options.weightTensorLocationSettings
    if name in prepared.state:
        settings = options.optimizerStateTensorLocationSettings
    if name.startswith(ACCUMULATORS):
        settings = options.accumulatorTensorLocationSettings
    off = settings.location.storage is TensorStorage.OffChip and elements >= settings.minElementsForOffChip
    sharded = (
        settings.location.replicatedTensorSharding is ReplicatedTensorSharding.On
        and prepared.program.structure.replicas > 1
        and elements >= settings.minElementsForReplicatedTensorSharding
    )
    return not off, sharded
