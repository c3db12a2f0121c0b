"""Infers types of a node's outputs by tracing its translation, for nodes that ONNX's inference does not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ..errors import popart_exception, poplibs_exception
from ..logs import module_logger
from . import known
from .description import UNKNOWN, Description, Operand, Type


def traced(node: Description) -> Sequence[Type]:
    """Type of every output that the operator's translation tells from the types of the inputs: (element type, shape).

    Empty if an input is unknown or the operator refuses its inputs (a session then raises the error). Without shapes if
    an input's shape is unknown, or if they depend on the session.
    """
    operands = [x for x in node.operands if x is not None]
    if not node.outputs or any(x.dtype is None or x.sizes is None for x in operands):
        return ()
    noted = known.recall("types", node)
    if noted is not None:
        return [_noted(*one) for one in noted]
    try:
        found = _trace(node)
    except (popart_exception, poplibs_exception) as err:
        module_logger("builder").info("The types of the results of %s are not known: %s", node.op, err)
        return ()
    sized = all(x.type[1] is not None for x in operands) and _has_shape(node)
    types = found if sized else [(dtype, None) for dtype, _ in found]
    values = [(None if dtype is None else dtype.value, shape) for dtype, shape in types]
    known.note((node.domain, node.op, node.version), values, "types", node)
    return types


def _noted(dtype: int | None, shape: list[int] | None) -> Type:
    """A type that was noted as JSON."""
    return None if dtype is None else ir.DataType(dtype), None if shape is None else tuple(shape)


def _has_shape(node: Description) -> bool:
    """Whether the shapes of the results depend on the node alone, not on the session."""
    from ..ops.builder_methods import methods_of

    return node.domain != "ai.graphcore" or all(method.shaped for method in methods_of(node.op))


def _trace(node: Description) -> Sequence[Type]:
    from .._process._with_jax import jax  # imported late, as a builder alone does not need JAX; isort: skip

    from .._compat.jax import enable_x64
    from ..lowering.interpreter import Settings, evaluate

    inputs = {f"in{i}": x for i, x in enumerate(node.operands) if x is not None}
    values = {name: ir.Value(name=name, const_value=_constant(x, name)) for name, x in inputs.items()}
    read = [None if x is None else values[f"in{i}"] for i, x in enumerate(node.operands)]
    alone = ir.Node(node.domain, node.op, read, node.ir_attributes(), num_outputs=node.outputs)
    wanted = [f"out{i}" for i in range(node.outputs)]
    for value, name in zip(alone.outputs, wanted, strict=True):
        value.name = name
    graph = ir.Graph(list(values.values()), alone.outputs, nodes=[alone])
    settings = Settings({node.domain: node.version}, popart=True, types_only=True)
    fed = {
        name: jax.ShapeDtypeStruct(tuple(d if isinstance(d, int) else 1 for d in x.sizes or ()), x.dtype.numpy())
        for name, x in inputs.items()
        if x.data is None and x.dtype is not None
    }

    def results(given: Mapping[str, Any]) -> dict[str, Any]:
        return evaluate(graph, given, wanted, settings)

    with enable_x64(True):  # the types of the IR, not those that the device computes in
        shapes = jax.eval_shape(results, fed)
    return [_type(shapes[name]) for name in wanted]


def _constant(operand: Operand, name: str) -> ir.TensorProtocol | None:
    array = operand.array()
    return None if array is None else ir.tensor(np.asarray(array), name=name)


def _type(found: object) -> Type:
    """Type of a traced result; a sequence has none."""
    dtype, shape = getattr(found, "dtype", None), getattr(found, "shape", None)
    return UNKNOWN if dtype is None or shape is None else (ir.DataType.from_numpy(dtype), tuple(shape))
