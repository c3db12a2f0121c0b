"""Operators that hold graphs: If, Loop, Scan, Call and PackedDataBlock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from ..errors import popart_exception
from ..model.debug import DebugContext, path_of
from .core import _BuilderCore
from .infer import infer, known, set_type
from .method import Method

Values = dict[str, Any]
_ITERATION_AND_CONDITION = 2


def core_of(builder: Any) -> _BuilderCore:
    """The core of a subgraph builder, given the Python builder or the core itself.

    Raises
    ------
    TypeError
        It is no builder.
    """
    if not isinstance(builder, _BuilderCore):
        raise TypeError(f"a subgraph is given as a Builder, got {type(builder).__name__}")
    return builder


def _add(
    core: _BuilderCore,
    method: Method,
    inputs: Sequence[str],
    attributes: Values,
    outputs: int,
    context: Any,
    version: int,
) -> list[str]:
    return core._add_node(
        method.op,
        inputs,
        attributes,
        outputs,
        context,
        domain="" if method.domain == "ai.onnx" else method.domain,
        version=version,
        inferred=False,
        api=method.name,
    )


def _enter(core: _BuilderCore, names: Sequence[str], types: Sequence[tuple[Any, Any]]) -> None:
    """Give outputs their element types and shapes."""
    for name, (dtype, shape) in zip(names, types, strict=False):
        set_type(core._values[name], dtype, shape)


def bind_types(body: ir.Graph, arguments: Sequence[tuple[Any, Any]], opsets: dict[str, int]) -> None:
    """Give a body's inputs the types of the arguments where they have none, and infer its nodes anew if needed."""
    changed = False
    for value, (dtype, shape) in zip(body.inputs, arguments, strict=False):
        if dtype is not None and (value.dtype is None or value.shape is None):
            set_type(value, dtype, shape)
            changed = True
    if changed:
        for node in body:
            if node.domain in ("", "ai.graphcore") and not any(
                a.type is ir.AttributeType.GRAPH for a in node.attributes.values()
            ):
                infer(node, opsets.get(node.domain, 1))


def _if(core: _BuilderCore, method: Method, values: Values, context: Any, version: int) -> list[str]:
    branches = {name: core_of(values[name])._frozen() for name in ("else_branch", "then_branch")}
    count = values["num_outputs"]
    for name, graph in branches.items():
        if len(graph.outputs) != count:
            raise popart_exception(
                f"If: {name} has {len(graph.outputs)} outputs, but num_outputs is {count}; list them with "
                f"addOutputTensor"
            )
    names = _add(core, method, values["args"], branches, count, context, version)
    _enter(core, names, [known(v) for v in branches["then_branch"].outputs])
    return names


def _loop(core: _BuilderCore, method: Method, values: Values, context: Any, version: int) -> list[str]:
    inner = core_of(values["body"])
    body = inner._graph
    args = values["args"]
    carried = len(args) - _ITERATION_AND_CONDITION
    arguments = [known(core._value(n)) if n else (None, None) for n in args]
    scalar: list[tuple[Any, Any]] = [(ir.DataType.INT64, ()), (ir.DataType.BOOL, ())]
    bind_types(body, [*scalar, *arguments[_ITERATION_AND_CONDITION:]], dict(core._model.opset_imports))
    names = _add(core, method, args, {"body": inner._frozen()}, values["num_outputs"], context, version)
    trips = _trip_count(core, args[0]) if args else None
    types = [known(v) for v in body.outputs][1:]
    scanned = [(d, None if s is None or trips is None else (trips, *s)) for d, s in types[carried:]]
    _enter(core, names, [*types[:carried], *scanned])
    return names


def _trip_count(core: _BuilderCore, name: str) -> int | None:
    value = core._find(name) if name else None
    producer = value.producer() if value is not None else None
    if producer is not None and producer.op_type == "Constant":
        return int(producer.attributes["value"].value.numpy().reshape(-1)[0])
    if value is not None and value.const_value is not None:
        return int(value.const_value.numpy().reshape(-1)[0])
    return None


def _scan(core: _BuilderCore, method: Method, values: Values, context: Any, version: int) -> list[str]:
    inner = core_of(values.pop("body"))
    body = inner._graph
    args, outputs = values.pop("args"), values.pop("num_outputs")
    attributes = {k: v for k, v in values.items() if v != []}
    carried = len(args) - values["num_scan_inputs"]
    types = [known(core._value(n)) if n else (None, None) for n in args]
    axes = values.get("scan_input_axes") or [0] * values["num_scan_inputs"]
    steps, sliced = None, list(types[:carried])
    for (dtype, shape), axis in zip(types[carried:], axes, strict=False):
        if shape is not None:
            steps = shape[axis]
            shape = tuple(d for i, d in enumerate(shape) if i != axis % len(shape))
        sliced.append((dtype, shape))
    bind_types(body, sliced, dict(core._model.opset_imports))
    names = _add(core, method, args, {"body": inner._frozen(), **attributes}, outputs, context, version)
    results = [known(v) for v in body.outputs]
    out_axes = values.get("scan_output_axes") or [0] * (len(results) - carried)
    for i, axis in enumerate(out_axes, carried):
        dtype, shape = results[i]
        if shape is not None and steps is not None:
            at = axis % (len(shape) + 1)
            results[i] = (dtype, (*shape[:at], steps, *shape[at:]))
    _enter(core, names, results)
    return names


def _call(core: _BuilderCore, method: Method, values: Values, context: DebugContext | str, version: int) -> list[str]:
    inner = core_of(values["callee"])
    callee = inner._graph
    for what, given, wanted in (
        ("inputs", len(values["args"]), len(callee.inputs)),
        ("outputs", values["num_outputs"], len(callee.outputs)),
    ):
        if given != wanted:
            raise popart_exception(
                f"For CallOp '{path_of(context)}', number of {what} ({given}) does not match that of the callee "
                f"subgraph ({wanted})"
            )
    bind_types(callee, [known(core._value(n)) for n in values["args"]], dict(core._model.opset_imports))
    names = _add(core, method, values["args"], {"callee": inner._frozen()}, values["num_outputs"], context, version)
    _enter(core, names, [known(v) for v in callee.outputs])
    return names


def _packed(core: _BuilderCore, method: Method, values: Values, context: Any, version: int) -> list[str]:
    inner = core_of(values.pop("callback"))
    callback = inner._graph
    args = values.pop("args")
    shapes = []
    for i, longest in enumerate(values["maxSequenceLengths"]):
        dtype, shape = known(core._value(args[3 * i]))
        shapes.append((dtype, None if shape is None else (values["callbackBatchSize"], longest, *shape[1:])))
    bind_types(callback, shapes, dict(core._model.opset_imports))
    names = _add(core, method, args, {**values, "callback": inner._frozen()}, 1, context, version)
    dtype, shape = known(callback.outputs[0]) if callback.outputs else (None, None)
    _enter(core, names, [(dtype, None if shape is None else (values["resultSize"], *shape[2:]))])
    return names


SPECIAL: dict[str, Callable[[_BuilderCore, Method, Values, Any, int], list[str]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "Call": _call,
    "PackedDataBlock": _packed,
}
