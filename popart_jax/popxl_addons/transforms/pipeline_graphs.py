"""The graphs of a pipeline: what each stage loads, computes and stores, the copies at the end of a cycle, and the
cycles themselves.

In a cycle every active stage works on another micro-batch, so what one stage makes and another reads is held until
the next cycle. A held tensor is a value carried from cycle to cycle; variables are by-reference inputs all the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ... import popxl
from ...popxl import ops
from .moving import Moved, move_constraints, rehome, stand_in

Kind = Literal["loads", "compute", "stores", "copies"]
ORDER: tuple[Kind, ...] = ("loads", "compute", "stores", "copies")
_BASE = {"loads": "loads_stage_{}", "compute": "stage_{}", "stores": "stores_stage_{}", "copies": "ipu_copies"}


@dataclass(eq=False)
class Part:
    """Operators that run together in a cycle; copies of all stages are one part.

    Attributes
    ----------
    kind, stage
        What they do, and for which stage (-1: all).
    ops
        In creation order.
    inputs
        Tensor from outside the part to the input that stands for it.
    outputs
        Tensors that other parts read.
    graph
        Where the operators live once they were moved.
    """

    kind: Kind
    stage: int
    ops: list[Any] = field(default_factory=list)
    inputs: Moved = field(default_factory=dict)
    outputs: list[popxl.Tensor] = field(default_factory=list)
    graph: Any = None


def kind_of(op: Any, stage_of: Mapping[int, int]) -> Kind:
    """In which part of a cycle an operator runs."""
    readers = [node.meta["op"] for t in op._outputs().values() for node, _ in t._value.uses()]
    name = op._class_name
    if name == "HostLoadOp" or (name == "InitOp" and readers and all(r._class_name == "HostLoadOp" for r in readers)):
        return "loads"
    if name == "HostStoreOp":
        return "stores"
    if name == "IpuCopyOp" and all(stage_of.get(r.id) != stage_of[op.id] for r in readers):
        return "copies"
    return "compute"


class Parts:
    """All parts of a pipeline, cut out of the graph it was written in."""

    def __init__(self, source: popxl.Graph, staged: Mapping[int, Sequence[Any]]) -> None:
        self.source = source
        alive = source._ops
        self.stage_of = {op.id: s for s, found in staged.items() for op in found if op.id in alive}
        self.stages = max(staged, default=-1) + 1
        self.ops = [alive[i] for i in sorted(self.stage_of)]
        self.part_of: dict[int, Part] = {}
        self.outside: dict[popxl.Tensor, None] = {}
        self.parts = self._sort()
        self._check_closed()

    def _sort(self) -> list[Part]:
        found: dict[tuple[int, int], Part] = {}
        for op in self.ops:
            kind = kind_of(op, self.stage_of)
            stage = -1 if kind == "copies" else self.stage_of[op.id]
            part = found.setdefault((ORDER.index(kind), stage), Part(kind, stage))
            part.ops.append(op)
            self.part_of[op.id] = part
        return [found[key] for key in sorted(found)]

    def _check_closed(self) -> None:
        for op in self.ops:
            for t in op._outputs().values():
                if t in self.source.outputs or any(n.meta["op"].id not in self.part_of for n, _ in t._value.uses()):
                    raise ValueError(
                        f"tensor {t.id!r} is made in the pipeline and used outside it; store it with host_store, or "
                        "update a variable with it"
                    )

    def producer(self, t: popxl.Tensor) -> int | None:
        """Id of the operator of the pipeline that makes a tensor."""
        node = t._value.producer()
        op = None if node is None else node.meta["op"]
        return op.id if op is not None and op.id in self.part_of else None

    def cut(self) -> tuple[Any, ...]:
        """Move every part into a graph of its own; returns the operators outside that must run before."""
        owner = self.source.ir
        for part in self.parts:
            part.graph = owner._new_graph(owner._subgraph_id(_BASE[part.kind].format(part.stage)))
            self._connect(part)
        earlier: dict[int, Any] = {}
        for part in self.parts:
            for op in part.ops:
                rehome(op, self.source, part.graph)
            for t in part.outputs:
                part.graph._graph.outputs.append(t._value)
        for part in self.parts:
            part.inputs = dict(part.inputs.items())  # tensors hash by id, and those that moved have new ones
            chosen = {op.id for op in part.ops}
            found = move_constraints(part.ops, chosen, self.source, part.graph)
            earlier.update((op.id, op) for op in found if op.id not in self.part_of)
        return tuple(earlier.values())

    def _connect(self, part: Part) -> None:
        constants: Moved = {}
        for op in part.ops:
            for i, t in op._inputs().items():
                made_by = self.producer(t)
                if made_by is not None and self.part_of[made_by] is part:
                    continue
                if made_by is None:
                    inner = stand_in(t, part.graph, part.inputs, constants)
                    if t in part.inputs:
                        self.outside[t] = None
                else:
                    inner = stand_in(t, part.graph, part.inputs, constants, by_ref=False)
                    maker = self.part_of[made_by]
                    if t not in maker.outputs:
                        maker.outputs.append(t)
                op._node.replace_input_with(i, inner._value)

    @cached_property
    def made_in(self) -> dict[popxl.Tensor, int]:
        """Stage of every tensor of the pipeline, once it was cut."""
        return {t: self.stage_of[op.id] for op in self.ops for t in op._outputs().values()}

    @cached_property
    def held(self) -> list[popxl.Tensor]:
        """Tensors that another stage than their own reads."""
        found: dict[popxl.Tensor, None] = {}
        for part in self.parts:
            outer = {inner: t for t, inner in part.inputs.items()}
            for op in part.ops:
                for inner in op._inputs().values():
                    t = outer.get(inner, inner)
                    if t in self.made_in and self.made_in[t] != self.stage_of[op.id]:
                        found[t] = None
        return list(found)


class Cycle:
    """Cycles within one graph: `held` maps tensors to what the cycle before left of them."""

    def __init__(self, parts: Parts, outside: Moved, held: Moved) -> None:
        self.parts, self.outside, self.held = parts, outside, held

    def run(self, active: Iterable[int]) -> None:
        """One cycle of some stages: loads, computation, stores, copies; each stage in its place."""
        stages, fresh = set(active), dict[popxl.Tensor, popxl.Tensor]()
        for part in self.parts.parts:
            if part.kind == "copies":
                self._copy(part, stages, fresh)
            elif part.stage in stages:
                values = {inner: self._value(t, part.stage, fresh) for t, inner in part.inputs.items()}
                fresh.update(zip(part.outputs, self._call(part, values), strict=True))
        self.held = {t: fresh.get(t, old) for t, old in self.held.items()}

    def _copy(self, part: Part, stages: set[int], fresh: Moved) -> None:
        """All copies at once; a stage that did not run has nothing to send."""
        made_in, stage_of = self.parts.made_in, self.parts.stage_of
        readers = {inner: op for op in part.ops for inner in op._inputs().values()}
        values: Moved = {}
        for t, inner in part.inputs.items():
            known = t in self.outside or t in fresh or t in self.held
            values[inner] = self._value(t, stage_of[readers[inner].id], fresh) if known else zeros(t)
        copied = dict(zip(part.outputs, self._call(part, values), strict=True))
        fresh.update((t, value) for t, value in copied.items() if made_in[t] in stages)

    def _value(self, t: popxl.Tensor, stage: int, fresh: Moved) -> popxl.Tensor:
        if t in self.outside:
            return self.outside[t]
        return fresh[t] if self.parts.made_in[t] == stage and t in fresh else self.held[t]

    @staticmethod
    def _call(part: Part, values: Moved) -> tuple[popxl.Tensor, ...]:
        with placed(part.ops[0]):
            return ops.call_with_info(part.graph, inputs_dict=values).outputs[: len(part.outputs)]


def placed(op: Any) -> Any:
    """The context of an operator's IPU."""
    place = op._settings.vgraphId
    return nullcontext() if place is None else popxl.ipu(place)


