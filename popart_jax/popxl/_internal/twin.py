"""The shared rewrites of `patterns` on PopXL graphs.

The nodes of a PopXL graph name translations and say what they write or alias; rewrites look for PopART's types. So they
see a twin: the same operators and tensors by name, in PopART's form. `rewrite` sweeps the twin and then makes the same
changes in the graph: tensors keep their objects and names, new operators their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from patterns._context import dims
from patterns._core import Rule
from patterns._sweep import sweep

from ...autodiff import is_float
from ...lowering.effects import VIEWS, WRITES
from ...ops import facts
from .rewrite import adopt, insert_before

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op

_OPAQUE = "popxl"
_ONLY_THERE = frozenset({"fully_connected_pass"})


def rewrite(graph: Graph, rules: Sequence[Rule]) -> bool:
    """Apply rewrites to a graph until none fires; True when one did."""
    twin = _Twin(graph)
    log = sweep(twin.graph, rules, facts, mode="training", protected=frozenset(twin.protected))
    if log.fired:
        twin.transfer()
    return bool(log.fired)


class _Twin:
    """PopART's picture of a graph, and which operator and tensor each part of it stands for."""

    def __init__(self, source: Graph) -> None:
        self.source = source
        self.values: dict[str, ir.Value] = {}
        self.tensors: dict[ir.Value, Tensor] = {}
        self.before: dict[ir.Node, list[ir.Value | None]] = {}
        self.ops: dict[ir.Node, Op] = {}
        self.protected: set[str] = set()
        nodes = [self._node(node.meta["op"]) for node in source._graph]
        inputs = [self._value(t) for t in source.inputs]
        self.graph = ir.Graph(inputs, [self._value(t) for t in source.outputs], nodes=nodes, name=source.id)
        self.outputs = list(self.graph.outputs)
        self.read = {v for node in nodes for v in node.inputs}

    # --- making it ------------------------------------------------------------------------------------------------

    def _value(self, t: Tensor) -> ir.Value:
        if t.id not in self.values:
            value = self.values[t.id] = _typed(t.shape, t.dtype._onnx, t.id)
            self.tensors[value] = t
        return self.values[t.id]

    def _node(self, op: Op) -> ir.Node:
        name = op.opType()
        operands = [None if v is None else self._value(v.meta["tensor"]) for v in op._node.inputs]
        inputs = self._pattern_inputs(op, name, operands)
        domain = op.opid.domain
        if inputs is None or _is_opaque(op):
            inputs, domain = operands, _OPAQUE
        elif op._options.get("to_identity"):
            name, domain, inputs = "Sum", "", operands[:1]  # a sum of one term is what OpToIdentity looks for
        read = {v for v in inputs if v is not None}
        self.protected.update(v.name or "" for v in operands if v is not None and v not in read)
        outputs = [self._value(t) for t in op._outputs().values()]
        node = ir.Node(
            "" if domain == "ai.onnx" else domain, name, inputs, _attributes(op),
            outputs=outputs, name=str(op.id),
        )  # fmt: skip
        node.meta["op"] = op
        self.ops[node] = op
        self.before[node] = list(inputs)
        return node

    def _pattern_inputs(self, op: Op, name: str, operands: list[Any]) -> list[Any] | None:
        """What PopART's operator reads; None when this one has no such form."""
        if name == "Dropout":
            return operands[:1]  # a session's reads no seed
        template = op._node.meta.get("vjp")
        if template is None:
            return operands
        mixed = len({v.dtype for v in operands if is_float(v)}) > 1  # rewrites compute with floats of one type
        partial = name == "SplitGrad" and len(template.gradients) != template.n_outputs
        return None if partial or (mixed and name != "NllGrad") else operands

    # --- handing back what changed ---------------------------------------------------------------------------------

    def transfer(self) -> None:
        """Make the changes of the twin in the graph."""
        self._prune()
        kept = {self.ops[n] for n in self.graph if n in self.ops}
        self._renamed()
        replacement: dict[Op, Op] = {}
        pending: list[Op] = []
        for node in list(self.graph):
            op = self.ops.get(node)
            if op is None:
                made = self._create(node)
                if made is not None:
                    pending.append(made)
                    replacement[node.meta["op"]] = made
                continue
            self._rewire(node, op)
            if pending:
                insert_before(op, pending)
                pending = []
        for i, (old, new) in enumerate(zip(self.outputs, self.graph.outputs, strict=True)):
            if old is not new:
                self.source._graph.outputs[i] = self.tensors[new]._value
        for op in [op for op in self.ops.values() if op not in kept]:
            self._forget(op, replacement.get(op))

    def _prune(self) -> None:
        """Operators whose readers all disappeared disappear too."""
        for node in reversed(list(self.graph)):
            outputs = node.outputs
            needed = not outputs or any(v.uses() or v.is_graph_output() for v in outputs)
            if not needed and (node not in self.ops or any(v in self.read for v in outputs)):
                node.resize_inputs(0)
                self.graph.remove(node)

    def _renamed(self) -> None:
        """Operators that now give another tensor than they did."""
        for node, op in self.ops.items():
            if node.graph is None:
                continue
            for value, output in zip(node.outputs, op._node.outputs, strict=False):
                old = self.tensors[value]
                if value.name != old.id:
                    new = self.source._tensors[value.name or ""]
                    self.source._tensors.pop(old.id)
                    adopt(self.source, new, output)
                    self.tensors[value] = new

    def _rewire(self, node: ir.Node, op: Op) -> None:
        for old, new in zip(self.before[node], node.inputs, strict=True):
            if old is new or old is None or new is None:
                continue
            gone = self.tensors[old]
            for i, value in enumerate(op._node.inputs):
                if value is not None and (value is gone._value or value.name == old.name):
                    op._node.replace_input_with(i, self.tensors[new]._value)

    def _create(self, node: ir.Node) -> Op | None:
        from .._create import Out, create
        from ..context import get_current_context
        from ..dtypes import dtype as Dtype
        from ..tensor import constant

        root: Op = node.meta["op"]
        if node.op_type == "Constant":
            (value,) = node.outputs
            assert value.const_value is not None
            with self.source:
                self.tensors[value] = constant(value.const_value.numpy())
            return None
        operands = [None if v is None else self.tensors[v] for v in node.inputs]
        outs, ids = [], []
        for value in node.outputs:
            dtype = value.dtype
            assert dtype is not None
            outs.append(Out("", dims(value), Dtype.as_dtype(dtype.numpy())))
            ids.append(self._output_id(value.name or ""))
        existing = {i: self.source._tensors.pop(i) for i in ids if i in self.source._tensors}
        sequencer = get_current_context()._sequencer
        sequencer.push("pass")
        try:
            made = create(
                node.op_type, operands, outs, _plain(node), graph=self.source, output_ids=ids,
                settings=root._settings.copy(), options=_passed_on(root), runs=_runs(node),
            )  # fmt: skip
        finally:
            sequencer.pop()
        for value, output in zip(node.outputs, made._node.outputs, strict=True):
            old = existing.get(output.name or "")
            if old is not None:
                adopt(self.source, old, output)
            self.tensors[value] = output.meta["tensor"]
        return made

    def _output_id(self, name: str) -> str:
        """The tensor whose place the output takes, or a new id in the scope of the graph."""
        if name in self.values:
            return name
        scope = f"{self.source.id}/" if self.source.id else ""
        taken = name in self.source._tensors
        return self.source.ir._suffixed(name) if taken else (name if name.startswith(scope) else f"{scope}{name}")

    def _forget(self, op: Op, replacement: Op | None) -> None:
        from ..context import get_current_context

        graph = self.source
        outputs = op._outputs()
        if replacement is None:
            graph._topo_cons.remove(op)
        else:
            graph._topo_cons.replace(op, replacement)
        get_current_context()._sequencer.forget(op, replacement)
        graph._graph.remove(op._node, safe=False)
        op.disconnectAllInputs()
        for t in outputs.values():
            if t._value.producer() is op._node:
                graph._tensors.pop(t.id, None)
        del graph._ops[op.id]


