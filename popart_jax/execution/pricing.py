"""Pricing of a step by the IPU model: one replica, without the kernels that are only for XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

import ipu_model
from ipu_model import Argument, ModelOptions, Placement, Target

from ..ops.kernels import IPU, tracing_for
from .program import AXIS, Type
from .step import Step

Describe = Callable[[str], Argument]


def price(
    step: Step, describe: Describe, *, target: Target, placement: Placement, options: ModelOptions
) -> ipu_model.Report:
    """The modelled cost of one run of a step.

    `describe` returns name, role and location of a resident or fed array, by its name in the step; the rest is
    hardware, annotations of the nodes, and the model's options.
    """
    jaxpr, inputs, outputs = traced_for_pricing(step, describe)
    return ipu_model.profile_jaxpr(
        jaxpr,
        target=target,
        placement=placement,
        options=replace(options, axis_sizes={AXIS: step.replicas} if step.replicas > 1 else {}),
        inputs=inputs,
        outputs=outputs,
    )


def traced_for_pricing(step: Step, describe: Describe) -> tuple[Any, list[Argument], list[Argument]]:
    """One replica's step as a jaxpr, with its inputs and outputs; new state overwrites the old."""
    taken = {n: step.state[n].type for n in step.taken}
    fixed = {n: v.type for n, v in step.fixed.items()}
    fed = {n: x.type for n, x in step.fed.items()}
    axes = [(AXIS, step.replicas)] if step.replicas > 1 else None
    with tracing_for(IPU):
        jaxpr, (state, results) = jax.make_jaxpr(step.function, axis_env=axes, return_shape=True)(
            *map(_structs, (taken, fixed, fed))
        )
    # JAX flattens dictionaries in the order of their keys
    places = {name: i for i, name in enumerate(sorted(state))}
    resident = [replace(describe(n), donated_to=places.get(n)) for part in (taken, fixed) for n in sorted(part)]
    inputs = [*resident, *(describe(n) for n in sorted(fed))]
    new = [Argument(described.name, described.role) for described in map(describe, sorted(state))]
    return jaxpr, inputs, [*new, *(Argument(n, "stream") for n in sorted(results))]


def _structs(types: Mapping[str, Type]) -> dict[str, jax.ShapeDtypeStruct]:
    return {n: jax.ShapeDtypeStruct(kind.shape, kind.dtype) for n, kind in types.items()}
