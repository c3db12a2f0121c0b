"""Type rules of ai.onnx operators with subgraphs: types of the body's inputs, and of the operator's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ..model.node_parts import BodyTypes, SubgraphNode, Type

_GIVEN_BY_LOOP = 2  # the iteration and the condition


def _unequal_branches(node: SubgraphNode, branch: str, inputs: int, outputs: int) -> str:
    """Error text if a branch of an If has another number of outputs than requested."""
    if outputs == node.outputs:
        return ""
    return f"If: {branch} has {outputs} outputs, but num_outputs is {node.outputs}; list them with addOutputTensor"


def _loop_passed(node: SubgraphNode) -> Sequence[Type]:
    """The iteration number (with the trip count's type), the condition, and the carried values."""
    counted = node.arguments[0][0] if node.arguments else None
    return [(counted or ir.DataType.INT64, ()), (ir.DataType.BOOL, ()), *node.arguments[_GIVEN_BY_LOOP:]]


def _loop_returned(node: SubgraphNode, results: Sequence[Type]) -> Sequence[Type]:
    """Carried values as the body returns them, then the scan outputs, stacked over all iterations."""
    carried = len(node.arguments) - _GIVEN_BY_LOOP
    trips = None if node.first is None else int(node.first.reshape(-1)[0])
    types = list(results[1:])
    stacked = [(d, None if s is None or trips is None else (trips, *s)) for d, s in types[carried:]]
    return [*types[:carried], *stacked]


def _scan_axes(node: SubgraphNode, name: str, count: int) -> Sequence[int]:
    return node.attributes.get(name) or [0] * count


def _scan_passed(node: SubgraphNode) -> Sequence[Type]:
    """Carried values, then the scanned ones without the scanned dimension; elements of vectors have shape [1]."""
    scanned = node.attributes["num_scan_inputs"]
    carried = len(node.arguments) - scanned
    sliced = list(node.arguments[:carried])
    axes = _scan_axes(node, "scan_input_axes", scanned)
    for (dtype, shape), axis in zip(node.arguments[carried:], axes, strict=False):
        rest = None if shape is None else tuple(d for i, d in enumerate(shape) if i != axis % len(shape))
        sliced.append((dtype, (1,) if rest == () else rest))
    return sliced


def _scan_returned(node: SubgraphNode, results: Sequence[Type]) -> Sequence[Type]:
    scanned = node.attributes["num_scan_inputs"]
    carried = len(node.arguments) - scanned
    axes = _scan_axes(node, "scan_input_axes", scanned)
    sizes = [s[axis] for (_, s), axis in zip(node.arguments[carried:], axes, strict=False) if s is not None]
    found = list(results)
    for i, axis in enumerate(_scan_axes(node, "scan_output_axes", len(results) - carried), carried):
        dtype, shape = found[i]
        if shape is not None and sizes:
            at = axis % len(shape) if shape else 0
            found[i] = (dtype, (*shape[:at], sizes[-1] * (shape[at] if shape else 1), *shape[at + 1 :]))
    return found


BODIES: Mapping[str, BodyTypes] = {
    "If": BodyTypes(lambda node: (), lambda node, results: results, _unequal_branches),
    "Loop": BodyTypes(_loop_passed, _loop_returned),
    "Scan": BodyTypes(_scan_passed, _scan_returned),
}
