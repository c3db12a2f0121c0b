"""Run the convolutional part of a graph with channels last.

XLA's CPU and GPU convolutions want channels last; a graph of NCHW nodes would transpose around each of them. One walk
in graph order keeps, beside each rank-4 tensor, its channels-last twin where one exists: convolutions and pools read
and make twins, layout-neutral operators work on twins when their operands have them, and whoever needs NCHW reads a
transpose that is computed only if somebody does. Tensors keep their names and values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

DOMAIN = "popart_jax"
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_RANK3_LAST = (1, 2, 0)

UNARY = {
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt",
    "Swish", "Tanh", "ThresholdedRelu",
}  # fmt: skip
BROADCASTING = {"Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min", "Sum", "Mean"}


@dataclass
class _Rewriter:
    """The graph, the twin of each tensor that has one, and tensors whose own value must be the one that is read."""

    graph: ir.Graph
    protected: Collection[str]
    twins: dict[ir.Value, ir.Value] = field(default_factory=dict)
    count: int = 0

    def name(self, value: ir.Value, tag: str) -> str:
        self.count += 1
        return f"{value.name}/{tag}{self.count}"

    def transpose(self, value: ir.Value, perm: Iterable[int], at: ir.Node, tag: str = "nhwc") -> ir.Value:
        """A transpose of `value`, inserted before `at`."""
        node = ir.node("Transpose", [value], {"perm": list(perm)}, version=1, name=self.name(value, tag))
        node.outputs[0].name = node.name
        node.outputs[0].type = value.type
        self.graph.insert_before(at, node)
        return node.outputs[0]

    def twin(self, value: ir.Value, at: ir.Node) -> ir.Value:
        """The channels-last twin, made by a transpose if there is none."""
        if value not in self.twins:
            self.twins[value] = self.transpose(value, LAST, at)
        return self.twins[value]

    @staticmethod
    def take_over(old: ir.Value, new: ir.Value) -> None:
        """Give `new` the uses, name and type of `old`."""
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        new.name, old.name = old.name, None
        new.shape, new.type = old.shape, old.type

    def replace(self, old: ir.Node, new: ir.Node) -> None:
        """Put `new`, whose first output is channels last, in the place of `old`."""
        out = old.outputs[0]
        last = new.outputs[0]
        last.name, last.type = self.name(out, "nhwc"), out.type
        self.graph.insert_before(old, new)
        first = self.transpose(last, FIRST, old)
        name = out.name
        self.take_over(out, first)
        for before, after in zip(old.outputs[1:], new.outputs[1:], strict=True):
            self.take_over(before, after)
        self.graph.remove(old, safe=True)
        if name not in self.protected:
            self.twins[first] = last


def channels_last(graph: ir.Graph, protected: Collection[str] = ()) -> bool:
    """Rewrite `graph` in place; `protected` tensors (anchors, probes) are read under their own names by all consumers.

    Returns
    -------
    bool
        Whether anything changed.
    """
    rewriter = _Rewriter(graph, protected)
    for node in list(graph):
        if node.domain in ("", "ai.onnx"):
            handler = _HANDLERS.get(node.op_type)
            if handler is not None:
                handler(rewriter, node)
    return rewriter.count > 0


def rank(value: ir.Value | None) -> int | None:
    """Number of dimensions, where known."""
    if value is None:
        return None
    if value.const_value is not None:
        return len(value.const_value.shape)
    if value.shape is not None:
        return len(value.shape)
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else len(tensor.shape)


def _attributes(node: ir.Node) -> list[ir.Attr]:
    return list(node.attributes.values())


def _conv(rewriter: _Rewriter, node: ir.Node) -> None:
    x, w = node.inputs[:2]
    if x is None or w is None or rank(w) != 4:
        return
    kernel = rewriter.transpose(w, (2, 3, 1, 0), node, "hwio")
    operands = [rewriter.twin(x, node), kernel, *node.inputs[2:]]
    rewriter.replace(node, ir.Node(DOMAIN, "Conv", operands, _attributes(node), name=node.name))


def _pool(rewriter: _Rewriter, node: ir.Node) -> None:
    x = node.inputs[0]
    if x not in rewriter.twins or len(node.outputs) > 1:
        return
    new = ir.Node(DOMAIN, node.op_type, [rewriter.twins[x]], _attributes(node), name=node.name)
    rewriter.replace(node, new)


def _batch_norm(rewriter: _Rewriter, node: ir.Node) -> None:
    x = node.inputs[0]
    spatial = node.attributes.get_int("spatial", 1)
    if x in rewriter.twins and spatial:
        operands, outputs = [rewriter.twins[x], *node.inputs[1:]], len(node.outputs)
        new = ir.Node(DOMAIN, node.op_type, operands, _attributes(node), name=node.name, num_outputs=outputs)
        rewriter.replace(node, new)


def _same(rewriter: _Rewriter, node: ir.Node, operands: list[ir.Value | None], attributes: list[ir.Attr]) -> None:
    new = ir.Node(node.domain, node.op_type, operands, attributes, name=node.name, version=node.version)
    rewriter.replace(node, new)


def _unary(rewriter: _Rewriter, node: ir.Node) -> None:
    x = node.inputs[0]
    if x in rewriter.twins:
        _same(rewriter, node, [rewriter.twins[x], *node.inputs[1:]], _attributes(node))


def _broadcasting(rewriter: _Rewriter, node: ir.Node) -> None:
    has_twin = [v in rewriter.twins for v in node.inputs]
    others = [v for v, twin in zip(node.inputs, has_twin, strict=True) if not twin]
    if not any(has_twin) or not all(_follows(v) for v in others) or "axis" in node.attributes:
        return
    _same(rewriter, node, [_aligned(rewriter, v, node) for v in node.inputs], _attributes(node))


def _follows(value: ir.Value | None) -> bool:
    """Whether an operand without a twin can be brought into layout cheaply: a scalar, a weight or a constant."""
    known = rank(value)
    if value is None or known is None:
        return False
    fixed = value.const_value is not None or ir.convenience.get_const_tensor(value) is not None
    return known == 0 or (known in (3, 4) and fixed) or _single(value)


def _single(value: ir.Value) -> bool:
    tensor = value.const_value or ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1


def _aligned(rewriter: _Rewriter, value: ir.Value | None, at: ir.Node) -> ir.Value | None:
    if value is None or value in rewriter.twins:
        return value if value is None else rewriter.twins[value]
    known = rank(value)
    if known == 0 or _single(value):
        return value
    return rewriter.transpose(value, LAST if known == 4 else _RANK3_LAST, at)


def _concat(rewriter: _Rewriter, node: ir.Node) -> None:
    if all(v in rewriter.twins for v in node.inputs):
        axis = LAST.index(node.attributes["axis"].as_int() % 4)
        operands = [rewriter.twins[v] for v in node.inputs if v is not None]
        _same(rewriter, node, list(operands), [ir.AttrInt64("axis", axis)])


_HANDLERS: dict[str, Callable[[_Rewriter, ir.Node], None]] = {
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BROADCASTING, _broadcasting),
}
