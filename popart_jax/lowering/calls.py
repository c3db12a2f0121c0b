"""Calling a graph as a function of its own: it is traced once per signature, and its side effects become results.

A called graph sees copies of its inputs. It returns its outputs, the final values of the inputs that the call site
declares as modified, and the program state that it writes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..model.checks.structure import every_node
from ..ops import varying
from .effects import Program
from .interpreter import Settings, Walk, run
from .resolve import make_plan
from .static import is_static

Pure = Callable[[Sequence[Any], Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]

_SMALL = 64
"""Largest number of elements of a constant that a called graph sees as a constant."""


@dataclass(frozen=True, slots=True)
class StateUse:
    """Names of program state that a graph reads and writes, graphs that it calls included."""

    reads: frozenset[str]
    writes: frozenset[str]


_state_use: weakref.WeakKeyDictionary[ir.Graph, tuple[int, StateUse]] = weakref.WeakKeyDictionary()


def state_use(graph: ir.Graph) -> StateUse:
    """The program state that a graph uses: its nodes list the names in ``__state_reads`` and ``__state_writes``."""
    size = sum(1 for _ in every_node(graph))
    known = _state_use.get(graph)
    if known is not None and known[0] == size:
        return known[1]
    reads: set[str] = set()
    writes: set[str] = set()
    for node in every_node(graph):
        reads.update(_names(node, "__state_reads"))
        writes.update(_names(node, "__state_writes"))
    found = StateUse(frozenset(reads | writes), frozenset(writes))
    _state_use[graph] = (size, found)
    return found


def _names(node: ir.Node, attribute: str) -> Sequence[str]:
    attr = node.attributes.get(attribute)
    return () if attr is None else attr.as_strings()


def present(names: frozenset[str], state: Mapping[str, Any]) -> frozenset[str]:
    """The `names` that this run has state for (a stream with a single slot has no cursor)."""
    return frozenset(n for n in names if n in state)


def pure(graph: ir.Graph, modified: Sequence[int], settings: Settings, program: Program) -> Pure:
    """A graph as a function from its inputs and the state to (outputs + final values of modified inputs, new state)."""
    writes = state_use(graph).writes
    wanted = (*graph.outputs, *(graph.inputs[i] for i in modified))

    def call(args: Sequence[Any], state: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        inner = program.inner(dict(state))
        walk = Walk(settings, dict(zip(graph.inputs, args, strict=True)), None, inner)
        run(make_plan(graph, wanted, settings.opsets, popart=settings.popart), walk)
        kept = {name: inner.state[name] for name in writes if name in inner.state}
        return tuple(walk.read(v) for v in wanted), kept

    return call


def call_graph(walk: Walk, graph: ir.Graph, args: Sequence[Any], modified: Sequence[int]) -> tuple[Any, ...]:
    """Call a graph at this point of the walk; calls with equal shapes share one trace.

    Small whole-number constants stay known to the called graph; everything else is passed as an array.
    """
    if len(args) != len(graph.inputs):
        raise popart_exception(f"graph {graph.name!r} has {len(graph.inputs)} inputs, the call passes {len(args)}")
    program = _program(walk)
    frozen = {i: np.asarray(x) for i, x in enumerate(args) if _stays_known(x)}
    free = [i for i in range(len(args)) if i not in frozen]
    settings = walk.settings
    key = (
        graph,
        tuple(modified),
        tuple((i, x.dtype.str, x.shape, x.tobytes()) for i, x in frozen.items()),
        len(graph),
    )
    fn: Callable[..., Any] | None = program.functions.get(key)
    if fn is None:
        whole = pure(graph, modified, settings, program)

        def apply(loose: Sequence[Any], state: Mapping[str, Any]) -> Any:
            both = dict(zip(free, loose, strict=True)) | frozen
            return whole([both[i] for i in range(len(args))], state)

        apply.__name__ = graph.name or "graph"
        fn = program.functions[key] = cast("Callable[..., Any]", jax.jit(apply))
    names = present(state_use(graph).reads, program.state)
    state: dict[str, Any]
    results, state = fn([args[i] for i in free], {n: program.state[n] for n in names})
    program.state.update(state)
    return results


def _program(walk: Walk) -> Program:
    if walk.program is None:
        raise popart_exception("This graph keeps state; it can only run inside a program that provides it.")
    return walk.program


def _stays_known(x: Any) -> bool:
    return is_static(x) and x is not None and np.size(x) <= _SMALL and np.asarray(x).dtype.kind in "iub"


def choose(
    walk: Walk, condition: Any, branches: tuple[ir.Graph, ir.Graph], args: tuple[Sequence[Any], Sequence[Any]]
) -> tuple[Any, ...]:
    """Run one of two graphs; only the chosen one changes the program state."""
    program = _program(walk)
    names = present(state_use(branches[0]).reads | state_use(branches[1]).reads, program.state)
    state = {n: program.state[n] for n in names}

    def branch(i: int) -> Callable[[Any, Any, Any], Any]:
        whole = pure(branches[i], (), walk.settings, program)

        def go(yes: Any, no: Any, state: Any) -> Any:
            results, new = whole((yes, no)[i], state)
            return results, {**state, **new}

        return go

    results, state = varying.cond(condition.reshape(()).astype(bool), branch(0), branch(1), args[0], args[1], state)
    program.state.update(state)
    return results


def repeat(
    walk: Walk, body: ir.Graph, count: int, args: Sequence[Any], n_carried: int, modified: Sequence[int]
) -> tuple[Any, ...]:
    """Run ``body(iterator, condition, *args) -> (condition, *carried)`` `count` times.

    In each pass the outputs replace the first `n_carried` arguments; modified arguments keep what the body wrote.
    Returns the carried values, then the final values of the modified arguments (numbered as graph inputs).
    """
    program = _program(walk)
    names = present(state_use(body).reads, program.state)
    writes = present(state_use(body).writes, program.state)
    whole = pure(body, modified, walk.settings, program)
    still = [i - 2 for i in modified if i - 2 >= n_carried]
    loose = [*range(n_carried), *still]
    fixed = {n: program.state[n] for n in names - writes}

    def step(i: Any, carry: Any) -> Any:
        values, state = carry
        current = list(args)
        for position, value in zip(loose, values, strict=True):
            current[position] = value
        results, new = whole([np.int32(0) + i, np.ones((), bool), *current], {**fixed, **state})
        carried = list(results[1 : 1 + n_carried])
        finals = dict(zip(modified, results[len(body.outputs) :], strict=True))
        out = [*carried, *(finals[p + 2] for p in still)]
        return tuple(_like(x, y) for x, y in zip(out, values, strict=True)), new

    start = (tuple(jax.numpy.asarray(args[i]) for i in loose), {n: program.state[n] for n in writes})
    values, state = varying.fori_loop(0, count, step, start)
    program.state.update(state)
    final = dict(zip(loose, values, strict=True))
    return (*values[:n_carried], *(final[i - 2] for i in modified))


def _like(x: Any, y: Any) -> Any:
    return jax.numpy.asarray(x, y.dtype).reshape(y.shape)
