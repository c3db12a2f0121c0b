"""The interpreter: walks a graph once and computes its values with the table of translations.

Under `jax.jit` the walk is a trace. Whatever depends only on constants and static shapes stays NumPy throughout, so
that computed shapes and axes are known when an operator needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import jax
import onnx_ir as ir

from .._compat.jax import Tracer, usual_promotion
from ..errors import OpError, popart_exception, poplibs_exception
from ..model.op_names import describe, op_names
from ..ops import symbols, varying
from ..ops.arrays import as_results
from ..ops.later import LATER
from ..ops.operator import Trait
from ..ops.options import DEFAULTS, OperatorOptions
from ..ops.registry import facts
from . import keys, op_trace, rounding, static
from .attributes import array, keywords
from .checks import failure, operand_types, sizes
from .checks.operand_ranks import wrong_rank
from .checks.recorded_types import as_recorded
from .dynamic_sizes import known_length, routed
from .dynamic_sizes.bounds import FILL, SIZE
from .dynamic_sizes.padded import (
    Padded,
    SizeDependent,
    Uncut,
    bound_of,
    check_worth,
    filled,
    given_bound,
    is_bounded,
    mark_padding,
    nested,
    refuse_fill,
    shortened,
)
from .effects import Cell, Program, Storage, View, settle
from .op_memo import OpMemo
from .resolve import Plan, Plans, Step, captured, label
from .schema_body import run_body


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one walk, apart from tensor values."""

    opsets: Mapping[str, int]  # opset version by domain ('' is ai.onnx)
    training: bool = False  # dropout drops, batch normalisation uses batch statistics
    key: jax.Array | None = None  # random key; every random node folds its own number in
    # zeros added to the named tensors: their gradient is the tensor's gradient
    probes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # PopART's own behaviour where it differs from ONNX (INT32 indices, ties of Round, ...); sessions set it
    popart: bool = False
    options: OperatorOptions = DEFAULTS  # session options and pattern switches that change what operators compute
    memo: OpMemo | None = None  # cache of traced operators, shared by equal nodes and by other walks
    # only the types of results are asked for, so that padded results may be returned as they are
    types_only: bool = False
    cuts: bool = False  # padded results are returned as `Uncut`: the caller cuts the padding off, or follows it
    rounding: jax.Array | None = None  # random key for stochastic rounding, where that is not `key`
    again: frozenset[str] = frozenset()  # results of nodes of the main graph that are traced in the scope `AGAIN`


AGAIN = "checkpoint"
"""Scope of nodes that the backward pass runs again; profiles and the IPU model leave this name, which is JAX's, out."""

Env = dict[ir.Value, Any]


@dataclass(frozen=True, slots=True)
class Walk:
    """State of one walk: settings, values so far, walk of the enclosing graph, program state, plans, padded values."""

    settings: Settings
    env: Env
    outer: Walk | None = None
    program: Program | None = None
    plans: Plans = field(default_factory=Plans)
    padded: dict[ir.Value, routed.Mark] = field(default_factory=dict[ir.Value, routed.Mark])

    def read(self, value: ir.Value) -> Any:
        """Value computed here or in an enclosing graph, or of a constant."""
        walk: Walk | None = self
        while walk is not None:
            if value in walk.env:
                found = walk.env[value]
                return found.get() if isinstance(found, Storage) else found
            walk = walk.outer
        if value.const_value is not None:
            return array(value.const_value)
        raise popart_exception(
            f"No value for tensor {value.name!r}: it is neither fed, nor an initializer, nor computed."
        )

    def recompute(self, graph: ir.Graph, name: str, bound: Mapping[str, Any]) -> Any:
        """Recompute a tensor of `graph`, given other values for the tensors in `bound`.

        Raises popart_exception where the graph has no tensor of one of the names.
        """
        known = names(graph)
        missing = [n for n in (name, *bound) if n not in known]
        if missing:
            raise popart_exception(f"The graph has no tensor(s) {missing}")
        inner = Walk(self.settings, {known[n]: v for n, v in bound.items()}, self, None, self.plans, dict(self.padded))
        run(self.plans.of(graph, (known[name],), self.settings.opsets, inner.env, popart=self.settings.popart), inner)
        return inner.read(known[name])

    def evaluate(
        self, graph: ir.Graph, bindings: Mapping[str, Any], want: Sequence[str], opsets: Mapping[str, int]
    ) -> dict[str, Any]:
        """Compute tensors of another graph with this walk's settings, except opsets and probes; see `evaluate`."""
        settings = replace(self.settings, opsets=opsets, probes={}, again=frozenset(), cuts=True)
        return evaluate(graph, bindings, want, settings)

    def alone(self) -> Walk:
        """A walk with the same settings that has no values."""
        return Walk(self.settings, {})

    def run(self, step: Step) -> None:
        """Run one node and store its outputs."""
        run_step(step, self)

    def storage(self, value: ir.Value) -> Cell | View:
        """The storage of a tensor of this graph, created when it is first written or viewed."""
        found = self.env.get(value)
        if not isinstance(found, Cell | View):
            found = self.env[value] = Cell(self.read(value))
        return found


