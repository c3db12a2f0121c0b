"""Base class of training and inference sessions: each public method checks, and forwards to a part."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import model
from .. import session as later
from .._calls import checked
from .._process.collector import without_collector
from ..enums import IrSerializationFormat, SyntheticDataMode
from ..errors import logs_errors_of_methods, popart_exception, popart_runtime_error
from ..timings import FIRST_RUN
from .feeding.dataflow import DataFlow
from .feeding.stepio import PyStepIO
from .parts import Parts
from .start import MAIN, Asked
from .weights.files import makedirsAndCheckWritable
from .weights.weightsio import IWeightsIO, PyWeightsIO

if TYPE_CHECKING:
    from ..execution import Memory
    from ..execution.stored.held import ResidentState
    from ..model.tensor_info import _TensorInfoCore
    from .engine import Engine
    from .feeding.checks import StreamFact
    from .reports.op_list import Ir
    from .reports.profile_report import ProfileReport


@partial(logs_errors_of_methods, but=("run",))  # `run` logs its own errors, to keep each step short
class SessionCore:
    """A prepared model, and the parts that compile it, run it and describe it."""

    @without_collector()
    def _start(self, asked: Asked) -> None:
        self._parts = Parts()
        self._parts.start(asked)

    @property
    def _engine(self) -> Engine | None:
        return self._parts.place.engine

    def _streamed(self) -> tuple[list[StreamFact], Callable[[str, np.ndarray], Any]]:
        """The inputs that a `Stream` must provide, and the function that puts one of them on the devices."""
        loaded = self._parts.place.ready("more").programs[""]
        return loaded.streams, loaded.executable.put_fed

    def __reduce__(self) -> Any:
        raise TypeError(
            f"A {type(self).__name__} holds compiled programs and the state of a device, so it can't be pickled or "
            "copied: pickle the model's proto, save trained weights with modelToHost(path), and make a session of "
            "them; saveExecutable(path) keeps what was compiled"
        )

    # -- facts

    def __repr__(self) -> str:
        parts = getattr(self, "_parts", None)
        prepared = getattr(parts, "prepared", None)  # none where the constructor stopped
        return object.__repr__(self) if prepared is None else later.summary_line(type(self).__name__, prepared)

    def _repr_html_(self) -> str:
        return later.summary_html(type(self).__name__, self._parts.prepared)

    @property
    def memory(self) -> Memory | None:
        """Bytes of this machine that one run takes: ``arguments``, ``results``, ``temporary`` and their sum ``peak``.

        From XLA's buffer assignment, for each device; None if the backend gives none. For the memory of an IPU see
        `getSummaryReport`.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if self._engine is None or MAIN not in self._engine.programs:
            raise popart_runtime_error("The memory of a run is known after prepareDevice().")
        return self._engine.executables[MAIN].memory

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds that each phase of getting ready has taken so far, with the first run.

        The phases are ``load`` (reading the model), ``types``, ``patterns``, ``layout``, ``trace``, ``lower`` (to
        StableHLO), ``compile`` (XLA), ``weights`` (bringing them to the device), ``first run`` and ``other``; together
        they are the time of the constructor, of `prepareDevice` and of the first `run`. A phase that was skipped,
        because its outcome was in a cache, is missing.

        Examples
        --------
        >>> sum(session.timings.values())  # doctest: +SKIP
        """
        return self._parts.timings.seconds

    @property
    def dataFlow(self) -> DataFlow:
        """The data flow (a copy)."""
        return copy.deepcopy(self._parts.prepared.request.data_flow)

    @property
    def replicationFactor(self) -> int:
        """Replicas of this process."""
        return self._parts.prepared.local_replicas

    @property
    def accumulationFactor(self) -> int:
        """Micro-batches per weight update."""
        return self._parts.prepared.program.structure.accumulation

    def _getDataFlow(self) -> DataFlow:
        return self.dataFlow

    def _replicationFactor(self) -> int:
        return self.replicationFactor

    def _accumulationFactor(self) -> int:
        return self.accumulationFactor

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """An uninitialised array per anchor, in the shape that `run` fills.

        Raises
        ------
        RuntimeError
            The period of an EveryN anchor does not divide the batches.
        """
        first = self._parts.first
        return later.init_anchor_arrays(self) if first is None else first.anchor_arrays()

    @checked
    def getInfo(self, id: str, /) -> _TensorInfoCore:
        """Type and shape (of one replica) of any tensor.

        Raises
        ------
        popart_exception
            There is no such tensor, or PopART has no name for its type.
        """
        infos = self._parts.prepared.infos
        kind = infos.get(later.source_of(id, infos) or "") or self._parts.op_list.types.get(id)
        if kind is None:
            raise popart_exception(f"No tensor named '{id}' in this session; there are {sorted(infos)[:50]}")
        return model.info_of(id, kind.dtype, kind.shape)

    def _tensor_ids(self) -> set[str]:
        return self._parts.prepared.infos.keys() | self._parts.op_list.types.keys()

    def getIr(self) -> Ir:
        """A handle of the IR."""
        return self._parts.op_list.handle()

    @checked
    def _serializeIr(self, format: IrSerializationFormat) -> str:
        """The op list after the patterns, as JSON; empty for an executable from a file."""
        return "" if self._parts.stored.path is not None else self._parts.op_list.text()

    # -- compiling, loading, running

    @checked
    @without_collector()
    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Compile the program for the device, and load it.

        Raises
        ------
        popart_exception
            The options do not fit the device.
        popart_runtime_error
            The device can't be attached.
        """
        parts = self._parts
        if parts.first is not None and loadEngine and err is None and parts.first.prepare():
            return
        with parts.timings.collect():
            parts.prepare_device(loadEngine, err)
            if parts.next is not None and parts.place.engine is not None:
                later.keep_start(parts.next, parts.prepared, parts.place.engine, later.anchor_kinds(self))

    def loadEngineAndConnectStreams(self) -> None:
        """Load the compiled program: send seed, optimizer values, and first weights.

        Raises
        ------
        popart_runtime_error
            Nothing was compiled, or the device can't be attached.
        """
        self._parts.place.load()

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run one step: ``run(stepio, debugName="")`` or ``run(programHandle, stepio, debugName="")``.

        Raises
        ------
        popart_runtime_error
            The session is not ready, or the step I/O does not fit; weights are unchanged then.
        popart_exception
            Unknown program handle.
        """
        first, timings = self._parts.first, self._parts.timings
        try:
            ready = args[0].plan if len(args) == 1 and not kwargs and type(args[0]) is PyStepIO else None
            if ready is not None and ready[0] is (first or self._parts.place).token:  # checked by an earlier run
                ready[1]()
            else:
                with contextlib.nullcontext() if FIRST_RUN in timings else timings.collect(FIRST_RUN):
                    if first is None or not first.run(*args, **kwargs):
                        self._parts.runner.run(*args, **kwargs)
        except Exception as err:
            raised = later.reported(err)
            if raised is err:
                raise
            raise raised from None

    @checked
    def connectStreamToCallback(self, streamHandle: str, callback: Callable[..., Any], index: int, /) -> None:
        """Not available: this runtime has no data streams to hook into.

        Raises
        ------
        popart_exception
            Always.
        """
        raise popart_exception(
            f"connectStreamToCallback('{streamHandle}'): there are no device streams in this runtime.\n"
            "  fix: feed the tensor with a PyStepIOCallback."
        )

    # -- weights and optimizer state

    def weightsFromHost(self) -> None:
        """Send the host copy of weights and optimizer state to the device."""
        first = self._parts.first
        if first is None or not first.send():
            self._parts.weights.send(self._parts.place.ready("weightsFromHost"))

    def weightsToHost(self) -> None:
        """Fetch weights and optimizer state from the device, for `readWeights`."""
        first = self._parts.first
        if first is not None and first.fetch():
            return
        if self._parts.prepared.request.options.syntheticDataMode is SyntheticDataMode.Off:
            self._parts.weights.fetch(self._parts.place.ready("weightsToHost"))

    @checked
    def readWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Copy what `weightsToHost` fetched into arrays."""
        arrays, first = _arrays(weightsIo), self._parts.first
        if first is None or not first.read(arrays.weights):
            self._parts.weights.read(arrays)

    @checked
    def writeWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Set the host copy of some weights; `weightsFromHost` then sends it."""
        self._parts.weights.write(_arrays(weightsIo))

    @checked
    def modelToHost(self, fn: str, /) -> None:
        """Write the model with current weights and optimizer state to a file, and make these the host copy."""
        values = self._parts.weights.sync(self._parts.place.ready("modelToHost"))
        self._parts.files.write(fn, values, self._parts.prepared.state)

    def resetHostWeights(
        self, modelProtoOrFilename: Any, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host copy from the initializers of a model.

        Raises
        ------
        popart_runtime_error
            Weights are constants, or an initializer does not fit a tensor of the session.
        """
        self._parts.weights.require_writable("resetHostWeights")
        self._parts.place.require_executable()
        values = later.initializer_values(model.load_proto(modelProtoOrFilename))
        self._parts.weights.reset(values, ignore_unknown=ignoreWeightsInModelWithoutCorrespondingHostWeight)
        self._parts.place.check_runs_again()

    @checked
    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str, /) -> None:
        """Copy external data to another file, where `modelToHost` then writes.

        Raises
        ------
        popart_runtime_error
            The target exists, the source does not, or no initializer is stored there.
        """
        self._parts.files.move_external_data(fromLocation, toLocation)

    def _held(self) -> ResidentState:
        """The state that checkpoints save and restore."""
        parts = self._parts
        return later.held(parts.prepared, parts.place.ready("a checkpoint"), parts.weights)

    # -- random state

    @checked
    def setRandomSeed(self, seedValue: int) -> None:
        """Set the random seed.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        TypeError
            The value is no unsigned 64-bit integer.
        """
        engine = self._parts.place.ready("setRandomSeed") if self._parts.place.loaded else self._parts.place.engine
        self._parts.seed.set(seedValue, self._parts.prepared, engine, self._parts.place.loaded)

    def getRandomSeed(self) -> int:
        """The current random seed, on replica 0.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if not self._parts.prepared.program.random:
            later.seeds.warn_without_seed()
            return 0
        return later.seeds.to_int(self._parts.place.ready("getRandomSeed").seed())

    def getRNGState(self) -> list[int]:
        """State of the random number generators, two numbers per replica.

        Raises
        ------
        popart_runtime_error
            The option enableLoadAndOffloadRNGState is off.
        """
        later.seeds.require_generator_option(self._parts.prepared, "getRNGState")
        return later.seeds.generator_state(self._parts.place.ready("getRNGState"), self._parts.prepared)

    @checked
    def setRNGState(self, rngValue: list[int]) -> None:
        """Set the state of the random number generators.

        Raises
        ------
        popart_runtime_error
            The option is off, or the list has a wrong length.
        """
        later.seeds.require_generator_option(self._parts.prepared, "setRNGState")
        engine = self._parts.place.ready("setRNGState")
        later.seeds.set_generator_state(rngValue, engine, self._parts.prepared)

    # -- executables in files

    @checked
    def compileAndExport(self, filename: str, err: Any = None) -> None:
        """Compile, and write the compiled programs to a file (or into an existing directory).

        Raises
        ------
        popart_exception
            The device is no IPU.
        OSError
            The target can't be written.
        """
        later.require_savable(self._parts.place.device)
        makedirsAndCheckWritable(filename)
        if self._parts.place.engine is None:
            self.prepareDevice(False)
        self.saveExecutable(filename)

    @checked
    def saveExecutable(self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True) -> None:
        """Write the compiled programs, and the variables if asked for.

        Raises
        ------
        popart_exception
            The device is no IPU.
        popart_runtime_error
            Nothing was compiled.
        """
        later.require_savable(self._parts.place.device)
        self._parts.stored.save(path, self._parts.place.engine, self._parts.weights.copy if saveVariables else None)

    @checked
    def saveVariables(self, path: str) -> None:
        """Write the host copy of all variables.

        Raises
        ------
        popart_exception
            The device is no IPU.
        """
        later.require_savable(self._parts.place.device)
        self._parts.stored.save_variables(path, self._parts.weights.copy)

    @checked
    def loadExecutable(self, filename: str) -> None:
        """Take the compiled programs from a file; `prepareDevice` then does not compile.

        Raises
        ------
        popart_exception
            No such file, or one of another session.
        """
        self._parts.weights.take(self._parts.stored.open(filename))

    # -- reports

    @checked
    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Summary of the modelled step, as text.

        Raises
        ------
        popart_runtime_error
            The session is not prepared, or its executable came from a cache.
        poplar_exception
            On a CPU device.
        """
        return self._parts.reports.summary()

    def getReport(self) -> ProfileReport:
        """The profile as an object; raises as `getSummaryReport` does."""
        return later.ProfileReport(self._parts.reports.report(), tuple(self._parts.runner.names))

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The graph profile as JSON or CBOR (older interface)."""
        return later.encoded(self._parts.reports.report(profiles=False).graph_report(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """The execution profile as JSON or CBOR (older interface)."""
        return later.encoded(self._parts.reports.report(profiles=False).execution_report(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """The program as XLA has it, as bytes of StableHLO text; raises as `getSummaryReport` does."""
        return self._parts.reports.stable_hlo()

    @checked
    def getCycleCount(self, id: str = "") -> int:
        """Modelled cycles of the last run, on the first replica.

        Raises
        ------
        popart_runtime_error
            Nothing ran yet, the counter option is off, or `id` is no counter that was asked for.
        """
        if not self._parts.runner.has_run:
            raise popart_runtime_error("Must call run before getCycleCount.")
        return self._parts.reports.cycle_count(id)


def _arrays(weights: IWeightsIO) -> PyWeightsIO:
    if not isinstance(weights, PyWeightsIO):
        raise TypeError(f"Expected a PyWeightsIO, got {type(weights).__name__}")
    return weights
