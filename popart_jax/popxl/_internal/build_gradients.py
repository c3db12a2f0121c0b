"""Creation of the gradient operators that a plan lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from ...autodiff import Gradients, Step, grow
from ...lowering.gradients import TEMPLATE, Template
from ...ops import ZERO_GRADIENT, Operator, resolve
from ...ops.registry import resolve_node
from .._building.create import Out, create, like, result
from ..ops.collectives import OPERATORS
from ..tensor import Constant
from .grad_ops import note
from .gradient_info import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from .if_gradient import emit as emit_if
from .operands import op_of, plain_attributes, tensor_of
from .plan_gradients import Plan, is_forward, parent_of
from .stitch import provide

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op


class Builder:
    """Makes the operators of one gradient graph; knows the forward tensors that it reads, by id."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.plan, self.graph = plan, graph
        self.forward: dict[str, Tensor] = {}

    def make(self, step: Step, gradients: Gradients) -> Iterable[tuple[ir.Value, ir.Value]]:
        """See `autodiff.Maker`."""
        self.gradients = gradients
        op = op_of(step.node)
        emit = _emit_own if "gradient" in op._options else _EMIT.get(op.opType(), _emit)
        made = emit(self, step, op)
        note(op, made, self.forward, gradients)
        return [(target._value, part._value) for target, part in made]

    def total(self, value: ir.Value, parts: Sequence[ir.Value]) -> ir.Value:
        """See `autodiff.Maker`; as in PopART a single contribution gets a Sum too, unless it is a provided gradient."""
        t: Tensor = tensor_of(value)
        if len(parts) == 1 and parts[0].producer() is None:
            return parts[0]
        made = [op_of(p)._settings for part in parts if (p := part.producer())]
        settings = made[0].copy("Sum") if made else None  # a tensor that is an output twice has two provided gradients
        return self._create("Sum", [tensor_of(p) for p in parts], [gradient_out(t)], settings=settings)[0]._value

    def part(self, t: Tensor) -> Out:
        """One contribution to a gradient."""
        out = gradient_out(t)
        return replace(out, name=f"{out.name}__partial")

    def gradient(self, t: Tensor) -> Tensor | None:
        """The gradient of a forward tensor; None where nothing contributes."""
        found = self.gradients.of(t._value)
        return None if found is None else tensor_of(found)

    def zeros(self, t: Tensor) -> Tensor:
        """A zero gradient."""
        return self._create("Init", [], [gradient_out(t)], {"shape": t.shape, "dtype": t.dtype})[0]

    def gradient_or_zeros(self, t: Tensor) -> Tensor:
        """The gradient of a forward tensor, zero when nothing contributes."""
        found = self.gradient(t)
        return self.zeros(t) if found is None else found

    def operands_for(self, op: Op, info: GradGraphInfo, start: int) -> list[Tensor]:
        """The operands of a called graph's gradient graph; the called graph's operands begin at `start`.

        Where a tensor is an output more than once, its connections take the gradients of its positions in turn, and the
        last one takes the sum of those that are left.
        """
        graph = info.forward_graph
        found: list[Tensor] = []
        waiting = [e.fwd_tensor for e in info.expected_inputs if not is_forward(e)]
        places = {t: [i for i, out in enumerate(graph.outputs) if out == t] for t in waiting}
        for e in info.expected_inputs:
            t = e.fwd_tensor
            if is_forward(e):
                found.append(self.forward[parent_of(op, graph, t, start).id])
                continue
            waiting.remove(t)
            taken, places[t] = (places[t][:1], places[t][1:]) if t in waiting else (places[t], [])
            found.append(self._sum_of(op, t, [op._out(i) for i in taken]))
        return found

    def _sum_of(self, op: Op, t: Tensor, outputs: list[Tensor]) -> Tensor:
        """The gradient of a tensor of a called graph: the sum of those of some outputs of the call."""
        given = [g for out in outputs if (g := self.gradient(out)) is not None]
        if len(given) > 1:
            return self.create(op, "Sum", given, [gradient_out(t)])[0]
        return given[0] if given else self.zeros(t)

    def create(
        self, op: Op, op_type: str | Operator, inputs: list[Any], outs: list[Any], attributes: Any = None, **more: Any
    ) -> list[Tensor]:
        """A gradient operator placed like its forward operator."""
        settings = op._settings.copy(f"{op._settings.name}_grad")
        if op.opType() == "IpuCopy":
            settings.vgraphId = op._options["destination"]
        return self._create(op_type, inputs, outs, attributes, settings=settings, **more)

    def _create(
        self, op_type: str | Operator, inputs: list[Any], outs: list[Any], attributes: Any = None, **more: Any
    ) -> list[Tensor]:
        op = create(op_type, inputs, outs, attributes, graph=self.graph, **more)
        return [result(op, i) for i in range(len(outs))]


