"""The micro-batch dimension of each tensor, and the sizes of the program with a smaller micro-batch."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ipu_model.placement import Argument
from ipu_model.pricing import Priced
from ipu_model.walk.program import PRODUCTS, Op, Program, Tensor, tensor
from ipu_model.walk.scope import FORWARD

STATE = ("weight", "optimizer_state")


def micro_batch(priced: Priced) -> int:
    """The micro-batch size: the leading dimension that all data on the tiles share; 0 when there is no such size.

    Where nobody said which inputs are weights, data are what products take on the left.
    """
    program = priced.program
    count = Counter(_leading(s.op.output for s in program.steps if s.op.primitive == "host_read"))
    data = [program.values[i].tensor for i in program.inputs if program.values[i].role == "input"]
    if not count and _described(program):
        count.update(_leading(data))
    elif not count:
        sizes = set(_leading(data))
        count.update(size for size in _leading(op.inputs[0] for op in _products(program)) if size in sizes)
    return count.most_common(1)[0][0] if count else 0


def _leading(tensors: Iterable[Tensor]) -> Iterator[int]:
    return (t.shape[0] for t in tensors if t.shape)


def _described(program: Program) -> bool:
    return any(a.role != "input" for a in program.arguments)


def _products(program: Program) -> Iterator[Op]:
    return (s.op for s in program.steps if s.op.primitive in PRODUCTS and s.scope.phase == FORWARD)


def _weights(program: Program) -> set[tuple[int, ...]]:
    """Sizes of weights in any order; where nobody named any, of inputs that products take on the right."""
    kinds = STATE if _described(program) else ("input",)
    found = {tuple(sorted(v.tensor.shape)) for v in program.values if v.role in kinds}
    return found if _described(program) else found & {tuple(sorted(op.inputs[1].shape)) for op in _products(program)}


def with_roles(program: Program, inputs: Sequence[Argument]) -> list[Argument]:
    """Inputs with the role of a weight where nobody named any and a product takes one of that size on the right."""
    if _described(program):
        return list(inputs)
    weights, values = _weights(program), [program.values[i] for i in program.inputs]
    return [
        dataclasses.replace(a, role="weight") if tuple(sorted(v.tensor.shape)) in weights else a
        for a, v in zip(inputs, values, strict=False)
    ]


class Smaller:
    """Tensors and operations of a program with micro-batch `smaller` instead of `batch`.

    A tensor holds the batch in a dimension of its size, or merged with others into its leading dimension. Weights,
    and what has a weight's sizes in any order (gradients, transposes), do not.
    """

    def __init__(self, priced: Priced, batch: int, smaller: int) -> None:
        self.values = priced.program.values
        self.batch, self.smaller = batch, smaller
        self.weights = _weights(priced.program)

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
