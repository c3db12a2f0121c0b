"""Operators that look along an axis that is too long: what does not count there, so that their result is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .surplus import Surplus, masked

_ZERO = {
    "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "CumSum", "L1",
    "IdentityLoss",
}  # fmt: skip
_LARGEST, _SMALLEST = {"ReduceMax", "ArgMax", "TopK"}, {"ReduceMin", "ArgMin"}
_EXPONENTIAL = {"Softmax", "LogSoftmax", "ReduceLogSumExp"}
LOSSES = {"SoftmaxCrossEntropyLoss": "ignore_index", "NegativeLogLikelihoodLoss": "ignore_index", "Nll": "ignoreIndex"}
"""Losses of rows, with the attribute that names a label to be left out."""
_IGNORED = -100


def axes_seen(node: ir.Node, operands: Sequence[Any]) -> tuple[int, ...]:
    """Axes of the first operand, counted from the end, along which the operator looks; none for other operators."""
    op, rank = node.op_type, np.ndim(operands[0])
    every = tuple(range(1, rank + 1))
    if op.startswith("Reduce"):
        axes = node.attributes.get_ints("axes", ())
        if not axes and len(operands) > 1 and operands[1] is not None:
            axes = np.asarray(operands[1]).reshape(-1).tolist()
        if axes:
            return tuple(rank - a % rank for a in axes)
        return () if node.attributes.get_int("noop_with_empty_axes", 0) else every
    if op in ("L1", "IdentityLoss", *LOSSES):
        return () if node.attributes.get_string("reduction", "mean").lower() == "none" else every
    if op == "CumSum":
        return (rank - int(np.asarray(operands[1]).item()) % rank,)
    if op in ("ArgMax", "ArgMin"):
        return (rank - node.attributes.get_int("axis", 0) % rank,)
    if op in ("Softmax", "LogSoftmax", "TopK"):
        return (rank - node.attributes.get_int("axis", -1) % rank,)
    return ()


def is_exact(op_type: str) -> bool:
    """Whether an operator that looks along the axis is computed exactly from what was found."""
    return op_type in _ZERO | _LARGEST | _SMALLEST | _EXPONENTIAL | {"ReduceProd"} | set(LOSSES)


def prepared(node: ir.Node, operands: Sequence[Any], mark: Surplus) -> tuple[list[Any], dict[str, Any]]:
    """Operands of such an operator, and attributes that it takes instead of its own."""
    op, x, rest = node.op_type, operands[0], list(operands[1:])
    if op in LOSSES:
        ignored = node.attributes.get_int(LOSSES[op], _IGNORED)
        label_mark = Surplus(np.ndim(rest[0]), index=False, live=mark.live)
        return [x, masked(rest[0], label_mark, ignored), *rest[1:]], {LOSSES[op]: ignored}
    return [masked(x, mark, _neutral(node, x.dtype)), *rest], {}


def _neutral(node: ir.Node, dtype: Any) -> Any:
    op = node.op_type
    if op in _ZERO:
        return 0
    if op == "ReduceProd":
        return 1
    floats = jnp.issubdtype(dtype, jnp.floating)
    limits = (jnp.finfo if floats else jnp.iinfo)(dtype)
    if op in _EXPONENTIAL:
        return limits.min
    lowest = op in _LARGEST and (op != "TopK" or node.attributes.get_int("largest", 1))
    return (-np.inf if lowest else np.inf) if floats else (limits.min if lowest else limits.max)


def rescaled(node: ir.Node, results: tuple[Any, ...], mark: Surplus) -> tuple[Any, ...]:
    """Means are over what was found."""
    mean = node.op_type == "ReduceMean" or (
        node.op_type in ("L1", "IdentityLoss") and node.attributes.get_string("reduction", "") == "Mean"
    )
    if not mean:
        return results
    return tuple((y * (mark.live.size / jnp.count_nonzero(mark.live))).astype(y.dtype) for y in results)


def contracted(node: ir.Node, operands: Sequence[Any], marks: Any) -> list[Any] | None:
    """Operands of a matrix product that adds up over the axis of both; None where it doesn't."""
    turned = [node.attributes.get_int(n, 0) if node.op_type == "Gemm" else 0 for n in ("transA", "transB")]
    if node.op_type not in ("MatMul", "Gemm") or not {0, 1} <= set(marks) or np.ndim(operands[0]) < 2:
        return None
    inner = (2 if turned[0] else 1, 1 if turned[1] or np.ndim(operands[1]) == 1 else 2)
    if any(marks[i].axis != axis or marks[i].index for i, axis in enumerate(inner)):
        return None
    return [*(masked(operands[i], marks[i], 0) for i in (0, 1)), *operands[2:]]
