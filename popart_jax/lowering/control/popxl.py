"""Calls, loops and branches of PopXL graphs, and gradients of single nodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ...ops.arrays import device_dtype
from ...ops.popxl import DOMAIN
from ...ops.registry import Context, NodeRef, Subgraph, lowers, resolve
from ..attributes import keywords
from ..calls import call_graph, choose, repeat
from ..effects import effect_of


def _modified(node: ir.Node) -> tuple[int, ...]:
    effect = effect_of(node)
    return () if effect is None else tuple(i for i, _ in effect.writes)


@lowers("Call", domain=DOMAIN)
def call(*args: Any, callee: Subgraph, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """One call; results beyond the node's outputs are the final values of the inputs it modifies.

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
):
    """`trip_count` passes of a wrapper graph; the first outputs feed the first inputs."""
    return repeat(
        walk, body.graph, trip_count, _padded(args, node)[: len(node.inputs) - 2], len(node.outputs), _modified(node)
    )


@lowers("If", domain=DOMAIN)
def if_(condition: Any, /, *args: Any, then_branch: Subgraph, else_branch: Subgraph, then_inputs: int, walk: Context):
    """A choice at run time; the first `then_inputs` operands belong to the first branch."""
    graphs = (then_branch.graph, else_branch.graph)
    return choose(walk, jnp.asarray(condition), graphs, (args[:then_inputs], args[then_inputs:]))


@lowers("Vjp", domain=DOMAIN)
def vjp(*args: Any, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """Gradients of another node: operands are the gradients of its outputs, then the forward tensors it reads.

    The forward node is a template (kept with this node) whose operands are either given or only known by type.
    """
    template = node.meta["vjp"]
    row = resolve(template.domain, template.op_type, template.version, popart=walk.settings.popart)
    assert row is not None
    args = _padded(args, node)
    operands = [None if at is None else _operand(at, args) for at in template.operands]
    kwargs = {**dict(keywords(node, row, lambda g: g)), **_facts(row, node, walk, template)}
    wanted = list(template.wanted)

    def forward(*chosen: Any) -> Any:
        full = list(operands)
        for i, x in zip(wanted, chosen, strict=True):
            full[i] = x
        results = row.fn(*full, **kwargs)
        return results if isinstance(results, tuple) else (results,)

    values = [jnp.asarray(operands[i]) for i in wanted]
    outputs, back = jax.vjp(forward, *(_real(x) for x in values))
    given = list(args[: len(template.gradients)])
    cotangents = []
    for i, y in enumerate(outputs):
        if i in template.gradients:
            cotangents.append(jnp.asarray(given[template.gradients.index(i)], y.dtype).reshape(y.shape))
        elif jnp.issubdtype(y.dtype, jnp.inexact):
            cotangents.append(jnp.zeros_like(y))
        else:
            cotangents.append(np.zeros(y.shape, jax.dtypes.float0))
    return tuple(g.astype(x.dtype) for g, x in zip(back(tuple(cotangents)), values, strict=True))


def _real(x: jax.Array) -> jax.Array:
    """An operand that JAX differentiates: PopART's gradient of integers is integer arithmetic of the same kind."""
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def _operand(at: Any, args: tuple[Any, ...]) -> Any:
    """A forward operand: position among the arguments, or (shape, type) when only those matter."""
    if isinstance(at, int):
        return args[at]
    shape, dtype = at
    return jnp.ones(shape, device_dtype(dtype))


def _facts(row: Any, node: ir.Node, walk: Any, template: Any) -> dict[str, Any]:
    settings = walk.settings
    known = {"n_outputs": template.n_outputs, "training": settings.training, "options": settings.options,
             "opset": template.version, "node": node, "context": walk, "program": walk.program}  # fmt: skip
    return {name: known[what] for name, what in row.context.items()}
