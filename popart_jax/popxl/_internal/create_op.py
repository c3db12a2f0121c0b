"""``graph.createConnectedOp_<Class>(inputs, outputs, ...)``: operators made through the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from ...model.tensor_info import _TensorInfoCore as TensorInfo
from ...ops import Operator
from ...ops.registry import resolve
from .._building.bindings import above
from ..dtypes import dtype as Dtype
from ..dtypes import float32
from ..graph import UNTYPED
from .classes import all_classes
from .enums import AccumulationType, AdamMode, CollectiveOperator, DataType, MatMulPartialsType, ReductionType
from .rewrite import adopt
from .settings import Settings
from .values import GraphId, OperatorIdentifier, OptimizerValue, _Optional

if TYPE_CHECKING:
    from ..graph import Graph


def creator(graph: Graph, class_name: str, *, connected: bool) -> Callable[..., Any]:
    """A function that appends an operator of that class to the graph.

    The positional arguments are ({index: tensor id}, {index: tensor id}, ...) when `connected`. Of the rest, identifier
    and settings are known by their type; the others stand in the order that the operator's row gives
    (`PopxlClass.parameters`). All may be given by keyword, with the underscores of PopART's names or without.
    """
    if class_name not in all_classes():
        raise AttributeError(f"createOp_{class_name}")
    row = all_classes()[class_name]._facts

    def make(*args: Any, **named: Any) -> Any:
        nothing: dict[int, Any] = {}
        inputs, outputs, rest = (args[0], args[1], args[2:]) if connected else (nothing, nothing, args)
        settings = named.pop("settings", next((a for a in rest if isinstance(a, Settings)), None))
        opid = named.pop("opid", next((a for a in rest if isinstance(a, OperatorIdentifier)), None))
        plain = [a for a in rest if not isinstance(a, (Settings, OperatorIdentifier))]
        attributes, options = _sorted_out(row, {**_positional(row, class_name, plain), **named})
        op = _make(graph, row, inputs, outputs, settings, attributes, options)
        op._opid = opid or op.opid
        if op._node.outputs:
            op.setup()
        return op

    return make


def _positional(row: Operator, class_name: str, plain: list[Any]) -> dict[str, Any]:
    """Arguments without a name, by PopART's names, or by those of a translation of at most two attributes."""
    names = list(_parameters(row))
    if not names and (translation := resolve(*row.translation)) is not None:
        names = list(translation.attributes)
        names = names if len(names) <= 2 else [name for name in names[:1] if name == "axis"]
    if len(plain) > len(names):
        raise popart_exception(
            f"createOp_{class_name}: no parameter is known for the positional argument {plain[len(names)]!r}.\n"
            "  fix: pass it by name, as the operator table calls it, for example axis=1."
        )
    return dict(zip(names[-len(plain) :] if class_name == "IpuCopyOp" and plain else names, plain, strict=False))


def _parameters(row: Operator) -> dict[str, str]:
    """PopART's names of the parameters, in order, and what the translation calls them."""
    given = row.popxl.parameters.split() if row.popxl is not None else []
    return {name: attribute or name for name, _, attribute in (p.partition("=") for p in given)}


def _sorted_out(row: Operator, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split arguments into attributes, which the node computes with, and options, which only getters return."""
    translation = resolve(*row.translation)
    known = {_plain(name): name for name in (*(translation.attributes if translation else ()), "callee", "body")}
    attributes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        name = name.strip("_")
        value, attribute = _value(value), known.get(_plain(_parameters(row).get(name, name)))
        if isinstance(value, TensorInfo) and {"shape", "dtype"} <= known.keys():
            attributes |= {"shape": tuple(value.shape()), "dtype": Dtype.as_dtype(value.dataType())}
        elif isinstance(value, OptimizerValue):
            options[name] = value
            attributes |= {attribute: value.val()} if attribute and value.isConst() else {}
        elif attribute:
            attributes[attribute] = value
        else:
            options[name] = value
    return attributes, options


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _value(value: Any) -> Any:
    """An argument in the form that attributes hold."""
    if isinstance(value, _Optional):
        value = value.value
    if isinstance(value, DataType):
        return Dtype.as_dtype(value)
    if isinstance(value, (AccumulationType, AdamMode, MatMulPartialsType, ReductionType)):
        return value.name
    if isinstance(value, CollectiveOperator):
        return value.name.lower()
    if isinstance(value, GraphId):
        return value.str()
    return getattr(value, "_graph", value)


def _make(graph: Graph, row: Operator, inputs: Any, outputs: Any, settings: Any, attributes: Any, options: Any) -> Any:
    operands: list[Any] = [None] * (max(inputs, default=-1) + 1)
    for i, tensor_id in inputs.items():
        operands[i] = graph.get_tensor(tensor_id)
    taken = [t for t in outputs.values() if t in graph._tensors and graph._tensors[t]._value.producer() is not None]
    if taken:
        raise popart_exception(f"Tensors {taken} have a producer already")
    ids = [outputs[i] for i in sorted(outputs)]
    existing = {i: graph._tensors.pop(i) for i in ids if i in graph._tensors}
    op = above.create_by_hand(row, operands, [(i, (), float32) for i in ids], attributes, options, graph, settings)
    for value in op._node.outputs:
        old = existing.get(value.name or "")
        if old is not None:
            value.shape, value.type = old._value.shape, old._value.type
            value.meta.pop(UNTYPED)
            adopt(graph, old, value)
    return op
