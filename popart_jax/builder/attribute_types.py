"""Checks attribute types of ai.graphcore nodes by the signatures of their builder methods, as they have no schemas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import onnx_ir as ir

from ..errors import popart_exception
from ..model.checks.signatures import is_empty_list_for
from ..model.checks.structure import every_node
from ..ops.builder_methods import methods_of
from .signatures import parse

_GRAPHCORE = "ai.graphcore"
_TYPES = {
    "int": ir.AttributeType.INT,
    "bool": ir.AttributeType.INT,
    "float": ir.AttributeType.FLOAT,
    "str": ir.AttributeType.STRING,
    "ints": ir.AttributeType.INTS,
    "floats": ir.AttributeType.FLOATS,
}


def check_attribute_types(graph: ir.Graph) -> None:
    """Raise popart_exception for the first attribute of an ai.graphcore node that the builder gives another type."""
    for node in every_node(graph):
        if node.domain != _GRAPHCORE:
            continue
        known = _known(node.op_type)
        for name, attribute in node.attributes.items():
            wanted = known.get(name, attribute.type)
            if attribute.type is not wanted and not is_empty_list_for(attribute, wanted):
                raise popart_exception(
                    f"Node '{node.name}' ({node.op_type}) has attribute '{name}' of type {attribute.type.name}; "
                    f"expected {wanted.name}."
                )


@cache
def _known(op: str) -> Mapping[str, ir.AttributeType]:
    """Types of an operator's attributes, as far as the signatures of its methods say."""
    declared = [parse(one.signature, _GRAPHCORE, op) for one in methods_of(op)]
    return {p.name: _TYPES[p.kind] for method in declared for p in method.parameters if p.kind in _TYPES}
