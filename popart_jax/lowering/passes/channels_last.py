"""Run the convolutional part of a graph with channels last.

XLA's CPU and GPU convolutions want channels last; a graph of NCHW nodes would transpose around each of them. One walk
in graph order keeps, beside each tensor with channels (rank 3 to 5), its channels-last twin where one exists.
Convolutions and pools read and produce twins, and so do layout-neutral operators whose operands have twins; sums of all
elements read them. Nodes that need NCHW read a transpose, which is only computed if some node reads it. Tensors keep
their names and values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from ...model.checks.structure import constant_of
from ...ops.operator import Trait
from ...ops.registry import Lowering, facts, resolve
from ..kernels import DOMAIN, MODULES

_DOMAINS = ("", "ai.onnx", "ai.graphcore", "com.microsoft", DOMAIN)
_RANKS = (3, 4, 5)
_LARGE = 1 << 16  # elements
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")


def last(rank: int) -> tuple[int, ...]:
    """The permutation from channels first to channels last."""
    return (0, *range(2, rank), 1)


def first(rank: int) -> tuple[int, ...]:
    """The permutation from channels last to channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def _turned(shape: ir.Shape | None, perm: tuple[int, ...]) -> ir.Shape | None:
    return None if shape is None or len(shape) != len(perm) else ir.Shape([shape[i] for i in perm])


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Give `new` the uses, name and type of `old`."""
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    new.name, old.name = old.name, None
    new.shape, new.type = old.shape, old.type


@dataclass
class _Rewriter:
    """The graph, twins and their ranks by tensor, and names of tensors that all nodes must read as they are."""

    graph: ir.Graph
    protected: Collection[str]
    twins: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    ranks: dict[ir.Value, int] = field(default_factory=dict[ir.Value, int])
    count: int = 0

    def name(self, value: ir.Value, tag: str) -> str:
        self.count += 1
        return f"{value.name}/{tag}{self.count}"

    def transpose(self, value: ir.Value, perm: Iterable[int], at: ir.Node, tag: str = "nhwc") -> ir.Value:
        """A transpose of `value`, inserted before `at`."""
        order = tuple(perm)
        node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", order)], version=1, name=self.name(value, tag))
        node.outputs[0].name = node.name
        node.outputs[0].type, node.outputs[0].shape = value.type, _turned(value.shape, order)
        self.graph.insert_before(at, node)
        return node.outputs[0]

    def twin(self, value: ir.Value, rank: int, at: ir.Node) -> ir.Value:
        """The channels-last twin of a value; a transpose is inserted if there is none."""
        if value not in self.twins:
            self._keep(value, self.transpose(value, last(rank), at), rank)
        return self.twins[value]

    def _keep(self, value: ir.Value, twin: ir.Value, rank: int) -> None:
        self.twins[value], self.ranks[value] = twin, rank

    def replace(self, old: ir.Node, new: ir.Node, rank: int) -> None:
        """Put `new`, whose first output is channels last, in place of `old`."""
        out = old.outputs[0]
        made = new.outputs[0]
        made.name, made.type = self.name(out, "nhwc"), out.type
        made.shape = _turned(out.shape, last(rank))
        self.graph.insert_before(old, new)
        plain = self.transpose(made, first(rank), old)
        name = out.name
        take_over(out, plain)
        for before, after in zip(old.outputs[1:], new.outputs[1:], strict=True):
            take_over(before, after)
        self.graph.remove(old, safe=True)
        if name not in self.protected:
            self._keep(plain, made, rank)


def channels_last(graph: ir.Graph, protected: Collection[str] = ()) -> bool:
    """Rewrite `graph` in place; `protected` tensors (anchors, probes) are read under their own names by all consumers.

    Returns whether anything changed.
    """
    rewriter = _Rewriter(graph, protected)
    for node in list(graph):
        handler = _handler(node)
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
    tensor, maker = constant_of(value), value.producer()
    if tensor is None and maker is not None and maker.op_type in _QUANTISERS:  # quantisation tools declare no shapes
        return rank(maker.inputs[0])
    return None if tensor is None else len(tensor.shape)


def _attributes(node: ir.Node) -> list[ir.Attr]:
    return list(node.attributes.values())


def _conv(rewriter: _Rewriter, node: ir.Node) -> None:
    at = _translation(node).inputs.index("w")
    x, w = node.inputs[0], node.inputs[at]
    known = rank(w)
    grouped = node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1
    if x is None or w is None or known not in _RANKS or grouped:
        return
    order, twin = (*range(2, known), 1, 0), rewriter.twin(x, known, node)
    scaled = _scaled(w) if node.op_type == "Conv" and len(node.inputs) > 2 else None
    if scaled is None:
        operands = [twin, *node.inputs[1:at], rewriter.transpose(w, order, node, "hwio"), *node.inputs[at + 1 :]]
        rewriter.replace(node, ir.Node(DOMAIN, node.op_type, operands, _attributes(node), name=node.name), known)
        return
    weights, factor = scaled
    plain = ir.Node(DOMAIN, "Conv", [twin, rewriter.transpose(weights, order, node, "hwio")], _attributes(node))
    plain.name = plain.outputs[0].name = rewriter.name(node.outputs[0], "unscaled")
    rewriter.graph.insert_before(node, plain)
    operands = [plain.outputs[0], factor, node.inputs[2]]
    rewriter.replace(node, ir.Node(DOMAIN, "ChannelAffine", operands, name=node.name), known)


def _scaled(weights: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """Large weights that are multiplied by one factor per output channel, and these factors.

    The result can be multiplied by the factors as well, and it is small where weights are large. The convolution then
    reads the model's own weights, and no scaled copy of them is kept in memory.
    """
    product = weights.producer()
    if product is None or product.op_type != "Mul" or len(weights.uses()) != 1:
        return None
    plain, column = product.inputs
    reshaped = None if column is None else column.producer()
    if plain is None or column is None or plain.const_value is None or reshaped is None:
        return None
    shape, factor = tuple(plain.const_value.shape), reshaped.inputs[0]
    per_channel = reshaped.op_type == "Reshape" and column.shape == (shape[0], *[1] * (len(shape) - 1))
    large = plain.const_value.size >= _LARGE
    return (plain, factor) if large and per_channel and factor is not None else None


def _windowed(rewriter: _Rewriter, node: ir.Node) -> None:
    x, outputs = node.inputs[0], len(node.outputs)
    counts = "n_outputs" in _translation(node).context.values()
    if x in rewriter.twins and (outputs == 1 or counts) and node.attributes.get_int("spatial", 1):
        operands = [rewriter.twins[x], *node.inputs[1:]]
        new = ir.Node(DOMAIN, node.op_type, operands, _attributes(node), name=node.name, num_outputs=outputs)
        rewriter.replace(node, new, rewriter.ranks[x])


def _same(
    rewriter: _Rewriter, node: ir.Node, operands: list[ir.Value | None], attributes: list[ir.Attr], rank: int
) -> None:
    new = ir.Node(node.domain, node.op_type, operands, attributes, name=node.name, version=node.version)
    rewriter.replace(node, new, rank)


def _elementwise(rewriter: _Rewriter, node: ir.Node) -> None:
    parameters = facts(node.op_type).parameters  # scalars and the like, which have no layout
    data = [v for i, v in enumerate(node.inputs) if i not in parameters]
    ranks = {rewriter.ranks[v] for v in data if v in rewriter.twins}
    if len(ranks) != 1 or "axis" in node.attributes or len(node.outputs) > 1:
        return
    (common,) = ranks
    if all(v in rewriter.twins or _follows(v, common) for v in data):
        operands = [v if i in parameters else _aligned(rewriter, v, common, node) for i, v in enumerate(node.inputs)]
        _same(rewriter, node, operands, _attributes(node), common)


def _follows(value: ir.Value | None, common: int) -> bool:
    """Whether an operand without a twin can be transposed cheaply: a scalar, a weight or a constant."""
    known = rank(value)
    if value is None or known is None:
        return value is None
    fixed = constant_of(value) is not None
    return known == 0 or (known in (common - 1, common) and fixed) or (_single(value) and known <= common)


def _single(value: ir.Value) -> bool:
    tensor = constant_of(value)
    return tensor is not None and tensor.size == 1


def _aligned(rewriter: _Rewriter, value: ir.Value | None, common: int, at: ir.Node) -> ir.Value | None:
    if value is None or value in rewriter.twins:
        return value if value is None else rewriter.twins[value]
    known = rank(value)
    if known == 0 or _single(value):
        return value
    return rewriter.transpose(value, last(common) if known == common else (*range(1, common - 1), 0), at)


def _quantiser(rewriter: _Rewriter, node: ir.Node) -> None:
    """QuantizeLinear or DequantizeLinear with a single scale, or with one per index of an axis."""
    data, *parameters = node.inputs
    single = all(v is None or _single(v) for v in parameters)
    if (
        data not in rewriter.twins
        or node.attributes.get_int("block_size", 0)
        or not (single or "axis" in node.attributes)
    ):
        return
    common, attributes = rewriter.ranks[data], dict(node.attributes)
    if not single:
        axis = last(common).index(attributes["axis"].as_int() % common)
        attributes["axis"] = ir.AttrInt64("axis", axis)
    _same(rewriter, node, [rewriter.twins[data], *parameters], list(attributes.values()), common)


def _concat(rewriter: _Rewriter, node: ir.Node) -> None:
    ranks = {rewriter.ranks.get(v, 0) if v is not None else 0 for v in node.inputs}
    if len(ranks) == 1 and 0 not in ranks:
        (common,) = ranks
        axis = last(common).index(node.attributes["axis"].as_int() % common)
        operands = [rewriter.twins[v] for v in node.inputs if v is not None]
        _same(rewriter, node, list(operands), [ir.AttrInt64("axis", axis)], common)


_LOSSES = ("L1", "IdentityLoss")
_SUMS = ("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare")


def _total(rewriter: _Rewriter, node: ir.Node) -> None:
    """A sum of all elements reads them in the order in which they are."""
    x, *given = node.inputs
    if x not in rewriter.twins:
        return
    axes = node.attributes.get_ints("axes", ())
    if node.op_type in _LOSSES:
        whole = node.attributes.get_string("reduction", "").lower() in ("sum", "mean")
    else:
        named = {a % rewriter.ranks[x] for a in axes} == set(range(rewriter.ranks[x]))
        whole = named or not (axes or given or node.attributes.get_int("noop_with_empty_axes", 0))
    if whole:
        node.replace_input_with(0, rewriter.twins[x])


_TRANSLATED = frozenset(op for module in ("channels_last", "integers") for op in MODULES[module].split())


def _translation(node: ir.Node) -> Lowering:
    """The channels-last translation of an operator that has one."""
    row = resolve(DOMAIN, node.op_type, 1)
    assert row is not None
    return row


def _handler(node: ir.Node) -> Callable[[_Rewriter, ir.Node], None] | None:
    """The rewrite that brings a node into channels-last layout; None for a node that stays channels first."""
    by_place = node.attributes.get_int("spatial", 1) == 0  # an old BatchNormalization with statistics for each place
    if node.domain not in _DOMAINS or by_place:
        return None
    if node.domain in ("", "ai.onnx") and node.op_type in _TRANSLATED:
        return _conv if "w" in _translation(node).inputs else _windowed
    if node.op_type == "Concat":
        return _concat
    if node.op_type in _QUANTISERS:
        return _quantiser
    if node.op_type in (*_LOSSES, *_SUMS):
        return _total
    row = facts(node.op_type)
    neutral = row.has(Trait.ELEMENTWISE) and not row.has(Trait.RANDOM)  # random numbers depend on the layout
    return _elementwise if neutral else None


def drop_unread_transposes(graph: ir.Graph, protected: Collection[str]) -> None:
    """Remove the transposes that `channels_last` left for readers that did not come."""
    for node in reversed(graph):
        if node.op_type == "Transpose" and not node.outputs[0].uses() and not stays(node.outputs[0], protected):
            graph.remove(node, safe=True)


def stays(value: ir.Value, protected: Collection[str]) -> bool:
    """Whether a value is a result, or read under its name."""
    return value.is_graph_output() or value.name in protected
