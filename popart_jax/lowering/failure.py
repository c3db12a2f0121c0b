"""Errors inside a node, told with the node's name and operand types."""

from __future__ import annotations

from typing import Any

import jax
import onnx_ir as ir

from ..errors import NodeError
from .resolve import label


def explain(err: Exception, node: ir.Node, operands: list[Any]) -> NodeError:
    """A foreign error inside a translation, as an error that names the node and its operands."""
    if isinstance(err, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        reason = "it needs values that are known only at run time; call it outside jit, or give a bound"
    else:
        reason = f"{type(err).__name__}: {err}"
    return NodeError(label(node), node.op_type, _operands(node, operands), reason)


def described(node: ir.Node, operands: list[Any]) -> str:
    """One line that names a node and the types of its operands."""
    return f"{node.op_type} node {label(node)!r} with [{', '.join(_operands(node, operands))}]"


def _operands(node: ir.Node, operands: list[Any]) -> list[str]:
    pairs = zip(node.inputs, operands, strict=False)
    return ["-" if v is None else f"{v.name}: {_type(x)}" for v, x in pairs]


def _type(x: Any) -> str:
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"{x.dtype}{list(x.shape)}"
    return type(x).__name__
