"""Binds a session's engine to its device: attaching, loading, and noting which session used the device last."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from ...enums import DeviceConnectionType, DeviceType
from ...errors import noted, popart_runtime_error
from ...logs import module_logger
from ..engine import Engine
from ..start import MAIN
from .devices import DeviceInfo

_DEVICE_CALLS = {
    "run": "run(const IStepIO &)",
    "modelToHost": "weightsToHost(const std::map<TensorId, MutableVoidData> &)",
    "weightsToHost": "weightsToHost()",
    "weightsFromHost": "weightsFromHost()",
    "setRandomSeed": "setRandomSeedFromHost(uint64_t)",
    "getRandomSeed": "getRandomSeedToHost()",
    "getRNGState": "getRngStateToHost",
    "setRNGState": "setRngStateFromHost",
}
"""Names of session methods in PopART's messages."""


def not_prepared(what: str) -> popart_runtime_error:
    """The error when a method of this name is called before `prepareDevice`."""
    called = _DEVICE_CALLS.get(what, f"{what}()")
    return popart_runtime_error(f"Devicex::prepare() must be called before Devicex::{called} is called.")


class DeviceEngine:
    """The engine of a session on a device, once there is one, and whether it is loaded.

    The functions in `uploads` send host values (weights, seed, hyperparameters) to an engine when it is loaded.
    """

    def __init__(self, device: DeviceInfo, uploads: Sequence[Callable[[Engine], None]]) -> None:
        self.engine: Engine | None = None
        self.loaded = False
        # identifies the loaded state. A step I/O that was checked under the same token needs no checks again.
        self.token = object()
        self.device = device
        self._reference = weakref.ref(self)
        self._uploads = tuple(uploads)

    def unload(self) -> None:
        """Mark the engine as not loaded; the next call that needs it loads it again."""
        self.loaded = False
        self.check_runs_again()

    def check_runs_again(self) -> None:
        """Make the next run of each step I/O go through all checks."""
        self.token = object()

    def load(self) -> Engine:
        """Load the compiled programs, and send the host's values.

        popart_runtime_error if nothing was compiled, or if the device can't be attached or only compiles.
        """
        engine = self.engine
        if engine is None or MAIN not in engine.programs:
            raise popart_runtime_error(
                "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?"
            )
        if self.device.type is DeviceType.OfflineIpu:
            raise popart_runtime_error("Trying to load an engine on an offline device")
        self._attach()
        self.loaded = True
        self._log_load()
        for upload in self._uploads:
            upload(engine)
        return engine

    def ready(self, what: str) -> Engine:
        """The engine, loaded; loads it now if it is only compiled.

        It raises popart_runtime_error without an engine (`what` names the call that needs one), or if its device was
        detached.
        """
        if self.engine is None:
            raise not_prepared(what)
        if not self.loaded:
            return self.load()
        if not self.device.isAttached:
            raise noted(
                popart_runtime_error("The device is not attached: it was detached after the engine was loaded."),
                f"{self.device!r}\n  fix: attach it, and call loadEngineAndConnectStreams() again.",
            )
        if self.device.last_engine is not self._reference:
            self._log_load()
        return self.engine

    def require_executable(self) -> None:
        """Raise popart_runtime_error unless something was compiled."""
        if self.engine is None:
            raise popart_runtime_error("There is no executatable. Try calling Session::prepareDevice first.")

    def _log_load(self) -> None:
        """Log an engine load, as upstream does when another session used the device; here both engines stay alive."""
        last = None if self.device.last_engine is None else self.device.last_engine()
        if last is not None:
            last.check_runs_again()  # its next run must log a load
            if last.loaded and last.engine is not None and self.engine is not None:  # the chip keeps its generators
                self.engine.take_generators(last.engine)
        self.device.last_engine = self._reference
        module_logger("devicex").info("Engine loaded")

    def _attach(self) -> None:
        device = self.device
        waits = device.connectionType is DeviceConnectionType.OnDemand and not device.isAttached
        if waits and not device.tryAttachUntilTimeout():
            raise noted(popart_runtime_error("Failed to attach to device"), repr(device))
