"""Making the gradient operators that a plan lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import ZERO_GRADIENT, resolve
from .grow_gradients import Plan, Step, is_forward
from .stitch import provide

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from ..transforms.autodiff import GradGraphInfo


@dataclass(frozen=True)
class Template:
    """The forward node of a Vjp: its row, operands (argument position, array, or (shape, type)), wanted inputs, and the
    outputs whose gradients are given."""

    domain: str
    op_type: str
    version: int
    operands: tuple[Any, ...]
    wanted: tuple[int, ...]
    gradients: tuple[int, ...]
    n_outputs: int


class Builder:
    """State while one gradient graph grows: contributions to each tensor's gradient, and forward tensors by id."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.plan, self.graph = plan, graph
        self.parts: dict[str, list[Tensor]] = {}
        self.done: dict[str, Tensor] = {}
        self.forward: dict[str, Tensor] = {}
        targets = [t.id for t in plan.provided] + [s.op._in(i).id for s in plan.steps for i in s.of]
        self.counts = Counter(targets)

    def part(self, t: Tensor) -> Any:
        """One contribution: it carries the gradient's name when it is the only one."""
        out = _grad_out(t)
        return out if self.counts[t.id] < 2 else replace(out, name=f"{out.name}__partial")

    def gradient(self, t: Tensor) -> Tensor | None:
        """The gradient of a forward tensor: its only contribution, or the sum of all."""
        if t.id in self.done:
            return self.done[t.id]
        parts = self.parts.get(t.id, [])
        if not parts:
            return None
        if len(parts) == 1:
            self.done[t.id] = parts[0]
        else:
            self.done[t.id] = self._create("Sum", parts, [_grad_out(t)])[0]
        return self.done[t.id]

    def add(self, t: Tensor, part: Tensor) -> None:
        """One more contribution to the gradient of a forward tensor."""
        self.parts.setdefault(t.id, []).append(part)

    def zeros(self, t: Tensor) -> Tensor:
        """A zero gradient."""
        return self._create("Init", [], [_grad_out(t)], {"shape": t.shape, "dtype": t.dtype})[0]

    def given(self, t: Tensor) -> Tensor:
        """The gradient of a forward tensor, zero when nothing contributes."""
        found = self.gradient(t)
        return self.zeros(t) if found is None else found

    def create(self, step: Step, op_type: str, inputs: list[Any], outs: list[Any], attributes: Any = None, **more: Any):
        """A gradient operator placed like its forward operator."""
        settings = step.op._settings.copy(f"{step.op._settings.name}_grad")
        if step.op.opType() == "IpuCopy":
            settings.vgraphId = step.op._options["destination"]
        return self._create(op_type, inputs, outs, attributes, settings=settings, **more)

    def _create(
        self, op_type: str, inputs: list[Any], outs: list[Any], attributes: Any = None, **more: Any
    ) -> list[Tensor]:
        from .._create import create, result

        op = create(op_type, inputs, outs, attributes, graph=self.graph, **more)
        return [result(op, i) for i in range(len(outs))]


def _grad_out(t: Tensor) -> Any:
    from .._create import Out

    return Out(f"Gradient___{t.name}", t.shape, t.dtype, t.meta_shape)


def build(plan: Plan) -> GradGraphInfo:
    """The gradient graph of a plan: inputs, operators, outputs, and how they connect."""
    from ..transforms.autodiff import ExpectedConnection, ExpectedConnectionType, GradGraphInfo

    owner = plan.graph.ir
    graph = owner._new_graph(_unique(owner, f"{plan.graph.id}_bwd"))
    b = Builder(plan, graph)
    make, kinds = ExpectedConnection._make, ExpectedConnectionType
    expected = []
    with graph:
        for t in plan.provided:
            out = _grad_out(t)
            b.add(t, graph._add_input(out.shape, out.dtype, out.name, False, out.meta_shape))
            expected.append(make(t, kinds.FwdGrad))
        expected.extend(make(t, kinds.Fwd) for t in provide(plan, b))
        for step in plan.steps:
            _EMIT.get(step.op.opType(), _emit)(b, step)
        for t in plan.required:
            gradient = b.given(t)
            graph._graph.outputs.append(gradient._value)
    return GradGraphInfo._make(graph, plan.graph, expected, [make(t, kinds.FwdGrad) for t in plan.required])