def evaluate(
    graph: ir.Graph,
    bindings: Mapping[str, Any],
    want: Sequence[str],
    settings: Settings,
    plans: Plans | None = None,
) -> dict[str, Any]:
    """Compute the named tensors of a graph.

    Parameters
    ----------
    graph : onnx_ir.Graph
        Main graph, sorted topologically.
    bindings : mapping of str to array
        Values of inputs and initializers; initializers left out are constants. Other tensors may be bound as well,
        their producers then do not run.
    want : sequence of str
        Names of tensors of this graph.
    settings : Settings
        Opsets, training flag, random key, gradient probes.
    plans : Plans, optional
        Plans of earlier walks of this graph, for callers that walk it often.

    Raises
    ------
    popart_exception
        Unknown name, operator without translation (all listed at once), or a node that failed (named).
    """
    named = names(graph)
    missing = [n for n in (*want, *bindings) if n not in named]
    if missing:
        raise popart_exception(f"The graph has no tensor(s) {missing}; known are {sorted(named)[:50]}")
    wanted = tuple(named[n] for n in want)
    walk = Walk(settings, {named[n]: v for n, v in bindings.items()}, plans=Plans() if plans is None else plans)
    plan = walk.plans.of(graph, wanted, settings.opsets, walk.env, popart=settings.popart)
    with usual_promotion():
        run(plan, walk, uncut=settings.cuts)
    return {n: walk.read(v) for n, v in zip(want, wanted, strict=True)}


