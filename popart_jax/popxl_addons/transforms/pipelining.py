"""Pipelined execution: operators in stages, run for a number of micro-batches.

In cycle k stage i works on micro-batch k - i. A cycle loads from the host, computes, stores to the host and then copies
between IPUs; the first cycles run the first stages only, a loop runs the cycles in which all stages work, and the last
cycles run the last stages. A value that crosses stages is kept for as many cycles as it crosses stages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from typing import Any

from ... import popxl
from ...popxl import ops
from ...popxl._internal.alias import alias_sets
from ...popxl._internal.operands import op_of
from ...popxl._internal.placement import placement
from ...popxl.errors import UndefinedValue
from ...popxl.ops.call import CallSiteInfo
from ...popxl.tensor import Constant
from ...popxl.transforms.autodiff import GradGraphInfo
from ..graph import BoundGraph
from .moving import check_closed, local_name, move_constraints, order_through_others, rehome, stand_in, take_place
from .pipeline_parts import PipelineBoundGraph, kind_of
from .pipeline_parts import required_for_host_load as _required_for_host_load
from .stash import Restore as Restore
from .stash import Stash as Stash

OpId = int
_LOADS, _STAGE, _STORES, _COPIES = "loads", "stage", "stores", "copies"


class StageContext:
    """Collects the operators of each stage while a pipeline is written down."""

    def __init__(self) -> None:
        self.ops: dict[int, list[Any]] = {}
        self._stage: int | None = None
        self._stage_of: dict[int, int] = {}

    def hook(self, op: Any) -> None:
        """Record the stage of a new operator; RuntimeError where it is in none."""
        if self._stage is None:
            raise RuntimeError("Operation must be created in a stage context.")
        self.ops.setdefault(self._stage, []).append(op)
        self._stage_of[op.id] = self._stage
        op._settings.pipelineStage = self._stage

    @contextmanager
    def stage(self, i: int) -> Generator[int]:
        """Operators made in the block belong to stage `i`; ValueError if it is negative."""
        if i < 0:
            raise ValueError(f"Stages are numbered from 0, got {i}.")
        before, self._stage = self._stage, i
        try:
            yield i
        finally:
            self._stage = before

    def _available_from(self, t: popxl.Tensor) -> int | None:
        """First stage that has `t` in the cycle it is made; a copy arrives when its stage's cycle is over."""
        producer = t._value.producer()
        op = None if producer is None else op_of(producer)
        if op is None or op.id not in self._stage_of:
            return None
        return self._stage_of[op.id] + (op.opType() == "IpuCopy")

    def stash_and_restore_tensor(self, t: popxl.Tensor, from_stage: int | None = None) -> popxl.Tensor:
        """The value of `t` for the micro-batch that the current stage works on.

        Stage `from_stage` (default: the first that has `t`) writes into a queue of variables in the main graph, the
        current stage reads from it. Raises RuntimeError outside a stage, and where no stage makes `t` and none is
        given; TypeError where the tensor comes from this stage or a later one.
        """
        if self._stage is None:
            raise RuntimeError("stash_and_restore_tensor must be called inside a pipeline stage")
        start = self._available_from(t) if from_stage is None else from_stage
        if start is None:
            raise RuntimeError(f"no pipeline stage makes tensor {t.id!r}; pass from_stage")
        size = self._stage - start + 1
        if size <= 1:
            raise TypeError(f"Stash must be larger than 1. size={size}, t={t}")
        if popxl.gcg() != popxl.gmg():
            return t  # stashes would be variables of the main graph; the pipeline itself keeps values that cross stages
        with _ipu_of(t):
            with self.stage(start):
                stash = _with_variables(f"{local_name(t)}_stash", Stash(), t, size)
                stash.call(t)
            queue = stash.args[stash.graph.inputs_by_name["stash"]]
            (restored,) = _with_variables(f"{local_name(t)}_restore", Restore(), queue).call(queue)
        return restored

    def stash_and_restore_activations(
        self, call_info: CallSiteInfo, grad_info: GradGraphInfo
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """`grad_info.inputs_dict(call_info)`, activations of earlier stages stashed."""
        connected = grad_info.inputs_dict(call_info)
        return {inner: self._restored(outer) for inner, outer in connected.items()}

    def _restored(self, t: popxl.Tensor) -> popxl.Tensor:
        start = self._available_from(t)
        if start is None or self._stage is None or start >= self._stage:
            return t
        return self.stash_and_restore_tensor(t, start)


def _ipu_of(t: popxl.Tensor) -> Any:
    """The context of the IPU that holds a tensor, where that is known."""
    try:
        return popxl.ipu(t.ipu)
    except UndefinedValue:
        return nullcontext()


def _with_variables(prefix: str, module: Any, *args: Any) -> BoundGraph:
    """The graph of a module, bound to new variables ``<prefix>.<key>``."""
    factories, graph = module.create_graph(*args)
    return graph.bind(factories.init(prefix))


class Pipelining:
    """The rearrangement of a graph's staged operators into a pipeline."""

    def __init__(self, graph: popxl.Graph, steps: int) -> None:
        self.original_graph, self.steps = graph, steps
        self.parts: dict[tuple[str, int], PipelineBoundGraph] = {}
        self.stages = 0
        self.now = 0
        self._values: dict[str, dict[int, popxl.Tensor]] = {}
        self._ages: dict[str, int] = {}
        self._outer: dict[popxl.Tensor, popxl.Tensor] = {}
        self._written: set[str] = set()
        self._made_in: dict[str, int] = {}
        self._ipus: dict[str, int | None] = {}

    def apply(self, include_ops: dict[int, list[Any]] | None = None) -> None:
        """Move the operators of all stages into ``pipeline_graph`` and call it.

        Raises ValueError where there are fewer steps than twice the number of stages, a stage reads what a later one
        makes, or what a stage makes is read outside.
        """
        staged, source = include_ops or {}, self.original_graph
        count = self.stages = max(staged, default=-1) + 1
        if self.steps < 2 * count:
            raise ValueError(
                "Pipelining requires the steps at least 2x the number of stages in the pipeline. "
                f"steps={self.steps} stages={count}"
            )
        if not staged:
            return
        moved, earlier = self.construct_graphs(staged)
        owner = source.ir
        self.graph = owner._new_graph(owner._subgraph_id("pipeline_graph"))
        self.build()
        with source, popxl.in_sequence("pass"):
            site = ops.call_with_info(self.graph, inputs_dict={i: o for o, i in self._outer.items()})
        places = {k: self._ipus.get(t.id) for k, t in enumerate(site.inputs)}
        site._op._options["input_ipus"] = {k: ipu for k, ipu in places.items() if ipu is not None}
        take_place(source, moved, earlier, site._op)

    def required_for_host_load(self, op: Any) -> bool:
        """Whether an operator is a load from the host, or only prepares one."""
        return _required_for_host_load(op)

    def construct_graphs(self, include_ops: dict[int, list[Any]]) -> tuple[list[Any], tuple[Any, ...]]:
        """Move the operators into the parts; returns them, and the operators outside that they waited for."""
        source = self.original_graph
        place: dict[int, tuple[str, int]] = {}
        every: list[Any] = []
        for i, found in include_ops.items():
            alive = [op for op in found if op.id in source._ops]
            same = {op.id for op in alive}
            place |= {op.id: (kind_of(op, same), i) for op in alive}
            every.extend(alive)
        every.sort(key=lambda op: op.id)
        check_closed(every, source)
        self._ipus = {t.id: placement(t)[0] for op in every for t in op._inputs().values()}
        self._note_writes(every)
        part_of = {i: (k, 0) if k == _COPIES else (k, stage) for i, (k, stage) in place.items()}
        pairs = order_through_others(source, part_of)
        self._create_parts(every, part_of)
        self._connect(every, place, part_of)
        homes = {op: self.parts[part_of[op.id]].graph for op in every}
        for op in every:
            self.move_op_into_graph(self.parts[part_of[op.id]], op)
        earlier = move_constraints(source, homes)
        alive_ops = {op.id: op for op in every}
        for first, second in pairs:
            homes[alive_ops[second]]._topo_cons.insert(alive_ops[first], alive_ops[second])
        return every, earlier

    def _note_writes(self, every: list[Any]) -> None:
        shared = alias_sets(self.original_graph)
        for op in every:
            for i, t in op._inputs().items():
                if op.modifiesIndex(i):
                    self._written |= shared.get(t.id, {t.id})

    def _create_parts(self, every: list[Any], part_of: dict[int, tuple[str, int]]) -> None:
        owner = self.original_graph.ir
        names = {_LOADS: "loads_stage_{}", _STAGE: "stage_{}", _STORES: "stores_stage_{}", _COPIES: "ipu_copies"}
        for kind, i in sorted(set(part_of.values()), key=lambda part: (list(names).index(part[0]), part[1])):
            name = names[kind].format(i)
            first = next(op for op in every if part_of[op.id] == (kind, i))
            self.parts[kind, i] = PipelineBoundGraph(owner._new_graph(owner._subgraph_id(name)))
            self.parts[kind, i].ipu = first._settings.vgraphId

    def _connect(self, every: list[Any], place: dict[int, tuple[str, int]], part_of: dict[int, Any]) -> None:
        """Replace operands from outside an operator's part by inputs of the part."""
        constants: dict[Any, dict[popxl.Tensor, popxl.Tensor]] = {}
        for op in every:
            part, stage = self.parts[part_of[op.id]], place[op.id][1]
            for i, tensor in op._inputs().items():
                producer = tensor._value.producer()
                maker = None if producer is None else part_of.get(op_of(producer).id)
                made_in = None if producer is None else place.get(op_of(producer).id, (None, None))[1]
                if maker == part_of[op.id] and made_in == stage:
                    continue  # copies of all stages are one part, at once: the copy of a copy reads an earlier cycle's
                if maker is not None and made_in is not None:
                    inner = self._crossing(part, tensor, made_in, stage)
                    self.parts[maker].outputs.setdefault(tensor.id, tensor)
                elif isinstance(tensor, Constant):
                    inner = stand_in(tensor, part.graph, constants.setdefault(part_of[op.id], {}))
                else:
                    inner = part.add_variable_input(tensor, tensor.id in self._written)
                op._node.replace_input_with(i, inner._value)

    def _crossing(self, part: PipelineBoundGraph, tensor: popxl.Tensor, made_in: int, stage: int) -> popxl.Tensor:
        age = stage - made_in
        if age < 0:
            raise ValueError(f"stage {stage} reads tensor {tensor.id!r} of the later stage {made_in}")
        self._ages[tensor.id] = max(age, self._ages.get(tensor.id, 0))
        self._made_in[tensor.id] = made_in
        return part.add_crossing_input(tensor, tensor.id, stage)

    def move_op_into_graph(self, graph: PipelineBoundGraph, op: Any) -> None:
        """Move one operator, whose operands are already tensors of the new graph."""
        wanted = {id(t): name for name, t in graph.outputs.items()}
        made = list(op._outputs().values())
        rehome(op, self.original_graph, graph.graph)
        for tensor in made:
            if id(tensor) in wanted:
                graph.outputs.pop(wanted[id(tensor)])
                graph.add_output_tensor(tensor, wanted[id(tensor)])

    def build(self) -> None:
        """Build all cycles in the pipeline's graph."""
        last = self.stages
        with self.graph, popxl.in_sequence(True):
            for end in range(1, last):
                self.cycle(0, end)
            self.main_cycle()
            for start in range(1, last):
                self.cycle(start, last)

    def cycle(self, start: int, end: int) -> None:
        """One cycle of the stages from `start` up to, without, `end`."""
        self.load(start, end)
        self.compute(start, end)
        self.store(start, end)
        self._active = range(start, end)
        self.copy()
        self.now += 1

    def load(self, start: int, end: int) -> None:
        """Load from the host for some stages."""
        self._run_parts(_LOADS, start, end)

    def compute(self, start: int, end: int) -> None:
        """Compute some stages."""
        self._run_parts(_STAGE, start, end)

    def store(self, start: int, end: int) -> None:
        """Store to the host for some stages."""
        self._run_parts(_STORES, start, end)

    def _run_parts(self, kind: str, start: int, end: int) -> None:
        for stage in range(start, end):
            if (kind, stage) in self.parts:
                self._run(self.parts[kind, stage])

    def copy(self) -> None:
        """Copy between IPUs; copies of idle stages are not read."""
        part = self.parts.get((_COPIES, 0))
        if part is not None:
            self._run(part)

    def _run(self, part: PipelineBoundGraph) -> None:
        for outer, inner in part.variables.values():
            part.args[inner] = self._from_outside(outer, inner in part.graph._by_ref_inputs)
        for (name, stage), inner in part.crossing.items():
            part.args[inner] = self._value(name, inner, self.now - (stage - self._made_in[name]))
        with part.placed():
            self.remap_tensors(part.original_output_ids, part.call())

    def _value(self, name: str, like: popxl.Tensor, cycle: int) -> popxl.Tensor:
        """The value of a tensor from a cycle; for a copy of an idle stage any existing value, or zeros."""
        made = self._values.get(name, {})
        if cycle in made:
            return made[cycle]
        if made:
            return made[max(made)]
        return ops.init(like.shape, like.dtype, like.name, "zero", like.meta_shape)

    def remap_tensors(self, original_ids: Iterable[str], new_outputs: Iterable[popxl.Tensor]) -> None:
        """Record the tensors that hold the outputs in this cycle, by original id."""
        for name, tensor in zip(original_ids, new_outputs, strict=True):
            self._values.setdefault(name, {})[self.now] = tensor

    def _from_outside(self, tensor: popxl.Tensor, by_ref: bool) -> popxl.Tensor:
        """The tensor for one from outside the pipeline, in the graph that is being built."""
        return stand_in(tensor, popxl.gcg(), self._outer, tensor.id in self._written or by_ref)

    def repeat_graph(self) -> tuple[popxl.Graph, list[tuple[str, int]], dict[popxl.Tensor, popxl.Tensor]]:
        """The graph of one cycle of all stages, as (graph, carried, outer).

        Its first inputs and its outputs are the carried values (original id, age in cycles); `outer` maps tensors from
        outside to its other inputs.
        """
        carried = [(name, age) for name, most in self._ages.items() for age in range(1, most + 1)]
        owner, (values, outer) = self.original_graph.ir, (self._values, self._outer)
        body = owner._new_graph(owner._subgraph_id("main_cycle"))
        self._values, self._outer = {}, {}
        with body, popxl.in_sequence(True):
            for name, age in carried:
                t = self._value_before(values, name, age)
                like = body._add_input_like(t, name=local_name(t))
                self._values.setdefault(name, {})[self.now - age] = like
            self.cycle(0, self.stages)
            for name, age in carried:
                popxl.graph_output(self._values[name][self.now - age])
        inner, self._values, self._outer = self._outer, values, outer
        self.now -= 1
        return body, carried, inner

    def _value_before(self, values: dict[str, dict[int, popxl.Tensor]], name: str, age: int) -> popxl.Tensor:
        return values[name][self.now - age]

    def main_cycle(self) -> None:
        """The loop over the cycles in which every stage works."""
        count = self.steps - self.stages + 1
        body, carried, outer = self.repeat_graph()
        given = [self._value_before(self._values, name, age) for name, age in carried]
        rest = {inner: self._from_outside(t, inner in body._by_ref_inputs) for t, inner in outer.items()}
        site = ops.repeat_with_info(body, count, *given, inputs_dict=rest)
        self.now += count
        self._values = {}
        for i, (name, age) in enumerate(carried):
            self.move_copied_tensor_out_of_nested_repeat_graph(i + 2, name, site._op, age)

    def move_copied_tensor_out_of_nested_repeat_graph(
        self, op_in_index: int, original: str, repeat_op: Any, age: int = 1
    ) -> None:
        """Record the loop's output of a carried tensor as its value for the cycles after the loop."""
        left = repeat_op._outputs()[op_in_index - 2]
        self._values.setdefault(original, {})[self.now - age] = left


@contextmanager
def pipelined_execution(steps: int) -> Generator[StageContext]:
    """Run the operators of the block `steps` times, in stages.

    Parameters
    ----------
    steps : int
        Micro-batches, at least twice the number of stages.

    Raises
    ------
    RuntimeError
        An operator of the current graph is made outside a stage.
    ValueError
        Too few steps; raised when the block ends.
    """
    graph = popxl.gcg()
    context = StageContext()
    handle = graph.register_op_created_hook(context.hook)
    try:
        yield context
    finally:
        graph.remove_op_created_hook(handle)
    Pipelining(graph, steps).apply(context.ops)


def get_op_pipeline_stage(op: Any, op_dict: dict[int, list[Any]]) -> int:
    """Stage of an operator; ValueError where it is in none."""
    for stage, found in op_dict.items():
        if any(op.id == other.id for other in found):
            return stage
    raise ValueError(f"operator {op.debugName()} is in no pipeline stage")
