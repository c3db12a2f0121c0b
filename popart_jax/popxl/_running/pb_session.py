"""A PopXL program behind PopART's session interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...enums import DeviceType
from ...errors import popart_runtime_error, poplar_exception
from ...session.inference import InferenceSession
from ..ir import Ir
from ..session import Session, checked_data


class PopxlInferenceSession(InferenceSession):
    """`InferenceSession.fromIr`: streams are inputs and anchors, by tensor id."""

    def __init__(self, ir: Ir, device: Any, name: str, session: Session | None = None) -> None:
        self._ir, self._device, self._name, self._session = ir, device, name, session
        self._entered = False
        self._report: Any = None

    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Compile the program."""
        if self._session is None:
            self._session = Session._named(self._name, self._ir, self._device)

    def _ready(self, what: str = "") -> Session:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._session is None:
            raise popart_runtime_error("The session must be prepared first: call prepareDevice().")
        return self._session

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """An array for each stream to the host."""
        return {s.tensor_id: array for s, array in self._ready().create_host_outputs().items()}

    def _attached(self) -> Session:
        session = self._ready()
        if not session.is_attached:
            session.__enter__()
            self._entered = True
        return session

    def weightsFromHost(self) -> None:
        """Copy all weights to the device."""
        session = self._ready()
        if session.is_attached:
            session.weights_from_host()
        else:
            self._attached()

    def weightsToHost(self) -> None:
        """Copy all weights to the host."""
        self._attached().weights_to_host()

    def run(self, stepio: Any, debugName: str = "") -> None:
        """Run the program on the arrays of a PyStepIO."""
        session = self._attached()
        streams = {s.tensor_id: s for s in session.expected_inputs()}
        inputs = {s: np.reshape(stepio.inputs[n], session._full_input_shape(s.shape)) for n, s in streams.items()}
        for stream, array in session.run(inputs).items():
            target = stepio.outputs.get(stream.tensor_id)
            if target is not None:
                target[...] = array.reshape(target.shape)

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Whether the program is on the device; for programs that detach by hand."""
        self._entered = bool(isLoaded) and self._entered

    def writeWeights(self, weightsIo: Any) -> None:
        """Put the arrays of a PyWeightsIO, by tensor id, into the host's copies; `weightsFromHost` uploads them.

        Raises
        ------
        ValueError, TypeError
            An array does not have the host shape or the type of its variable.
        """
        session = self._ready()
        known = {t.id: t for t in session._variables()}
        given = {known[n]: array for n, array in weightsIo.weights.items() if n in known}
        session._write_host({t: checked_data(t, array) for t, array in given.items()})

    def readWeights(self, weightsIo: Any) -> None:
        """Fill the arrays of a PyWeightsIO, by tensor id, from the host's copies."""
        session = self._ready()
        known = {t.id: t for t in session._variables()}
        for name, array in weightsIo.weights.items():
            if name in known:
                array[...] = session._host_value(known[name])

    def _priced(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        from .reports import price  # the IPU model takes a while to import

        if self._device.type is DeviceType.Cpu:
            raise poplar_exception("Cannot fetch a report: Profiling is disabled for current device type.")
        if self._report is None:
            self._report = price(self._ready()._programs, self._device, self._name)
        return self._report

    def getReport(self) -> Any:
        """The IPU model's profile of one run.

        Raises
        ------
        poplar_exception
            On a CPU device.
        """
        from ...session.reports.profile_report import ProfileReport  # as above

        return ProfileReport(self._priced())

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Summary of the modelled run, as text; raises as `getReport`."""
        return self._priced().summary()
