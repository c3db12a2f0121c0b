"""Between the arrays of a `PyStepIO` and the compiled step: checks, views, positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import popart_internal_exception, popart_runtime_error
from ..execution import Type
from ..logs import module_logger
from ..model.dtypes import BY_NUMPY
from .preparing import Prepared
from .stepio import StepArrays

_converted: set[str] = set()


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


class FeedPlan:
    """What a run does with the arrays of one step I/O; made once, since the arrays of an object stay the same.

    `direct` holds inputs and places for anchors where every array has exactly the step's size and type: then nothing
    needs to be computed on the way.
    """

    def __init__(self, stepio: StepArrays, streams: list[StreamFact], anchors: list[AnchorFact]) -> None:
        self.sources = {s.name: _source(stepio, s) for s in streams}
        self.sinks = [(a.name, _sink(stepio, a)) for a in anchors]
        self.direct = _direct(stepio, streams, anchors)

    def feeds(self) -> dict[str, np.ndarray]:
        """Inputs of the next step."""
        return {name: source() for name, source in self.sources.items()}

    def store(self, results: Mapping[str, Any], fetch: Callable[[Any], np.ndarray]) -> None:
        """Fill the anchors."""
        for name, sink in self.sinks:
            sink(fetch(results[name]))


Direct = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


def _direct(stepio: StepArrays, streams: list[StreamFact], anchors: list[AnchorFact]) -> Direct | None:
    """Views in the step's own shapes, None unless all arrays fit exactly (and there is an anchor to wait for)."""
    inputs = {s.name: stepio.inputs[s.name] for s in streams}
    outputs = [(a, stepio.outputs[a.name]) for a in anchors]
    fits = all(inputs[s.name].dtype == s.device and inputs[s.name].size == s.count for s in streams)
    if not fits or not anchors or any(o.dtype != a.dtype or o.size != a.count for a, o in outputs):
        return None
    feeds = {s.name: inputs[s.name].reshape(s.shape) for s in streams}
    return feeds, {a.name: o.reshape(a.shape) for a, o in outputs}


def make_plan(
    stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact], first: bool
) -> FeedPlan:
    """Check the arrays of a step against a session and plan its use.

    Raises
    ------
    popart_runtime_error
        Missing or unknown tensors, wrong types, and on the first run wrong element counts.
    """
    _check_names(stepio, prepared, streams, anchors)
    if stepio.asserts and first:
        _check_counts(stepio, prepared, streams, anchors)
    _check_whole_results(stepio, prepared, streams, anchors)
    for s in streams:
        check_type(s, stepio.inputs[s.name].dtype)
    return FeedPlan(stepio, streams, anchors)


def check_type(stream: StreamFact, given: np.dtype) -> None:
    """Raise popart_runtime_error unless data of this type may be fed."""
    if given == stream.host:
        return
    if given == np.int64 and stream.device == np.int32:
        if stream.name not in _converted:
            _converted.add(stream.name)
            module_logger("session").warning("Data for tensor %s are converted from INT64 to INT32.", stream.name)
        return
    if given == np.uint8 and stream.device.itemsize == 1 and stream.device.kind == "V":
        return
    user = BY_NUMPY[given].name if given in BY_NUMPY else str(given)
    raise popart_runtime_error(
        f"Type discrepancy for tensor {stream.name}. User provided : {user} and "
        f"expected : {BY_NUMPY[stream.host].name}. "
        "Consider a custom cast of the data before it is passed in."
    )


