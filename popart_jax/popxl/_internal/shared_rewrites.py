"""The rewrites of `patterns` on PopXL graphs.

A PopXL graph is a graph of `onnx_ir` whose nodes carry PopART's types, so the rewrites work on it unchanged. Afterwards
PopXL's tensors and operators are updated: tensors whose names still exist keep their objects, new nodes get operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import onnx_ir as ir

from patterns._core import Rule
from patterns._sweep import sweep

from ...autodiff import is_float
from ...lowering.effects import VIEWS, WRITES
from ...lowering.gradients import TEMPLATE
from ...lowering.resolve import has_effect
from ...ops import facts
from .._building.create import Translation, enter
from ..context import get_current_context, in_sequence
from ..tensor import Tensor, constant
from .classes import class_of
from .operands import op_of

if TYPE_CHECKING:
    from ..graph import Graph
    from .op import Op


def rewrite(graph: Graph, rules: Sequence[Rule]) -> bool:
    """Apply rewrites to a graph until none fires; True when one did."""
    nodes = dict.fromkeys(graph._graph)
    named, read = dict(graph._tensors), {v for node in nodes for v in node.inputs}
    shared = {v for n in nodes if WRITES in n.attributes or VIEWS in n.attributes for v in (*n.inputs, *n.outputs)}
    left = frozenset(node for node in nodes if _is_excluded(op_of(node), shared))
    fixed = frozenset((*graph._graph.initializers, *_never_read(nodes)))
    log = sweep(graph._graph, rules, facts, mode="training", protected=fixed, left_alone=left)
    if not log.fired:
        return False
    made = [node for node in graph._graph if node not in nodes]
    _prune(graph, {v for v in read if v is not None}, made)
    _follow(graph, named)
    replacements = {op_of(node): op for node in made if (op := _enter(graph, node)) is not None}
    for node in nodes:
        if node.graph is None:
            _forget(graph, op_of(node), replacements.get(op_of(node)))
    for name, t in named.items():
        producer = t._value.producer()
        if t._value.meta.get("tensor") is not t or (producer is not None and producer.graph is None):
            graph._tensors.pop(name)
    return True


def _never_read(nodes: Iterable[ir.Node]) -> Iterable[str]:
    """Results of operators that nobody reads: patterns remove what they replace, not what was unused before."""
    unread = (n for n in nodes if not any(o.uses() or o.is_graph_output() for o in n.outputs))
    return (o.name for n in unread for o in n.outputs if o.name)


# --- operators that no rewrite may change -------------------------------------------------------------------------


def _is_excluded(op: Op, shared: Collection[ir.Value | None]) -> bool:
    """Whether no rewrite may change an operator, as it has a tensor that is written or viewed, or it calls a graph."""
    node = op._node
    if not op._outputs() or op._called():
        return True
    if _is_special_gradient(node) or "to_identity" in op._options:
        return True
    first, out = op._inputs().get(0), op._outputs().get(0)
    if first is not None and out is not None and first.meta_shape != out.meta_shape:
        return True
    return any(v in shared for v in (*node.inputs, *node.outputs) if v is not None) or _crosses(op)


def _is_special_gradient(node: ir.Node) -> bool:
    """Whether a gradient operator has a form that the rewrites do not handle: mixed float types, or some gradients."""
    template = cast("Any", node.meta.get(TEMPLATE))
    if template is None:
        return False
    mixed = len({v.dtype for v in node.inputs if v is not None and is_float(v)}) > 1
    partial = node.op_type == "SplitGrad" and len(template.gradients) != template.n_outputs
    return partial or (mixed and node.op_type != "NllGrad")


def _crosses(op: Op) -> bool:
    """Whether an operand comes from another program (weights loading, storing) than the operator's."""
    producers = [t._value.producer() for t in op._inputs().values()]
    contexts = {op_of(p)._settings.executionContext for p in producers if p is not None}
    return bool(contexts - {op._settings.executionContext})


# --- update of tensors and operators ------------------------------------------------------------------------------


def _prune(graph: Graph, read: set[ir.Value], made: Sequence[ir.Node]) -> None:
    """Remove operators whose readers were all removed."""
    for node in reversed(list(graph._graph)):
        needed = not node.outputs or any(v.uses() or v.is_graph_output() for v in node.outputs) or has_effect(node)
        if not needed and (node in made or any(v in read for v in node.outputs)):
            node.resize_inputs(0)
            graph._graph.remove(node)


def _follow(graph: Graph, named: Mapping[str, Tensor]) -> None:
    """Point each tensor at the value that has its name now; make tensors for new values."""
    for value in [v for node in graph._graph for v in node.outputs if "tensor" in v.meta or v.name not in named]:
        known = named.get(value.name or "")
        if known is None:
            name = value.name or ""
            scope = f"{graph.id}/" if graph.id else ""
            value.name = graph.ir._suffixed(name) if name in graph._tensors else name
            value.name = value.name if value.name.startswith(scope) else f"{scope}{value.name}"
            Tensor._make(graph, value)
        elif known._value is not value:
            known._value.meta.pop("tensor", None)
            known._value, value.meta["tensor"] = value, known


def _enter(graph: Graph, node: ir.Node) -> Op | None:
    """Make the operator of a new node, placed like the operator that it replaces; constants become tensors."""
    if node.graph is None:
        return None
    root: Op = op_of(node)
    if node.op_type == "Constant":
        _as_tensor(graph, node)
        return None
    row = facts(node.op_type)
    node.meta.pop(TEMPLATE, None)
    for name in [n for n in node.attributes if n.startswith("__")]:  # annotations of the operator that is replaced
        node.attributes.pop(name)
    options = {k: v for k, v in root._options.items() if k in _PASSED_ON}
    with in_sequence("pass"):
        return enter(class_of(row.op_type), node, graph, row, root._settings.copy(), options, _translation(node))


_PASSED_ON = ("available_memory_proportion", "partials_type", "conv")


def _translation(node: ir.Node) -> Translation:
    """The translation of the operator's row, or ONNX's where PopXL has no class for it."""
    row = facts(node.op_type)
    if row.popxl is not None:
        return row.translation
    return ("", node.op_type, 13) if node.domain in ("", "ai.onnx") else (node.domain, node.op_type, 1)


def _as_tensor(graph: Graph, node: ir.Node) -> None:
    (value,) = node.outputs
    assert value.const_value is not None
    graph._tensors.pop(value.name or "")
    with graph:
        made: Any = constant(value.const_value.numpy())
    value.replace_all_uses_with(made._value, replace_graph_outputs=True)
    graph._graph.remove(node)


def _forget(graph: Graph, op: Op, replacement: Op | None) -> None:
    if replacement is None:
        graph._topo_cons.remove(op)
    else:
        graph._topo_cons.replace(op, replacement)
    get_current_context()._sequencer.forget(op, replacement)
    del graph._ops[op.id]
