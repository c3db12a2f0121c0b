"""Updates of variables: accumulators, optimizer terms, copies."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ..._building.create import Out, create, like, result
from ..._internal.values import OptimizerValue
from ..._internal.virtual import module as _make_module
from ...tensor import Tensor, constant
from ..utils import check_operands

__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "copy_var_update_",
    "lamb_updater",
    "sparse_accumulate_",
]

Number = float | Tensor | None


def scalars(**given: Number) -> tuple[dict[str, Tensor], dict[str, float], dict[str, OptimizerValue]]:
    """Split arguments into tensors and numbers; the third result is what getters return for each."""
    tensors = {k: v for k, v in given.items() if isinstance(v, Tensor)}
    numbers = {k: dtypes.builtins.float(v) for k, v in given.items() if v is not None and not isinstance(v, Tensor)}
    told = {
        k: OptimizerValue(0.0, False)
        if k in tensors
        else OptimizerValue(numbers[k])
        if k in numbers
        else OptimizerValue()
        for k in given
    }
    return tensors, numbers, told


def _given(name: str, value: float | Tensor) -> float | Tensor:
    """A factor that has no default, as a number or a tensor; TypeError for anything else."""
    if isinstance(value, Tensor):
        return value
    try:
        return dtypes.builtins.float(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a number or a tensor, got {value!r}.") from None


def _trimmed(inputs: list[Tensor | None]) -> list[Tensor | None]:
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _accumulate(kind: str, t: Tensor, X: Tensor, f: Number, name: str) -> Tensor:
    tensors, numbers, told = scalars(f=f)
    check_operands(t=t, X=X, **tensors)
    inputs = _trimmed([t, X, tensors.get("f")])
    attributes = {"kind": kind, **numbers}
    out = like(t, f"{name}__{t.name}")
    options: dict[str, Any] = {"factor": told["f"]}
    if kind.startswith("Dampened") and numbers.get("f") == 0:
        options["unexecutable"] = "factor of 0 is not allowed, should have been caught in the Ir"
    return result(create("Accumulate", inputs, [out], attributes, options=options))


def accumulate_(t: Tensor, X: Tensor, f: Number = None) -> Tensor:
    """t <- t + f X."""
    return _accumulate("Add" if f is None else "DampenedAdd", t, X, f, "accumulate")


def accumulate_square_(t: Tensor, X: Tensor, f: Number = 1.0) -> Tensor:
    """t <- t + f X^2."""
    return _accumulate("DampenedAddSquare", t, X, f, "accumulate_square")


def accumulate_mean_(t: Tensor, X: Tensor, step: float | Tensor) -> Tensor:
    """t <- t step / (step + 1) + X / (step + 1)."""
    given = _given("step", step)
    counter = given if isinstance(given, Tensor) else constant(given, dtypes.float32)
    return _accumulate("Mean", t, X, counter, "accumulate_mean")


def accumulate_moving_average_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """t <- f t + (1 - f) X."""
    return _accumulate("MovingAverage", t, X, _given("f", f), "accumulate_moving_avg")


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """t <- f t + (1 - f) X^2."""
    return _accumulate("MovingAverageSquare", t, X, _given("f", f), "accumulate_moving_avg_square")


def accumulator_scale_(t: Tensor, f: float | Tensor) -> Tensor:
    """t <- f t; a constant 0 clears NaN and infinities as well."""
    tensors, numbers, told = scalars(f=_given("f", f))
    check_operands(t=t, **tensors)
    inputs = _trimmed([t, None, tensors.get("f")])
    out = like(t, f"accumulator_scale__{t.name}")
    options = {"factor": told["f"]}
    return result(create("AccumulatorScale", inputs, [out], numbers, options=options))


def accumulator_zero_(t: Tensor) -> Tensor:
    """t <- 0."""
    return accumulator_scale_(t, 0.0)


def sparse_accumulate_(
    t: Tensor, X: Tensor, indices: Tensor, axis: int = 0, f: Number = None, W: Tensor | None = None
) -> Tensor:
    """t[indices] <- t[indices] + f X along an axis; `W` only tells the layout."""
    tensors, numbers, told = scalars(f=f)
    check_operands(t=t, X=X, indices=indices, **tensors, **({} if W is None else {"W": W}))
    inputs = _trimmed([t, X, tensors.get("f"), indices, W])
    out = like(t, f"sparse_accumulate__{t.name}")
    options = {"factor": told["f"], "axis": axis}
    attributes = {"axis": axis, **numbers}
    return result(create("PopartSparseAccumulate", inputs, [out], attributes, options=options))


def adam_updater(
    acc_first_order: Tensor, acc_second_order: Tensor, weight: Tensor | None = None, time_step: Tensor | None = None,
    weight_decay: Number = None, beta1: Number = None, beta2: Number = None, epsilon: float | Tensor = 1e-7,
) -> Tensor:  # fmt: skip
    """mc / (sqrt(vc) + epsilon) + weight_decay weight.

    With a time step (which is first incremented in place) mc = m / (1 - beta1^t) and vc = v / (1 - beta2^t); without it
    mc = m, vc = v.

    Raises
    ------
    ValueError
        Weight decay without weight; a time step without both betas.
    """
    mode = "Adam" if time_step is not None else "AdamNoBias"
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, mode, weight, time_step, weight_decay, beta1, beta2, epsilon
    )


def lamb_updater(
    acc_first_order: Tensor, acc_second_order: Tensor, weight: Tensor | None = None, time_step: Tensor | None = None,
    weight_decay: Number = None, beta1: Number = None, beta2: Number = None, epsilon: float | Tensor = 1e-7,
) -> Tensor:  # fmt: skip
    """The same term as `adam_updater`, for LAMB."""
    mode = "Lamb" if time_step is not None else "LambNoBias"
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, mode, weight, time_step, weight_decay, beta1, beta2, epsilon
    )


def adamax_updater(
    acc_first_order: Tensor, acc_second_order: Tensor, weight: Tensor | None = None, time_step: Tensor | None = None,
    weight_decay: Number = None, beta1: float | Tensor = 0.9, epsilon: float | Tensor = 1e-7,
) -> Tensor:  # fmt: skip
    """mc / (v + epsilon) + weight_decay weight with mc = m / (1 - beta1^t).

    Raises
    ------
    ValueError
        Weight decay without weight; no time step.
    """
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "AdaMax", weight, time_step, weight_decay, beta1, 0.0, epsilon
    )


def weight_decay_is_required(weight_decay: Number) -> bool:
    """Whether there is weight decay: a tensor, or a number other than 0."""
    return isinstance(weight_decay, Tensor) or (weight_decay is not None and weight_decay != 0)


def handle_optimizer_value(f: Any, ins: dict[int, str], index: int) -> OptimizerValue:
    """The value that getters return for a factor; a tensor's id is entered into `ins`."""
    if isinstance(f, Tensor):
        ins[index] = f.id
        return OptimizerValue(0.0, False)
    return OptimizerValue() if f is None else OptimizerValue(f)


