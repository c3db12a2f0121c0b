"""Automatic loss scaling: the gradients that are watched.  Source: PopART's documentation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from ...enums import GradientTensorTrackingMethod
from ...errors import popart_exception
from ...execution import Structure, Type
from ...execution.loss_scaling import Tracking
from ...lowering.interpreter import names
from ...ops import Trait, facts
from ...optimizers import Adam, Optimizer

if TYPE_CHECKING:
    from ...ir_view import TrackedGradient

PREFIX = "[AutomaticLossScale transform] "
HALF_MAX = 65504.0


def tracking(
    options: Any,
    graph: ir.Graph,
    types: Mapping[str, Type],
    differentiated: Collection[str],
    structure: Structure,
    optimizer: Optimizer,
    given: Collection[str] | None = None,
) -> Tracking | None:
    """What the step program watches, None when the feature is off; `given` are the tensors that the op list tracks.

    Raises
    ------
    popart_exception
        The settings contradict each other or the session.
    """
    settings = options.automaticLossScalingSettings
    if not settings.enabled:
        return None
    if isinstance(optimizer, Adam) and optimizer.scaled_state:
        raise popart_exception("scaledOptimizerState and automaticLossScaling are not compatible.")
    tracked = _tracked(settings, graph, types, differentiated)
    if given is not None:
        tracked = tuple(t for t in given if t in differentiated and types[t].dtype == np.float16)
    if not tracked:
        raise popart_exception(f"{PREFIX}No tracked gradient tensors of type fp16 were found.")
    period = settings.updatePeriod
    counters = tuple(f"Histogram_{i}_counter" for i in range(len(tracked))) if period > 1 else ()
    return Tracking(
        tracked,
        float(np.float32(settings.binEdgeLocation) * np.float32(HALF_MAX)),
        settings.thresholdUpperCountProportion,
        period,
        counters,
        "LossScaleUpdate_counter" if period > 1 else "",
    )


def separated(graph: ir.Graph, tracked: Collection[TrackedGradient]) -> list[tuple[str, str]]:
    """Tensors whose gradients are what is tracked, with the tensors of the model that they equal.

    The part that one reader contributes is the gradient of what it reads: it gets a name of its own, by an Identity.
    """
    known = names(graph)
    found = []
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


def refuse_inference(options: Any) -> None:
    """Raise if the feature is on in an inference session."""
    if options.automaticLossScalingSettings.enabled:
        raise popart_exception(f"{PREFIX}Only compatible when doing training")


def _tracked(
    settings: Any, graph: ir.Graph, types: Mapping[str, Type], differentiated: Collection[str]
) -> tuple[str, ...]:
    known = names(graph)
    method = settings.gradientTensorTrackingMethod
    if method is GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
        unknown = [t for t in settings.toTrackTensors if t not in known]
        if unknown:
            raise popart_exception(f"{PREFIX}toTrackTensors names {unknown}, which are no tensors of the model.")
        candidates = [t for t in settings.toTrackTensors if t in differentiated]
    else:
        computed = [n for n in known if n in differentiated and not _is_stream(known[n])]
        candidates = [n for n in computed if _is_candidate(known[n], method)]
    return tuple(t for t in candidates if types[t].dtype == np.float16)


def _is_stream(value: ir.Value) -> bool:
    """Whether the host feeds it; nobody reads the gradient of such a tensor, so upstream does not compute it."""
    return value.producer() is None and value.const_value is None


def _is_candidate(value: ir.Value, method: GradientTensorTrackingMethod) -> bool:
    """Whether some consumer's backward operator makes a gradient of `value` that the method counts."""
    consumers = [use.node for use in value.uses()]
    if method is GradientTensorTrackingMethod.ConvAndMatmulGradients:
        return any(n.op_type in ("Conv", "MatMul", "Gemm", "ConvTranspose", "MultiConv") for n in consumers)
    return any(not facts(n.op_type).has(Trait.VIEW_CHANGE) and not _reads_variable(n, value) for n in consumers)


def _reads_variable(node: ir.Node, value: ir.Value) -> bool:
    """Whether the backward operator of `node` for `value` would read a variable."""
    position = node.inputs.index(value)
    operators = facts(node.op_type).gradient_operators
    reads = {word for one in operators if one.of is None or position in one.of for word in one.reads}
    read = (v for i, v in enumerate(node.inputs) if not reads.isdisjoint(("x*", f"x{i}")))
    return any(v is not None and v is not value and v.const_value is not None for v in read)


def initial_state(track: Tracking | None) -> dict[str, np.ndarray]:
    """Variables of the feature and what they start with."""
    if track is None:
        return {}
    state = {"lossScaleUpdateFactor": np.ones((), np.float32)}
    names_ = (*track.histogram_counters, *((track.update_counter,) if track.update_counter else ()))
    return state | {n: np.full((), -1, np.int32) for n in names_}
