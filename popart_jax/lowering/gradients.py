"""Gradient operators without a translation of their own are the gradient of the forward operator's translation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ..ops.arrays import as_results, device_dtype
from ..ops.registry import Context, Lowering, NodeRef, describe, resolve
from .attributes import keywords

TEMPLATE = "forward"
"""Key in the `meta` of such nodes; its value is the forward node as a `Template`."""


Pull = Callable[[tuple[Any, ...]], tuple[jax.Array, ...]]


@dataclass(frozen=True)
class Template:
    """The forward node of a gradient operator."""

    domain: str  # of its translation, as type and version
    op_type: str
    version: int
    # for each input: its position among the gradient operator's inputs, its value as an array if tracing needs it, or
    # its (shape, type); None if absent
    operands: tuple[Any, ...]
    wanted: tuple[int, ...]  # inputs whose gradients are computed
    gradients: tuple[int, ...]  # outputs whose gradients are given
    n_outputs: int  # number of outputs


def vjp(*args: Any, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """Gradients of the template's node, from the gradients of its outputs and then the forward tensors it reads.

    Integer operands are treated as real numbers.
    """
    template = cast("Template", node.meta[TEMPLATE])
    row = resolve(template.domain, template.op_type, template.version, popart=walk.settings.popart)
    assert row is not None
    args = args + (None,) * (len(node.inputs) - len(args))
    operands = [None if at is None else _operand(at, args) for at in template.operands]
    kwargs = {**dict(keywords(node, row, lambda g: g)), **_facts(row, node, walk, template)}
    wanted = list(template.wanted)

    def forward(*chosen: Any) -> Any:
        full = list(operands)
        for i, x in zip(wanted, chosen, strict=True):
            full[i] = x
        return as_results(row.fn(*full, **kwargs))

    values = [jnp.asarray(operands[i]) for i in wanted]
    integers = {x.dtype for x in values if not jnp.issubdtype(x.dtype, jnp.inexact)}
    operands = [jnp.asarray(x, jnp.float32) if getattr(x, "dtype", None) in integers else x for x in operands]
    chosen = [jnp.asarray(operands[i]) for i in wanted]
    outputs, back = cast("tuple[tuple[jax.Array, ...], Pull]", jax.vjp(forward, *chosen))
    given = list(args[: len(template.gradients)])
    cotangents: list[Any] = []
    for i, y in enumerate(outputs):
        if i in template.gradients:
            cotangents.append(jnp.asarray(given[template.gradients.index(i)], y.dtype).reshape(y.shape))
        elif jnp.issubdtype(y.dtype, jnp.inexact):
            cotangents.append(jnp.zeros_like(y))
        else:
            cotangents.append(np.zeros(y.shape, jax.dtypes.float0))
    return tuple(g.astype(x.dtype) for g, x in zip(back(tuple(cotangents)), values, strict=True))


def _operand(at: Any, args: tuple[Any, ...]) -> Any:
    """A forward operand: position among the arguments, a constant, or (shape, type) when only those matter."""
    if isinstance(at, int):
        return args[at]
    if isinstance(at, tuple):
        shape, dtype = cast("tuple[Any, ...]", at)
        return jnp.ones(shape, device_dtype(dtype))
    return at


def _facts(row: Lowering, node: ir.Node, walk: Any, template: Template) -> dict[str, Any]:
    settings = walk.settings
    known = {"n_outputs": template.n_outputs, "training": settings.training, "options": settings.options,
             "opset": template.version, "node": node, "context": walk, "program": walk.program,
             "output_type": node.attributes.get_string("__output_type", "")}  # fmt: skip
    return {name: known[what] for name, what in row.context.items()}


ROW = describe(vjp, "Gradient", 1)
