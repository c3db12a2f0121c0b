"""Gradients of a forward pass of which a part is kept, and the rest computed again when the backward pass needs it.

JAX says what the backward pass reads. What an operator of `Training.again` has made of that is dropped, with all that
such an operator holds inside; the operator runs once more just before the first gradient that reads it, from what was
kept, as PopART's recomputation does. `jax.checkpoint` can't say that: it also runs operators again that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import jax

from .._compat.jax import Literal, Tracer, bind_as_traced, evaluate_part, flat_tree, jaxpr_of, scopes_of
from ..lowering.arrival import after
from ..lowering.interpreter import AGAIN
from .program import Program

_RUN_AGAIN = "transpose(rematted_computation)"
"""Scope of what runs again: by this name, which is JAX's own, the IPU model knows it as part of the backward pass."""


def recomputes(program: Program) -> bool:
    """Whether the backward pass runs operators again."""
    return program.training is not None and bool(program.training.again)


def recomputing_vjp(
    forward: Callable[..., tuple[Any, Any]], *primals: Any, resident: Collection[Any]
) -> tuple[Any, Callable[[Any], Any], Any]:
    """The result of ``jax.vjp(forward, *primals, has_aux=True)``, which runs the marked operators of `forward` again.

    It returns a scalar and other values; operators to run again are traced in the scope `AGAIN`. `resident` are values
    that it reads and that are in memory anyhow.
    """
    leaves, tree = flat_tree(primals)
    traced: list[Any] = []

    def whole(*leaves: Any) -> list[Any]:
        result, pull, others = cast(
            "tuple[Any, Callable[[Any], Any], Any]", jax.vjp(forward, *tree.unflatten(leaves), has_aux=True)
        )
        structure: list[Any] = []

        def flat_pull(slope: Any) -> list[Any]:
            found, shape = flat_tree(pull(slope))
            structure.append(shape)
            return found

        slopes = jaxpr_of(flat_pull, [result])
        shown, shape = flat_tree(others)
        moving = [x for x in shown if isinstance(x, Tracer)]
        traced[:] = slopes, structure[-1], shape, [None if isinstance(x, Tracer) else x for x in shown]
        return [result, *moving, *slopes.consts]

    closed = jaxpr_of(whole, leaves)
    slopes, structure, shape, fixed = traced
    first = 1 + sum(x is None for x in fixed)
    backward = _Backward(closed.jaxpr, slopes.jaxpr, closed.jaxpr.outvars[first:])
    found = evaluate_part(closed, [*closed.jaxpr.outvars[:first], *backward.kept], leaves)
    result, *moving = found[:first]
    values = dict(zip(backward.kept, found[first:], strict=True))
    known = {id(x) for x in (*resident, *jax.tree.leaves(primals))}
    sources = zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*closed.consts, *leaves), strict=True)
    fixed_sources = [v for v, x in sources if id(x) in known]
    rest = iter(moving)
    others = shape.unflatten([next(rest) if x is None else x for x in fixed])
    return result, lambda slope: structure.unflatten(backward.run(slope, values, fixed_sources)), others


class _Backward:
    """A backward pass as a jaxpr, the jaxpr of its forward pass, and which values of that are kept."""

    def __init__(self, forward: Any, backward: Any, residuals: Sequence[Any]) -> None:
        self.forward, self.backward = forward, backward
        self.residuals = dict(zip(backward.constvars, residuals, strict=True))
        self.makers = _makers(forward)
        self.kept = self._kept(residuals)

    def _kept(self, residuals: Sequence[Any]) -> list[Any]:
        """What the backward pass, and what it runs again, read of the forward pass."""
        kept: dict[Any, None] = {}
        seen: set[int] = set()
        pending = list(residuals)
        while pending:
            variable = pending.pop()
            if isinstance(variable, Literal):
                continue
            maker = self.makers.get(variable)
            if maker is None:
                kept[variable] = None
            elif maker not in seen:
                seen.add(maker)
                pending.extend(self.forward.eqns[maker].invars)
        return list(kept)

    def run(self, slope: Any, values: Mapping[Any, Any], fixed: Sequence[Any]) -> list[Any]:
        """The gradients, given that of the result and the kept values."""
        equations = self.backward.eqns
        run = _Run(self, {**values, self.backward.invars[0]: slope}, self._resident(fixed))
        arrived = set(self.backward.invars)
        ends = dict.fromkeys(self.backward.invars)  # gradients that nothing has read since something ran again
        for number, eqn in enumerate(equations):
            there = [v for v in eqn.invars if not isinstance(v, Literal) and v in arrived]
            if not there and not eqn.effects:
                run.later.update((v, number) for v in eqn.outvars)
                continue
            arrived.update(eqn.outvars)
            if run.compute(eqn.invars, [run.values[v] for v in dict.fromkeys([*there, *ends])]):
                ends.clear()
            run.apply(eqn)
            for variable in there:
                ends.pop(variable, None)
            ends.update(dict.fromkeys(eqn.outvars))
        run.compute(self.backward.outvars, [run.values[v] for v in ends])
        return [run.read(v) for v in self.backward.outvars]

    def _resident(self, fixed: Sequence[Any]) -> frozenset[Any]:
        """Values of the forward pass that follow from variables alone."""
        found = set(fixed)
        for eqn in self.forward.eqns:
            if all(isinstance(v, Literal) or v in found for v in eqn.invars):
                found.update(eqn.outvars)
        return frozenset(found)


