"""``graph.createConnectedOp_<Class>(inputs, outputs, ...)``: operators made through the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from .classes import identifier, rows
from .settings import Settings
from .values import OperatorIdentifier

if TYPE_CHECKING:
    from ..graph import Graph


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_POSITIONAL: dict[str, tuple[str, ...]] = {
    "ReshapeOp": ("shape",),
    "ReshapeInplaceOp": ("shape",),
    "TransposeOp": ("perm",),
    "TransposeInplaceOp": ("perm",),
    "ConcatOp": ("axis",),
    "ConcatInplaceOp": ("axis",),
    "SoftmaxOp": ("axis",),
    "GatherOp": ("axis",),
} | {f"Reduce{kind}Op": ("axes", "keepdims") for kind in _REDUCTIONS}
"""Attributes that may be given by position; those of other classes by name."""


def creator(graph: Graph, class_name: str, *, connected: bool) -> Callable[..., Any]:
    """A function that appends an operator of that class to the graph.

    The positional arguments are ({index: tensor id}, {index: tensor id}, ...) when `connected`; of the rest, identifier
    and settings are used, then the attributes of `_POSITIONAL`. Attributes may be given by keyword.
    """
    from .op_classes import all_classes

    if class_name not in all_classes():
        raise AttributeError(f"createOp_{class_name}")

    def make(*args: Any, **attributes: Any) -> Any:
        inputs, outputs, rest = (args[0], args[1], args[2:]) if connected else ({}, {}, args)
        settings = attributes.pop("settings", next((a for a in rest if isinstance(a, Settings)), None))
        given = [attributes.pop("opid", None), *(a for a in rest if isinstance(a, OperatorIdentifier))]
        _check_identifier(class_name, given)
        plain = [a for a in rest if not isinstance(a, (Settings, OperatorIdentifier))]
        return _make(graph, class_name, inputs, outputs, settings, {**_named(class_name, plain), **attributes})

    return make


def _check_identifier(class_name: str, given: list[Any]) -> None:
    known = identifier(class_name)
    for found in given:
        if found is not None and found.type != known.type:
            raise popart_exception(f"createOp_{class_name}: the identifier is of {found}, expected type {known.type}")


def _named(class_name: str, plain: list[Any]) -> dict[str, Any]:
    names = _POSITIONAL.get(class_name, ())
    if len(plain) > len(names):
        raise popart_exception(
            f"createOp_{class_name}: no attribute is known for the positional argument {plain[len(names)]!r}.\n"
            "  fix: pass attributes by name, as the operator table calls them, for example axis=1."
        )
    return dict(zip(names, plain, strict=False))


def _effects(class_name: str, inputs: Any) -> dict[str, Any]:
    """What an operator made by hand writes or aliases.

    Raises
    ------
    popart_exception
        An update whose kind only `popxl.ops.var_updates` tells.
    """
    from .pattern_rules import inplace_form

    if class_name in ("CopyVarUpdateOp", "AdamVarUpdateOp"):
        return {"writes": [(0, 0)]}
    if rows()[class_name].base in ("VarUpdateOp", "AccumulateBaseOp", "AccumulatorScaleOp"):
        raise popart_exception(f"createOp_{class_name}: make updates with popxl.ops.var_updates")
    found = inplace_form(class_name)
    if found is None:
        return {}
    position, view = found
    if class_name == "ConcatInplaceOp":
        return {"views": sorted(inputs)}
    return {"views": [position]} if view else {"writes": [(position, 0)]}


def _make(graph: Graph, class_name: str, inputs: Any, outputs: Any, settings: Any, attributes: dict[str, Any]) -> Any:
    from .._create import create, infer_outputs
    from ..dtypes import float32

    operands: list[Any] = [None] * (max(inputs, default=-1) + 1)
    for i, tensor_id in inputs.items():
        operands[i] = graph.get_tensor(tensor_id)
    taken = [t for t in outputs.values() if t in graph._tensors and graph._tensors[t]._value.producer() is not None]
    if taken:
        raise popart_exception(f"Tensors {taken} have a producer already")
    from .._create import Out

    outs = [Out("", (), float32) for _ in outputs]
    ids = [outputs[i] for i in sorted(outputs)]
    existing = {i: graph._tensors.pop(i) for i in ids if i in graph._tensors}
    op = create(class_name, operands, outs, attributes, graph=graph, settings=settings, output_ids=ids,
                **_effects(class_name, inputs))  # fmt: skip
    for value in op._node.outputs:
        old = existing.get(value.name or "")
        if old is not None:
            for node, i in list(old._value.uses()):
                node.replace_input_with(i, value)
            for i, output in enumerate(graph._graph.outputs):
                if output is old._value:
                    graph._graph.outputs[i] = value
            value.meta["tensor"] = old
            old._value = value
            graph._tensors[old.id] = old
    if op._node.outputs:
        infer_outputs(op)
    return op
