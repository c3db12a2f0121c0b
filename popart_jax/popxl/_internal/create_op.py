"""``graph.createConnectedOp_<Class>(inputs, outputs, ...)``: operators made through the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from ...ops import Operator, Trait, facts
from ...ops.registry import resolve
from ..dtypes import float32
from .classes import all_classes
from .rewrite import adopt
from .settings import Settings
from .values import OperatorIdentifier

if TYPE_CHECKING:
    from ..graph import Graph


def creator(graph: Graph, class_name: str, *, connected: bool) -> Callable[..., Any]:
    """A function that appends an operator of that class to the graph.

    The positional arguments are ({index: tensor id}, {index: tensor id}, ...) when `connected`; of the rest, identifier
    and settings are used, then attributes in the order of the translation: up to two of them, or a leading axis (PopART
    has other orders for more). All may be given by keyword.
    """
    if class_name not in all_classes():
        raise AttributeError(f"createOp_{class_name}")
    row = all_classes()[class_name]._facts

    def make(*args: Any, **attributes: Any) -> Any:
        inputs, outputs, rest = (args[0], args[1], args[2:]) if connected else ({}, {}, args)
        settings = attributes.pop("settings", next((a for a in rest if isinstance(a, Settings)), None))
        given = [attributes.pop("opid", None), *(a for a in rest if isinstance(a, OperatorIdentifier))]
        _check_identifier(row, given)
        plain = [a for a in rest if not isinstance(a, (Settings, OperatorIdentifier))]
        return _make(graph, row, inputs, outputs, settings, {**_named(row, plain), **attributes})

    return make


def _name(row: Operator) -> str:
    return row.op_type if row.popxl is None else row.popxl.name


def _check_identifier(row: Operator, given: list[Any]) -> None:
    for found in given:
        if found is not None and found.type != row.op_type:
            raise popart_exception(f"createOp_{_name(row)}: the identifier is of {found}, expected type {row.op_type}")


def _named(row: Operator, plain: list[Any]) -> dict[str, Any]:
    translation = resolve(*row.translation)
    names = tuple(translation.attributes) if translation else ()
    names = names if len(names) <= 2 else tuple(name for name in names[:1] if name == "axis")
    if len(plain) > len(names):
        raise popart_exception(
            f"createOp_{_name(row)}: no attribute is known for the positional argument {plain[len(names)]!r}.\n"
            "  fix: pass attributes by name, as the operator table calls them, for example axis=1."
        )
    return dict(zip(names, plain, strict=False))


def _effects(row: Operator, inputs: Any) -> dict[str, Any]:
    """What an operator made by hand writes or aliases.

    Raises
    ------
    popart_exception
        An update whose kind only `popxl.ops.var_updates` tells.
    """
    if row.op_type in ("CopyVarUpdate", "AdamVarUpdate"):
        return {"writes": [(0, 0)]}
    if row.has(Trait.UPDATES) and row.op_type != "AdamUpdater":
        raise popart_exception(f"createOp_{_name(row)}: make updates with popxl.ops.var_updates")
    pure = facts(row.forward)
    if row.op_type == pure.view:
        return {"views": sorted(inputs) if pure.op_type == "Concat" else [0]}
    return {"writes": [(i, 0) for i, form in pure.inplace.items() if form == row.op_type]}


def _make(graph: Graph, row: Operator, inputs: Any, outputs: Any, settings: Any, attributes: dict[str, Any]) -> Any:
    from .._create import Out, create, infer_outputs

    operands: list[Any] = [None] * (max(inputs, default=-1) + 1)
    for i, tensor_id in inputs.items():
        operands[i] = graph.get_tensor(tensor_id)
    taken = [t for t in outputs.values() if t in graph._tensors and graph._tensors[t]._value.producer() is not None]
    if taken:
        raise popart_exception(f"Tensors {taken} have a producer already")
    outs = [Out("", (), float32) for _ in outputs]
    ids = [outputs[i] for i in sorted(outputs)]
    existing = {i: graph._tensors.pop(i) for i in ids if i in graph._tensors}
    op = create(row.op_type, operands, outs, attributes, graph=graph, settings=settings, output_ids=ids,
                **_effects(row, inputs))  # fmt: skip
    for value in op._node.outputs:
        old = existing.get(value.name or "")
        if old is not None:
            adopt(graph, old, value)
    if op._node.outputs:
        infer_outputs(op)
    return op
