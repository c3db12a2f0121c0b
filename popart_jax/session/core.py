"""What training and inference sessions have in common: each public method checks, and forwards to a part."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .. import ir_view
from .._calls import checked
from .._collector import without_collector
from ..enums import DeviceType, IrSerializationFormat, SyntheticDataMode
from ..errors import logs_errors_of_methods, popart_exception, popart_runtime_error
from ..execution import Memory
from ..execution.held import Held
from ..model.load import load_proto
from ..model.tensor_info import _TensorInfoCore, info_of
from ..timings import FIRST_RUN, Timings
from . import developer_output, memory_check, option_checks, seeds, shown
from .anchor_arrays import init_anchor_arrays
from .checkpointing import held
from .compiling import compile_into
from .dataflow import DataFlow
from .device_engine import DeviceEngine
from .engine import MAIN, Engine
from .feed_checks import StreamFact
from .files import makedirsAndCheckWritable
from .memory import OutOfMemoryError
from .op_list import Ir, OpList, forward_text
from .optimizer_values import OptimizerValues
from .placement_checks import is_misplaced
from .preparing import Prepared, prepare
from .preparing.anchoring import source_of
from .reports import Reports, encoded
from .requests import Request
from .running import Runner, reported
from .same_everywhere import require_same_session
from .saving import ModelFiles, initializer_values
from .stepio import PyStepIO
from .stored_programs import StoredPrograms, require_savable
from .weights import HostWeights
from .weightsio import IWeightsIO, PyWeightsIO

if TYPE_CHECKING:
    from .profile_report import ProfileReport


@partial(logs_errors_of_methods, but=("run",))  # which logs its own, on a way that is short
class SessionCore:
    """A prepared model, and the parts that compile it, run it and describe it."""

    @without_collector()
    def _start(self, request: Request) -> None:
        self._timings = Timings()
        with self._timings.collect():
            self._make(request)

    def _make(self, request: Request) -> None:
        try:
            self._prepared: Prepared = prepare(request)
        except popart_exception:
            with contextlib.suppress(popart_exception):  # a model that can't even be read
                developer_output.dump(lambda: forward_text(request))
            raise
        prepared = self._prepared
        self._op_list = OpList(prepared)
        self._op_list.check()
        self._weights = HostWeights(prepared)
        self._optimizer = OptimizerValues(request.optimizer, prepared.hyper)
        self._seed = seeds.RandomSeed()
        uploads = (self._weights.upload, self._seed.send, self._optimizer.send)
        self._place = DeviceEngine(request.device, uploads)
        self._stored = StoredPrograms(prepared)
        self._runner = Runner(prepared, self._place, self._weights)
        self._reports = Reports(prepared, self._place, self._stored)
        self._files = ModelFiles(prepared.source)
        developer_output.at_construction(request.options, self._op_list.text, self._op_list.stages)

    @property
    def _engine(self) -> Engine | None:
        return self._place.engine

    def _streamed(self) -> tuple[list[StreamFact], Callable[[str, np.ndarray], Any]]:
        """What a `Stream` draws for a run, and what puts it on the devices."""
        loaded = self._place.ready("more").programs[""]
        return loaded.streams, loaded.executable.put_fed

    # -- facts

    def __repr__(self) -> str:
        prepared = getattr(self, "_prepared", None)  # none where the constructor stopped
        return object.__repr__(self) if prepared is None else shown.summary_line(type(self).__name__, prepared)

    def _repr_html_(self) -> str:
        return shown.summary_html(type(self).__name__, self._prepared)

    @property
    def memory(self) -> Memory | None:
        """Bytes of this machine that one run takes: ``arguments``, ``results``, ``temporary`` and their sum ``peak``.

        By XLA's plan of its buffers, on each device; None where the backend tells none. The memory of an IPU is another
        matter: see `getSummaryReport`.

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
        return self._timings.seconds

    @property
    def dataFlow(self) -> DataFlow:
        """The data flow (a copy)."""
        return copy.deepcopy(self._prepared.request.data_flow)

    @property
    def replicationFactor(self) -> int:
        """Replicas of this process."""
        return self._prepared.local_replicas

    @property
    def accumulationFactor(self) -> int:
        """Micro-batches per weight update."""
        return self._prepared.program.structure.accumulation

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
        return init_anchor_arrays(self)

    @checked
    def getInfo(self, id: str, /) -> _TensorInfoCore:
        """Type and shape (of one replica) of any tensor.

        Raises
        ------
        popart_exception
            There is no such tensor, or PopART has no name for its type.
        """
        infos = self._prepared.infos
        kind = infos.get(source_of(id, infos) or "") or self._op_list.types.get(id)
        if kind is None:
            raise popart_exception(f"No tensor named '{id}' in this session; there are {sorted(infos)[:50]}")
        return info_of(id, kind.dtype, kind.shape)

    def _tensor_ids(self) -> set[str]:
        return self._prepared.infos.keys() | self._op_list.types.keys()

    def getIr(self) -> Ir:
        """A handle of the IR."""
        return self._op_list.handle()

    def _serializeIr(self, format: IrSerializationFormat) -> str:
        """The op list after the patterns, as JSON; empty for an executable from a file."""
        if not isinstance(format, IrSerializationFormat):
            raise TypeError(f"_serializeIr takes an IrSerializationFormat, got {format!r}")
        return "" if self._stored.path is not None else self._op_list.text()

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
        with self._timings.collect():
            self._prepare(loadEngine, err)

    def _prepare(self, load: bool, err: Any) -> None:
        self._check_placement()
        options = self._prepared.request.options
        self._place.unload()
        require_same_session(self._prepared)
        engine = Engine(self._prepared)
        if options.compileEngine:
            compile_into(engine, self._prepared, self._stored, self._weights.copy)
        self._place.engine = engine
        developer_output.at_prepare(options, self._op_list.text)
        self._check_memory(err)
        if load and options.compileEngine and self._prepared.request.device.type is not DeviceType.OfflineIpu:
            self.loadEngineAndConnectStreams()

    def _check_placement(self) -> None:
        request, facts = self._prepared.request, self._prepared.facts
        self._prepared.require_device_types()
        option_checks.raise_all(option_checks.check_device_options(request.options, facts))
        ipus = facts.ipus_per_replica(request.options)
        if is_misplaced(request.options, facts.ops, ipus):
            option_checks.raise_all(ir_view.misplaced(self._prepared.op_list_facts, ipus))
        if ir_view.may_be_unlowered(request.patterns.selection):
            option_checks.raise_all(ir_view.unlowered(self._prepared.op_list_facts))

    def _check_memory(self, err: OutOfMemoryError | None) -> None:
        memory_check.check(self._prepared.request, lambda: self._reports.priced, err)

    def loadEngineAndConnectStreams(self) -> None:
        """Load the compiled program: send seed, optimizer values, and first weights.

        Raises
        ------
        popart_runtime_error
            Nothing was compiled, or the device can't be attached.
        """
        self._place.load()

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
            ready = args[0].plan if len(args) == 1 and not kwargs and type(args[0]) is PyStepIO else None
            if ready is not None and ready[0] is self._place.token:  # arrays that an earlier run has checked
                ready[1]()
            else:
                with contextlib.nullcontext() if FIRST_RUN in self._timings else self._timings.collect(FIRST_RUN):
                    self._runner.run(*args, **kwargs)
        except (popart_exception, jax.errors.JaxRuntimeError) as err:
            raised = reported(err)
            if raised is err:
                raise
            raise raised from None

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
        self._weights.send(self._place.ready("weightsFromHost"))

    def weightsToHost(self) -> None:
        """Fetch weights and optimizer state from the device, for `readWeights`."""
        if self._prepared.request.options.syntheticDataMode is SyntheticDataMode.Off:
            self._weights.fetch(self._place.ready("weightsToHost"))

    @checked
    def readWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Copy what `weightsToHost` fetched into arrays."""
        self._weights.read(_arrays(weightsIo))

    @checked
    def writeWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Set the host copy of some weights; `weightsFromHost` then sends it."""
        self._weights.write(_arrays(weightsIo))

    @checked
    def modelToHost(self, fn: str, /) -> None:
        """Write the model with current weights and optimizer state to a file, and make these the host copy."""
        values = self._weights.sync(self._place.ready("modelToHost"))
        self._files.write(fn, values, self._prepared.state)

    def resetHostWeights(
        self, modelProtoOrFilename: Any, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host copy from the initializers of a model.

        Raises
        ------
        popart_runtime_error
            Weights are constants, or an initializer does not fit a tensor of the session.
        """
        self._weights.require_writable("resetHostWeights")
        self._place.require_executable()
        values = initializer_values(load_proto(modelProtoOrFilename))
        self._weights.reset(values, ignore_unknown=ignoreWeightsInModelWithoutCorrespondingHostWeight)
        self._place.check_runs_again()

    @checked
    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str, /) -> None:
        """Copy external data to another file, where `modelToHost` then writes.

        Raises
        ------
        popart_runtime_error
            The target exists, the source does not, or no initializer is stored there.
        """
        self._files.move_external_data(fromLocation, toLocation)

    def _held(self) -> Held:
        """What runs have made of this session, for checkpoints."""
        return held(self._prepared, self._place.ready("a checkpoint"), self._weights)

    # -- random state

    @checked
    def setRandomSeed(self, seedValue: int) -> None:
        """Set the random seed.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        TypeError
            No number of 64 bits without sign.
        """
        engine = self._place.ready("setRandomSeed") if self._place.loaded else self._place.engine
        self._seed.set(seedValue, self._prepared, engine, self._place.loaded)

    def getRandomSeed(self) -> int:
        """The current random seed, on replica 0.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if not self._prepared.program.random:
            seeds.warn_without_seed()
            return 0
        return seeds.to_int(self._place.ready("getRandomSeed").seed())

    def getRNGState(self) -> list[int]:
        """State of the random number generators, two numbers per replica.

        Raises
        ------
        popart_runtime_error
            The option enableLoadAndOffloadRNGState is off.
        """
        seeds.require_generator_option(self._prepared, "getRNGState")
        return seeds.generator_state(self._place.ready("getRNGState"), self._prepared)

    @checked
    def setRNGState(self, rngValue: list[int]) -> None:
        """Set the state of the random number generators.

        Raises
        ------
        popart_runtime_error
            The option is off, or the list has a wrong length.
        """
        seeds.require_generator_option(self._prepared, "setRNGState")
        engine = self._place.ready("setRNGState")
        seeds.set_generator_state(rngValue, engine, self._prepared)

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
        require_savable(self._place.device)
        makedirsAndCheckWritable(filename)
        if self._place.engine is None:
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
        require_savable(self._place.device)
        self._stored.save(path, self._place.engine, self._weights.copy if saveVariables else None)

    @checked
    def saveVariables(self, path: str) -> None:
        """Write the host copy of all variables.

        Raises
        ------
        popart_exception
            The device is no IPU.
        """
        require_savable(self._place.device)
        self._stored.save_variables(path, self._weights.copy)

    @checked
    def loadExecutable(self, filename: str) -> None:
        """Take the compiled programs from a file; `prepareDevice` then does not compile.

        Raises
        ------
        popart_exception
            No such file, or one of another session.
        """
        self._weights.take(self._stored.open(filename))

    # -- reports

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Summary of the modelled step, as text.

        Raises
        ------
        popart_runtime_error
            The session is not prepared, or its executable came from a cache.
        poplar_exception
            On a CPU device.
        """
        return self._reports.summary()

    def getReport(self) -> ProfileReport:
        """The profile as an object; raises as `getSummaryReport` does."""
        from .profile_report import ProfileReport

        return ProfileReport(self._reports.report(), tuple(self._runner.names))

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The graph profile as JSON or CBOR (older interface)."""
        return encoded(self._reports.report(profiles=False).graph_report(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """The execution profile as JSON or CBOR (older interface)."""
        return encoded(self._reports.report(profiles=False).execution_report(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """The program as XLA has it, as bytes of StableHLO text; raises as `getSummaryReport` does."""
        return self._reports.stable_hlo()

    def getCycleCount(self, id: str = "") -> int:
        """Modelled cycles of the last run, on the first replica.

        Raises
        ------
        popart_runtime_error
            Nothing ran yet, the counter option is off, or `id` is no counter that was asked for.
        """
        if not self._runner.has_run:
            raise popart_runtime_error("Must call run before getCycleCount.")
        return self._reports.cycle_count(id)


def _arrays(weights: IWeightsIO) -> PyWeightsIO:
    if not isinstance(weights, PyWeightsIO):
        raise TypeError(f"Expected a PyWeightsIO, got {type(weights).__name__}")
    return weights
