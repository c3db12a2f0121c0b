"""Work that depends only on weights: found here, done once when weights are loaded instead of at each run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from .interpreter import names
from .resolve import Step, make_plan, needs

_GROWS = {"Expand", "Tile", "ConstantOfShape", "Pad", "Resize", "Upsample"}


def weight_only(
    graph: ir.Graph, weights: Collection[str], want: Sequence[str], opsets: Mapping[str, int]
) -> tuple[str, ...]:
    """Names of tensors that follow from `weights` alone and that the rest of the graph reads.

    Evaluate them once (``evaluate(graph, weights, names, settings)``) and bind the results in later walks: what leads
    to them then does not run. Random and stateful nodes, and those whose results are larger than their operands, stay.
    """
    named = names(graph)
    plan = make_plan(graph, tuple(named[n] for n in want), opsets)
    known = {v for v in graph.initializers.values() if v.name in weights}
    constant = {v for v in graph.initializers.values() if v.name not in weights}
    rest: list[Step] = []
    for step in plan.steps:
        reads = list(needs(step.node))
        if all(v in constant for v in reads):
            constant.update(step.node.outputs)
        elif all(v in known or v in constant for v in reads) and _may_move(step):
            known.update(step.node.outputs)
        else:
            rest.append(step)
    read = {v for step in rest for v in needs(step.node)} | set(plan.wanted)
    return tuple(sorted(v.name for v in read & known if v.producer() is not None and v.name))


def _may_move(step: Step) -> bool:
    graphs = {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}
    plain = all(a.type not in graphs for a in step.node.attributes.values())
    return plain and not step.lowering.context.keys() & {"key"} and step.node.op_type not in _GROWS
