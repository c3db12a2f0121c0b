"""Operators without a translation of their own that ONNX defines by a function: the function's body runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs

from ..errors import UnsupportedOpError
from ..model.files.load import load
from ..ops.registry import Context, Lowering, NodeRef, describe

_DOMAIN = "popart_jax.body"


@cache
def lowering_from_schema(domain: str, op: str, opset: int) -> Lowering | None:
    """A table row that runs the operator's ONNX function body, or None if it has none."""
    try:
        schema: Any = defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    return describe(run_body, op, schema.since_version, domain)


def run_body(*args: Any, node: NodeRef, walk: Context) -> tuple[Any, ...]:
    """Evaluate the function body of `node` on its operands."""
    types = tuple(None if x is None else _onnx_type(x) for x in args)
    body = _body(node, types, walk)
    present = {f"in{i}": x for i, x in enumerate(args) if x is not None}
    wanted = [v.name or "" for v in body.graph.outputs]
    results = walk.evaluate(body.graph, present, wanted, dict(body.opset_imports))
    return tuple(results.get(f"out{i}") for i in range(len(node.outputs)))


def _onnx_type(x: Any) -> int:
    return (
        ir.DataType.STRING.value if np.dtype(x.dtype).kind in "OUS" else ir.DataType.from_numpy(np.dtype(x.dtype)).value
    )


_bodies: dict[tuple[int, tuple[int | None, ...]], tuple[ir.Node, ir.Model]] = {}


def _body(node: ir.Node, types: tuple[int | None, ...], walk: Any) -> ir.Model:
    """A model of one call of the function, inlined; cached by node and operand types."""
    known = _bodies.get((id(node), types))
    if known is None or known[0] is not node:
        known = _bodies[id(node), types] = (node, _make_body(node, types, walk))
    return known[1]


def _make_body(node: ir.Node, types: tuple[int | None, ...], walk: Any) -> ir.Model:
    domain = "" if node.domain == "ai.onnx" else node.domain
    opset = node.version or walk.settings.opsets.get(domain, 1)
    schema = defs.get_schema(node.op_type, opset, domain)
    call = ir.to_proto(node)
    del call.input[:], call.output[:]
    call.input.extend(f"in{i}" if t is not None else "" for i, t in enumerate(types))
    call.output.extend(f"out{i}" if v.name else "" for i, v in enumerate(node.outputs))
    given = {a.name for a in call.attribute}
    call.attribute.extend(
        a.default_value for a in schema.attributes.values() if a.default_value.type and a.name not in given
    )
    function = _function(schema, call, types, opset, walk.settings.opsets.get("", 1))
    function.domain, call.domain, function.name = _DOMAIN, _DOMAIN, call.op_type
    made = {name for inner in function.node for name in inner.output}
    kept = [(f, c) for f, c in zip(function.output, call.output, strict=False) if f in made]  # the rest is left out
    if not kept:
        raise UnsupportedOpError([(f"{schema.domain or 'ai.onnx'}.{schema.name}:{opset}", call.name)])
    del function.output[:], call.output[:]
    function.output.extend(f for f, _ in kept)
    call.output.extend(c for _, c in kept)
    if "ref_attr_name" not in str(function):
        del call.attribute[:], function.attribute[:], function.attribute_proto[:]
    opsets = [onnx.helper.make_opsetid(_DOMAIN, 1), *function.opset_import]
    inputs = [_value(f"in{i}", t) for i, t in enumerate(types) if t is not None]
    graph = onnx.helper.make_graph([call], "body", inputs, [_value(n, 1) for n in call.output if n])
    return load(onnx.helper.make_model(graph, functions=[function], opset_imports=opsets))


def _function(
    schema: Any, call: onnx.NodeProto, types: tuple[int | None, ...], opset: int, main_opset: int
) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        protos = [onnx.helper.make_tensor_type_proto(t, None).SerializeToString() if t else b"" for t in types]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        function.ParseFromString(schema.get_context_dependent_function_with_opset_version(
            max(versions, default=schema.since_version), call.SerializeToString(), protos))  # fmt: skip
    else:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        function.ParseFromString(schema.get_function_with_opset_version(max(versions, default=schema.since_version)))
    if not function.input:
        function.input.extend(i.name for i in schema.inputs)
        function.output.extend(o.name for o in schema.outputs)
    if not any(o.domain in ("", "ai.onnx") for o in function.opset_import):
        function.opset_import.append(onnx.helper.make_opsetid("", main_opset))
    return function


def _value(name: str, number: int | None) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, number or 1, None)
