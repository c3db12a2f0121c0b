"""``graph.createConnectedOp_<Class>(inputs, outputs, ...)``: operators made through the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from .settings import Settings

if TYPE_CHECKING:
    from ..graph import Graph


def creator(graph: Graph, class_name: str, *, connected: bool) -> Callable[..., Any]:
    """A function that appends an operator of that class to the graph.

    The positional arguments are ({index: tensor id}, {index: tensor id}, ...) when `connected`; of the rest, the
    settings are used, and attributes of the operator may be given by keyword.
    """
    from .op_classes import all_classes

    if class_name not in all_classes():
        raise AttributeError(f"createOp_{class_name}")

    def make(*args: Any, **attributes: Any) -> Any:
        inputs, outputs, rest = (args[0], args[1], args[2:]) if connected else ({}, {}, args)
        settings = attributes.pop("settings", next((a for a in rest if isinstance(a, Settings)), None))
        plain = {k: v for k, v in attributes.items() if isinstance(v, (int, float, str, list, tuple))}
        return _make(graph, class_name, inputs, outputs, settings, plain)

    return make


def _make(graph: Graph, class_name: str, inputs: Any, outputs: Any, settings: Any, attributes: dict[str, Any]) -> Any:
    from .._create import create, infer_outputs
    from ..dtypes import float32

    operands: list[Any] = [None] * (max(inputs, default=-1) + 1)
    for i, tensor_id in inputs.items():
        operands[i] = graph.get_tensor(tensor_id)
    taken = [t for t in outputs.values() if t in graph._tensors and graph._tensors[t]._value.producer() is not None]
    if taken:
        raise popart_exception(f"Tensors {taken} have a producer already")
    from .._create import Out

    outs = [Out("", (), float32) for _ in outputs]
    ids = [outputs[i] for i in sorted(outputs)]
    existing = {i: graph._tensors.pop(i) for i in ids if i in graph._tensors}
    op = create(class_name, operands, outs, attributes, graph=graph, settings=settings, output_ids=ids)
    for value in op._node.outputs:
        old = existing.get(value.name or "")
        if old is not None:
            for node, i in list(old._value.uses()):
                node.replace_input_with(i, value)
            for i, output in enumerate(graph._graph.outputs):
                if output is old._value:
                    graph._graph.outputs[i] = value
            value.meta["tensor"] = old
            old._value = value
            graph._tensors[old.id] = old
    if op._node.outputs:
        infer_outputs(op)
    return op
