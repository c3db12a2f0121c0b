"""Unknown attributes are refused at nodes whose operator has no schema in ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword

import onnx_ir as ir

from ...errors import popart_exception
from ...model.checks.signatures import PRIVATE, schema_of
from ...model.checks.structure import every_node
from ...ops.registry import normal_domain
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
        if row is None:
            continue
        known = sorted(name[:-1] if iskeyword(name[:-1]) else name for name in row.attributes)
        unknown = [name for name in node.attributes if name not in known and not name.startswith(PRIVATE)]
        if unknown:
            raise popart_exception(
                f"node '{label(node)}': {domain}.{node.op_type} has an unknown attribute '{unknown[0]}'; it takes "
                f"{known}.\n  fix: take the attribute out, if the model means the same without it."
            )
