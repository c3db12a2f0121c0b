"""The protocol of `PyStepIOCallback`: asking for micro-batches and handing anchors back, one replica at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest

import numpy as np

from ...buffers import aligned_empty
from ...errors import popart_runtime_error
from ...execution import Program
from .arrays import AnchorFact, StreamFact, check_type, to_device_type
from .stepio import PyStepIOCallback, contiguous


def collect(stepio: PyStepIOCallback, program: Program, streams: list[StreamFact]) -> dict[str, np.ndarray]:
    """All inputs of a step: micro-batch by micro-batch, within it replica by replica, within it input by input.

    A callback that returns nothing, or data of a wrong type or size, raises popart_runtime_error.
    """
    steps = [_Filling(stepio, s, math.prod(program.streams[s.name].shape)) for s in streams]
    for parts in zip_longest(*(f.parts for f in steps)):
        for filling, part in zip(steps, parts, strict=True):
            if part is not None:
                filling.take(part)
    return {f.stream.name: f.step for f in steps}


class _Filling:
    """The data of one stream, while they come in.

    Streams take turns: a program that makes the micro-batches of all its inputs together, in a queue of limited
    length, would wait for ever if one stream took a whole step before the next took anything.
    """

    def __init__(self, stepio: PyStepIOCallback, stream: StreamFact, size: int) -> None:
        self.stepio, self.stream, self.size = stepio, stream, size
        self.step = aligned_empty(stream.shape, stream.device)
        self.parts: Iterable[np.ndarray] = self.step.reshape(-1, size) if size else ()

    def take(self, part: np.ndarray) -> None:
        """Ask for the micro-batch of one replica."""
        name = self.stream.name
        array = self.stepio.input(name, False)
        if array is None:
            raise popart_runtime_error(f"The input callback returned no data for tensor {name} outside a prefetch")
        array = contiguous(array, name, "input")
        check_type(self.stream, array.dtype)
        if array.size < self.size:
            raise popart_runtime_error(
                f"The input callback returned {array.size} elements for tensor {name}; one micro-batch of one "
                f"replica has {self.size}"
            )
        given = array.reshape(-1)[: self.size]  # PopART reads what it needs, and counts nothing
        part[...] = to_device_type(given, self.stream) if given.dtype != self.stream.device else given
        self.stepio.input_complete(name)


def hand_out(stepio: PyStepIOCallback, facts: list[AnchorFact], results: Mapping[str, np.ndarray]) -> None:
    """Give every anchored value to the program, in the order in which it was made.

    A callback that returns no array, or one of a wrong size, raises popart_runtime_error.
    """
    for fact in facts:
        parts = np.ascontiguousarray(results[fact.name], fact.dtype).reshape(fact.parts, -1)
        for part in parts:
            array = stepio.output(fact.name)
            if array is None:
                raise popart_runtime_error(f"The output callback returned no buffer for tensor {fact.name}")
            _fill(contiguous(array, fact.name, "output"), part, fact.name)
            stepio.output_complete(fact.name)


def _fill(buffer: np.ndarray, part: np.ndarray, name: str) -> None:
    data = part.view(np.uint8)
    target = buffer.reshape(-1).view(np.uint8)
    if target.size < data.size:
        raise popart_runtime_error(
            f"The output callback returned a buffer of {target.size} bytes for tensor {name}; "
            f"one result has {data.size}"
        )
    if not target.flags.writeable:
        raise popart_runtime_error(
            f"The output callback returned a read-only buffer for tensor {name}; return a writable one."
        )
    target[: data.size] = data