def zeros(t: popxl.Tensor) -> popxl.Tensor:
    """What stands for a tensor before its stage ran."""
    producer = t._value.producer()
    place = None if producer is None else producer.meta["op"]._out_placement()[0]
    with nullcontext() if place is None else popxl.ipu(place):
        return ops.init(t.shape, t.dtype, t.name.rpartition("/")[2], meta_shape=t.meta_shape)


def pipeline_graph(parts: Parts, steps: int) -> tuple[popxl.Graph, Moved]:
    """The whole pipeline as one graph: stages start one after the other, all run, and they end one after the other.

    Returns
    -------
    graph : popxl.Graph
    inputs : dict of Tensor to Tensor
        Tensor of the surrounding graph to the by-reference input that stands for it.
    """
    owner, n = parts.source.ir, parts.stages
    graph = owner._new_graph(owner._subgraph_id("pipeline_graph"))
    inputs: Moved = {}
    with graph, popxl.in_sequence():
        for t in parts.outside:
            stand_in(t, graph, inputs, {})
        cycle = Cycle(parts, inputs, {t: zeros(t) for t in parts.held})
        for i in range(1, n):
            cycle.run(range(i))
        body, inner, carried = _main_cycle(parts)
        values = {carried[t]: value for t, value in cycle.held.items()}
        values.update((inner[t], inputs[t]) for t in parts.outside)
        outputs = ops.repeat_with_info(body, steps - (n - 1), inputs_dict=values).outputs
        cycle.held = dict(zip(parts.held, outputs, strict=False))
        for i in range(1, n):
            cycle.run(range(i, n))
    return graph, inputs


def _main_cycle(parts: Parts) -> tuple[popxl.Graph, Moved, Moved]:
    """One cycle of all stages, held tensors carried: (graph, inputs for outside tensors, inputs for held ones)."""
    owner = parts.source.ir
    body = owner._new_graph(owner._subgraph_id("main_cycle"))
    inner: Moved = {}
    carried: Moved = {}
    with body, popxl.in_sequence():
        for t in parts.held:
            stand_in(t, body, carried, {}, by_ref=False)
        for t in parts.outside:
            stand_in(t, body, inner, {})
        cycle = Cycle(parts, inner, dict(carried))
        cycle.run(range(parts.stages))
        for t in parts.held:
            popxl.graph_output(cycle.held[t])
    return body, inner, carried
