"""The protocol of `PyStepIOCallback`: asking for micro-batches and handing anchors back, one replica at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...buffers import aligned_empty
from ...errors import popart_runtime_error
from ...execution import Program
from .arrays import AnchorFact, StreamFact, check_type, to_device_type
from .stepio import PyStepIOCallback, contiguous


def collect(stepio: PyStepIOCallback, program: Program, streams: list[StreamFact]) -> dict[str, np.ndarray]:
    """All inputs of a step, micro-batch by micro-batch and within it replica by replica.

    Raises
    ------
    popart_runtime_error
        A callback returned nothing, or data of a wrong type or size.
    """
    return {s.name: _collect_one(stepio, program.streams[s.name].shape, s) for s in streams}


def _collect_one(stepio: PyStepIOCallback, shape: tuple[int, ...], stream: StreamFact) -> np.ndarray:
    step = aligned_empty(stream.shape, stream.device)
    size = math.prod(shape)
    for part in step.reshape(-1, size) if size else ():
        array = stepio.input(stream.name, False)
        if array is None:
            raise popart_runtime_error(
                f"The input callback returned no data for tensor {stream.name} outside a prefetch"
            )
        array = contiguous(array, stream.name, "input")
        check_type(stream, array.dtype)
        if array.size < size:
            raise popart_runtime_error(
                f"The input callback returned {array.size} elements for tensor {stream.name}; one micro-batch of one "
                f"replica has {size}"
            )
        given = array.reshape(-1)[:size]  # PopART reads what it needs, and counts nothing
        part[...] = to_device_type(given, stream) if given.dtype != stream.device else given
        stepio.input_complete(stream.name)
    return step


def hand_out(stepio: PyStepIOCallback, facts: list[AnchorFact], results: Mapping[str, np.ndarray]) -> None:
    """Give every anchored value to the program, in the order in which it was made.

    Raises
    ------
    popart_runtime_error
        A callback returned no array, or one of a wrong size.
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
