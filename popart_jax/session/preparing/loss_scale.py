"""Automatic loss scaling: the gradients that are tracked.  Source: PopART's documentation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from ... import ir_view
from ...enums import GradientTensorTrackingMethod
from ...errors import popart_exception
from ...execution.loss_scaling import Tracking
from ...logs import module_logger
from ...lowering.interpreter import names
from ...optimizers import Adam, Optimizer
from ..options.groups import AutomaticLossScalingSettings
from ..options.session_options import SessionOptions

PREFIX = "[AutomaticLossScale transform] "
HALF_MAX = 65504.0


def check(settings: AutomaticLossScalingSettings, graph: ir.Graph, optimizer: Optimizer) -> None:
    """Raise popart_exception where Adam keeps scaled state, or a tensor that should be tracked does not exist."""
    if isinstance(optimizer, Adam) and optimizer.scaled_state:
        raise popart_exception("scaledOptimizerState and automaticLossScaling are not compatible.")
    if settings.gradientTensorTrackingMethod is GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
        known = names(graph)
        unknown = [t for t in settings.toTrackTensors or () if t not in known]
        if unknown:
            for name in unknown:
                module_logger("transform").error("toTrackTensors: there is no tensor '%s' in the model", name)
            raise popart_exception(
                "[PreAutomaticLossScale] Some of the tensors in the 'automaticLossScalingSettings.toTrackTensors' list "
                "do not exist in the model. Please look at the error log."
            )


def tracking(settings: AutomaticLossScalingSettings, tracked: Sequence[str]) -> Tracking:
    """The tracking of these tensors' gradients, for the step program's histograms; popart_exception without any."""
    if not tracked:
        raise popart_exception(f"{PREFIX}No tracked gradient tensors of type fp16 were found.")
    period = settings.updatePeriod
    counters = tuple(f"Histogram_{i}_counter" for i in range(len(tracked))) if period > 1 else ()
    return Tracking(
        tuple(tracked),
        float(np.float32(settings.binEdgeLocation) * np.float32(HALF_MAX)),
        settings.thresholdUpperCountProportion,
        period,
        counters,
        "LossScaleUpdate_counter" if period > 1 else "",
    )


def separated(graph: ir.Graph, tracked: Collection[ir_view.TrackedGradient]) -> list[tuple[str, str]]:
    """Tensors whose gradients are tracked, each with the tensor of the model that it equals.

    A gradient may be the part that one reader contributes. An Identity before that reader gives its input a new name.
    """
    known = names(graph)
    found: list[tuple[str, str]] = []
    for entry in tracked:
        node = known[entry.reader].producer() if entry.reader in known else None
        value = None if node is None else node.inputs[entry.position]
        if node is None or value is None or value.name != entry.tensor:
            found.append((entry.tensor, entry.tensor))
            continue
        name = f"{entry.tensor}__read_by__{entry.reader}"
        own = ir.Value(name=name, shape=value.shape, type=value.type)
        graph.insert_before(node, ir.Node("", "Identity", [value], outputs=[own]))
        node.replace_input_with(entry.position, own)
        found.append((name, entry.tensor))
    return found


def refuse_inference(options: SessionOptions) -> None:
    """Raise if the feature is on in an inference session."""
    if options.automaticLossScalingSettings.enabled:
        raise popart_exception(f"{PREFIX}Only compatible when doing training")


def initial_state(track: Tracking | None) -> dict[str, np.ndarray]:
    """Variables of automatic loss scaling with their initial values."""
    if track is None:
        return {}
    state = {"lossScaleUpdateFactor": np.ones((), np.float32)}
    names_ = (*track.histogram_counters, *((track.update_counter,) if track.update_counter else ()))
    return state | {n: np.full((), -1, np.int32) for n in names_}