def _typed(shape: Any, dtype: ir.DataType, name: str | None) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(tuple(shape)), type=ir.TensorType(dtype))


def _is_opaque(op: Op) -> bool:
    """Rewrites leave alone what writes or aliases, or what is read or made by such an operator in the graph."""
    if op.opType() in ("Call", "Loop", "If") or not op._outputs():
        return True
    tensors = [*op._inputs().values(), *op._outputs().values()]
    first, out = op._inputs().get(0), op._outputs().get(0)
    if first is not None and out is not None and first.meta_shape != out.meta_shape:
        return True
    return any(WRITES in n.attributes or VIEWS in n.attributes for t in tensors for n in _around(t)) or _crosses(op)


def _around(t: Tensor) -> list[ir.Node]:
    producer = t._value.producer()
    return [node for node, _ in t._value.uses()] + ([] if producer is None else [producer])


def _crosses(op: Op) -> bool:
    """Whether an operand comes from another program (weights loading, storing) than the operator's."""
    producers = [t._value.producer() for t in op._inputs().values()]
    contexts = {p.meta["op"]._settings.executionContext for p in producers if p is not None}
    return bool(contexts - {op._settings.executionContext})


def _attributes(op: Op) -> list[ir.Attr]:
    plain = (a for name, a in op._node.attributes.items() if not name.startswith("__"))
    return [a for a in plain if a.type is not ir.AttributeType.GRAPH]


def _plain(node: ir.Node) -> dict[str, Any]:
    return {n: a.value for n, a in node.attributes.items() if not n.startswith("__") and n not in _dropped(node)}


def _dropped(node: ir.Node) -> frozenset[str]:
    """Attributes that the translation does not take."""
    return _ONLY_THERE | ({"inputIsLogProbability"} if node.op_type == "SoftmaxGradDirect" else set())


def _runs(node: ir.Node) -> tuple[str, str, int] | None:
    """The translation of an operator that PopXL has no class for."""
    if facts(node.op_type).popxl is not None:
        return None
    return ("", node.op_type, 13) if node.domain in ("", "ai.onnx") else (node.domain, node.op_type, 1)


def _passed_on(op: Op) -> dict[str, Any]:
    return {k: v for k, v in op._options.items() if k in ("available_memory_proportion", "partials_type", "conv")}
