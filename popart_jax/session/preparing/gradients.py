"""Which tensors have a gradient, and which variables are updated by copy.

Source: the gradients in PopART's operator list.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import jax.numpy as jnp
import onnx_ir as ir

import patterns
from patterns import static_shape

from ...errors import IN_JAX, noted, popart_exception
from ...execution import Program, Type
from ...logs import module_logger
from ...lowering.interpreter import names
from ...lowering.loop_count import ancestors
from ...lowering.resolve import captures, find, label
from ...model.checks.structure import bodies, every_node
from ...model.op_names import op_names
from ...ops import Trait, facts
from ..requests import Request

_OUTPUTS_OF_TRAINED_NORM = 2
_LISTED = 3  # names in a warning
_LOSSES_OF_ANY_TYPE = frozenset({"IdentityLoss", "L1"})


def with_gradient(program: Program, loss: str, types: Mapping[str, Type], request: Request) -> frozenset[str]:
    """Values of the main graph from which a differentiable path leads to the loss; none passes between replicas.

    Sequences and optionals, through which gradients pass, are among them. An integer loss has gradients as any other
    (supplement 5.2); only a Cast of integers has none. A path across an operator without gradient that PopART refuses
    to train through raises popart_exception.
    """
    reached = _reached(names(program.graph)[loss], program.graph, types, program, request)
    return frozenset(name for v in reached if (name := v.name))


def _reached(
    start: ir.Value, graph: ir.Graph, types: Mapping[str, Type], program: Program, request: Request
) -> dict[ir.Value, None]:
    """The values of a graph from which a differentiable path leads to `start`, that one included."""
    opset, replicas = program.opsets.get("", 11), program.structure.replicas
    reached: dict[ir.Value, None] = {start: None}
    pending = [start]
    while pending:
        value = pending.pop()
        node = value.producer()
        if node is None or node.graph is not graph:
            continue
        _refuse(node, types, opset)
        if request.strict:
            _refuse_as_popart(node, types, opset)
            _refuse_unrewritten(node, request.patterns.selection)
            for _, body in bodies(node) if facts(node.op_type).has_gradient else ():
                result = body.outputs[node.outputs.index(value)]
                _reached(result, body, {**types, **_types_within(body)}, program, request)
        of_floats = node.op_type == "Cast" or _has_no_type(value, types) or _is_float(value, types)
        inputs = [v for v in _differentiable_inputs(node, replicas) if v not in reached]
        for value in inputs:
            if (_is_float(value, types) or _has_no_type(value, types)) == of_floats:
                reached[value] = None
                pending.append(value)
    return reached


def _types_within(body: ir.Graph) -> dict[str, Type]:
    """The types of a body's values, as far as the model has them."""
    values = (*body.inputs, *(v for node in body for v in node.outputs))
    found = ((v, static_shape(v), v.dtype) for v in values)
    return {v.name or "": Type(tuple(shape), dtype.numpy()) for v, shape, dtype in found if shape is not None and dtype}


def warn_of_untrained(
    graph: ir.Graph, differentiated: Collection[str], variables: Collection[str], types: Mapping[str, Type]
) -> None:
    """Log which operators without a gradient keep float variables from being trained; a Detach is asked to do so."""
    for node in graph:
        ends = facts(node.op_type).gradients == () and node.op_type != "Detach"
        if not ends or not any(v.name in differentiated for v in node.outputs):
            continue
        behind = ancestors({v for v in (*node.inputs, *captures(node)) if v is not None})
        read = {v.name or "" for v in behind if v.name in variables and _is_float(v, types)}
        lost = sorted(read.difference(differentiated))
        if lost:
            more = f" and {len(lost) - _LISTED} more" if len(lost) > _LISTED else ""
            module_logger("session").warning(
                "%s has no gradient in PopART: weights behind node '%s' are not trained: %s%s. to_jax trains them.",
                node.op_type, label(node), ", ".join(f"'{n}'" for n in lost[:_LISTED]), more,
            )  # fmt: skip


def gradient_types(graph: ir.Graph, tensors: Iterable[str], types: Mapping[str, Type]) -> dict[str, Type]:
    """Types of the tensors' gradients: their own, except that a Scatter's updates have the shape of the indices."""
    found = {tensor: types[tensor] for tensor in tensors if tensor in types}
    for node in graph:
        if node.op_type not in ("Scatter", "ScatterElements") or len(node.inputs) < 3:
            continue
        indices, updates = (v.name or "" if v is not None else "" for v in node.inputs[1:3])
        alone = node.inputs[2] is not None and len(node.inputs[2].uses()) == 1
        if alone and updates in found and indices in types:
            found[updates] = Type(types[indices].shape, types[updates].dtype)
    return found


def _refuse(node: ir.Node, types: Mapping[str, Type], opset: int) -> None:
    """Raise where a gradient is asked of an operator that has none and does not just end the path."""
    if facts(node.op_type).has(Trait.PRODUCT) and any(v is not None and _is_float8(v, types) for v in node.inputs):
        raise popart_exception(
            f"Floating point 8 is not supported for training. This is for op {op_names(node, opset)['Op']}."
        )
    asked = [node] if _reads_floats(node, types) else []
    if node.op_type in _LOSSES_OF_ANY_TYPE:
        asked += [p for v in node.inputs[:1] if v is not None and (p := v.producer()) is not None]
    for one in asked:
        if text := facts(one.op_type).refused_gradient:
            raise noted(popart_exception(text), f"The loss needs the gradient of node '{label(one)}'.")


