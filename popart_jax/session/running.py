"""`run`: one step of a session, from arrays, callbacks or synthetic data."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._calls import refused
from ..enums import DeviceConnectionType, SyntheticDataMode
from ..errors import log_error, noted, popart_exception, popart_runtime_error
from ..execution.placement import to_host
from ..ops.stopping import as_raised
from .checks import numbers as numeric_checks
from .devices.device_engine import DeviceEngine
from .engine import FORWARD_ONLY, Engine
from .feeding import arrays as feeding
from .feeding import callbacks
from .feeding.stepio import PyStepIO, PyStepIOCallback
from .feeding.streaming import Stream
from .preparing import Prepared
from .start import MAIN, NAMED_RUNS
from .weights.host_copies import HostWeights

_STEP_IO = (PyStepIO, PyStepIOCallback, Stream)
_RUN_SIGNATURES = (
    "(self, stepio: IStepIO, debugName: str = '') -> None",
    "(self, programHandle: str, stepio: IStepIO, debugName: str = '') -> None",
)


class Runner:
    """Runs the programs of a session."""

    def __init__(self, prepared: Prepared, place: DeviceEngine, weights: HostWeights) -> None:
        self._prepared, self._place, self._weights = prepared, place, weights
        request = prepared.request
        self._waits_for_weights = request.loss is not None and bool(prepared.variables)
        self._checks_numbers = numeric_checks.is_enabled(request.options, request.device.type)
        self.names: deque[str] = deque(maxlen=NAMED_RUNS)  # names of the latest runs, for reports
        self.has_run = False  # whether a run has succeeded

    def enter_runs(self, names: Sequence[str]) -> None:
        """Enter runs of these names that `start.Start` has made."""
        self.names.extend(names)
        self.has_run = bool(names)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run one step, after all checks; see the session's `run`."""
        self._run(*_run_arguments(*args, **kwargs))

    def _run(self, handle: str, stepio: PyStepIO | PyStepIOCallback | Stream, name: str) -> None:
        engine = self._check_runnable(handle)
        if self._prepared.request.options.syntheticDataMode is not SyntheticDataMode.Off:
            self._run_synthetic(engine, handle)
        elif isinstance(stepio, PyStepIO):
            self._run_arrays(engine, handle, stepio)
        elif isinstance(stepio, PyStepIOCallback):
            self._run_callbacks(engine, handle, stepio)
        else:
            self._run_stream(engine, handle, stepio)
        self.has_run = True
        self.names.append(name)

    def _check_runnable(self, handle: str) -> Engine:
        if self._place.device.connectionType is DeviceConnectionType.Never:
            raise popart_runtime_error("Offline IPU device is not configured for execution")
        if self._waits_for_weights and not self._weights.sent:
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and the session has been created "
                "in training mode"
            )
        engine = self._place.ready("run")
        if handle not in engine.programs:
            error = popart_exception(f"[Devicex::run] Program {handle} not found.")
            raise noted(
                error,
                f"The only other program is '{FORWARD_ONLY}', which exists when "
                "createImplicitPipeliningFwdOnlyProgram is set.",
            )
        return engine

    def _run_callbacks(self, engine: Engine, handle: str, stepio: PyStepIOCallback) -> None:
        loaded = engine.programs[handle]
        feeds = callbacks.collect(stepio, loaded.laid_out.program, loaded.streams)
        with engine.undone_on_error():  # a callback for results may raise
            results = engine.step(handle, feeds)
            callbacks.hand_out(stepio, loaded.anchors, {n: to_host(x) for n, x in results.items()})

    def _run_arrays(self, engine: Engine, handle: str, stepio: PyStepIO) -> None:
        loaded = engine.programs[handle]
        engine.settle()
        if stepio.iterators:
            stepio.draw(loaded.streams)
        plan = feeding.make_plan(stepio, self._prepared, loaded.streams, loaded.anchors, not self.has_run)
        again = handle == MAIN and not stepio.iterators and loaded.executable.mesh is None and not self._checks_numbers
        if not again or plan.direct is None or not engine.has_run:
            self._step_and_store(engine, handle, plan.feeds(), plan)
            return
        run = engine.direct(*plan.direct)
        run()
        stepio.plan = (self._place.token, run)

    def _run_stream(self, engine: Engine, handle: str, stream: Stream) -> None:
        loaded = engine.programs[handle]
        feeds = stream.take(loaded.streams, loaded.executable.put_fed)
        if stream.plan is None:
            stream.plan = feeding.make_plan(stream, self._prepared, loaded.streams, loaded.anchors, True)
        self._step_and_store(engine, handle, feeds, stream.plan)

    def _step_and_store(self, engine: Engine, handle: str, feeds: Mapping[str, Any], plan: feeding.FeedPlan) -> None:
        """Run one step, fill the anchors, and return when the caller may change the inputs."""
        with engine.undone_on_error() if self._checks_numbers else engine.turn:
            results = engine.step(handle, feeds)
            plan.store(results, to_host)
            if not results:
                engine.wait()
            if self._checks_numbers:
                shown = {n: to_host(x) for n, x in (*results.items(), *engine.changing.items())}
                numeric_checks.require_finite(shown)

    def _run_synthetic(self, engine: Engine, handle: str) -> None:
        mode = self._prepared.request.options.syntheticDataMode
        rng = np.random.default_rng(0)
        feeds: dict[str, np.ndarray] = {}
        for s in engine.programs[handle].streams:
            if mode is SyntheticDataMode.Zeros or s.device.kind not in "f":
                feeds[s.name] = np.zeros(s.shape, s.device)
            elif mode is SyntheticDataMode.RandomNormal:
                feeds[s.name] = rng.normal(size=s.shape).astype(s.device)
            else:
                feeds[s.name] = rng.uniform(size=s.shape).astype(s.device)
        engine.step(handle, feeds)
        engine.wait()


def reported(err: Exception) -> Exception:
    """The error to raise for a failed run; logs it."""
    raised = as_raised(err)
    if isinstance(raised, popart_exception):
        log_error(raised)
    return raised


def _run_arguments(*args: Any, **kwargs: Any) -> tuple[str, PyStepIO | PyStepIOCallback | Stream, str]:
    values, given = list(args), dict(kwargs)
    handle = kwargs.pop("programHandle", None)
    if handle is None and values and isinstance(values[0], str):
        handle = values.pop(0)
    stepio = kwargs.pop("stepio", None)
    if stepio is None and values:
        stepio = values.pop(0)
    name = kwargs.pop("debugName", values[0] if values else "")
    if kwargs or len(values) > 1 or not isinstance(name, str) or not isinstance(stepio, _STEP_IO):
        reason = f"the step I/O is a PyStepIO, a PyStepIOCallback or a Stream, not {type(stepio).__name__}"
        if isinstance(stepio, _STEP_IO):
            reason = f"debugName is a str, not {type(name).__name__}"
        raise refused("run", _RUN_SIGNATURES, args, given, [reason])
    return handle or MAIN, stepio, name
