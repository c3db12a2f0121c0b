"""`run`: one step of a session, from arrays, callbacks or synthetic data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._calls import checked
from ..enums import DeviceConnectionType, SyntheticDataMode
from ..errors import log_error, popart_exception, popart_runtime_error
from ..execution.placement import to_host
from ..ops.stopping import as_raised
from . import callbacks, feeding, numeric_checks
from .engine import FORWARD_ONLY, MAIN, Engine
from .preparing import Prepared, Request
from .stepio import PyStepIO, PyStepIOCallback

_REMEMBERED_RUNS = 1000


class RunMethods:
    """`run`, and what it checks first."""

    _prepared: Prepared
    _request: Request
    _checks_numbers: bool
    _first_run: bool
    _has_run: bool
    _ready_token: object | None
    _use: Any
    _me: Any
    _ready: Callable[[str], Engine]

    @cached_property
    def _run_names(self) -> deque[str]:
        """Names of the latest runs, for reports."""
        return deque(maxlen=_REMEMBERED_RUNS)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run one step: ``run(stepio, debugName="")`` or ``run(programHandle, stepio, debugName="")``.

        Raises
        ------
        popart_runtime_error
            The session is not ready, or the step I/O does not fit; weights are unchanged then.
        popart_exception
            Unknown program handle.
        """
        try:
            if len(args) == 1 and not kwargs and type(args[0]) is PyStepIO:
                ready = args[0].plan
                if ready is not None and ready[0] is self._ready_token and self._use.reference is self._me:
                    ready[1]()
                    return
            self._run_anew(*args, **kwargs)
        except popart_exception as err:
            log_error(err)
            raise
        except jax.errors.JaxRuntimeError as err:
            raised = as_raised(err)
            if isinstance(raised, popart_exception):
                log_error(raised)
            raise raised from None

    def _run_anew(self, *args: Any, **kwargs: Any) -> None:
        """A run whose arguments are looked at."""
        handle, stepio, name = _run_arguments(*args, **kwargs)
        engine = self._check_runnable(handle)
        if self._request.options.syntheticDataMode is not SyntheticDataMode.Off:
            self._run_synthetic(engine, handle)
        elif type(stepio) is PyStepIO:
            self._run_arrays(engine, handle, stepio)
        elif isinstance(stepio, PyStepIOCallback):
            loaded = engine.programs[handle]
            feeds = callbacks.collect(stepio, loaded.laid_out.program, loaded.streams)
            results = engine.step(handle, feeds)
            callbacks.hand_out(stepio, loaded.anchors, {n: to_host(x) for n, x in results.items()})
        else:
            raise TypeError(f"run takes a PyStepIO or PyStepIOCallback, got {type(stepio).__name__}")
        self._first_run = False
        self._has_run = True
        self._run_names.append(name)

    def _check_runnable(self, handle: str) -> Engine:
        if self._request.device.connectionType is DeviceConnectionType.Never:
            raise popart_runtime_error(
                "The device was made with connection type Never: programs can be compiled for it but not run."
            )
        if self._needs_weights():
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and is training"
            )
        engine = self._ready("run")
        if handle not in engine.programs:
            raise _unknown_program(handle)
        return engine

    def _needs_weights(self) -> bool:
        return False

    def _run_arrays(self, engine: Engine, handle: str, stepio: PyStepIO) -> None:
        loaded = engine.programs[handle]
        if stepio.iterators:
            stepio.draw(loaded.streams)
        plan = feeding.make_plan(stepio, self._prepared, loaded.streams, loaded.anchors, self._first_run)
        results = engine.step(handle, plan.feeds())
        plan.store(results, to_host)
        if not results:
            engine.wait()
        if self._checks_numbers:
            shown = {n: to_host(x) for n, x in (*results.items(), *engine.changing.items())}
            numeric_checks.require_finite(shown)
            return
        again = handle == MAIN and not stepio.iterators and loaded.executable.mesh is None
        if again and plan.direct is not None:
            self._ready_token = self._ready_token or object()
            stepio.plan = (self._ready_token, engine.direct(*plan.direct))

    def _run_synthetic(self, engine: Engine, handle: str) -> None:
        loaded = engine.programs[handle]
        mode = self._request.options.syntheticDataMode
        rng = np.random.default_rng(0)
        feeds = {}
        for s in loaded.streams:
            if mode is SyntheticDataMode.Zeros or s.device.kind not in "f":
                feeds[s.name] = np.zeros(s.shape, s.device)
            elif mode is SyntheticDataMode.RandomNormal:
                feeds[s.name] = rng.normal(size=s.shape).astype(s.device)
            else:
                feeds[s.name] = rng.uniform(size=s.shape).astype(s.device)
        engine.step(handle, feeds)
        engine.wait()


@checked
def _run_arguments(*args: Any, **kwargs: Any) -> tuple[str, Any, str]:
    values = list(args)
    handle = kwargs.pop("programHandle", None)
    if handle is None and values and isinstance(values[0], str):
        handle = values.pop(0)
    stepio = kwargs.pop("stepio", None)
    if stepio is None and values:
        stepio = values.pop(0)
    name = kwargs.pop("debugName", values[0] if values else "")
    if kwargs or len(values) > 1 or stepio is None:
        raise TypeError("run(stepio, debugName='') or run(programHandle, stepio, debugName='')")
    return handle or MAIN, stepio, str(name)


def _unknown_program(handle: str) -> popart_exception:
    return popart_exception(
        f"Unknown program handle '{handle}'. The only other program is '{FORWARD_ONLY}', which exists when "
        "createImplicitPipeliningFwdOnlyProgram is set."
    )
