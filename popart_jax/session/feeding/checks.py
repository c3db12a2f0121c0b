"""Checks of the arrays of a `PyStepIO`: names, element counts, whole results (supplement, 4.9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...enums import AnchorReturnTypeId
from ...errors import popart_internal_exception, popart_runtime_error
from ...execution import Type
from ...logs import module_logger
from .stepio import StepArrays

if TYPE_CHECKING:
    from ..preparing import Prepared


@dataclass(frozen=True)
class StreamFact:
    """One streamed input: its name, its types on host and device, and the shape that a step takes."""

    name: str
    host: np.dtype
    device: np.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of one step."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class AnchorFact:
    """One anchor: its name, type on the host, shape of a step's results, and how many single results these are."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    parts: int

    @property
    def count(self) -> int:
        """Elements of one step."""
        return math.prod(self.shape)


def check_feeds(
    stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact], *, counts: bool
) -> None:
    """Check names, and with `counts` the numbers of elements.

    Raises popart_runtime_error for missing or unknown tensors and wrong element counts, popart_internal_exception for a
    place for a tensor that is not anchored.
    """
    checks = _Checks(stepio, prepared, counts)
    checks.inputs({s.name: s for s in streams})
    checks.outputs({a.name: a for a in anchors})
    checks.whole_results([*streams, *anchors])


class _Checks:
    def __init__(self, stepio: StepArrays, prepared: Prepared, counts: bool) -> None:
        self._stepio, self._prepared, self._counts = stepio, prepared, counts

    def inputs(self, used: dict[str, StreamFact]) -> None:
        for name, array in sorted(self._stepio.inputs.items()):
            if name in used:
                self._count(used[name], array)
            else:
                self._other_input(name, array)
        for name in used:
            if name not in self._stepio.inputs:
                raise popart_runtime_error(f"No tensor {name} provided in PyStepIO's inputs")

    def _other_input(self, name: str, array: np.ndarray) -> None:
        """Data for a variable or a constant are accepted and ignored, those for other tensors refused."""
        prepared = self._prepared
        if name in prepared.streams:
            module_logger("session").warning(
                "The input Tensor %s to the ONNX Model does not appear in the optimized PopART Ir, possibly due to "
                "constant folding. Therefore, the input buffer provided will not be used. ",
                name,
            )
            return
        kind = prepared.infos.get(name)
        if kind is None:
            raise popart_runtime_error(
                f"Testing that the buffer provided by user for input Tensor {name} has the correct number of elements, "
                f"But there is no Tensor named {name} in the Ir's main Graph, and it does not exist in the original "
                "ONNX Model."
            )
        parts = prepared.program.structure.micro_batches * prepared.local_replicas
        self._count(StreamFact(name, kind.dtype, kind.dtype, (parts, *kind.shape)), array)
        if name not in prepared.variables and name not in prepared.constants:
            raise popart_runtime_error(
                f"The tensor '{name}' has been provided as one of the inputs to the stepIO, but it is not registered "
                "as one of the inputs to the model. Please check this tensor and your stepIO."
            )

    def outputs(self, wanted: dict[str, AnchorFact]) -> None:
        for name, array in sorted(self._stepio.outputs.items()):
            if name in wanted:
                self._count(wanted[name], array)
            elif name in self._prepared.infos:
                raise popart_internal_exception(f"Non-anchored Tensor '{name}' in the stepIO's outputs")
            else:
                raise popart_runtime_error(
                    f"Testing that the buffer provided by user for output Tensor {name} has the correct number of "
                    f"elements,  But there is no Tensor named {name} in the Ir's tensors. "
                )
        for name in wanted:
            if name not in self._stepio.outputs:
                raise popart_runtime_error(f"No tensor {name} provided in PyStepIO's outputs")

    def _count(self, fact: StreamFact | AnchorFact, array: np.ndarray) -> None:
        if self._counts and fact.count != array.size:
            raise self._wrong_count(fact, array.size)

    def whole_results(self, facts: list[StreamFact | AnchorFact]) -> None:
        """Require whole micro-batches, since positions wrap only at an array's exact end; their number is free."""
        for fact in facts:
            kept = self._stepio.inputs if isinstance(fact, StreamFact) else self._stepio.outputs
            array, kind = kept[fact.name], self._prepared.infos.get(fact.name)
            part = 1 if kind is None else max(math.prod(kind.shape), 1)
            if array.size != fact.count and (not array.size or array.size % part):
                raise self._wrong_count(fact, array.size)
            if isinstance(fact, AnchorFact) and not array.flags.writeable:
                raise popart_runtime_error(
                    f"The array for output tensor {fact.name} is read-only; pass a writable one."
                )

    def _wrong_count(self, fact: StreamFact | AnchorFact, given: int) -> popart_runtime_error:
        prepared, name = self._prepared, fact.name
        structure = prepared.program.structure
        kind = prepared.infos.get(name) or Type((), np.dtype(np.float32))
        what = "input" if isinstance(fact, StreamFact) else "output"
        lines = [
            f"Unexpected number of {what} elements for Tensor {name}. Expected {fact.count}, but received {given}.",
            "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
            "This with, ",
            f"   replication  factor = {prepared.local_replicas}",
            f"   accumulation factor = {structure.accumulation}",
            f"   batches per step    = {structure.batches}",
            f"   Tensor nelms        = {math.prod(kind.shape)}",
        ]
        if isinstance(fact, AnchorFact):
            kind_of_return = prepared.request.data_flow.art(name)
            lines.append(f"The anchor return type is  {kind_of_return.id().name}")
            if kind_of_return.id() is AnchorReturnTypeId.EveryN:
                lines.append(f"The return period is {kind_of_return.rp()}")
        return popart_runtime_error("\n".join(lines))
