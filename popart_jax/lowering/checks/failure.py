"""Errors inside a node, reported with the node's name and operand types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import onnx_ir as ir

from ...errors import IN_JAX, NodeError, SizeUnknownError, noted, popart_exception
from ...model.origin import imported_as_popart
from ...ops.registry import REQUIRED, Lowering
from ...ops.stopping import as_raised
from ..dynamic_sizes.bounds import how, in_want_of_bounds
from ..dynamic_sizes.padded import Padded, is_bounded, refusal
from ..resolve import Step, find, label
from .operand_types import differing_types


def node_error(node: ir.Node, operands: list[Any], reason: str) -> NodeError:
    """An error that names the node and its operands."""
    return NodeError(label(node), node.op_type, _operands(node, operands), reason)


def unknown_sizes(values: Sequence[ir.Value], marks: Mapping[ir.Value, Any], is_main: bool) -> popart_exception:
    """The error about results of a graph whose size only the run knows; it names all of them without a bound."""
    asked = [v for v in values if isinstance(marks[v], Padded) and not (is_main and _is_bounded(v))]
    maker, names = asked[0].producer(), [v.name or "" for v in asked]
    where = "the graph" if maker is None else f"node '{label(maker)}'"
    readers = f"who reads {', '.join(map(repr, names))}"
    return (SizeUnknownError if is_main else popart_exception)(f"{where}: {refusal(readers, marks[asked[0]], names)}")


def _is_bounded(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and is_bounded(maker)


def missing_outputs(node: ir.Node, results: tuple[Any, ...]) -> str:
    """Outputs of a node that its operator did not compute, as a reason; '' if none."""
    missing = [v.name for v in node.outputs[len(results) :] if v.name]
    return f"it makes {len(results)} outputs; {missing} come from nothing" if missing else ""


def explain(err: Exception, node: ir.Node, row: Lowering, operands: list[Any], opset: int) -> popart_exception:
    """An exception of a library inside a translation, as an error that names the node and its operands."""
    absent = missing_required(node, row) if isinstance(err, TypeError) else ""
    if absent and imported_as_popart() and (keys := _absent_attributes(node, row)):
        return noted(popart_exception(f"no attribute key {keys[0]}"), described(node, operands))
    if absent:
        reason = absent
    elif isinstance(err, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        reason = "it needs values that are known only at run time; call it outside jit"
        reason += f", or {how(in_want_of_bounds(node))}" if row.takes_bound else ""
    else:
        reason = differing_types(node, operands, opset) or _in_words(err)
    return node_error(node, operands, reason)


def _in_words(err: Exception) -> str:
    """The reason that a library's exception gives; its class is named only where its text alone says too little."""
    if isinstance(err, (TypeError, ValueError, NotImplementedError, ZeroDivisionError)):
        return f"operands or attributes do not fit: {err}"
    if (raised := as_raised(err)) is not err:
        return str(raised)
    if isinstance(err, RecursionError):
        return f"graphs call graphs deeper than Python's limit of {sys.getrecursionlimit()} calls within calls allows"
    return f"operands or attributes are outside of what the operator takes ({type(err).__name__}: {err})"


def note_onnx_rule(err: Exception, step: Step, opsets: Mapping[str, int], compute: Callable[[Step], Any]) -> None:
    """Note beside PopART's error about a node that `to_jax` takes it, where ONNX's rules compute it."""
    row = find(step.node, opsets)
    if row is None or row is step.lowering:
        return
    with suppress(Exception):
        compute(replace(step, lowering=row))
        noted(err, IN_JAX)


def missing_required(node: ir.Node, row: Lowering) -> str:
    """Required inputs and attributes that a node leaves out, '' if none."""
    given = [v is not None for v in node.inputs]
    inputs = [i for i in range(row.least_inputs) if i not in row.optional and not (i < len(given) and given[i])]
    absent = [f"input {i} ({row.inputs[i]})" for i in inputs]
    absent += [f"attribute {name!r}" for name in _absent_attributes(node, row)]
    return f"it lacks {' and '.join(absent)}" if absent else ""


def _absent_attributes(node: ir.Node, row: Lowering) -> list[str]:
    required = [name.rstrip("_") for name, default in row.attributes.items() if default is REQUIRED]
    return [name for name in required if name not in node.attributes]


def locate(err: Exception, node: ir.Node, operands: list[Any]) -> None:
    """Add to an error, as its last line, which node it comes from; with nested graphs only the innermost node is named.

    PopART's own programs compare whole error texts: for them the line is a note.
    """
    if getattr(err, "located", False):
        return
    err.located = True  # pyright: ignore[reportAttributeAccessIssue]
    where = f"at: {described(node, operands)}"
    if imported_as_popart():
        err.add_note(where)
    else:
        err.args = (f"{err}\n  {where}",)


def described(node: ir.Node, operands: list[Any]) -> str:
    """One line that names a node and the types of its operands."""
    return f"{node.op_type} node {label(node)!r} with [{', '.join(_operands(node, operands))}]"


def _operands(node: ir.Node, operands: list[Any]) -> list[str]:
    pairs = zip(node.inputs, operands, strict=False)
    return ["-" if v is None else f"{v.name}: {_type(x)}" for v, x in pairs]


def _type(x: Any) -> str:
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"{x.dtype}{list(x.shape)}"
    return type(x).__name__
