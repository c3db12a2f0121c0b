"""Pipelined execution: operators in stages, run for a number of micro-batches.

Stage `i` works on micro-batch ``k - i`` in cycle `k`; `pipeline_graphs` cuts the block into the graphs of the stages
and writes the cycles down. Stage numbers are kept on the operators for the cost model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ...popxl.errors import UndefinedValue
from ...popxl.ops.call import CallSiteInfo
from ...popxl.transforms.autodiff import GradGraphInfo
from .moving import take_place
from .pipeline_graphs import Parts, pipeline_graph

OpId = int


class StageContext:
    """Collects the operators of each stage while a pipeline is written down."""

    def __init__(self) -> None:
        self.ops: dict[int, list[Any]] = {}
        self._stage: int | None = None
        self._stage_of: dict[int, int] = {}

    def hook(self, op: Any) -> None:
        """Note the stage of a new operator.

        Raises
        ------
        RuntimeError
            It is in no stage.
        """
        if self._stage is None:
            raise RuntimeError(
                f"operator {op.debugName()} was made outside a pipeline stage; use `with pipeline.stage(i):`"
            )
        self.ops.setdefault(self._stage, []).append(op)
        self._stage_of[op.id] = self._stage
        op._settings.pipelineStage = self._stage

    @contextmanager
    def stage(self, i: int) -> Iterator[int]:
        """Operators made in the block belong to stage `i`."""
        before, self._stage = self._stage, i
        try:
            yield i
        finally:
            self._stage = before

    def _available_from(self, t: popxl.Tensor) -> int | None:
        """First stage that has `t` in the cycle it is made; a copy arrives when its stage's cycle is over."""
        producer = t._value.producer()
        op = None if producer is None else producer.meta["op"]
        if op is None or op.id not in self._stage_of:
            return None
        return self._stage_of[op.id] + (op._class_name == "IpuCopyOp")

    def stash_and_restore_tensor(self, t: popxl.Tensor, from_stage: int | None = None) -> popxl.Tensor:
        """The value of `t` for the micro-batch that the current stage works on.

        Stage `from_stage` (default: the first that has `t`) writes into a queue of variables in the main graph, the
        current stage reads from it.

        Raises
        ------
        RuntimeError
            Outside a stage, or no stage makes `t` and none is given.
        TypeError
            The tensor comes from this stage or a later one.
        """
        if self._stage is None:
            raise RuntimeError("stash_and_restore_tensor must be called inside a pipeline stage")
        start = self._available_from(t) if from_stage is None else from_stage
        if start is None:
            raise RuntimeError(f"no pipeline stage makes tensor {t.id!r}; pass from_stage")
        size = self._stage - start + 1
        if size <= 1:
            raise TypeError(f"a stash needs at least 2 entries, got {size} from stage {start} to stage {self._stage}")
        stash, written, read = _stash_variables(t, size)
        with self.stage(start), _placed_like(t), popxl.in_sequence():
            entry = ops.reshape(t, (1, *t.shape))
            ops.dynamic_update_(stash, written, entry, axes=[0], sizes=[1], no_overlap=True)
            ops.increment_mod_(written, 1, size)
        with popxl.in_sequence():
            found = ops.dynamic_slice(stash, read, axes=[0], sizes=[1], no_overlap=True)
            ops.increment_mod_(read, 1, size)
            return ops.reshape(found, t.shape)

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


class Pipelining:
    """The rearrangement of a graph's staged operators into a loop over micro-batches."""

    def __init__(self, graph: popxl.Graph, steps: int) -> None:
        self.graph, self.steps = graph, steps

    def apply(self, include_ops: dict[int, list[Any]] | None = None) -> None:
        """Move the operators of all stages into the graphs of the pipeline, and call ``pipeline_graph``.

        Raises
        ------
        ValueError
            Fewer steps than twice the number of stages.
        """
        staged = include_ops or {}
        parts = Parts(self.graph, staged)
        if self.steps < 2 * parts.stages:
            raise ValueError(
                f"a pipeline of {parts.stages} stages needs at least {2 * parts.stages} steps, got {self.steps}"
            )
        earlier = parts.cut()
        body, inputs = pipeline_graph(parts, self.steps)
        with self.graph, popxl.in_sequence("pass"):
            site = ops.call_with_info(body, inputs_dict={inner: outer for outer, inner in inputs.items()})
        take_place(site._op, parts.ops, earlier, self.graph)


def _stash_variables(t: popxl.Tensor, size: int) -> tuple[popxl.Tensor, popxl.Tensor, popxl.Tensor]:
    """The queue and the counters of its writer and its reader."""
    name = t.name.rpartition("/")[2]
    with popxl.gmg():
        queue = popxl.variable(np.zeros((size, *t.shape), t.dtype.as_numpy()), t.dtype, f"{name}_stash")
        counters = [
            popxl.variable(np.zeros(1, np.uint32), popxl.uint32, f"{name}_{what}_counter")
            for what in ("stash", "restore")
        ]
    return queue, counters[0], counters[1]


def _placed_like(t: popxl.Tensor) -> Any:
    try:
        return popxl.ipu(t.ipu)
    except UndefinedValue:
        return nullcontext()


@contextmanager
def pipelined_execution(steps: int) -> Iterator[StageContext]:
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
    """Stage of an operator.

    Raises
    ------
    ValueError
        It is in none.
    """
    for stage, found in op_dict.items():
        if any(op.id == other.id for other in found):
            return stage
    raise ValueError(f"operator {op.debugName()} is in no pipeline stage")