def create_adamupdater(
    acc_first_order: Tensor, acc_second_order: Tensor, ins: dict[int, str], mode: Any, weight: Tensor | None = None,
    time_step: Tensor | None = None, weight_decay: Number = None, beta1: Number = None, beta2: Number = None,
    epsilon: Number = 1e-7,
) -> Tensor:  # fmt: skip
    """One AdamUpdater operator of a mode; the ids of its tensor operands are entered into `ins`."""
    kind = getattr(mode, "name", mode)
    decays = weight_decay_is_required(weight_decay)
    if decays and weight is None:
        raise ValueError("Weight decay requires weight to not be None.")
    if kind == "AdaMax" and time_step is None:
        raise ValueError("AdaMax requires time_step to not be None.")
    if time_step is not None and (beta1 is None or beta2 is None):
        raise ValueError("Bias correction requires both beta1 and beta2 to not be None.")
    tensors, numbers, told = scalars(weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon)
    operands: dict[str, Tensor] = {"acc_first_order": acc_first_order, "acc_second_order": acc_second_order, **tensors}
    if time_step is not None:
        operands["time_step"] = time_step
    check_operands(**operands, **({} if weight is None else {"weight": weight}))
    inputs = [weight if decays else None, acc_first_order, acc_second_order, time_step]
    inputs += [tensors.get(k) for k in ("weight_decay", "beta1", "beta2", "epsilon")]
    ins.update((i, t.id) for i, t in enumerate(inputs) if t is not None)
    model = weight if decays and weight is not None else acc_first_order
    out = Out("Updater", model.shape, model.dtype)
    writes = [(3, 1)] if time_step is not None else ()
    attributes = {"mode": kind, **numbers}
    return result(create("AdamUpdater", _trimmed(inputs), [out], attributes, writes=writes, options=told))


def adam_var_update(
    t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, learning_rate: Number = None, max_weight_norm: Number = None
) -> Tensor:
    """t <- t - phi(r1) / r2 lr x, for LAMB.

    `r1` and `r2` are squared norms, phi(r1) = min(sqrt(r1), max_weight_norm); the ratio is 1 when one of them is 0.
    """
    tensors, numbers, told = scalars(learning_rate=learning_rate, max_weight_norm=max_weight_norm)
    check_operands(t=t, x=x, r1=r1, r2=r2, **tensors)
    inputs = _trimmed([t, x, r1, r2, tensors.get("learning_rate"), tensors.get("max_weight_norm")])
    out = like(t, "adam_var_update_out")
    return result(create("AdamVarUpdate", inputs, [out], numbers, options=told))


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """t <- X."""
    check_operands(t=t, X=X)
    return result(create("CopyVarUpdate", [t, X], [like(t, f"updated__{t.name}")]))


_members = {name: member for name, member in globals().items() if not name.startswith("__")}
_modules = ("accumulate", "adam_updater", "adam_var_update", "copy_var_update", "utils")
for _name in _modules:
    _make_module(f"{__name__}.{_name}", "Variable updates.", _members)
