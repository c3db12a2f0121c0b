"""The rewrites behind the clean-up patterns; each takes an operator and says whether it changed something."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ...lowering.effects import VIEWS, WRITES
from .enums import TensorType
from .rewrite import bypass, insert_before, take_over


def _create(op: Any, class_name: str, inputs: Any, outs: Any, attributes: Any = None, **more: Any) -> Any:
    """A new operator just before `op`, placed like it and outside every sequence."""
    from .._create import create
    from ..context import get_current_context

    sequencer = get_current_context()._sequencer
    sequencer.push("pass")
    try:
        made = create(class_name, inputs, outs, attributes, graph=op._graph, settings=op._settings.copy(), **more)
    finally:
        sequencer.pop()
    insert_before(op, [made])
    return made


def _out(t: Any, suffix: str, shape: Any = None) -> Any:
    from .._create import Out

    return Out(f"{t.name}{suffix}", t.shape if shape is None else shape, t.dtype, t.meta_shape)


def _first(op: Any) -> Any:
    from .._create import result

    return result(op)


def _reduced(op: Any, product: Any) -> None:
    """Sum over broadcast axes into the output of a gradient operator, which is then replaced."""
    out, t = op._out(0), _first(product)
    if t.shape == out.shape:
        take_over(op, product)
        return
    lead = t.rank - out.rank
    axes = [*range(lead), *(lead + i for i, d in enumerate(out.shape) if d == 1 and t.shape[lead + i] != 1)]
    kept = tuple(d for i, d in enumerate(t.shape) if i not in axes)
    last = _create(op, "ReduceSumOp", [t], [_out(out, "_reduced", kept)], {"axes": axes, "keepdims": 0})
    if kept != out.shape:
        last = _create(op, "ReshapeOp", [_first(last)], [_out(out, "_reduced", out.shape)], {"shape": out.shape})
    take_over(op, last)


def _gradient_operands(op: Any) -> tuple[Any, tuple[Any, ...]]:
    """The output gradient of a Vjp operator, and the forward operands it reads."""
    template = op._node.meta["vjp"]
    inputs = op._inputs()
    return inputs[0], tuple(inputs[at] if isinstance(at, int) else None for at in template.operands)


def mul_gradient(op: Any) -> bool:
    """d(a b): the gradient times the other factor, summed over broadcast axes."""
    if op._class_name not in ("MulArg0GradOp", "MulArg1GradOp"):
        return False
    gradient, operands = _gradient_operands(op)
    other = operands[1 if op._class_name == "MulArg0GradOp" else 0]
    _reduced(op, _create(op, "MulOp", [gradient, other], [_out(op._out(0), "_product", gradient.shape)]))
    return True


def div_gradient(op: Any) -> bool:
    """d(a / b) with respect to a: the gradient over b."""
    if op._class_name != "DivArg0GradOp":
        return False
    gradient, operands = _gradient_operands(op)
    _reduced(op, _create(op, "DivOp", [gradient, operands[1]], [_out(op._out(0), "_quotient", gradient.shape)]))
    return True


def subtract_gradient(op: Any) -> bool:
    """d(a - b) with respect to b: the negated gradient."""
    if op._class_name != "SubtractArg1GradOp":
        return False
    gradient, _ = _gradient_operands(op)
    _reduced(op, _create(op, "NegateOp", [gradient], [_out(op._out(0), "_negated", gradient.shape)]))
    return True


def exp_gradient(op: Any) -> bool:
    """d exp(a): the gradient times the output."""
    if op._class_name != "ExpGradOp":
        return False
    take_over(op, _create(op, "MulOp", [op._in(0), op._in(1)], [_out(op._out(0), "_product")]))
    return True


def sum_to_add(op: Any) -> bool:
    """A sum of two tensors of one shape is an addition."""
    if op._class_name != "SumOp" or len(op._inputs()) != 2:
        return False
    take_over(op, _create(op, "AddOp", list(op._inputs().values()), [_out(op._out(0), "_added")]))
    return True


def split_gradient(op: Any) -> bool:
    """The gradient of a split is a concatenation when every part has a gradient."""
    if op._class_name != "SplitGradOp":
        return False
    template = op._node.meta["vjp"]
    if len(template.gradients) != template.n_outputs:
        return False
    axis = op._node.attributes["axis"].as_int()
    take_over(op, _create(op, "ConcatOp", list(op._inputs().values()), [_out(op._out(0), "_joined")], {"axis": axis}))
    return True


_NO_OPS = {"ReshapeOp", "TransposeOp", "SliceOp", "SubsampleOp", "CastOp", "ReduceSumOp", "ReduceMeanOp", "SumOp",
           "ConcatOp", "ReshapeGradOp", "AddArg0GradOp", "AddArg1GradOp", "SubtractArg0GradOp", "IdentityGradOp",
           "SumArgGradOp",            "ReduceSumGradOp", "IdentityLossGradOp"}  # fmt: skip


def op_to_identity(op: Any) -> bool:
    """Operators that compute nothing for their attributes become identities."""
    if not (op._options.get("to_identity") or _computes_nothing(op)):
        return False
    take_over(op, _create(op, "IdentityOp", [op._in(0)], [_out(op._out(0), "_same")]))
    return True


def _computes_nothing(op: Any) -> bool:
    if op._class_name not in _NO_OPS or len(op._inputs()) != 1:
        return False
    t, out = op._in(0), op._out(0)
    if (t.shape, t.dtype) != (out.shape, out.dtype):
        return False
    attributes = op._node.attributes
    if op._class_name == "TransposeOp":
        return list(attributes["perm"].as_ints()) == sorted(attributes["perm"].as_ints())
    if op._class_name == "SliceOp":
        return all(s == 1 for s in attributes["steps"].as_ints())
    return op._class_name != "ReduceSumGradOp" or t.shape == out.shape


def remove_identity(op: Any) -> bool:
    """Identities whose operand can take their place disappear."""
    if op._class_name != "IdentityOp" or op._options.get("keep"):
        return False
    source, gone = op._in(0), op._out(0)
    if gone._value.is_graph_output() and (source._value.producer() is None or source._value.is_graph_output()):
        return False
    if source._kind is not TensorType.ActGrad or _touched_by_effects(source) or _touched_by_effects(gone):
        return False
    if op._settings.executionContext is not _producer_context(source, op):
        return False
    bypass(op)
    return True


def _producer_context(t: Any, op: Any) -> Any:
    producer = t._value.producer()
    return op._settings.executionContext if producer is None else producer.meta["op"]._settings.executionContext


def _touched_by_effects(t: Any) -> bool:
    nodes = [node for node, _ in t._value.uses()]
    producer = t._value.producer()
    if producer is not None:
        nodes.append(producer)
    return any(WRITES in n.attributes or VIEWS in n.attributes for n in nodes)


def all_reduce_to_identity(op: Any) -> bool:
    """Reductions over identical inputs are identities."""
    if op._class_name not in ("AllReduceOp", "AllReduceGradOp") or "identical_inputs" not in op._node.attributes:
        return False
    from .._create import Out

    graph = op._graph
    for i, t in op._inputs().items():
        out = op._out(i)
        made = _create(op, "IdentityOp", [t], [Out(f"{out.name}_same", out.shape, out.dtype, out.meta_shape)])
        temporary = _first(made)
        for node, k in list(out._value.uses()):
            node.replace_input_with(k, temporary._value)
        for k, output in enumerate(graph._graph.outputs):
            if output is out._value:
                graph._graph.outputs[k] = temporary._value
        old, name = out._value, out.id
        graph._tensors.pop(temporary.id, None)
        old.name, old_meta = None, old.meta.pop("tensor")
        temporary._value.name = name
        temporary._value.meta["tensor"] = old_meta
        old_meta._value = temporary._value
    graph._graph.remove(op._node)
    op.disconnectAllInputs()
    graph._topo_cons.remove(op)
    del graph._ops[op.id]
    return True


def conv_transpose(op: Any) -> bool:
    """A transposed convolution is a convolution with flipped weights."""
    if op._class_name != "ConvTransposeOp":
        return False
    data, weights = op._in(0), op._in(1)
    plain = {a.name: a.value for a in op._node.attributes.values() if not a.name.startswith("__")}
    group = plain["group"]
    shape = (weights.shape[1] * group, weights.shape[0] // group, *weights.shape[2:])
    scaled = len(op._node.inputs) > 2
    flip = ("popxl" if scaled else "ai.graphcore", "ConvFlipWeights", 1)
    flipped = _create(
        op, "ConvFlipWeightsOp", [weights], [_out(weights, "_flipped", shape)], {"group": group}, row=flip
    )
    row = ("popxl", "ConvOfFlippedPow2Scaled" if scaled else "ConvOfFlipped", 1)
    inputs = [data, _first(flipped), *([op._in(2)] if scaled else [])]
    made = _create(op, "ConvOp", inputs, [_out(op._out(0), "_conv")], plain, row=row, options=op._options)
    take_over(op, made)
    return True


def may_overwrite(op: Any, position: int, order: dict[int, int]) -> bool:
    """Whether an operand may be overwritten: it has the output's form and everybody else is done with it."""
    from .alias import aliases

    t, out = op._in(position), op._out(0)
    graph = op._graph
    if (t.shape, t.dtype) != (out.shape, out.dtype) or t._kind is not TensorType.ActGrad:
        return False
    for alias in aliases(t):
        if alias in graph._by_ref_inputs or alias._value.is_graph_output():
            return False
        for node, k in alias._value.uses():
            other = node.meta["op"]
            if (other is op and k != position) or (other is not op and order[other.id] > order[op.id]):
                return False
    return True


def make_inplace(op: Any, class_name: str, position: int) -> None:
    """Turn an operator into its in-place form; other readers of the operand are ordered before it."""
    from .alias import aliases
    from .op_classes import find

    for alias in aliases(op._in(position)):
        for node, _ in alias._value.uses():
            other = node.meta["op"]
            if other is not op:
                op._graph._topo_cons.insert(other, op)
    op.__class__, op._class_name = find(class_name), class_name
    op._node.attributes[WRITES] = ir.AttrInt64s(WRITES, [position, 0])
