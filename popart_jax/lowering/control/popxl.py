"""Calls, loops and branches of PopXL graphs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import onnx_ir as ir

from ...ops.popxl import DOMAIN
from ...ops.registry import Context, NodeRef, Subgraph, lowers
from ..calls import call_graph, choose, repeat
from ..effects import effect_of


def _modified(node: ir.Node) -> tuple[int, ...]:
    effect = effect_of(node)
    return () if effect is None else tuple(i for i, _ in effect.writes)


@lowers("Call", domain=DOMAIN)
def call(*args: Any, callee: Subgraph, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """One call; results after the node's outputs are the final values of the inputs it modifies.

    Outputs that the graph gained after the call was made are dropped.
    """
    results = call_graph(walk, callee.graph, _padded(args, node), _modified(node))
    extra = len(callee.graph.outputs) - len(node.outputs)
    return results[: len(node.outputs)] + results[len(node.outputs) + extra :]


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