def names(graph: ir.Graph) -> dict[str, ir.Value]:
    """Every named value of a graph, subgraphs excluded."""
    found = {v.name: v for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    for node in graph:
        found.update((v.name, v) for v in node.outputs if v.name)
    return found


def run(plan: Plan, walk: Walk, *, uncut: bool = False) -> None:
    """Execute the steps; values that no later step reads are dropped on the way. Padded results end as `Uncut`."""
    keep = set(plan.wanted)
    looks_ahead = walk.outer is None and walk.program is None
    for number, step in enumerate(plan.steps):
        run_step(step, walk)
        if looks_ahead and sizes.has_grown(step.node, walk.env):
            looks_ahead = False
            sizes.look_ahead(partial(_shapes_of, Plan(plan.steps[number + 1 :], ()), walk), walk.env)
        for value in step.dead:
            if value not in keep:
                walk.env.pop(value, None)
    unknown = [] if walk.settings.types_only and not uncut else [v for v in plan.wanted if v in _padded(walk)]
    for value in unknown:
        mark, maker = walk.padded[value], value.producer()
        if isinstance(mark, SizeDependent):
            walk.env[value] = mark.value
        elif maker is not None and is_bounded(maker) and walk.outer is None:
            walk.env[value] = filled(maker, walk.env[value], mark)
        elif uncut:
            walk.env[value] = Uncut.of(walk.read(value), mark)
        else:
            raise failure.unknown_sizes(unknown, walk.padded, walk.outer is None)


def _padded(walk: Walk) -> set[ir.Value]:
    """Values whose padding must not be visible: their size is known only at run time and the user gave no bound."""
    return {v for v, m in walk.padded.items() if isinstance(m, SizeDependent) or not m.given}


def _shapes_of(plan: Plan, walk: Walk, values: Mapping[ir.Value, Any]) -> None:
    """Infer the shapes of the remaining steps of a walk."""
    run(plan, Walk(walk.settings, {**walk.env, **values}, plans=walk.plans, padded=dict(walk.padded)))


def run_step(step: Step, walk: Walk) -> None:
    """Run one node and store its outputs."""
    if walk.outer is None and not walk.settings.again.isdisjoint(o.name or "" for o in step.node.outputs):
        with jax.named_scope(AGAIN):
            _run_step(step, walk)
    else:
        _run_step(step, walk)


def _run_step(step: Step, walk: Walk) -> None:
    node = step.node
    operands = [None if v is None else walk.read(v) for v in node.inputs]
    if any(x is LATER for x in operands):
        walk.env.update(dict.fromkeys(node.outputs, LATER))
        return
    try:
        several = walk.padded or step.lowering.takes_fill or is_bounded(node)
        found = None if walk.settings.popart else known_length.computed(node, operands, walk)
        results = found or (_routed(step, walk, operands) if several else _checked(step, walk, operands))
    except (popart_exception, poplibs_exception) as err:
        stand_ins = err.__dict__.get("until_compiled") if walk.settings.types_only else None
        if stand_ins is None:
            _raise(err, step, walk, operands)
        results = tuple(jax.numpy.zeros(shape, dtype) for shape, dtype in stand_ins)
    except Exception as err:
        raise failure.explain(err, node, step.lowering, operands, _opset(step, walk)) from err
    if step.effect is not None:
        again = partial(step.lowering.fn, **keywords(node, step.lowering, lambda g: Body(g, walk, step.number)))
        walk.env.update(settle(step.effect, node, results, walk.storage, again))
        return
    for value, result in zip(node.outputs, results, strict=False):
        walk.env[value] = _probed(walk, value, result)


def _raise(err: Exception, step: Step, walk: Walk, operands: list[Any]) -> NoReturn:
    """Raise the error of a node again, with its name in it or beside it."""
    node = step.node
    if isinstance(err, OpError) and walk.settings.popart:
        inputs = ["" if v is None else v.name or "" for v in node.inputs]
        err.name(op_names(node, _opset(step, walk)), inputs)
    if not walk.settings.popart and (type(err) in (popart_exception, OpError) or step.lowering.fn is run_body):
        raise failure.node_error(node, operands, str(err)) from err
    failure.locate(err, node, operands)
    if walk.settings.popart:
        plain = replace(walk, settings=replace(walk.settings, popart=False))
        failure.note_onnx_rule(err, step, walk.settings.opsets, lambda other: _checked(other, plain, operands))
    raise err


def _routed(step: Step, walk: Walk, operands: list[Any]) -> tuple[Any, ...]:
    """Results of a node whose operands or results may be padded; marks of padded results are stored in the walk."""
    node = step.node
    refuse_fill(node, step.lowering)
    marks = {i: walk.padded[v] for i, v in enumerate(node.inputs) if v is not None and v in walk.padded}
    given = {i: m for i, m in marks.items() if isinstance(m, Padded) and m.given}
    marks = {i: m for i, m in marks.items() if i not in given}
    found: Sequence[routed.Mark | None] = ()
    if is_padded := bool(bound_of(node, step.lowering, operands)):
        operands, marks = nested(node, operands, marks), {}
    if not marks:
        results = _checked(step, walk, operands)
    else:
        results, found = routed.computed(node, step.lowering, operands, marks, partial(_checked, step, walk))
        if walk.settings.cuts:
            check_worth(results)
    if given:
        results = routed.cleared(node, operands, results, given)
        found = found or routed.followed(node, operands, results, given)
    if given_bound(node):
        found = [Padded(1, index=True, given=True)]
    elif is_padded:
        results, found = mark_padding(node, operands, results)
    elif is_bounded(node) and not step.lowering.takes_bound and any(isinstance(x, Tracer) for x in results):
        results, found = shortened(node, results, found or [walk.padded.get(v) for v in node.outputs])
    walk.padded.update((v, m) for v, m in zip(node.outputs, found, strict=False) if m is not None)
    return results


def _probed(walk: Walk, value: ir.Value, result: Any) -> Any:
    """A result of the main graph with its probe."""
    probe = None if walk.outer is not None else walk.settings.probes.get(value.name or "")
    return result if probe is None else result + probe


def _checked(step: Step, walk: Walk, operands: list[Any], **attributes: Any) -> tuple[Any, ...]:
    """The results, after checks of operands; the operator's own error comes before one about differing types."""
    if "popxl" in walk.settings.opsets:  # PopXL has rules of its own, applied when an operator is made
        return as_recorded(step.node, operands, _call(step, walk, operands, attributes))
    opset = _opset(step, walk)
    popart = walk.settings.popart or "ai.graphcore" in walk.settings.opsets  # a model saved by PopART is run elsewhere
    typed = [symbols.stand_in(x) for x in operands]
    if walk.settings.popart and (words := static.unreadable(step.node, operands, walk)):
        raise popart_exception(words)
    types_match = operand_types.types_match(step.node, typed, opset, popart)
    wrong = "" if types_match else operand_types.wrong_type(step.node, typed, opset, popart)
    if wrong and walk.settings.popart and (walk.settings.types_only or operand_types.are_integers(step.node, typed)):
        made = _call(step, walk, operand_types.cast_operands(step, operands, opset), attributes)
        return operand_types.cast_results(step.node, operands, made, opset)
    if not wrong and (None in step.node.inputs or len(operands) < step.lowering.least_inputs):
        wrong = failure.missing_required(step.node, step.lowering)
    if wrong or (wrong := "" if popart else wrong_rank(step.node, typed, opset)):
        raise failure.node_error(step.node, operands, wrong)
    results = _call(step, walk, operands, attributes)
    wrong = "" if popart or types_match else operand_types.differing_types(step.node, typed, opset)
    wrong = wrong or failure.missing_outputs(step.node, results)
    if wrong:
        raise failure.node_error(step.node, operands, wrong)
    return results


_NOT_FOLDED = frozenset({"key", "program"})


def _call(step: Step, walk: Walk, operands: list[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    node, lowering = step.node, step.lowering
    bound = bound_of(node, lowering, operands)
    bounded = bound or (lowering.takes_bound and SIZE in node.attributes)
    acts = facts(node.op_type).has(Trait.EFFECT) or not _NOT_FOLDED.isdisjoint(lowering.context.values())
    folded = not acts and all(static.is_static(x) for x in operands)
    for i, value in enumerate(node.inputs):
        wanted = value is not None and static.wants_constant(step, i, walk) and not bounded
        if wanted and not static.is_static(operands[i]):
            operands[i] = static.require(walk, node, i, lowering)
    kwargs = dict(keywords(node, lowering, lambda g: Body(g, walk, step.number)))
    has_bodies = any(isinstance(v, Body) for v in kwargs.values())
    kwargs.update((name, _fact(what, step, walk)) for name, what in lowering.context.items())
    kwargs.update(bound, **attributes)
    with jax.named_scope(f"onnx[{label(node)}]"):
        if not has_bodies and sizes.may_be_large(operands, kwargs):
            sizes.check_before(node, lowering.fn, _trim(operands), kwargs, lowering.is_static)
        symbolic = any(map(symbols.holds_symbols, operands))
        found = _of_symbols(lowering, node, operands, kwargs, folded) if symbolic else None
        if found is not None:
            results = found
        elif folded and not has_bodies and not symbolic:
            results = static.fold(lowering.fn, operands, kwargs)
        else:
            if (walk.settings.popart or "popxl" in walk.settings.opsets) and not has_bodies:
                static.refuse_wide(node, operands, lowering.is_static)
            compute, memo, given = partial(_computed, step, walk), walk.settings.memo, _trim(operands)
            results = compute(given, kwargs) if memo is None else memo.results(lowering, given, kwargs, compute)
    made = tuple(_unpacked(node, i, x, walk) for i, x in enumerate(as_results(results)))
    sizes.check_results(node, made)
    return made


def _unpacked(node: ir.Node, i: int, result: Any, walk: Walk) -> Any:
    """A result of a node, without the mark that its inner graph gave it; the walk keeps the mark."""
    if not isinstance(result, Uncut):
        return result
    walk.padded[node.outputs[i]] = result.mark
    return result.value


def _of_symbols(
    lowering: Any, node: ir.Node, operands: list[Any], kwargs: Mapping[str, Any], folded: bool
) -> tuple[Any, ...] | None:
    """Results of shape arithmetic with symbols. For other nodes None, and symbols become values at run time."""
    found = symbols.computed(node.op_type, lowering.fn, _trim(operands), kwargs) if folded else None
    for i, x in enumerate(operands if found is None else ()):
        if symbols.holds_symbols(x) and not lowering.is_static(i):
            operands[i] = symbols.at_run_time(x)
    return found


def _computed(step: Step, walk: Walk, operands: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    results = _rounded(step, walk, operands, kwargs)
    if not walk.settings.options.announces_operators:
        return results
    return op_trace.announced(results, describe(step.node, _opset(step, walk)))


def _rounded(step: Step, walk: Walk, operands: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    rounds = walk.settings.options.rounds_stochastically
    if not rounds or not rounding.applies(step.node.op_type, operands):
        return step.lowering.fn(*operands, **kwargs)
    key = keys.of_program(walk.settings.key) if walk.settings.rounding is None else walk.settings.rounding
    return rounding.in_single_precision(step.lowering.fn, operands, kwargs, key)


def _trim(operands: list[Any]) -> list[Any]:
    while operands and operands[-1] is None:
        operands = operands[:-1]
    return operands


def _opset(step: Step, walk: Walk) -> int:
    node = step.node
    return node.version or walk.settings.opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)


def _fact(what: str, step: Step, walk: Walk) -> Any:
    settings = walk.settings
    match what:
        case "key":
            return keys.of_node(settings.key, step.number)
        case "n_outputs":
            return len(step.node.outputs)
        case "training":
            return settings.training
        case "options":
            return settings.options
        case "opset":
            return _opset(step, walk)
        case "output_type":
            return step.node.attributes.get_string("__output_type", "")
        case "bound" | "fill":
            found = step.node.attributes.get(SIZE if what == "bound" else FILL)
            return None if found is None else found.value
        case "node":
            return step.node
        case "context":
            return walk
        case "program":
            return walk.program
    raise AssertionError(f"unknown context fact {what!r}")


class Body:
    """A subgraph as a function; it captures tensors of enclosing graphs from the walk that created it."""

    def __init__(self, graph: ir.Graph, walk: Walk, number: int) -> None:
        self.graph, self.walk, self.number = graph, walk, number
        self.n_inputs, self.n_outputs = len(graph.inputs), len(graph.outputs)

    def __call__(self, *args: Any, iteration: Any = None, uncut: bool = False) -> tuple[Any, ...]:
        """Run the body on values for its inputs, in order, and return its outputs."""
        settings = self.walk.settings
        key, rounding = (keys.of_body(k, self.number, iteration) for k in (settings.key, settings.rounding))
        settings = replace(settings, key=key, rounding=rounding)
        walk, given = self.walk, dict(zip(self.graph.inputs, args, strict=False))
        inner = Walk(settings, given, walk, walk.program, walk.plans, dict(walk.padded))
        plan = walk.plans.of(self.graph, tuple(self.graph.outputs), settings.opsets, popart=settings.popart)
        run(plan, inner, uncut=uncut)
        return tuple(inner.read(v) for v in self.graph.outputs)

    def varying(self, axes: frozenset[str]) -> Body:
        """The same function, in which captured values vary along these mesh axes; see `ops.varying`."""
        if not axes:
            return self
        weights = (v for graph in (self.graph, *self.graph.subgraphs()) for v in graph.initializers.values())
        read = {v: self.walk.read(v) for v in (*captured(self.graph), *weights)}
        cast = {v: varying.varying(x, axes) for v, x in read.items() if isinstance(x, jax.Array)}
        walk = Walk(self.walk.settings, cast, self.walk, self.walk.program, self.walk.plans, dict(self.walk.padded))
        return Body(self.graph, walk, self.number)
