"""Cross entropy of logits, alone or together with its gradient."""

from __future__ import annotations

from typing import Literal

from ... import popxl
from ...popxl import ops
from ...popxl.context import debug_context_frame_offset

REDUCTION_TYPE = Literal["mean", "sum", "none"]


@debug_context_frame_offset(1)
def cross_entropy(
    x: popxl.Tensor, labels: popxl.Tensor, ignore_index: int | None = None, reduction: REDUCTION_TYPE = "mean"
) -> popxl.Tensor:
    """Negative log likelihood of the softmax over the last axis.

    Parameters
    ----------
    x : Tensor (..., classes)
    labels : Tensor (...)
        Integer labels.
    ignore_index : int, optional
        Samples with this label do not count.
    """
    return ops.nll_loss(ops.softmax(x, axis=-1), labels, ignore_index, reduction)


@debug_context_frame_offset(1)
def cross_entropy_with_grad(
    x: popxl.Tensor,
    labels: popxl.Tensor,
    loss_scaling: float | popxl.Tensor = 1,
    ignore_index: int | None = None,
    reduction: REDUCTION_TYPE = "mean",
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """The loss, unscaled, and its gradient with respect to `x`, multiplied by `loss_scaling`."""
    return ops.nll_loss_with_softmax_grad(ops.softmax(x, axis=-1), labels, loss_scaling, ignore_index, reduction)
