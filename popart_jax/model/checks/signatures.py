"""Checks nodes against ONNX's schemas: numbers of inputs and outputs, names and types of attributes."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx_ir as ir
from onnx import defs

from ...errors import noted, popart_exception
from ..attribute_names import TYPES
from ..origin import imported_as_popart
from .structure import every_node

PRIVATE = "__"
"""Prefixes of the annotations that PopART puts on nodes of any operator."""


def check_signatures(model: ir.Model, strict: bool = True) -> None:
    """Refuse nodes that their operator's schema does not allow; operators without one are left to their translation.

    Unknown attributes pass where not `strict`: PopART lets programs add attributes of their own to any node. Raises
    popart_exception that names the first such node, what the schema expects and what the node has.
    """
    for node in every_node(model.graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = schema_of(node.op_type, node.version or model.opset_imports.get(domain, 1), domain)
        if schema is not None:
            if strict and schema.deprecated:
                raise popart_exception(
                    f"{_described(node)} was removed in opset {schema.since_version}, which the model's follows.\n"
                    "  fix: use its successor, or import an older opset."
                )
            _check_counts(node, schema, strict)
            _check_attributes(node, schema, strict)
        if not strict:
            _check_annotations(node)
        if node.op_type == "If" and not domain:
            _check_branches(node, strict)
        if node.op_type == "Loop" and not domain:
            _check_loop(node, strict)


@cache
def schema_of(op: str, version: int, domain: str) -> Any:
    """The schema that ONNX has of an operator in an opset, None if it has none."""
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


_POPART_INPUTS = {"MatMul": 3}
"""Most inputs of operators that have more in PopART: a power of two behind float8 operands."""


def _described(node: ir.Node) -> str:
    first = next((v.name for v in node.outputs if v.name), "")
    return f"node '{node.name or f'{node.op_type}:{first}'}': {node.op_type}"


def _check_counts(node: ir.Node, schema: Any, strict: bool) -> None:
    most_inputs = schema.max_input if strict else max(schema.max_input, _POPART_INPUTS.get(node.op_type, 0))
    ends = (
        ("inputs", [v is not None for v in node.inputs], schema.min_input, most_inputs),
        ("outputs", [bool(v.name) for v in node.outputs], schema.min_output, schema.max_output),
    )
    for what, present, least, most in ends:
        count = max((i + 1 for i, there in enumerate(present) if there), default=0)
        if not least <= count <= most and count != len(present):
            count = len(present)
        if not least <= count <= most:
            allowed = f"{least}" if least == most else f"{least} to {most}" if most < 2**31 - 1 else f"{least} or more"
            since = schema.since_version
            raise popart_exception(f"{_described(node)} has {count} {what}; opset {since} has {allowed}.")
    for value, formal in zip(node.outputs, schema.outputs, strict=False):
        if not value.name and formal.option is _SINGLE:
            raise popart_exception(f"{_described(node)} leaves its output '{formal.name}' out, which is not optional.")


_SINGLE = defs.OpSchema.FormalParameterOption.Single


def _check_annotations(node: ir.Node) -> None:
    for name, attribute in node.attributes.items():
        wanted = TYPES.get(name, attribute.type)
        if attribute.type != wanted and not is_empty_list(attribute):
            raise popart_exception(
                f"{_described(node)} has the attribute '{name}' of type {attribute.type.name}; PopART's is of type "
                f"{wanted.name}."
            )


def is_empty_list(attribute: ir.Attr) -> bool:
    """Whether the value is a list without elements, whose type nothing tells: PopART's builder writes it as INTS."""
    return isinstance(attribute.value, (tuple, list)) and not attribute.value


def is_empty_list_for(attribute: ir.Attr, wanted: ir.AttributeType) -> bool:
    """Whether it is such a list, where a list is wanted."""
    return wanted in _LISTS and is_empty_list(attribute)


_LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)


def _check_attributes(node: ir.Node, schema: Any, strict: bool) -> None:
    known = schema.attributes
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            raise popart_exception(
                f"{_described(node)} takes its attribute '{name}' from a function's '{attribute.ref_attr_name}', but "
                "stands in none that was given it."
            )
        if name not in known:
            if not strict or name.startswith(PRIVATE):
                continue
            raise popart_exception(
                f"{_described(node)} has an unknown attribute '{name}'; opset {schema.since_version} has "
                f"{sorted(known)}.\n  fix: take the attribute out, or import the opset that defines it."
            )
        wanted = ir.AttributeType(int(known[name].type.value))
        fits = attribute.type is wanted or (not strict and is_empty_list_for(attribute, wanted))
        if attribute.type is not None and not fits:
            raise popart_exception(
                f"{_described(node)} has attribute '{name}' of type {attribute.type.name}; expected {wanted.name}."
            )
    missing = [name for name, a in known.items() if a.required and name not in node.attributes]
    if missing:
        where = f"{_described(node)} lacks the required attribute(s) {missing}."
        if imported_as_popart():  # PopART's whole text
            raise noted(popart_exception(f"no attribute key {missing[0]}"), where)
        raise popart_exception(where)


def _check_branches(node: ir.Node, strict: bool) -> None:
    """Branches have no inputs, except that PopART lets these name outer tensors."""
    for name in ("then_branch", "else_branch"):
        branch = node.attributes[name].value
        if strict and branch.inputs:
            raise popart_exception(
                f"{_described(node)} has a {name} with inputs {[v.name for v in branch.inputs]}; expected none."
            )
        count = len(branch.outputs)
        if count != len(node.outputs):
            raise popart_exception(f"{_described(node)} has {len(node.outputs)} outputs, but its {name} makes {count}.")


def _check_loop(node: ir.Node, strict: bool) -> None:
    """The body's inputs: iteration, condition and carried values; PopART also lets them name outer tensors."""
    body = node.attributes["body"].value
    carried = max(len(node.inputs) - 2, 0)
    if None in node.inputs[2:]:
        raise popart_exception(f"{_described(node)} lacks the start of a carried value.")
    wanted, there = 2 + carried, len(body.inputs)
    if there < wanted or (strict and there > wanted):
        raise popart_exception(
            f"{_described(node)} carries {carried} value(s), so its body takes {wanted} inputs; it has {there}."
        )
    if len(body.outputs) < 1 + carried or len(node.outputs) > len(body.outputs) - 1:
        raise popart_exception(
            f"{_described(node)} carries {carried} value(s) and has {len(node.outputs)} outputs; its body makes "
            f"{len(body.outputs)}, the condition included."
        )
