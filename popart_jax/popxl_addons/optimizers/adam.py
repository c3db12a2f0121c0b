"""Adam with decoupled weight decay, as one step on one variable.

Annotations stay objects here: `popxl.TensorByRef` is recognised by identity.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ...popxl.ops.utils import cast_if_needed
from ..module import Module

Scalar = Any


class AdamOptimizerStep(Module):
    """State ``first_order``, ``second_order`` and, with bias correction, ``step``; sharded like the variable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    @popxl.in_sequence()
    def build(
        self,
        var: popxl.TensorByRef,
        grad: popxl.Tensor,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        *,
        lr: float | popxl.Tensor,
        beta1: float | popxl.Tensor = 0.9,
        beta2: float | popxl.Tensor = 0.999,
        eps: float | popxl.Tensor = 1e-5,
        weight_decay: float | popxl.Tensor = 1e-2,
        first_order_dtype: popxl.dtype = popxl.float16,
        bias_correction: bool = True,
        loss_scaling: float | popxl.Tensor = 1,
        global_norm: popxl.Tensor | None = None,
        global_norm_max: float | popxl.Tensor | None = None,
    ) -> None:
        """Update `var` in place.

        m, v are running means of g and g^2; u = m'/(sqrt(v') + eps) + weight_decay*var; var -= lr*u.
        """
        assert global_norm is None or global_norm_max is not None, "global_norm needs global_norm_max"
        grad = _unscaled(grad, loss_scaling, global_norm, global_norm_max)
        first = self._state("first_order", var, first_order_dtype, replica_grouping)
        ops.var_updates.accumulate_moving_average_(first, grad, f=beta1)
        second = self._state("second_order", var, popxl.float32, replica_grouping)
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=beta2)
        correction: dict[str, Any] = {}
        if bias_correction:
            zero = partial(np.zeros, ())
            step = self.add_variable_input("step", zero, popxl.float32, by_ref=True, replica_grouping=replica_grouping)
            correction = {"time_step": step, "beta1": beta1, "beta2": beta2}
        updater = ops.var_updates.adam_updater(
            first, second, weight=var, weight_decay=weight_decay, epsilon=eps, **correction
        )
        _apply(var, updater, lr)

    def _state(self, name: str, var: popxl.Tensor, dtype: popxl.dtype, grouping: Any) -> popxl.Tensor:
        """A by-reference input of zeros shaped like the variable."""
        if var.meta_shape:
            shape = var.meta_shape
            shards = math.prod(shape) // var.nelms
            zeros = partial(np.zeros, shape)
            return self.add_replica_sharded_variable_input(
                name, zeros, dtype, by_ref=True, replica_grouping=grouping, shard_over=shards
            )
        zeros = partial(np.zeros, var.shape)
        return self.add_variable_input(name, zeros, dtype, by_ref=True, replica_grouping=grouping)


def _unscaled(grad: Any, loss_scaling: Scalar, norm: Any, norm_max: Scalar) -> Any:
    """The gradient in float32 without loss scale, clipped by the global norm; each factor only where asked for."""
    is_one = not isinstance(loss_scaling, popxl.Tensor) and loss_scaling == 1
    if is_one and norm_max is None:
        return grad
    grad = cast_if_needed(grad, popxl.float32)
    if not is_one:
        grad = grad * (1 / loss_scaling)
    if norm_max is not None:
        limit = norm_max if isinstance(norm_max, popxl.Tensor) else popxl.constant(norm_max, popxl.float32)
        grad = grad * (limit / ops.maximum(norm, limit))
    return grad


def _apply(var: Any, update: Any, lr: Scalar) -> None:
    """var <- var - lr*update, in place."""
    update = cast_if_needed(update, var.dtype)
    if isinstance(lr, popxl.Tensor):
        ops.scaled_add_(var, update, b=-cast_if_needed(lr, popxl.float32))
    else:
        ops.scaled_add_(var, update, b=-lr)
