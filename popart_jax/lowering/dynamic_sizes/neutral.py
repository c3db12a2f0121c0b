"""Operators that look along a padded axis: padding takes a value that leaves their result as it is without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ...ops.arrays import highest, lowest
from ...ops.registry import facts
from .padded import Padded, masked

_IGNORED = -100
"""A label for rows to ignore; PyTorch's default."""


def axes_seen(node: ir.Node, operands: Sequence[Any]) -> tuple[int, ...]:
    """Axes of the first operand, counted from the end, along which the operator reduces or scans; else empty."""
    op, rank = node.op_type, np.ndim(operands[0])
    every = tuple(range(1, rank + 1))
    if op.startswith("Reduce"):
        axes = node.attributes.get_ints("axes", ())
        if not axes and len(operands) > 1 and operands[1] is not None:
            axes = np.asarray(operands[1]).reshape(-1).tolist()
        if axes:
            return tuple(rank - a % rank for a in axes)
        return () if node.attributes.get_int("noop_with_empty_axes", 0) else every
    if op in ("L1", "IdentityLoss") or leaves_labels_out(op):
        return () if node.attributes.get_string("reduction", "mean").lower() == "none" else every
    if op == "CumSum":
        return (rank - int(np.asarray(operands[1]).item()) % rank,)
    if op in ("ArgMax", "ArgMin"):
        return (rank - node.attributes.get_int("axis", 0) % rank,)
    if op in ("Softmax", "LogSoftmax", "TopK"):
        return (rank - node.attributes.get_int("axis", -1) % rank,)
    return ()


def leaves_labels_out(op_type: str) -> bool:
    """Whether an operator is a loss of labelled rows, with a label that it ignores."""
    return facts(op_type).neutral.lower().startswith("ignore")


def prepared(node: ir.Node, operands: Sequence[Any], mark: Padded) -> tuple[list[Any], dict[str, Any]]:
    """Operands of such an operator with neutral padding, and attributes that replace its own."""
    x, rest = operands[0], list(operands[1:])
    if leaves_labels_out(node.op_type):
        name = facts(node.op_type).neutral
        ignored = node.attributes.get_int(name, _IGNORED)
        label_mark = Padded(np.ndim(rest[0]), index=False, live=mark.live)
        return [x, masked(rest[0], label_mark, ignored), *rest[1:]], {name: ignored}
    return [masked(x, mark, _neutral(node, x.dtype)), *rest], {}


def _neutral(node: ir.Node, dtype: Any) -> Any:
    kind = facts(node.op_type).neutral
    if kind in ("zero", "one"):
        return int(kind == "one")
    if kind == "unlikely":
        return cast("Any", (jnp.finfo if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo)(dtype)).min
    return (lowest if kind == "lowest" and node.attributes.get_int("largest", 1) else highest)(dtype)


def rescaled(node: ir.Node, results: tuple[Any, ...], mark: Padded) -> tuple[Any, ...]:
    """Results, with means taken over the valid entries only."""
    mean = node.op_type == "ReduceMean" or (
        node.op_type in ("L1", "IdentityLoss") and node.attributes.get_string("reduction", "") == "Mean"
    )
    if not mean:
        return results
    return tuple((y * (mark.live.size / jnp.count_nonzero(mark.live))).astype(y.dtype) for y in results)


def contracted(node: ir.Node, operands: Sequence[Any], marks: Any) -> list[Any] | None:
    """Operands, with neutral padding, of a matrix product that sums over the padded axis of both; else None."""
    turned = [node.attributes.get_int(n, 0) if node.op_type == "Gemm" else 0 for n in ("transA", "transB")]
    if node.op_type not in ("MatMul", "Gemm") or not {0, 1} <= set(marks) or np.ndim(operands[0]) < 2:
        return None
    inner = (2 if turned[0] else 1, 1 if turned[1] or np.ndim(operands[1]) == 1 else 2)
    if any(marks[i].axis != axis or marks[i].index for i, axis in enumerate(inner)):
        return None
    return [*(masked(operands[i], marks[i], 0) for i in (0, 1)), *operands[2:]]
