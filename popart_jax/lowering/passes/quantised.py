"""Products and convolutions of dequantised bytes become products and convolutions of the bytes themselves.

If both factors come from DequantizeLinear, their scales can be applied after the sums, which are exact as sums of
integers. `kernels.dequantised` computes these nodes on each platform.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...model.checks.structure import constant_of
from ..kernels import DOMAIN
from .channels_last import rank, take_over

_DOMAINS = ("", "ai.onnx", "com.microsoft")
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


@dataclass(frozen=True)
class _Dequantised:
    """A value that is the result of a DequantizeLinear of bytes."""

    node: ir.Node  # that node
    order: tuple[int, ...] | None  # permutation of a Transpose after it, None if there is none
    axis: int | None  # the dimension of the value along which the scales run; None for a single scale

    def operands(self, graph: ir.Graph, at: ir.Node) -> list[ir.Value | None]:
        """Bytes in the layout of the value, scale and zero point."""
        data, scale, zero = (*self.node.inputs, None)[:3]
        if self.order is not None:
            turned = ir.node("Transpose", [data], {"perm": list(self.order)}, version=1)
            turned.name = turned.outputs[0].name = f"{self.node.outputs[0].name}/bytes/{at.outputs[0].name}"
            graph.insert_before(at, turned)
            data = turned.outputs[0]
        return [data, scale, zero]


def multiply_bytes(graph: ir.Graph, protected: Collection[str] = ()) -> bool:
    """Rewrite such nodes, in place, where nothing else reads the dequantised values under their own names."""
    changed = False
    for node in list(graph):
        kind = _kind(node)
        factors = [_dequantised(v, protected) for v in node.inputs[:2]] if kind else []
        found = [f for f in factors if f is not None]
        if len(found) == 2 and found[0].axis is None and found[1].axis in (None, _last(node)):
            _rewrite(graph, node, kind, found)
            changed = True
    return changed


def _kind(node: ir.Node) -> str:
    """The operator on bytes that replaces a node; empty if there is none."""
    plain = all(node.attributes.get_float(name, 1.0) == 1 for name in ("alpha", "beta"))
    if node.domain in ("", "ai.onnx") and (
        node.op_type == "MatMul" or (node.op_type == "Gemm" and plain and not node.attributes.get_int("transA", 0))
    ):
        return "DequantisedMatMul"
    return "DequantisedConv" if (node.domain, node.op_type) == (DOMAIN, "Conv") else ""


def _last(node: ir.Node) -> int | None:
    """The dimension of the second factor that holds the columns, or filters, of the result."""
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    known = _rank(node.inputs[1])
    return None if known is None else known - 1


def _rank(value: ir.Value | None) -> int | None:
    """Number of dimensions of the value, or of what it was transposed from."""
    maker = None if value is None else value.producer()
    return rank(maker.inputs[0]) if maker is not None and maker.op_type == "Transpose" else rank(value)


def _dequantised(value: ir.Value | None, protected: Collection[str]) -> _Dequantised | None:
    """The DequantizeLinear of bytes behind a value, perhaps through a Transpose; None if its scales are blockwise."""
    node, order = None if value is None else value.producer(), None
    if node is not None and node.op_type == "Transpose":
        perm, inner = node.attributes.get_ints("perm"), node.inputs[0]
        order = None if perm is None else tuple(perm)
        node = None if order is None or inner is None or node.outputs[0].name in protected else inner.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.domain not in _DOMAINS:
        return None
    data, scale = node.inputs[:2]
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    simple = not node.attributes.get_int("block_size", 0) and not node.attributes.get_int("output_dtype", 0)
    sizes = None if scale is None else _sizes(scale)
    if not simple or node.outputs[0].name in protected or sizes is None or len(sizes) > 1:
        return None
    if dtype_of(zero or data) not in BYTES or dtype_of(scale) != ir.DataType.FLOAT:
        return None
    known = rank(data) if order is None else len(order)
    if sizes in ((), (1,)):
        return _Dequantised(node, order, None)
    if known is None:
        return None
    axis = node.attributes.get_int("axis", 1) % known
    return _Dequantised(node, order, axis if order is None else order.index(axis))


def _sizes(value: ir.Value) -> tuple[int, ...] | None:
    tensor = constant_of(value)
    shape = value.shape if tensor is None else tensor.shape
    return tuple(shape) if shape is not None and all(isinstance(n, int) for n in shape) else None  # type: ignore[arg-type]


def dtype_of(value: ir.Value | None) -> ir.DataType | None:
    """Type of a value's elements, if it is known."""
    if value is None:
        return None
    tensor = constant_of(value)
    return value.dtype if tensor is None else tensor.dtype


def _rewrite(graph: ir.Graph, node: ir.Node, kind: str, factors: Sequence[_Dequantised]) -> None:
    x, w = (f.operands(graph, node) for f in factors)
    bias = list(node.inputs[2:])
    attributes = [a for name, a in node.attributes.items() if name not in ("alpha", "beta", "transA")]
    new = ir.Node(DOMAIN, kind, [*x, *w, *bias], attributes, name=node.name)
    graph.insert_before(node, new)
    take_over(node.outputs[0], new.outputs[0])
    makers = [v.producer() for v in node.inputs[:2] if v is not None]
    graph.remove(node, safe=True)
    for maker in [*makers, *(f.node for f in factors)]:
        read = maker is None or maker.outputs[0].uses() or maker.outputs[0].is_graph_output()
        if maker is not None and maker.graph is graph and not read:
            graph.remove(maker, safe=True)