def gradient_out(t: Tensor) -> Out:
    """The description of the gradient of a tensor."""
    return like(t, f"Gradient___{t.name}")


def build(plan: Plan) -> GradGraphInfo:
    """The gradient graph of a plan: inputs, operators, outputs, and how they connect."""
    owner = plan.graph.ir
    graph = owner._new_graph(_unique(owner, plan.graph.id))
    graph._is_gradient = True
    b = Builder(plan, graph)
    make, kinds = ExpectedConnection._make, ExpectedConnectionType
    expected: list[ExpectedConnection] = []
    with graph:
        seeds = list[tuple[ir.Value, ir.Value]]()
        for t in plan.provided:
            out = gradient_out(t)
            given = graph._add_input_like(t, name=out.name)
            seeds.append((t._value, given._value))
            expected.append(make(t, kinds.FwdGrad))
        expected.extend(make(t, kinds.Fwd) for t in provide(plan, b))
        b.gradients = grow(plan.steps, seeds, b)
        for t in plan.required:
            graph._graph.outputs.append(b.gradient_or_zeros(t)._value)
    return GradGraphInfo._make(graph, plan.graph, expected, [make(t, kinds.FwdGrad) for t in plan.required])


_repeated = itertools.count()
"""Suffixes of further gradient graphs of the same graph; counted over the whole process, as upstream."""


def _unique(owner: Any, forward: str) -> str:
    name = f"{forward}_bwd"
    while name in owner._graphs:
        name = f"{forward}_bwd_{next(_repeated)}"
    return name


Pairs = list[tuple["Tensor", "Tensor"]]


def _targets(step: Step, op: Op) -> list[Tensor]:
    return [op._in(i) for i in step.of]


def _emit(b: Builder, step: Step, op: Op) -> Pairs:
    gradient, targets = step.gradient, _targets(step, op)
    assert gradient is not None
    if gradient in ZERO_GRADIENT:
        return [(targets[0], b.zeros(targets[0]))]
    outs = [b.part(t) for t in targets]
    reads = [b.forward[v.name or ""] for v in step.reads if v is not None]
    attributes = plain_attributes(op)
    if not gradient.kernel:
        return list(zip(targets, _emit_vjp(b, step, op, reads, outs, attributes), strict=True))
    row = resolve("popxl", gradient.op_type, 1)
    assert row is not None
    if "x_shape" in row.attributes:
        attributes["x_shape"] = op._in(0).shape
    made = b.create(op, gradient.op_type, [b.gradient_or_zeros(op._out(0)), *reads], outs, attributes)
    return list(zip(targets, made, strict=True))


def _emit_vjp(b: Builder, step: Step, op: Op, reads: list[Tensor], outs: list[Any], attributes: Any) -> list[Tensor]:
    present = [(i, g) for i, t in op._outputs().items() if (g := b.gradient(t)) is not None]
    position = {v: len(present) + k for k, v in enumerate(v for v in step.reads if v is not None)}
    operands = [None if v is None else _operand(v, position, op._node) for v in op._node.inputs]
    node = op._node
    template = Template(*op._translation, tuple(operands), step.of, tuple(i for i, _ in present), len(node.outputs))
    inputs = [g for _, g in present] + reads
    options = {k: v for k, v in op._options.items() if k in ("available_memory_proportion", "partials_type", "conv")}
    if "unexecutable_gradient" in op._options:
        options["unexecutable"] = op._options["unexecutable_gradient"]
    assert step.gradient is not None
    if step.gradient.op_type == "IpuCopy":
        options = {"source": op._options["destination"], "destination": op._options["source"]}
    made = b.create(op, step.gradient.op_type, inputs, outs, attributes, options=options)
    producer = made[0]._value.producer()
    assert producer is not None
    producer.meta[TEMPLATE] = template
    return made


