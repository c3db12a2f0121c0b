"""Shared parts of the update rules: facts of the reduction, optimizer state, scalars fed from the host.

A rule is optax's pair of init and update, with update split where gradient clipping and replica reduction happen:
``accumulate`` runs per micro-batch, ``prepare`` returns the tensor to clip, ``apply`` computes the new weight.
Hyperparameters arrive as traced scalars. Arithmetic is in float32; what is stored is rounded to its own type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..._process.jnp import jnp
from ...enums import DataType
from ..values import OptimizerValue

State = dict[str, Any]
Hyper = Mapping[str, Any]
Extras = dict[str, Any]
F32 = np.float32


@dataclass(frozen=True, slots=True)
class Reduction:
    """How gradients of micro-batches and replicas combine (PopART's section on reduction factors)."""

    accumulate: bool = False  # gradient accumulation is on
    factor: int = 1  # micro-batches per update
    replicas: int = 1  # global replication factor
    mean: bool = False  # instead of the sum
    running: bool = False  # the mean is kept while accumulating, instead of one division at the end

    @property
    def post_divisor(self) -> float:
        """af_post * rf_post: the divisor of a plain sum, which the scalars include."""
        if not self.mean or self.running:
            return 1.0
        return float((self.factor if self.accumulate else 1) * self.replicas)


@dataclass(frozen=True, slots=True)
class Weight:
    """Facts of a trained weight that a rule needs; `group` is the number of replicas that share its value."""

    name: str
    dtype: np.dtype
    group: int = 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number computed on the host from hyperparameters.

    `loss_power` says how it depends on the loss scale: +1 proportional, -1 inverse; automatic loss scaling needs that.
    `of_weight_type` scalars are rounded to the weight's type.
    """

    base: str
    value: np.float32
    const: bool
    loss_power: int = 0
    of_weight_type: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One optimizer state tensor of a weight: its role, name and type, and the value a new session starts with."""

    role: str
    name: str
    dtype: np.dtype
    init: Callable[[np.ndarray, Mapping[str, np.float32]], np.ndarray]
    is_scalar: bool = False


class Reduce(Protocol):
    """Combination over the replicas that share a weight."""

    def __call__(self, x: Any, *, mean: bool = False) -> Any:
        """The sum over the replicas, or the mean."""
        ...


class Rule(Protocol):
    """The update of one weight."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """State kept between updates."""
        ...

    def scalars(self) -> tuple[Scalar, ...]:
        """Current host values of the hyperparameters."""
        ...

    def start(self, w: Any, state: State) -> State:
        """Working state of a batch: the kept state, and accumulators that live within one batch."""
        ...

    def accumulate(self, state: State, grad: Any, h: Hyper, index: Any) -> State:
        """Add the gradient of micro-batch `index`."""
        ...

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The tensor to clip, the working state, and named intermediate tensors."""
        ...

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """New weight, kept state, and named intermediate tensors."""
        ...


@dataclass(frozen=True)
class Accumulating:
    """Base of the rules: values of the hyperparameters, and an accumulator that exists within one batch."""

    optimizer: Any
    weight: Weight
    reduction: Reduction

    def _value(self, field: str) -> np.float32:
        return np.float32(self._raw(field).val())

    def _const(self, *fields: str) -> bool:
        return all(self._raw(f).isConst() for f in fields)

    def _is_zero(self, field: str) -> bool:
        """Whether a value is the constant 0."""
        return self._const(field) and self._raw(field).val() == 0

    def _raw(self, field: str) -> OptimizerValue:
        return self.optimizer.value(field, self.weight.name)

    @property
    def accum_type(self) -> np.dtype:
        """The element type of the accumulator."""
        return type_of(self.optimizer.accum_type, self.weight.dtype)

    def start(self, w: Any, state: State) -> State:
        """The kept state, and an accumulator of zeros when gradients are accumulated."""
        if not self.reduction.accumulate:
            return state
        return {**state, "accum": jnp.zeros_like(w, self.accum_type)}

    def accumulate(self, state: State, grad: Any, h: Hyper, index: Any) -> State:
        """Adds to the sum, or to the running mean, of the gradients of this batch."""
        return {**state, "accum": add_gradient(state["accum"], grad, self.reduction, index)}


def zeros(w0: np.ndarray, _: Mapping[str, np.float32]) -> np.ndarray:
    """State that starts at zero: a view of one number, which takes no memory."""
    return np.broadcast_to(np.float32(0), np.shape(w0))


def ones(w0: np.ndarray, _: Mapping[str, np.float32]) -> np.ndarray:
    """State that starts at one."""
    return np.ones(np.shape(w0), np.float32)


def type_of(kind: DataType, weight: np.dtype) -> np.dtype:
    """NumPy type of optimizer state; UNDEFINED is the weight's."""
    return {DataType.FLOAT: np.dtype(np.float32), DataType.FLOAT16: np.dtype(np.float16)}.get(kind, weight)


def wide(x: Any) -> Any:
    """A tensor in the precision of the arithmetic."""
    return x.astype(F32)


def add_gradient(total: Any, grad: Any, reduction: Reduction, index: Any) -> Any:
    """Sum or running mean of gradients after micro-batch `index`, in the accumulator's type."""
    if not (reduction.mean and reduction.running):
        return (wide(total) + wide(grad)).astype(total.dtype)
    share = 1 / (F32(1) + index)
    kept = jnp.where(index == 0, 0, wide(total)) * (index * share)
    return (kept + wide(grad) * share).astype(total.dtype)


def reduced_gradient(state: State, grad: Any, reduction: Reduction, reduce: Reduce) -> Any:
    """The accumulated gradient, or the given one, combined over replicas."""
    local = state["accum"] if reduction.accumulate else grad
    return reduce(local, mean=reduction.mean and reduction.running)
