"""Unknown attributes of nodes whose operator has no schema in ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword

import onnx_ir as ir

from ...errors import popart_exception
from ...logs import module_logger
from ...model.checks.signatures import PRIVATE, schema_of
from ...model.checks.structure import every_node
from ...ops.registry import Lowering, is_known, normal_domain
from ..resolve import find, label


def check_attributes(graph: ir.Graph, opsets: Mapping[str, int]) -> None:
    """Raise popart_exception for the first attribute that a translation does not read, with those that it takes.

    `check_signatures` does it where ONNX has a schema.
    """
    for node in every_node(graph):
        domain = normal_domain(node.domain)
        version = node.version or opsets.get(domain, 1)
        if not node.attributes or schema_of(node.op_type, version, domain) is not None:
            continue
        row = find(node, opsets)
        text = "" if row is None else _unknown(node, row)
        if text:
            raise popart_exception(f"{text}\n  fix: take the attribute out, if the model means the same without it.")


def warn_of_unknown_attributes(graph: ir.Graph, opsets: Mapping[str, int]) -> None:
    """Warn of attributes that a program's own operators do not take; those of other operators PopART ignores."""
    for node in every_node(graph):
        row = find(node, opsets) if node.attributes and normal_domain(node.domain) else None  # ONNX's can't be its own
        text = "" if row is None or is_known(row.fn) else _unknown(node, row)
        if text:
            module_logger("op").warning("%s", text)


def _unknown(node: ir.Node, row: Lowering) -> str:
    """What is wrong with the first attribute that the translation does not read, '' if there is none."""
    known = sorted(name[:-1] if iskeyword(name[:-1]) else name for name in row.attributes)
    unknown = [name for name in node.attributes if name not in known and not name.startswith(PRIVATE)]
    if not unknown:
        return ""
    operator = f"{normal_domain(node.domain)}.{node.op_type}"
    return f"node '{label(node)}': {operator} has an unknown attribute '{unknown[0]}'; it takes {known}."
