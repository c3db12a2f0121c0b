"""Ops that cannot run as they are, and the patterns that rewrite them."""

from __future__ import annotations

import onnx_ir as ir

import patterns

from ..model.op_names import identifier
from ..ops import operators
from . import nodes

_MISSING = "Could not create opx for '{op}'. This op should have been removed by pattern {pattern}"
_REQUIRED = '{op} should be optimised out, "{pattern}" pattern is required'


def may_be_unlowered(selection: patterns.PatternSet) -> bool:
    """Whether a pattern that some op needs may be off; only then `unlowered` is worth its time."""
    if patterns.at_level("Default").enabled <= selection.enabled:  # the default level has all patterns that ops need
        return False
    return any(row.removed_by and row.removed_by not in selection for row in operators().values())


def message(node: ir.Node, selection: patterns.PatternSet, opset: int) -> str | None:
    """Why an op can't run: the pattern that rewrites it is off; None if it can."""
    row = nodes.row(node)
    if not row.removed_by or row.removed_by in selection:
        return None
    text = _REQUIRED if row.required else _MISSING
    return text.format(op=identifier(node, opset), pattern=row.removed_by)
