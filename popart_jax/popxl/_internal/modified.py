"""Modified inputs of calls and loops: the operator's last results are written back into them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ...lowering.effects import WRITES
from .op import Op


def modified_inputs(op: Op) -> list[int]:
    """Inputs of a call or loop whose final values go back to the parent."""
    attr = op._node.attributes.get(WRITES)
    return [] if attr is None else list(attr.as_ints())[::2]


def mark_modified(op: Op, *positions: int) -> None:
    """Add inputs to those written back; results after the outputs hold their final values."""
    every = sorted({*modified_inputs(op), *positions})
    set_modified(op, every)


def set_modified(op: Op, positions: Sequence[int]) -> None:
    """The inputs that are written back, in order."""
    n = len(op._node.outputs)
    if positions:
        pairs = [x for k, i in enumerate(positions) for x in (i, n + k)]
        op._node.attributes[WRITES] = ir.AttrInt64s(WRITES, pairs)
    else:
        op._node.attributes.pop(WRITES, None)
