"""The first layers of a network take the images of a batch a few at a time, so that their results stay in the cache.

The first maps of a light network are large: a layer of MobileNetV2 writes 4.8 MB an image. Those of six images are more
than the C library keeps between runs, so that at each run the system hands out their memory page by page. Source: two
images at a time, MobileNetV2 takes 0.78 of the time for six and 0.72 for eight, a MobileNetV3 0.58 for 16; below the
limit, maps take 1.05 to 1.17 (2 busy cores with 260 MB of cache; 0.92 for four and five images with 32 MB). ResNet-18
and 50, which multiply more for each byte, take 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass

import onnx_ir as ir

from ...ops.operator import Trait
from ...ops.registry import facts
from ..kernels import DOMAIN, MODULES
from .channels_last import rank, stays

_BY_IMAGE = frozenset(MODULES["channels_last"].split())
"""Operators that compute each image by itself, but for statistics of a batch."""
_KEPT = 32 << 20
"""Bytes at one time from which glibc gives memory back to the system; its largest threshold, reached by itself."""
_CACHED = 10 << 20
"""Bytes of one result that are still in the cache when its reader starts."""
_LIGHT = 8
"""Multiplications for each byte of results, below which time goes into moving them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes in graph order that compute the last one's result from `start`, `size` rows at a time."""

    start: ir.Value
    nodes: Sequence[ir.Node]
    size: int


def in_pieces(graph: ir.Graph, protected: Collection[str], suits: Callable[[], bool]) -> None:
    """Rewrite a graph whose convolutions have channels last, in place; `protected` tensors stay in the main graph.

    Where there are such layers, `suits` says whether to.
    """
    found = (part for start in graph.inputs if (part := _part(graph, start, protected)) is not None)
    part = next(found, None)
    if part is not None and suits():
        _rewrite(graph, part)


def _part(graph: ir.Graph, start: ir.Value, protected: Collection[str]) -> Part | None:
    """The nodes up to the last reader of a large result, if a single tensor leaves them and they are light."""
    nodes = _by_image(graph, start)
    place = {node: i for i, node in enumerate(nodes)}
    last: list[int] = []
    until = -1
    for node in nodes:
        (value,) = node.outputs
        users = [len(nodes) if stays(value, protected) else -1, *(place.get(u, len(nodes)) for u in value.consumers())]
        last.append(max(users))
    large = [last[i] for i, node in enumerate(nodes) if _bytes(node.outputs[0]) > _CACHED]
    for i, node in enumerate(nodes):
        if large and until <= i >= max(large) and not stays(node.outputs[0], protected):
            return _light(start, nodes[: i + 1])
        until = max(until, last[i])
    return None


def _by_image(graph: ir.Graph, start: ir.Value) -> list[ir.Node]:
    """The nodes whose results follow from `start` row by row."""
    follows = {start}
    nodes: list[ir.Node] = []
    for node in graph if _sized(start) else ():
        if not follows.isdisjoint(node.inputs) and _keeps_rows(node, follows) and _sized(node.outputs[0]):
            follows.update(node.outputs)
            nodes.append(node)
    return nodes


def _sized(value: ir.Value) -> bool:
    """Whether its size is known, and it has rows."""
    return value.dtype is not None and value.shape is not None and value.shape.is_static() and len(value.shape) > 1


def _keeps_rows(node: ir.Node, follows: Set[ir.Value]) -> bool:
    if len(node.outputs) != 1:
        return False
    if node.op_type == "Transpose":
        return (node.attributes.get_ints("perm") or [-1])[0] == 0
    if node.domain == DOMAIN and node.op_type in _BY_IMAGE:
        return follows.isdisjoint(node.inputs[1:]) and not node.attributes.get_int("training_mode", 0)
    row, whole = facts(node.op_type), rank(node.outputs[0])
    plain = row.has(Trait.ELEMENTWISE) and not row.has(Trait.RANDOM) and "axis" not in node.attributes
    return plain and whole is not None and all(v is None or _broadcast(v, whole, follows) for v in node.inputs)


def _broadcast(value: ir.Value, whole: int, follows: Collection[ir.Value]) -> bool:
    """Whether an operand has the rows of a result of rank `whole`, or the same numbers for each."""
    own = rank(value)
    return own is not None and (own == whole if value in follows else own < whole)


def _bytes(value: ir.Value) -> int:
    assert value.shape is not None
    assert value.dtype is not None
    return math.ceil(math.prod(value.shape.numpy()) * value.dtype.itemsize)


def _products(node: ir.Node) -> int:
    """Multiplications of a convolution; 0 for the others, and where weights have no known size."""
    weights, result = node.inputs[1] if node.op_type == "Conv" else None, node.outputs[0].shape
    if weights is None or weights.shape is None or result is None or not weights.shape.is_static():
        return 0
    return math.prod(result.numpy()) * math.prod(weights.shape.numpy()[:-1])


def _has_windows(node: ir.Node) -> bool:
    """Whether it reads neighbours too, so that XLA can't write its result over its data."""
    return "kernel_shape" in node.attributes or facts(node.op_type).has(Trait.PRODUCT)


def _light(start: ir.Value, nodes: Sequence[ir.Node]) -> Part | None:
    results = [_bytes(node.outputs[0]) for node in nodes]
    assert start.shape is not None
    rows = start.shape.numpy()[0]
    read = [node.inputs[0] if _has_windows(node) else None for node in nodes]
    at_once = (_bytes(value) + size for value, size in zip(read, results, strict=True) if value is not None)
    if rows < 2 or max(at_once, default=0) <= _KEPT or sum(map(_products, nodes)) > _LIGHT * sum(results):
        return None
    return Part(start, nodes, _size(rows, max(1, _CACHED * rows // max(results))))


def _size(rows: int, most: int) -> int:
    """The rows of a piece: `most` or down to half of it, so that few rows are computed twice."""
    return min(range(most, (most - 1) // 2, -1), key=lambda size: -(-rows // size) * size)


def _rewrite(graph: ir.Graph, part: Part) -> None:
    """Move the nodes into the body of one node that stands where the last of them stood."""
    end, inner = part.nodes[-1].outputs[0], frozenset(part.nodes)
    piece = ir.Value(name=f"{part.start.name}/piece", type=part.start.type, shape=_piece(part.start, part.size))
    node = ir.Node(DOMAIN, "InPieces", [part.start], [ir.AttrInt64("size", part.size)], name=f"{end.name}/in_pieces")
    graph.insert_after(part.nodes[-1], node)
    whole = node.outputs[0]
    whole.name, whole.type, whole.shape = end.name, end.type, end.shape
    end.name = f"{end.name}/piece"
    for user, i in tuple(end.uses()):
        user.replace_input_with(i, whole)
    for user, i in tuple(part.start.uses()):
        if user in inner:
            user.replace_input_with(i, piece)
    for one in part.nodes:
        one.outputs[0].shape = _piece(one.outputs[0], part.size)
    graph.remove(part.nodes)
    node.attributes["body"] = ir.AttrGraph("body", ir.Graph([piece], [end], nodes=part.nodes, name=node.name))


def _piece(value: ir.Value, size: int) -> ir.Shape:
    assert value.shape is not None
    return ir.Shape([size, *value.shape[1:]])
