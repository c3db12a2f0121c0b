"""Shapes and types of all tensors that a program can return, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..lowering.full_precision import full_precision
from ..lowering.interpreter import Settings, evaluate, names
from ..timings import phase
from . import update
from .program import Program, Type


@phase("types")
def graph_types(program: Program) -> dict[str, Type]:
    """Shape and type of every tensor of the main graph, by tracing the forward pass once.

    A node that can't be translated raises popart_exception with its name.
    """
    known, memo = names(program.graph), program.shared_memo
    memo = None if memo is None else memo.for_types()
    made = [n for n, v in known.items() if v.producer() is not None]
    bindings = _structs(program)

    def forward(bindings: dict[str, Any], key: Any) -> dict[str, Any]:
        settings = Settings(
            program.opsets,
            program.training_mode,
            key,
            popart=True,
            options=program.options,
            memo=memo,
            types_only=True,
        )
        found = evaluate(program.graph, bindings, made, settings)
        return {n: jnp.asarray(x) for n, x in found.items() if _is_tensor(x)}

    key = jax.eval_shape(lambda: jax.random.key(0))
    with full_precision():  # as the step will be traced: it finds these operators in the memo
        shapes = jax.eval_shape(replicated(forward, program), bindings, key)
    return {n: Type(tuple(s.shape), np.dtype(s.dtype)) for n, s in {**bindings, **shapes}.items()}


def replicated(fn: Any, program: Program) -> Any:
    """`fn` under a replica axis, so that collectives of the graph can be traced; results are one replica's."""
    count = program.structure.replicas
    if count == 1:
        return fn

    def of_one(*args: Any) -> Any:
        return fn(*args)

    def first(x: Any) -> Any:
        return x[0]

    def one(*args: Any) -> Any:
        return jax.tree.map(first, jax.vmap(of_one, in_axes=None, axis_name="replica", axis_size=count)(*args))

    return one


def update_types(program: Program) -> dict[str, Type]:
    """Types of the intermediate tensors of the weight update."""
    training = program.training
    if training is None:
        return {}
    single = {n: replace(v, groups=((0,),), drifts=False) for n, v in program.variables.items()}
    alone = replace(program, variables=single)

    def run(carried: dict[str, Any], hyper: Any) -> dict[str, Any]:
        scalars = update.scalars_of(training, hyper)
        working = update.start(alone, training, carried)
        gradients = {w: jnp.zeros_like(carried[w]) for w in training.rules}
        accumulators = {f"Accum___{w}": s["accum"] for w, s in working.items() if "accum" in s}
        _, shown = update.apply(update.UpdateInputs(alone, training, carried, working, gradients, scalars))
        return {**accumulators, **shown}

    carried = {n: jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for n, v in program.variables.items()}
    size = 1 + max((p for places in training.hyper.values() for p in places.values()), default=0)
    shapes = jax.eval_shape(run, carried, jax.ShapeDtypeStruct((size,), np.float32))
    return {n: Type(tuple(s.shape), np.dtype(s.dtype)) for n, s in shapes.items()}


def _structs(program: Program) -> dict[str, jax.ShapeDtypeStruct]:
    kinds = {n: v.type for n, v in program.variables.items()} | dict(program.streams)
    return {n: jax.ShapeDtypeStruct(t.shape, t.dtype) for n, t in kinds.items() if n in program.bound}


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape") and np.dtype(x.dtype).kind != "O"