class _Run:
    """Values of one backward pass; `later` has the equations that read no gradient and wait for one that reads them."""

    def __init__(self, plan: _Backward, values: dict[Any, Any], resident: frozenset[Any]) -> None:
        self.plan, self.values, self.resident = plan, values, resident
        self.later: dict[Any, int] = {}

    def read(self, variable: Any) -> Any:
        found = self.plan.residuals.get(variable, variable) if not isinstance(variable, Literal) else variable
        return found.val if isinstance(found, Literal) else self.values[found]

    def apply(self, eqn: Any) -> None:
        results = bind_as_traced(eqn, [self.read(v) for v in eqn.invars])
        self.values.update(zip(eqn.outvars, results, strict=True))

    def compute(self, wanted: Sequence[Any], gradients: Sequence[Any]) -> bool:
        """Compute what is wanted and missing, after the arrival of the gradients; says whether anything ran again."""
        again, late = self._missing(wanted)
        equations = [self.plan.forward.eqns[i] for i in sorted(again)]
        made = {v for eqn in equations for v in eqn.outvars}
        starts = [v for eqn in equations for v in eqn.invars if not isinstance(v, Literal) and v not in made]
        starts = [v for v in dict.fromkeys(starts) if v not in self.resident and v not in self.plan.makers]
        before = {v: self.values[v] for v in starts}
        self.values.update(zip(starts, after(list(before.values()), gradients), strict=True))
        with jax.named_scope(_RUN_AGAIN):
            for eqn in equations:
                self.apply(eqn)
        self.values.update(before)
        for number in sorted(late):
            self.apply(self.plan.backward.eqns[number])
        return bool(equations)

    def _missing(self, wanted: Sequence[Any]) -> tuple[set[int], set[int]]:
        """The equations of the forward and of the backward pass that make what is missing."""
        again: set[int] = set()
        late: set[int] = set()
        pending = list(wanted)
        while pending:
            variable = pending.pop()
            if isinstance(variable, Literal):
                continue
            variable = self.plan.residuals.get(variable, variable)
            if isinstance(variable, Literal) or variable in self.values:
                continue
            of_backward = self.later.get(variable)
            number = self.plan.makers[variable] if of_backward is None else of_backward
            chosen, eqns = (again, self.plan.forward.eqns) if of_backward is None else (late, self.plan.backward.eqns)
            if number not in chosen:
                chosen.add(number)
                pending.extend(eqns[number].invars)
        return again, late


def _makers(forward: Any) -> dict[Any, int]:
    """What is not kept of a forward pass, and the number of the equation that makes it again.

    An operator that is kept may hold a slope, such as the cosine beside a sine. Where its operand is not kept, the
    gradient computes the slope from that, as PopART's gradient operators do.
    """
    inside = {v: _node(eqn) for eqn in forward.eqns for v in eqn.outvars}
    read = {v for eqn in forward.eqns for v in eqn.invars if not isinstance(v, Literal) and inside.get(v) != _node(eqn)}
    found: dict[Any, int] = {}
    for number, eqn in enumerate(forward.eqns):
        is_slope = eqn.primitive.name in _ELEMENTWISE and read.isdisjoint(eqn.outvars)
        if not _calls_host(eqn) and (
            AGAIN in scopes_of(eqn) or (is_slope and any(_is_in(v, found) for v in eqn.invars))
        ):
            found.update(dict.fromkeys(eqn.outvars, number))
    return found


_ELEMENTWISE = frozenset({
    *("abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp"),
    *("convert_element_type", "copy", "cos", "cosh", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2"),
    *("expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max"),
    *("min", "mul", "ne", "neg", "not", "or", "pow", "reduce_precision", "rem", "round", "rsqrt", "select_n"),
    *("sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor"),
})  # fmt: skip


def _calls_host(eqn: Any) -> bool:
    """Whether an equation must not run twice; in programs that are priced, prints have no effect for JAX."""
    return bool(eqn.effects) or eqn.primitive.name == "pure_callback"


def _is_in(variable: Any, found: Collection[Any]) -> bool:
    return not isinstance(variable, Literal) and variable in found


def _node(eqn: Any) -> str:
    """The scope of the node for which an equation was traced."""
    return next((name for name in reversed(scopes_of(eqn)) if name.startswith("onnx[")), "")
