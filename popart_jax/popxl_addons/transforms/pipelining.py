"""Pipelined execution: operators in stages, run for a number of micro-batches.

One device runs the stages in order for each micro-batch, which is what the pipeline computes as long as no variable is
changed in one stage and read in another within the block. Stage numbers are kept on the operators for the cost model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import popxl
from ...popxl import ops
from ...popxl.ops.call import CallSiteInfo
from ...popxl.transforms.autodiff import GradGraphInfo
from .moving import move_ops

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
        op._settings.pipeline_stage = self._stage

    @contextmanager
    def stage(self, i: int) -> Iterator[int]:
        """Operators made in the block belong to stage `i`."""
        before, self._stage = self._stage, i
        try:
            yield i
        finally:
            self._stage = before

    def _producing_stage(self, t: popxl.Tensor) -> int | None:
        producer = t._value.producer()
        return None if producer is None else self._stage_of.get(producer.meta["op"].id)

    def stash_and_restore_tensor(self, t: popxl.Tensor, from_stage: int | None = None) -> popxl.Tensor:
        """The value of `t` for the micro-batch that the current stage works on.

        Raises
        ------
        RuntimeError
            Outside a stage, or no stage makes `t` and none is given.
        TypeError
            The tensor comes from this stage or a later one.
        """
        if self._stage is None:
            raise RuntimeError("stash_and_restore_tensor must be called inside a pipeline stage")
        start = self._producing_stage(t) if from_stage is None else from_stage
        if start is None:
            raise RuntimeError(f"no pipeline stage makes tensor {t.id!r}; pass from_stage")
        size = self._stage - start + 1
        if size <= 1:
            raise TypeError(f"a stash needs at least 2 entries, got {size} from stage {start} to stage {self._stage}")
        return t

    def stash_and_restore_activations(
        self, call_info: CallSiteInfo, grad_info: GradGraphInfo
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """`grad_info.inputs_dict(call_info)`, activations of earlier stages stashed."""
        connected = grad_info.inputs_dict(call_info)
        return {inner: self._restored(outer) for inner, outer in connected.items()}

    def _restored(self, t: popxl.Tensor) -> popxl.Tensor:
        start = self._producing_stage(t)
        if start is None or self._stage is None or start >= self._stage:
            return t
        return self.stash_and_restore_tensor(t, start)


class Pipelining:
    """The rearrangement of a graph's staged operators into a loop over micro-batches."""

    def __init__(self, graph: popxl.Graph, steps: int) -> None:
        self.graph, self.steps = graph, steps

    def apply(self, include_ops: dict[int, list[Any]] | None = None) -> None:
        """Move the operators of all stages into ``pipeline_graph`` and repeat it.

        Raises
        ------
        ValueError
            Fewer steps than twice the number of stages.
        """
        staged = include_ops or {}
        if self.steps < 2 * len(staged):
            raise ValueError(
                f"a pipeline of {len(staged)} stages needs at least {2 * len(staged)} steps, got {self.steps}"
            )
        alive = self.graph._ops
        every = sorted((op for found in staged.values() for op in found if op.id in alive), key=lambda op: op.id)
        moved = move_ops(every, self.graph, "pipeline_graph")
        with self.graph, popxl.in_sequence("pass"):
            site = ops.repeat_with_info(moved.graph, self.steps, inputs_dict=moved.connections())
        moved.order(self.graph, site._op)


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
