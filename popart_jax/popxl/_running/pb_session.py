"""A PopXL program behind PopART's session interface."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ...enums import AnchorReturnTypeId, DeviceType
from ...errors import popart_exception, popart_runtime_error, poplar_exception
from ...logs import module_logger
from ...session.feeding.anchor_arrays import anchor_shape
from ...session.feeding.dataflow import AnchorReturnType
from ...session.inference import InferenceSession
from ..ir import Ir
from ..session import Session, checked_data


class PopxlInferenceSession(InferenceSession):
    """`InferenceSession.fromIr`: streams are inputs and anchors, by tensor id.

    Methods without a docstring do what `InferenceSession` says.
    """

    def __init__(self, ir: Ir, device: Any, name: str, session: Session | None = None) -> None:
        self._ir, self._device, self._name, self._session = ir, device, name, session
        self._entered = False

    # -- facts

    def getIr(self) -> Any:
        """The view of the Ir."""
        return self._ir._pb_ir

    def getInfo(self, id: str) -> Any:
        """Type and shape of any tensor; popart_exception if there is none."""
        return self.getIr().getTensor(id).info

    def _tensor_ids(self) -> set[str]:
        return {name for graph in self._ir._graphs.values() for name in graph._tensors}

    @property
    def dataFlow(self) -> Any:
        return copy.copy(self.getIr().getDataFlow())

    @property
    def replicationFactor(self) -> int:
        return self._ir.instance_replication_factor

    @property
    def accumulationFactor(self) -> int:
        """1: a program of PopXL accumulates by operators of its own."""
        return 1

    @property
    def memory(self) -> Any:
        """Bytes of this machine that one run takes; popart_runtime_error before `prepareDevice`."""
        return self._ready()._state.executables["main"].memory

    def _repr_html_(self) -> str:
        return f"<code>PopXL program {self._ir.id}</code>"

    def _serializeIr(self, format: Any) -> str:
        return self.getIr().serializeToJSON()

    # -- compiling, running

    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Compile the program; an OutOfMemoryError given as `err` is filled in place of an exception."""
        if self._session is None:
            self._session = Session._named(self._name, self._ir, self._device, err)

    def _ready(self, what: str = "") -> Session:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._session is None:
            raise popart_runtime_error("The session must be prepared first: call prepareDevice().")
        return self._session

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """An array for each stream to the host, shaped as its anchor's return type says (All if it has none)."""
        flow, transfers, replicas = self.dataFlow, self._ir.num_host_transfers, self.replicationFactor
        arrays: dict[str, np.ndarray] = {}
        for stream in self._ready()._programs.d2h.values():
            name = stream.tensor_id
            kind = flow.art(name) if flow.isAnchored(name) else AnchorReturnType("All")
            shape = anchor_shape(kind, transfers, 1, replicas, tuple(stream.shape))
            arrays[name] = np.empty(shape, stream.dtype.as_numpy())
        return arrays

    def _attached(self) -> Session:
        session = self._ready()
        if not session.is_attached:
            session.__enter__()
            self._entered = True
        return session

    def loadEngineAndConnectStreams(self) -> None:
        """Attach the device and send the weights, unless that is done."""
        self._attached()

    def run(self, stepio: Any, debugName: str = "") -> None:
        """Run the program on the arrays of a PyStepIO."""
        session = self._attached()
        streams = {s.tensor_id: s for s in session.expected_inputs()}
        inputs = {s: np.reshape(stepio.inputs[n], session._full_input_shape(s.shape)) for n, s in streams.items()}
        flow = self.dataFlow
        for stream, array in session.run(inputs).items():
            name = stream.tensor_id
            target = stepio.outputs.get(name)
            if target is not None:
                batches = array.reshape(self._ir.num_host_transfers, -1)
                returned = _returned(flow.art(name), batches) if flow.isAnchored(name) else batches
                target[...] = returned.reshape(target.shape)

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Whether the program is on the device; for programs that detach by hand."""
        self._entered = bool(isLoaded) and self._entered

    def _streamed(self) -> Any:
        return self._attached()._streamed()

    # -- weights

    def weightsFromHost(self) -> None:
        session = self._ready()
        if session.is_attached:
            session.weights_from_host()
        else:
            self._attached()

    def weightsToHost(self) -> None:
        self._attached().weights_to_host()

    copyDeviceWeightsToHost = weightsToHost

    def writeWeights(self, weightsIo: Any) -> None:
        """Put the arrays of a PyWeightsIO, by tensor id, into the host's copies; `weightsFromHost` uploads them.

        Raises ValueError or TypeError where an array does not have the host shape or the type of its variable.
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

    def markHostWeightsInSync(self) -> None:
        self._ready()._mark(True)

    def markHostWeightsOutOfSync(self) -> None:
        self._ready()._mark(False)

    def areHostWeightsInSync(self) -> bool:
        return all(t._in_sync for t in self._ready()._variables())

    def _held(self) -> Any:
        return self._attached()._held()

    # -- random state: seeds are tensors of the program

    def setRandomSeed(self, seedValue: int) -> None:
        """No effect, which the log says."""
        module_logger("session").warning(
            "Trying to set the random seed, but this session has no random behaviour. Doing nothing."
        )

    def getRandomSeed(self) -> int:
        """0, with a warning."""
        module_logger("session").warning(
            "Trying to get the random seed, but this session has no random behaviour. Returning 0."
        )
        return 0

    # -- reports

    @cached_property
    def _modelled(self) -> Any:
        from .reports import price  # the IPU model takes a while to import

        return price(self._ready()._programs, self._device, self._name)

    def _priced(self) -> Any:
        if self._device.type is DeviceType.Cpu:
            raise poplar_exception("Cannot fetch a report: Profiling is disabled for current device type.")
        return self._modelled

    def getReport(self) -> Any:
        """The IPU model's profile of one run; poplar_exception on a CPU device."""
        from ...session.reports.profile_report import ProfileReport  # as above

        return ProfileReport(self._priced())

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Summary of the modelled run, as text; raises as `getReport`."""
        return self._priced().summary()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        from ...session.reports.reports import encoded  # as above

        return encoded(self._modelled.graph_report(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        from ...session.reports.reports import encoded  # as above

        return encoded(self._modelled.execution_report(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """The program as XLA has it, as bytes of StableHLO text; none of a program that was loaded compiled."""
        return self._ready()._state.executables["main"].text.encode()

    def getCycleCount(self, id: str = "") -> int:
        from ...session.reports.reports import cycle_count  # as above

        if not self._ready()._has_run:
            raise popart_runtime_error("Must call run before getCycleCount.")
        return cycle_count(id, self._ir._options, lambda: self._modelled, self._ir.num_host_transfers)


def _returned(kind: Any, batches: np.ndarray) -> np.ndarray:
    """What an anchor of a return type shows of the values of all batches (a row each)."""
    which = kind.id()
    if which is AnchorReturnTypeId.Final:
        return batches[-1]
    if which is AnchorReturnTypeId.EveryN:
        return batches[kind.rp() - 1 :: kind.rp()]
    return batches.sum(0, dtype=batches.dtype) if which is AnchorReturnTypeId.Sum else batches


def _refusal(method: str, instead: str) -> Callable[..., Any]:
    def refuse(self: PopxlInferenceSession, *args: Any, **kwargs: Any) -> Any:
        raise popart_exception(f"{method} is not available for the session of a PopXL program.\n  fix: {instead}.")

    refuse.__name__, refuse.__doc__ = method, f"Not available (popart_exception): {instead}."
    return refuse


_CACHE = "set enableEngineCaching and cachePath, which keep compiled programs"
_ARRAYS = "there is no ONNX model; read and write variables by readWeights and writeWeights"
_SEED = "seeds are tensors of the program, which it gets from streams or variables"
for _names, _instead in (
    ("compileAndExport saveExecutable saveVariables loadExecutable", _CACHE),
    ("modelToHost resetHostWeights updateExternallySavedTensorLocations", _ARRAYS),
    ("getRNGState setRNGState", _SEED),
    ("timings", "measure the constructor of popxl.Session and its runs"),
):
    for _method in _names.split():
        _refused = _refusal(_method, _instead)
        setattr(PopxlInferenceSession, _method, property(_refused) if _method == "timings" else _refused)