def _operand(value: ir.Value, position: dict[ir.Value, int], node: ir.Node) -> Any:
    """A forward operand of a template: its position, its constant value if tracing needs it, or its type."""
    if value in position:
        return position[value]
    t = tensor_of(value)
    row = resolve_node(node, {}) if isinstance(t, Constant) else None
    if row is not None and any(row.is_static(i) for i, v in enumerate(node.inputs) if v is value):
        return np.asarray(t._host)
    return (t.shape, t.dtype._device)


def _emit_call(b: Builder, step: Step, op: Op) -> Pairs:
    """A call of the gradient graph of the called graph."""
    info = b.plan.info_of(op._called()[0])
    inputs = b.operands_for(op, info, 0)
    outs = [like(t, t.name) for t in info.graph.outputs]
    made = b.create(op, "Call", inputs, outs, {"callee": info.graph})
    of = [info.forward_graph.inputs.index(e.fwd_tensor) for e in info.expected_outputs]
    return [(op._in(i), part) for i, part in zip(of, made, strict=True) if i in step.of and op.hasInput(i)]


def _emit_print(b: Builder, step: Step, op: Op) -> Pairs:
    """A print of the gradient if the forward operator asks for it, else an identity."""
    gradient, target = b.gradient_or_zeros(op._out(0)), op._in(0)
    plain = plain_attributes(op)
    plain["title"] = f"{plain['title']}_gradient"
    runs = ("popxl", "PrintTensor", 1) if plain["print_gradient"] else ("", "Identity", 16)
    plain["print_gradient"] = 0
    return [(target, b.create(op, "PrintTensor", [gradient], [b.part(target)], plain, runs=runs)[0])]


def _emit_all_reduce(b: Builder, step: Step, op: Op) -> Pairs:
    """Gradients are reduced over the IPUs, or taken as they are when they are identical already."""
    targets = list(op._inputs().values())
    inputs = [b.gradient_or_zeros(t) for t in op._outputs().values()]
    plain = plain_attributes(op)
    options = {"ipus": op._options["ipus"], "op": op._options["op"]}
    made = b.create(op, "AllReduceGrad", inputs, [b.part(t) for t in targets], plain, options=options)
    return [pair for i, pair in enumerate(zip(targets, made, strict=True)) if i in step.of]


def _emit_gather(b: Builder, step: Step, op: Op) -> Pairs:
    """The gradient of gathered shards is this replica's slice."""
    target = op._in(0)
    plain = {"op": int(OPERATORS["local"]), "groups": op._node.attributes["groups"].value}
    flat = replace(gradient_out(target), shape=(target.nelms,), meta_shape=())
    options = {"group": op._options["group"], "op": OPERATORS["local"], "shard": bool(target.meta_shape)}
    made = b.create(op, "ReplicatedReduceScatter", [b.gradient_or_zeros(op._out(0))], [flat], plain, options=options)
    return [(target, _shaped(b, op, made, target))]


def _shaped(b: Builder, op: Op, made: list[Tensor], target: Tensor) -> Tensor:
    """A gradient reshaped to its target tensor's shape."""
    if made[0].shape != target.shape:
        made = b.create(op, "Reshape", made, [gradient_out(target)], {"shape": target.shape})
    return made[0]


def _emit_own(b: Builder, step: Step, op: Op) -> Pairs:
    """The gradient operator that the forward operator names in its option "gradient"."""
    target, gradient = op._in(0), op._options["gradient"]
    flat = target.nelms != op._out(0).nelms
    out = replace(gradient_out(target), shape=(target.nelms,), meta_shape=()) if flat else b.part(target)
    options = gradient.options()
    made = b.create(op, gradient.row, [b.gradient_or_zeros(op._out(0))], [out], gradient.attributes, options=options)
    return [(target, _shaped(b, op, made, target))]


def _emit_scatter(b: Builder, step: Step, op: Op) -> Pairs:
    """The gradient of a scattered sum (or slice) is gathered again."""
    target = op._in(0)
    plain = {"groups": op._node.attributes["groups"].value, "shape": target.shape}
    out = replace(gradient_out(target), meta_shape=())
    options = {"group": op._options["group"]}
    made = b.create(op, "ReplicatedAllGather", [b.gradient_or_zeros(op._out(0))], [out], plain, options=options)
    return [(target, made[0])]


_EMIT: dict[str, Callable[[Builder, Step, Any], Pairs]] = {
    "Call": _emit_call,
    "If": emit_if,
    "PrintTensor": _emit_print,
    "AllReduce": _emit_all_reduce,
    "ReplicatedAllGather": _emit_gather,
    "ReplicatedReduceScatter": _emit_scatter,
}
