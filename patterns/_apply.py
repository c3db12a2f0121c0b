"""The entry point for sessions: rewrite the graph that is going to run."""

from __future__ import annotations

import onnx_ir as ir

from ._sweep import SweepLog, sweep
from .operators import Mode, Operators
from .passes import inline_functions, remove_unused
from .selection import PatternSet, rules_of

GRADIENT_PREFIX = "Gradient___"


def apply(
    model: ir.Model | ir.Graph,
    selection: PatternSet,
    operators: Operators,
    *,
    mode: Mode = "inference",
    protected: frozenset[str] = frozenset(),
    accumulates: bool = False,
) -> SweepLog:
    """Rewrite a model in place before it is lowered.

    Only rewrites of the "model" stage run: those that keep values (up to rounding) and help the program that
    executes, or that PopART defines to change them (the fused softmax and negative log likelihood). The others
    concern PopART's op-by-op picture of the graph, see `popart_jax.ir_view`.

    Parameters
    ----------
    model
        Model or main graph. Model-local functions are inlined first.
    selection
        Patterns that are on.
    operators
        Facts of operators by type.
    mode
        "training" treats initializers as variables; "inference" as constants, unless protected.
    protected
        Tensors that keep name and value: anchors, outputs, variables. `Gradient___x` protects x too.
    accumulates
        Whether training accumulates gradients; TiedGather needs that, and without TiedGatherAccumulate it then takes
        the Gather's part out of the gradient of the table.

    Returns
    -------
    SweepLog
        What fired, and what was declined and why.
    """
    if isinstance(model, ir.Model):
        inline_functions(model)
    graph = model.graph if isinstance(model, ir.Model) else model
    forward = {name.removeprefix(GRADIENT_PREFIX) for name in protected if name.startswith(GRADIENT_PREFIX)}
    protected = protected | forward
    rules = rules_of(selection, "model", mode)
    if not accumulates or "TiedGatherAccumulate" in selection:
        rules = [rule for rule in rules if rule.pattern != "TiedGather"]
    log = sweep(graph, rules, operators, mode=mode, protected=protected)
    remove_unused(graph, operators, protected)
    return log
