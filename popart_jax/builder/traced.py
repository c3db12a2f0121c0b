"""Types of one node's outputs by tracing its translation: for nodes about which ONNX's inference says nothing."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ..errors import popart_exception, poplibs_exception
from ..logs import module_logger

Type = tuple[ir.DataType | None, tuple[int, ...] | None]


def known(value: ir.Value | None) -> tuple[ir.DataType | None, tuple[int, ...] | None]:
    """Element type and shape of a tensor, as far as they are known numbers."""
    if value is None:
        return None, None
    shape = None
    if value.shape is not None and all(isinstance(d, int) for d in value.shape):
        shape = tuple(d for d in value.shape if isinstance(d, int))
    return value.dtype, shape


def traced(node: ir.Node, version: int) -> Mapping[str, Type]:
    """Type of every output that the table of operators can tell from the types of the inputs.

    Parameters
    ----------
    node : onnx_ir.Node
        A node of ai.onnx without subgraphs.
    version : int
        Opset of ai.onnx.

    Returns
    -------
    mapping of str to (element type, shape)
        Empty where an input is not known or the operator refuses its inputs: that is told when a session is made.
    """
    inputs = [v for v in node.inputs if v is not None]
    if any(None in known(v) for v in inputs) or any(a.type is ir.AttributeType.GRAPH for a in node.attributes.values()):
        return {}
    try:
        return _trace(node, version)
    except (popart_exception, poplibs_exception) as err:
        module_logger("builder").info("The shape of %s is not known: %s", node.outputs[0].name, err)
        return {}


def _trace(node: ir.Node, version: int) -> Mapping[str, Type]:
    import jax

    from .._compat.jax import enable_x64
    from ..lowering.interpreter import Settings, evaluate

    copies = {v: ir.Value(name=v.name, const_value=v.const_value) for v in node.inputs if v is not None}
    alone = ir.Node(
        node.domain,
        node.op_type,
        [None if v is None else copies[v] for v in node.inputs],
        node.attributes.values(),
        num_outputs=len(node.outputs),
    )
    for copy, value in zip(alone.outputs, node.outputs, strict=True):
        copy.name = value.name
    graph = ir.Graph(list(copies.values()), alone.outputs, nodes=[alone])
    settings = Settings({"": version}, training=False, popart=True)
    fed = {
        v.name or "": jax.ShapeDtypeStruct(tuple(v.shape.numpy()), v.dtype.numpy())
        for v in _streamed(node)
        if v.shape is not None and v.dtype is not None
    }
    wanted = [v.name or "" for v in node.outputs]
    with enable_x64(True):  # the types of the IR, not those that the device computes in
        shapes = jax.eval_shape(lambda values: evaluate(graph, values, wanted, settings), fed)
    tensors = {name: s for name, s in shapes.items() if isinstance(s, jax.ShapeDtypeStruct)}  # the others are sequences
    return {name: (ir.DataType.from_numpy(s.dtype), tuple(s.shape)) for name, s in tensors.items()}


def _streamed(node: ir.Node) -> list[ir.Value]:
    """Inputs whose values no constant gives."""
    return [v for v in node.inputs if v is not None and v.const_value is None]