def _check_names(stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact]) -> None:
    used = {s.name for s in streams}
    for name in stepio.inputs:
        if name in used:
            continue
        if name in prepared.streams:
            module_logger("session").warning(
                "Input %s is not needed any more (optimised away); its data are ignored.", name
            )
        elif name in prepared.infos:
            raise popart_runtime_error(
                f"The tensor '{name}' has been provided as one of the inputs to the stepIO, but it is not registered "
                "as one of the inputs to the model"
            )
        else:
            raise popart_runtime_error(f"A stepIO input was given for '{name}', but there is no Tensor named {name}")
    for s in streams:
        if s.name not in stepio.inputs:
            raise popart_runtime_error(f"No tensor {s.name} provided in PyStepIO's inputs")
    wanted = {a.name for a in anchors}
    for name in stepio.outputs:
        if name in wanted:
            continue
        if name in prepared.infos:
            raise popart_internal_exception(f"Non-anchored Tensor '{name}' in the stepIO's outputs")
        raise popart_runtime_error(f"A stepIO output was given for '{name}', but there is no Tensor named {name}")
    for a in anchors:
        if a.name not in stepio.outputs:
            raise popart_runtime_error(f"No tensor {a.name} provided in PyStepIO's outputs")


def _check_counts(stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact]) -> None:
    for s in streams:
        _require_count("input", s.name, s.count, stepio.inputs[s.name].size, prepared)
    for a in anchors:
        _require_count("output", a.name, a.count, stepio.outputs[a.name].size, prepared)


def _check_whole_results(
    stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact]
) -> None:
    """Positions wrap where an array ends exactly, so it must hold whole micro-batches, also where counts are free."""
    arrays = [("input", s, stepio.inputs[s.name]) for s in streams]
    arrays += [("output", a, stepio.outputs[a.name]) for a in anchors]
    for what, fact, array in arrays:
        kind = prepared.infos.get(fact.name)
        if (
            kind is not None
            and array.size != fact.count
            and (not array.size or array.size % max(math.prod(kind.shape), 1))
        ):
            _require_count(what, fact.name, fact.count, array.size, prepared)
        if what == "output" and not array.flags.writeable:
            raise popart_runtime_error(f"The array for output tensor {fact.name} is read-only; pass a writable one.")


def _require_count(what: str, name: str, expected: int, given: int, prepared: Prepared) -> None:
    if expected == given:
        return
    structure = prepared.program.structure
    kind = prepared.infos.get(name) or Type((), np.dtype(np.float32))
    raise popart_runtime_error(
        f"Unexpected number of {what} elements for Tensor {name}. Expected {expected}, but received {given}. "
        f"Replication factor: {prepared.local_replicas}. Accumulation factor: {structure.accumulation}. "
        f"Batches per step: {structure.batches}. Tensor nelms: {math.prod(kind.shape)}."
    )


def _source(stepio: StepArrays, stream: StreamFact) -> Callable[[], np.ndarray]:
    array = stepio.inputs[stream.name]
    flat = array.reshape(-1)
    convert = array.dtype != stream.device
    if array.size == stream.count:
        view = flat.reshape(stream.shape)
        if not convert:
            return lambda: view
        return lambda: to_device_type(view, stream)
    key = ("inputs", stream.name)

    def take() -> np.ndarray:
        start = stepio.positions.get(key, 0)
        stepio.positions[key] = (start + stream.count) % max(flat.size, 1)
        picked = flat.take(np.arange(start, start + stream.count), mode="wrap").reshape(stream.shape)
        return to_device_type(picked, stream) if convert else picked

    return take


def to_device_type(array: np.ndarray, stream: StreamFact) -> np.ndarray:
    """Host data in the device's type; bytes of FP8 data are taken as they are."""
    if array.dtype == np.uint8 and stream.device.itemsize == 1 and stream.device.kind == "V":
        return array.view(stream.device)
    return array.astype(stream.device)


def _sink(stepio: StepArrays, anchor: AnchorFact) -> Callable[[np.ndarray], None]:
    array = stepio.outputs[anchor.name]
    key = ("outputs", anchor.name)
    exact = array.dtype == anchor.dtype and array.size == anchor.count
    flat = array.reshape(-1)

    def put(value: np.ndarray) -> None:
        if exact:
            flat[...] = value.reshape(-1)
            return
        data = np.ascontiguousarray(value.reshape(-1), anchor.dtype).view(np.uint8)
        target = flat.view(np.uint8)
        start = stepio.positions.get(key, 0)
        stepio.positions[key] = (start + data.size) % max(target.size, 1)
        target.put(np.arange(start, start + data.size), data, mode="wrap")

    return put
