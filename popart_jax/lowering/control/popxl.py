"""Calls, loops and branches of PopXL graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import onnx_ir as ir

from ...ops.popxl import DOMAIN, GRADIENTS, STARTS
from ...ops.registry import Context, NodeRef, Subgraph, lowers
from ..arrival import after
from ..calls import call_graph, choose, repeat
from ..effects import effect_of


def _modified(node: ir.Node) -> tuple[int, ...]:
    effect = effect_of(node)
    return () if effect is None else tuple(i for i, _ in effect.writes)


@lowers("Call", domain=DOMAIN)
def call(*args: Any, callee: Subgraph, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """One call; results after the node's outputs are the final values of the inputs it modifies.

    Outputs that the graph gained after the call was made are dropped. A call that computes activations again starts
    when the gradients have arrived.
    """
    given, modified = _padded(args, node), _modified(node)
    results = call_graph(walk, callee.graph, _after_gradients(given, modified, node, walk), modified)
    extra = len(callee.graph.outputs) - len(node.outputs)
    return results[: len(node.outputs)] + results[len(node.outputs) + extra :]


def _after_gradients(given: tuple[Any, ...], modified: Sequence[int], node: ir.Node, walk: Any) -> tuple[Any, ...]:
    gradients = [walk.read(node.graph.inputs[i]) for i in _numbers(node, GRADIENTS)] if node.graph is not None else []
    if not gradients:
        return given
    starts = [i for i in _numbers(node, STARTS) if i not in modified]
    waiting = dict(zip(starts, after([given[i] for i in starts], gradients), strict=True))
    return tuple(waiting.get(i, x) for i, x in enumerate(given))


def _numbers(node: ir.Node, key: str) -> list[int]:
    return [int(number) for number in node.metadata_props.get(key, "").split()]


def _padded(args: tuple[Any, ...], node: ir.Node) -> tuple[Any, ...]:
    return args + (None,) * (len(node.inputs) - len(args))


@lowers("Loop", domain=DOMAIN)
def loop(
    count: Any = None, condition: Any = None, *args: Any, body: Subgraph, trip_count: int, node: NodeRef, walk: Context
) -> tuple[Any, ...]:
    """`trip_count` passes of a wrapper graph; the first outputs feed the first inputs."""
    return repeat(
        walk, body.graph, trip_count, _padded(args, node)[: len(node.inputs) - 2], len(node.outputs), _modified(node)
    )


@lowers("If", domain=DOMAIN)
def if_(
    condition: Any, /, *args: Any, then_branch: Subgraph, else_branch: Subgraph, then_inputs: int, walk: Context
) -> tuple[Any, ...]:
    """A choice at run time; the first `then_inputs` operands belong to `then_branch`."""
    graphs = (then_branch.graph, else_branch.graph)
    return choose(walk, jnp.asarray(condition), graphs, (args[:then_inputs], args[then_inputs:]))