def _refuse_as_popart(node: ir.Node, types: Mapping[str, Type], opset: int) -> None:
    """Raise where PopART has no gradient and we do."""
    if node.op_type == "BatchNormalization" and len(node.outputs) < _OUTPUTS_OF_TRAINED_NORM:
        error = popart_exception(
            f'BatchNorm Op "{op_names(node, opset)["op"]}" has {len(node.outputs)} output(s) which means it is in '
            "inference mode, but its gradient Op is being created. To use the BatchNorm Op in inference mode during "
            "training, it has to be detached first."
        )
        raise noted(error, IN_JAX)
    if (
        node.op_type == "Pad"
        and node.attributes.get_string("mode", "constant") != "constant"
        and _reads_floats(node, types)
    ):
        error = popart_exception('At this time, PopART does not support PadGradOp when mode is not "constant".')
        raise noted(error, f"node '{label(node)}'", IN_JAX)


def _reads_floats(node: ir.Node, types: Mapping[str, Type]) -> bool:
    return any(v is not None and _is_float(v, types) for v in node.inputs)


def _refuse_unrewritten(node: ir.Node, selection: patterns.PatternSet) -> None:
    """Raise where an operator has no gradient because the pattern that rewrites it before is off (supplement 5.1)."""
    row = facts(node.op_type)
    if row.removed_by and row.removed_by not in selection and (row.has(Trait.ELEMENTWISE) or row.has(Trait.RANDOM)):
        name = f"{node.op_type}Op"
        raise popart_exception(
            f"{name} should be removed by pattern '{row.removed_by}' before call to {name}::getGradOps"
        )


def _differentiable_inputs(node: ir.Node, replicas: int) -> Iterable[ir.Value]:
    row = facts("Fmod" if node.op_type == "Mod" and node.attributes.get_int("fmod", 0) else node.op_type)
    alone = replicas == 1 and row.has(Trait.BETWEEN_REPLICAS)  # then the operator is the identity
    if row.gradients != () or alone:
        yield from (v for i, v in enumerate(node.inputs) if v is not None and (alone or row.passes_gradient(i)))
        yield from captures(node)


def _is_float(value: ir.Value, types: Mapping[str, Type]) -> bool:
    kind = types.get(value.name or "")
    return kind is not None and jnp.issubdtype(kind.dtype, jnp.floating)


def _has_no_type(value: ir.Value, types: Mapping[str, Type]) -> bool:
    """Whether it is no tensor: gradients pass through sequences and optionals to the tensors in them."""
    return value.name not in types


def _is_float8(value: ir.Value, types: Mapping[str, Type]) -> bool:
    kind = types.get(value.name or "")
    return kind is not None and kind.dtype.itemsize == 1 and jnp.issubdtype(kind.dtype, jnp.floating)


def check_loss(graph: ir.Graph, loss: str, types: Mapping[str, Type]) -> None:
    """Raise popart_exception unless the loss is a tensor with at most one element that some operator makes."""
    value = names(graph).get(loss)
    if value is None:
        raise popart_exception(f"Could not find loss tensor '{loss}' in main graph tensors")
    if value.producer() is None:
        raise popart_exception(f"Tensor loss '{loss}' does not have a producer Op")
    shape = types[loss].shape if loss in types else ()
    if math.prod(shape) > 1:
        error = popart_exception(f"Loss tensor, '{loss}', must be a scalar tensor")
        raise noted(error, f"It has shape {list(shape)}; reduce it, for instance with identityloss.")


def copied_variables(graph: ir.Graph, training: bool) -> dict[str, str]:
    """Variables that take the value of another tensor: batch norm statistics and targets of copyvarupdate.

    A layer that is applied twice updates its statistics twice: the second time, in this graph, those of the first.
    """
    copies: dict[str, str] = {}
    known = names(graph)
    for node in graph:
        pairs: tuple[tuple[ir.Value | None, ir.Value | None], ...] = ()
        if node.op_type == "CopyVarUpdate":
            pairs = ((node.inputs[0], node.inputs[1]),)
        elif node.op_type == "BatchNormalization" and training and _trains_statistics(node):
            statistics = zip(node.inputs[3:5], node.outputs[1:3], strict=False)
            pairs = tuple((_updated_first(statistic), source) for statistic, source in statistics)
            for at, (target, _) in enumerate(pairs, 3):
                if target is not None and target.name in copies:
                    node.replace_input_with(at, known[copies[target.name]])
        for target, source in pairs:
            if target is not None and source is not None and target.name in graph.initializers:
                copies[target.name or ""] = source.name or ""
    return copies


def _updated_first(statistic: ir.Value | None) -> ir.Value | None:
    """The variable that a layer applied before has updated to this value; the value itself without such."""
    node = None if statistic is None else statistic.producer()
    if statistic is None or node is None or node.op_type != "BatchNormalization" or statistic not in node.outputs[1:3]:
        return statistic
    return _updated_first(node.inputs[2 + node.outputs.index(statistic)])


def _trains_statistics(node: ir.Node) -> bool:
    if len(node.outputs) < 3 or not all(v.name for v in node.outputs[1:3]):
        return False
    return len(node.outputs) == 5 or bool(node.attributes.get_int("training_mode", 0))


def draws_numbers(graph: ir.Graph, opsets: Mapping[str, int], training: bool) -> bool:
    """Whether some node, nested ones included, draws random numbers."""
    for node in every_node(graph):
        row = find(node, opsets)
        if row is None or "key" not in row.context.values():
            continue
        if node.op_type != "Dropout" or training or len(node.inputs) > 2:
            return True
    return False