def _unique(owner: Any, name: str) -> str:
    if name not in owner._graphs:
        return name
    n = 1
    while f"{name}_{n}" in owner._graphs:
        n += 1
    return f"{name}_{n}"


def _emit(b: Builder, step: Step) -> None:
    gradient, op = step.gradient, step.op
    targets = [op._in(i) for i in step.of]
    if gradient in ZERO_GRADIENT:
        b.add(targets[0], b.zeros(targets[0]))
        return
    outs = [b.part(t) for t in targets]
    reads = [b.forward[t.id] for t in step.reads]
    attributes = {a.name: a for a in op._node.attributes.values() if not a.name.startswith("__")}
    if gradient.kernel:
        row = resolve("popxl", gradient.op_type, 1)
        assert row is not None
        plain: dict[str, Any] = {n: a.value for n, a in attributes.items()}
        if "x_shape" in row.attributes:
            plain["x_shape"] = op._in(0).shape
        made = b.create(step, gradient.op_type, [b.given(op._out(0)), *reads], outs, plain)
    else:
        made = _emit_vjp(b, step, reads, outs, {n: a.value for n, a in attributes.items()})
    for t, part in zip(targets, made, strict=True):
        b.add(t, part)


def _emit_vjp(b: Builder, step: Step, reads: list[Tensor], outs: list[Any], attributes: Any) -> list[Tensor]:
    op = step.op
    present = [(i, g) for i, t in op._outputs().items() if (g := b.gradient(t)) is not None]
    position = {t.id: len(present) + k for k, t in enumerate(step.reads)}
    operands = [None if v is None else _operand(v.meta["tensor"], position, step) for v in op._node.inputs]
    node = op._node
    template = Template(
        node.domain,
        node.op_type,
        node.version or 1,
        tuple(operands),
        step.of,
        tuple(i for i, _ in present),
        len(node.outputs),
    )
    inputs = [g for _, g in present] + reads
    options = {k: v for k, v in op._options.items() if k in ("available_memory_proportion", "partials_type", "conv")}
    if step.gradient.op_type == "IpuCopy":
        options = {"source": op._options["destination"], "destination": op._options["source"]}
    made = b.create(step, step.gradient.op_type, inputs, outs, attributes, runs=("popxl", "Vjp", 1), options=options)
    producer = made[0]._value.producer()
    assert producer is not None
    producer.meta["vjp"] = template
    return made


def _operand(t: Tensor, position: dict[str, int], step: Step) -> Any:
    from ..tensor import Constant

    if t.id in position:
        return position[t.id]
    node = step.op._node
    row = resolve(node.domain, node.op_type, node.version or 1)
    indices = [i for i, v in enumerate(node.inputs) if v is t._value]
    if isinstance(t, Constant) and row is not None and any(row.is_static(i) for i in indices):
        return np.asarray(t._host)
    return (t.shape, t.dtype._device)


def _emit_call(b: Builder, step: Step) -> None:
    """A call of the gradient graph of the called graph."""
    (info,) = step.infos
    outs = _site(b, step, info, 0)
    for t, part in outs:
        b.add(t, part)


def _site(b: Builder, step: Step, info: GradGraphInfo, offset: int) -> list[tuple[Tensor, Tensor]]:
    from .._create import Out, create, result
    from .grow_gradients import parent_of

    forward, op = info.forward_graph, step.op
    inputs = []
    for e in info.expected_inputs:
        if is_forward(e):
            inputs.append(b.forward[parent_of(op, forward, e.fwd_tensor, offset).id])
        else:
            inputs.append(b.given(op._out(forward.outputs.index(e.fwd_tensor))))
    outs = [Out(t.name, t.shape, t.dtype, t.meta_shape) for t in info.graph.outputs]
    settings = op._settings.copy(f"{op._settings.name}_grad")
    made = create("Call", inputs, outs, {"callee": info.graph}, graph=b.graph, settings=settings)
    pairs = []
    for k, e in enumerate(info.expected_outputs):
        i = forward.inputs.index(e.fwd_tensor)
        if i in step.of and op.hasInput(i):
            pairs.append((op._in(i), result(made, k)))
    return pairs


