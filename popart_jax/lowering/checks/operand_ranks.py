"""Operand ranks that ONNX prescribes, checked because broadcasting alone would accept others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ops.registry import facts
from .operand_types import signature


@cache
def _rules(ranks: str) -> dict[str, str]:
    """Rank of each operand named in an operator's row; see `Operator.ranks`."""
    words = ranks.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def wrong_rank(node: ir.Node, operands: Sequence[Any], version: int) -> str:
    """What is wrong with the rank of an operand of an ONNX operator, '' if nothing."""
    rules = _rules(facts(node.op_type).ranks) if node.domain in ("", "ai.onnx") else {}
    if not rules:
        return ""
    formals = signature("", node.op_type, version)
    ranks = {
        f.name: np.ndim(x) for f, x in zip(formals, operands, strict=False) if f is not None and hasattr(x, "ndim")
    }
    for name, rank in ranks.items():
        rule = rules.get(name, "")
        least, most = _bounds(rule, ranks)
        if not least <= rank <= most:
            wanted = f"the rank of {rule[1:]}, {least}" if rule.startswith("=") else f"rank {rule}"
            return f"input {name} has rank {rank}; expected {wanted}"
    return ""


def _bounds(rule: str, ranks: dict[str, int]) -> tuple[int, int]:
    if not rule:
        return 0, 99
    if rule.startswith("="):
        same = ranks[rule[1:]]
        return same, same
    if rule.endswith("+"):
        return int(rule[:-1]), 99
    least, _, most = rule.partition("-")
    return int(least), int(most or least)
