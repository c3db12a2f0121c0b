"""The rewrites that are PopXL's own: transposed convolutions (float8 ones too) and in-place forms.

All others are those of `patterns`.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ...errors import popart_exception
from ...lowering.effects import VIEWS, WRITES
from ...lowering.gradients import TEMPLATE
from ...ops import facts
from ...ops.registry import TRANSLATION
from .._building.bindings import above
from ..context import in_sequence
from .classes import class_of
from .operands import plain_attributes
from .rewrite import insert_before, take_over


def _create(op: Any, op_type: str, inputs: Any, outs: Any, attributes: Any = None, **more: Any) -> Any:
    """A new operator just before `op`, placed like it and outside every sequence."""
    from .._building.create import create

    with in_sequence("pass"):
        made = create(op_type, inputs, outs, attributes, graph=op._graph, settings=op._settings.copy(), **more)
    insert_before(op, [made])
    return made


def _out(t: Any, suffix: str, shape: Any = None) -> Any:
    from .._building.create import Out

    return Out(f"{t.name}{suffix}", t.shape if shape is None else shape, t.dtype, t.meta_shape)


def conv_transpose(op: Any) -> bool:
    """Replace a transposed convolution by a convolution with flipped weights."""
    if op.opType() != "ConvTranspose":
        return False
    data, weights = op._in(0), op._in(1)
    plain = plain_attributes(op)
    group = plain["group"]
    shape = (weights.shape[1] * group, weights.shape[0] // group, *weights.shape[2:])
    scaled = len(op._node.inputs) > 2
    flip = ("popxl" if scaled else "ai.graphcore", "ConvFlipWeights", 1)
    flipped = _create(op, "ConvFlipWeights", [weights], [_out(weights, "_flipped", shape)], {"group": group}, runs=flip)
    runs = ("popxl", "ConvOfFlippedPow2Scaled" if scaled else "ConvOfFlipped", 1)
    inputs = [data, flipped._out(0), *([op._in(2)] if scaled else [])]
    made = _create(op, "Conv", inputs, [_out(op._out(0), "_conv")], plain, runs=runs, options=op._options)
    take_over(op, made)
    return True


def to_identity(op: Any) -> bool:
    """Replace an operator by an identity if its package marks it as computing nothing here."""
    if not op._options.get("to_identity"):
        return False
    take_over(op, _create(op, "Identity", [op._in(0)], [_out(op._out(0), "_same")]))
    return True


def inplace_forms(op: Any) -> list[tuple[int, str]]:
    """(operand, type) of the forms that write into an operand, or make the output a view of it; best first."""
    row = op._facts
    found = [*row.inplace.items(), *([(0, row.view)] if row.view else [])]
    return [(position, form) for position, form in found if facts(form).popxl is not None]


def is_view(op: Any) -> bool:
    """Whether the in-place form of an operator is a view of its operands."""
    return bool(op._facts.view)


def shared_operands(op: Any, position: int) -> list[int]:
    """Operands that the in-place form shares with its output: a concatenation is a view of all of them."""
    return list(op._inputs()) if op.opType() == "Concat" else [position]


@above.enter("inplace_variant")
def inplace_variant(op: Any, op_type: str) -> Any:
    """An unconnected copy of an operator in its in-place form of that type; popart_exception if it has no such form."""
    forms = {form: position for position, form in inplace_forms(op)}
    if op_type not in forms:
        raise popart_exception(f"Op {op.debugName()} has no in-place form {op_type}; it has {sorted(forms)}")
    made = above.clone(op, op._graph)
    turn_in_place(made, op_type, forms[op_type], shared_operands(op, forms[op_type]))
    return made


def turn_in_place(op: Any, op_type: str, position: int, shared: list[int]) -> None:
    """Make an operator one of its in-place forms, without a look at who reads its operands."""
    view = is_view(op)
    if view:
        _without_template(op)
    op.__class__, op._facts, op._node.op_type = class_of(op_type), facts(op_type), op_type
    name, effect = (VIEWS, shared) if view else (WRITES, [position, 0])
    op._node.attributes[name] = ir.AttrInt64s(name, effect)


def _without_template(op: Any) -> None:
    """Replace the gradient of a reshape or transpose by a plain reshape or transpose."""
    if op._node.meta.pop(TEMPLATE, None) is None:
        return
    transposed = op.opType() == "TransposeGrad"
    row = facts("Transpose" if transposed else "Reshape").translation
    perm = list(op._node.attributes["perm"].as_ints()) if transposed else []
    op._node.attributes.clear()
    op._node.meta[TRANSLATION] = row
    if transposed:
        op._node.attributes["perm"] = ir.AttrInt64s("perm", [perm.index(i) for i in range(len(perm))])
    else:
        op._node.attributes["shape"] = ir.AttrInt64s("shape", list(op._out(0).shape))