def _emit_print(b: Builder, step: Step) -> None:
    """Printing continues on the gradient when asked for."""
    node = step.op._node
    gradient = b.given(step.op._out(0))
    target = step.op._in(0)
    plain = {a.name: a.value for a in node.attributes.values() if not a.name.startswith("__")}
    plain["title"] = f"{plain['title']}_gradient"
    row = ("popxl", "PrintTensor", 1) if plain["print_gradient"] else ("", "Identity", 16)
    plain["print_gradient"] = 0
    made = b.create(step, "PrintTensor", [gradient], [b.part(target)], plain, runs=row)
    b.add(target, made[0])


def _emit_all_reduce(b: Builder, step: Step) -> None:
    """Gradients are reduced over the IPUs, or taken as they are when they are identical already."""
    op = step.op
    attributes = op._node.attributes
    targets = list(op._inputs().values())
    inputs = [b.given(t) for t in op._outputs().values()]
    plain: dict[str, Any] = {"op": attributes["op"].as_int()}
    if "identical_grad_inputs" in attributes:
        plain["identical_inputs"] = 1
    if "identical_inputs" in attributes:
        plain["identical_grad_inputs"] = 1
    options = {"ipus": op._options["ipus"], "op": op._options["op"]}
    made = b.create(step, "AllReduceGrad", inputs, [b.part(t) for t in targets], plain, options=options,
                    runs=("popxl", "AllReduce", 1))  # fmt: skip
    for i, (t, part) in enumerate(zip(targets, made, strict=True)):
        if i in step.of:
            b.add(t, part)


def _emit_gather(b: Builder, step: Step) -> None:
    """The gradient of gathered shards is this replica's slice."""
    from .._create import Out
    from ..ops._collectives import OPERATORS

    op, target = step.op, step.op._in(0)
    plain = {"op": int(OPERATORS["local"]), "groups": op._node.attributes["groups"].value}
    out = _grad_out(target)
    flat = Out(out.name, (target.nelms,), out.dtype)
    options = {"group": op._options["group"], "op": OPERATORS["local"], "shard": bool(target.meta_shape)}
    made = b.create(step, "ReplicatedReduceScatter", [b.given(op._out(0))], [flat], plain, options=options)
    b.add(target, _reshaped(b, step, made[0], target))


def _emit_scatter(b: Builder, step: Step) -> None:
    """The gradient of a scattered sum (or slice) is gathered again."""
    from .._create import Out

    op, target = step.op, step.op._in(0)
    plain = {"groups": op._node.attributes["groups"].value, "shape": target.shape}
    out = Out(f"Gradient___{target.name}", target.shape, target.dtype)
    made = b.create(
        step, "ReplicatedAllGather", [b.given(op._out(0))], [out], plain, options={"group": op._options["group"]}
    )
    b.add(target, made[0])


def _reshaped(b: Builder, step: Step, t: Tensor, target: Tensor) -> Tensor:
    if t.shape == target.shape:
        return t
    return b.create(step, "Reshape", [t], [_grad_out(target)], {"shape": target.shape})[0]


def _emit_if(b: Builder, step: Step) -> None:
    from .if_gradient import emit

    emit(b, step)


_EMIT: dict[str, Callable[[Builder, Step], None]] = {
    "Call": _emit_call,
    "If": _emit_if,
    "PrintTensor": _emit_print,
    "AllReduce": _emit_all_reduce,
    "ReplicatedAllGather": _emit_gather,
    "ReplicatedReduceScatter": _emit_scatter,
}
