"""The micro-batch dimension of each tensor, and the sizes of the program with a smaller micro-batch."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from ipu_model.placement import Argument
from ipu_model.pricing import Priced
from ipu_model.walk.program import Op, Tensor, tensor

STATE = ("weight", "optimizer_state")


def micro_batch(priced: Priced, inputs: Sequence[Argument]) -> int:
    """The micro-batch size: the leading dimension that all data on the tiles share; 0 when there is no such size."""
    program, count = priced.program, Counter()
    for step in program.steps:
        if step.op.primitive == "host_read" and step.op.output.shape:
            count[step.op.output.shape[0]] += 1
    if not count:
        for i, a in zip(program.inputs[-len(program.arguments) :], program.arguments, strict=False):
            shape = program.values[i].tensor.shape
            if a.role == "input" and shape and inputs:
                count[shape[0]] += 1
    return count.most_common(1)[0][0] if count else 0


class Smaller:
    """Tensors and operations of a program with micro-batch `smaller` instead of `batch`.

    A tensor holds the batch in a dimension of its size, or merged with others into its leading dimension. Weights,
    and what has a weight's sizes in any order (gradients, transposes), do not.
    """

    def __init__(self, priced: Priced, batch: int, smaller: int) -> None:
        self.values = priced.program.values
        self.batch, self.smaller = batch, smaller
        self.weights = {tuple(sorted(v.tensor.shape)) for v in self.values if v.role in STATE}

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of a tensor with the smaller micro-batch; sizes without the batch stay as they are."""
        if tuple(sorted(shape)) in self.weights:
            return shape
        if self.batch in shape:
            at = shape.index(self.batch)
        elif shape and shape[0] > self.batch and shape[0] % self.batch == 0:
            at = 0
        else:
            return shape
        return (*shape[:at], shape[at] // self.batch * self.smaller, *shape[at + 1 :])

    def scale(self, value: int) -> float:
        """Bytes of a value with the smaller micro-batch, as a factor of its present bytes."""
        v = self.values[value]
        old = math.prod(v.tensor.shape)
        return 1.0 if v.role in STATE or not old else math.prod(self.shape(v.tensor.shape)) / old

    def op(self, op: Op) -> Op | None:
        """The operation with the smaller batch, None when it does not hold it."""
        inputs, outputs = self._tensors(op.inputs), self._tensors(op.outputs)
        same = (inputs, outputs) == (op.inputs, op.outputs)
        return None if same else dataclasses.replace(op, inputs=inputs, outputs=outputs)

    def _tensors(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor(self.shape(t.shape), t.dtype) for t in tensors)
