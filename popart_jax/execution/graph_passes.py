"""The place between patterns and lowering: layout and kernel passes on a program's own copy of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import onnx_ir as ir

from ..lowering.hoist import weight_only
from ..lowering.interpreter import Settings, evaluate, names
from ..lowering.passes import channels_last, compiler_options, untranspose_weights
from ..lowering.resolve import make_plan, needs
from .micro import GRADIENT
from .program import Program, Type, Variable


@dataclass(frozen=True)
class LaidOut:
    """A program ready for XLA.

    Attributes
    ----------
    program : Program
        With layouts changed; its fixed variables include what is computed from weights once.
    hoisted : tuple of str
        Those computed variables.
    source : Program
        The program before hoisting, whose fixed variables are the model's.
    options : mapping of str to str
        Compiler options for this graph.
    """

    program: Program
    hoisted: tuple[str, ...]
    source: Program
    options: Mapping[str, str]

    def compute(self, weights: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Values of the hoisted variables, from the fixed ones."""
        if not self.hoisted:
            return {}
        program = self.source
        settings = Settings(program.opsets, program.training_mode, popart=True, options=program.options)

        def prepare(bound: dict[str, Any]) -> dict[str, Any]:
            return evaluate(program.graph, bound, self.hoisted, settings)

        return jax.jit(prepare)({n: x for n, x in weights.items() if n in program.bound})


def lay_out(program: Program, platform: str, *, hoist: bool) -> LaidOut:
    """Choose layouts for a platform; the given program and its graph stay as they are.

    With `hoist`, what follows from fixed weights alone is computed when they are loaded.
    """
    training = program.training is not None
    graph = program.graph.clone(allow_outer_scope_values=True)
    protected = _protected(program)
    channels_last(graph, protected)
    if hoist:
        untranspose_weights(graph)
    changed = replace(program, graph=graph)
    options = compiler_options(program.graph, training=training, platform=platform)
    if not hoist:
        return LaidOut(changed, (), changed, options)
    return _hoist(changed, options)


def _protected(program: Program) -> frozenset[str]:
    shown = {a.source for a in program.anchors}
    keep = shown | {s.removeprefix(GRADIENT) for s in shown} | set(program.copies.values())
    if program.training is not None:
        keep.add(program.training.loss)
        if program.training.scaling is not None:
            keep |= set(program.training.scaling.tracked)
    return frozenset(keep)


def _hoist(program: Program, options: Mapping[str, str]) -> LaidOut:
    """Compute what follows from fixed weights alone when they are loaded."""
    fixed = {n for n, v in program.variables.items() if n not in program.changing and not v.individual}
    known = names(program.graph)
    want = sorted({a.source for a in program.anchors if a.source in known} | set(program.copies.values()))
    hoisted = weight_only(program.graph, fixed & program.bound, want, program.opsets)
    types = _types(program, hoisted)
    still = _read_variables(program, want, hoisted)
    kept = {n: v for n, v in program.variables.items() if n in program.changing or n in still}
    variables = kept | {n: Variable(types[n]) for n in hoisted}
    shown = {a.source for a in program.anchors} & program.variables.keys()
    variables |= {n: program.variables[n] for n in shown}
    return LaidOut(replace(program, variables=variables), hoisted, program, options)


def _types(program: Program, hoisted: tuple[str, ...]) -> dict[str, Type]:
    if not hoisted:
        return {}
    settings = Settings(program.opsets, program.training_mode, popart=True, options=program.options)
    bound = {
        n: jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for n, v in program.variables.items() if n in program.bound
    }
    shapes = jax.eval_shape(lambda b: evaluate(program.graph, b, hoisted, settings), bound)
    return {n: Type(tuple(s.shape), s.dtype) for n, s in shapes.items()}


def _read_variables(program: Program, want: list[str], hoisted: tuple[str, ...]) -> set[str]:
    """Names of the variables that the rest of the graph reads."""
    known = names(program.graph)
    plan = make_plan(program.graph, tuple(known[n] for n in want), program.opsets, [known[n] for n in hoisted])
    read: set[ir.Value] = {v for step in plan.steps for v in needs(step.node)} | set(plan.wanted)
    return {v.name for v in read if v.name} & program.variables.keys()
