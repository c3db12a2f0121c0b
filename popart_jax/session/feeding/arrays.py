"""Connects the arrays of a `PyStepIO` with the compiled step: checks, conversions, positions in the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...buffers import truths
from ...errors import popart_runtime_error
from ...execution.written_results import require_kept
from ...logs import module_logger
from ...model.dtypes import BY_NUMPY
from .checks import AnchorFact, StreamFact, check_feeds
from .stepio import StepArrays

if TYPE_CHECKING:
    from ..preparing import Prepared

_converted: set[str] = set()


class FeedPlan:
    """How a run feeds and fills the arrays of one step I/O; made once, since a step I/O keeps its arrays.

    Where every array has exactly the step's size, no positions are needed: `direct` then holds the inputs (arrays, or
    functions that convert them) and the arrays for anchors.
    """

    def __init__(self, stepio: StepArrays, streams: list[StreamFact], anchors: list[AnchorFact]) -> None:
        self.sources = {s.name: _source(stepio, s) for s in streams}
        self.sinks = [(a.name, _sink(stepio, a)) for a in anchors]
        self.direct = _direct(stepio, streams, anchors, self.sources)

    def feeds(self) -> dict[str, np.ndarray]:
        """Inputs of the next step."""
        return {name: source() for name, source in self.sources.items()}

    def store(self, results: Mapping[str, Any], fetch: Callable[[Any], np.ndarray]) -> None:
        """Fill the anchors."""
        for name, sink in self.sinks:
            sink(fetch(results[name]))


Source = Callable[[], np.ndarray]
Direct = tuple[dict[str, np.ndarray | Source], dict[str, np.ndarray]]


def _direct(
    stepio: StepArrays, streams: list[StreamFact], anchors: list[AnchorFact], sources: Mapping[str, Source]
) -> Direct | None:
    """Input views (or functions that convert at each run) and anchor views in the step's shapes; None if sizes differ.

    At least one anchor must exist, since the run waits for it, and the arrays for anchors must have their types.
    """
    inputs = {s.name: stepio.inputs[s.name] for s in streams}
    outputs = [(a, stepio.outputs[a.name]) for a in anchors]
    fits = all(inputs[s.name].size == s.count for s in streams)
    if not fits or not anchors or any(o.dtype != a.dtype or o.size != a.count for a, o in outputs):
        return None
    lasting = {s.name for s in streams if inputs[s.name].dtype == s.device != np.bool_}  # bool is checked at each run
    feeds = {s.name: sources[s.name]() if s.name in lasting else sources[s.name] for s in streams}
    return feeds, {a.name: o.reshape(a.shape) for a, o in outputs}


def make_plan(
    stepio: StepArrays, prepared: Prepared, streams: list[StreamFact], anchors: list[AnchorFact], first: bool
) -> FeedPlan:
    """Check the arrays of a step against a session and plan its use.

    Raises popart_runtime_error for missing or unknown tensors, wrong types, arrays whose memory was lost, and on the
    first run wrong element counts.
    """
    check_feeds(stepio, prepared, streams, anchors, counts=stepio.asserts and first)
    require_kept([*stepio.inputs.values(), *stepio.outputs.values()])
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


def _source(stepio: StepArrays, stream: StreamFact) -> Source:
    array = stepio.inputs[stream.name]
    flat = array.reshape(-1)
    convert = array.dtype != stream.device or array.dtype == np.bool_
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
    """Host data in the device's type; bytes of FP8 data are taken as they are.

    An integer that the device's type can't hold raises popart_runtime_error.
    """
    if array.dtype == np.uint8 and stream.device.itemsize == 1 and stream.device.kind == "V":
        return array.view(stream.device)
    if array.size and array.dtype.kind in "iu" and stream.device.kind in "iu":
        (least, most), fitting = (int(array.min()), int(array.max())), np.iinfo(stream.device)
        if least < fitting.min or most > fitting.max:
            raise popart_runtime_error(
                f"Data for tensor '{stream.name}' reach from {least} to {most}; the device holds "
                f"{BY_NUMPY[stream.device].name}.\n"
                "  fix: feed numbers within 32 bits; PopART's sessions compute whole numbers so."
            )
    return truths(array).astype(stream.device, copy=False)


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
