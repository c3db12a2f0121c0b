"""What training and inference sessions have in common; each method checks, converts and calls."""

from __future__ import annotations

import contextlib
import copy
import weakref
from typing import Any

import jax
import numpy as np

from .._calls import checked
from ..enums import DeviceConnectionType, SyntheticDataMode, VirtualGraphMode
from ..errors import popart_exception, popart_runtime_error
from ..execution.compiled import to_host
from ..ir_view import build, may_be_unlowered, misplaced, tracked_gradients, unlowered
from ..logs import module_logger
from ..model.debug import recording
from ..model.dtypes import BY_NUMPY
from ..model.input_shapes import InputShapeInfo
from ..model.load import load_proto
from ..model.tensor_info import _TensorInfoCore
from ..ops.graphcore.printing import aborted
from ..optimizers import Optimizer
from . import callbacks, developer_output, feeding, memory_check, numeric_checks, option_checks, saving, seeds
from .anchor_arrays import init_anchor_arrays
from .dataflow import DataFlow
from .engine import FORWARD_ONLY, MAIN, Engine
from .executables import EngineCache, ExecutableMethods
from .ir_facts import ir_facts
from .ir_methods import IrMethods, forward_text
from .ir_records import record_ir
from .options import SessionOptions
from .patterns_api import Patterns
from .placement_checks import is_misplaced
from .preparing import Prepared, Request, prepare
from .preparing.anchoring import source_of
from .remote import RemoteMethods
from .reports import ReportMethods
from .stepio import PyStepIO, PyStepIOCallback
from .weights import HostWeights
from .weightsio import IWeightsIO, PyWeightsIO


class _DeviceUse:
    """Which session used a device last."""

    def __init__(self) -> None:
        self.reference: Any = None

    @property
    def session(self) -> Any:
        """The session, None if it is gone."""
        return self.reference and self.reference()

    @session.setter
    def session(self, session: Any) -> None:
        self.reference = None if session is None else weakref.ref(session)


_uses: weakref.WeakKeyDictionary[Any, _DeviceUse] = weakref.WeakKeyDictionary()


class SessionCore(ReportMethods, IrMethods, ExecutableMethods, RemoteMethods):
    """A prepared model, its engine once there is one, and the host's side of weights and seed."""

    _prepared: Prepared

    def _start(self, request: Request) -> None:
        self._request = request
        try:
            self._prepared = prepare(request)
            if self._prepared.program.training is not None and self._prepared.program.training.scaling is not None:
                self._prepared = prepare(request, tracked_gradients(ir_facts(self._prepared)))
        except popart_exception:
            with contextlib.suppress(popart_exception):  # a model that can't even be read
                developer_output.dump(lambda: forward_text(request))
            raise
        if request.options.virtualGraphMode is VirtualGraphMode.Auto:
            build(ir_facts(self._prepared))  # raises when the graph has too few parts for the IPUs
        if recording():
            record_ir(ir_facts(self._prepared))
        self._facts = self._prepared.facts
        self._engine: Engine | None = None
        self._weights = HostWeights(self._prepared)
        self._optimizer = request.optimizer
        self._placed_state = {}
        self._seed = seeds.clock_seed()
        self._loaded = False
        self._first_run = True
        self._use = _uses.setdefault(request.device, _DeviceUse())
        self._ready_token: object | None = None
        self._me = weakref.ref(self)
        self._checks_numbers = numeric_checks.wanted(request.options, request.device.type)
        self._has_run = False
        self._cache = EngineCache(self._prepared)
        self._stored = self._cache.find()
        self._from_cache = self._stored is not None
        developer_output.at_construction(request.options, self._ir_text, self._ir_stages)

    # -- facts

    @property
    def dataFlow(self) -> DataFlow:
        """The data flow (a copy)."""
        return copy.deepcopy(self._request.data_flow)

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
            There is no such tensor.
        """
        source = source_of(id, self._prepared.infos)
        kind = self._prepared.infos.get(source or "") or self._ir_types.get(id)
        if kind is None:
            raise popart_exception(
                f"No tensor named '{id}' in this session; there are {sorted(self._prepared.infos)[:50]}"
            )
        return _TensorInfoCore(BY_NUMPY[kind.dtype].data_type, list(kind.shape))

    def _tensor_ids(self) -> set[str]:
        return self._prepared.infos.keys() | self._ir_types.keys()

    # -- compiling and loading

    @checked
    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Compile the program for the device, and load it.

        Raises
        ------
        popart_exception
            The options do not fit the device.
        popart_runtime_error
            The device can't be attached.
        """
        options = self._request.options
        option_checks.raise_all(option_checks.check_device_options(options, self._facts))
        ipus = self._facts.ipus_per_replica(options)
        if is_misplaced(options, self._facts.ops, ipus):
            option_checks.raise_all(misplaced(ir_facts(self._prepared), ipus))
        if may_be_unlowered(self._request.patterns.selection):
            option_checks.raise_all(unlowered(ir_facts(self._prepared)))
        self._loaded, self._ready_token = False, None
        engine = Engine(self._prepared)
        if options.compileEngine:
            self._compile(engine)
        self._engine = engine
        developer_output.at_prepare(options, self._ir_text)
        memory_check.check(self, self._prepared, err)
        if loadEngine and options.compileEngine:
            self.loadEngineAndConnectStreams()

    def _compile(self, engine: Engine) -> None:
        """Fill the engine: from a stored executable, else by compiling (and storing)."""
        handles = (MAIN, FORWARD_ONLY) if self._request.options.createImplicitPipeliningFwdOnlyProgram else (MAIN,)
        if self._stored is not None:
            log = module_logger("session")
            try:
                self._cache.load(engine, handles, self._stored)
            except Exception as err:  # a damaged file, or one of another machine: XLA has no narrower class
                log.warning("Failed to load cached PopART executable %s: %s", self._stored, err)
                self._stored, self._from_cache = None, False
            else:
                log.info("Loading serialized PopART executable from %s", self._stored)
                return
        with self._cache.compiling():
            engine.compile(handles)
        module_logger("devicex").info("Graph compiled")
        self._cache.store(engine, self._weights.copy)

    def loadEngineAndConnectStreams(self) -> None:
        """Load the compiled program: send seed, optimizer values, and first weights.

        Raises
        ------
        popart_runtime_error
            Nothing was compiled, or the device can't be attached.
        """
        engine = self._engine
        if engine is None or MAIN not in engine.programs:
            raise popart_runtime_error(
                "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?"
            )
        self._attach()
        self._loaded = True
        self._use.session = None
        self._note_use()
        engine.load_variables(self._weights.copy)
        engine.put_seed(seeds.to_words(self._seed))
        self._send_optimizer()

    def _attach(self) -> None:
        device = self._request.device
        waits = device.connectionType is DeviceConnectionType.OnDemand and not device.isAttached
        if waits and not device.tryAttachUntilTimeout():
            raise popart_runtime_error(f"Failed to attach to device: {device!r}")

    def _send_optimizer(self) -> None:
        layout = self._prepared.hyper
        assert self._engine is not None
        values = np.zeros(1, np.float32) if layout is None else layout.values(self._optimizer)  # pyright: ignore[reportArgumentType]
        self._engine.put_hyper(values)

    def _ready(self, what: str) -> Engine:
        """The engine, loaded; loads it now if it is only compiled."""
        if self._engine is None:
            raise popart_runtime_error(f"Must call prepareDevice before {what}")
        if not self._loaded:
            self.loadEngineAndConnectStreams()
            return self._engine
        self._note_use()
        return self._engine

    def _note_use(self) -> None:
        """Log a load where upstream would have to exchange the engines of two sessions; here both stay alive."""
        if self._use.session is not self:
            self._use.session = self
            module_logger("devicex").info("Engine loaded")

    # -- running

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
        except jax.errors.JaxRuntimeError as err:
            raise aborted(err) from None

    def _run_anew(self, *args: Any, **kwargs: Any) -> None:
        """A run whose arguments are looked at."""
        handle, stepio = _run_arguments(*args, **kwargs)
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

    # -- weights

    def weightsFromHost(self) -> None:
        """Send the host copy of weights and optimizer state to the device."""
        self._weights.to_device(self._ready("weightsFromHost"))

    def weightsToHost(self) -> None:
        """Fetch weights and optimizer state from the device, for `readWeights`."""
        if self._request.options.syntheticDataMode is SyntheticDataMode.Off:
            self._weights.fetch(self._ready("weightsToHost"))

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
        engine = self._ready("modelToHost")
        values = self._weights.sync(engine)
        state = frozenset(n for n in self._prepared.state if n in values)
        saving.write_file(saving.saved_model(self._prepared.source.whole(), values, state, self._placed_state), fn)

    def resetHostWeights(
        self, modelProtoOrFilename: Any, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host copy from the initializers of a model.

        Raises
        ------
        popart_runtime_error
            Weights are constants, or an initializer does not fit a tensor of the session.
        """
        if self._request.loss is None and self._request.options.constantWeights:
            raise popart_runtime_error("Cannot call resetHostWeights when constantWeights is set")
        values = saving.initializer_values(load_proto(modelProtoOrFilename))
        unused = {t.name for t in self._prepared.source.proto.graph.initializer} - self._prepared.held.keys()
        values = {n: v for n, v in values.items() if n not in unused}
        skip = ignoreWeightsInModelWithoutCorrespondingHostWeight
        self._weights.replace(values, ignore_unknown=skip, where="resetHostWeights")
        self._weights.loaded = False
        self._ready_token = None

    # -- random numbers

    @checked
    def setRandomSeed(self, seedValue: int) -> None:
        """Set the random seed.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if not self._prepared.program.random:
            module_logger("session").warning(
                "Trying to set the random seed, but this session has no random behaviour. Doing nothing."
            )
            return
        if self._engine is None:
            raise popart_runtime_error("Must call prepareDevice before setRandomSeed")
        self._seed = seedValue
        if self._loaded:
            self._engine.put_seed(seeds.to_words(seedValue))

    def getRandomSeed(self) -> int:
        """The current random seed, on replica 0.

        Raises
        ------
        popart_runtime_error
            Before `prepareDevice`.
        """
        if not self._prepared.program.random:
            module_logger("session").warning(
                "Trying to get the random seed, but this session has no random behaviour. Returning 0."
            )
            return 0
        return seeds.to_int(self._ready("getRandomSeed").seed())


def _patterns_by_default() -> Patterns:
    """What a session without the argument applies: PopART's default, and strided slices, which that refuses."""
    return Patterns().enablePattern("Slice2SliceSubsample", True)


def make_request(
    fnModel: Any, dataFlow: Any, deviceInfo: Any, inputShapeInfo: Any, patterns: Any, userOptions: Any, name: str,
    loss: Any = None, optimizer: Optimizer | None = None,
) -> Request:  # fmt: skip
    """Arguments of a constructor, checked and copied.

    Raises
    ------
    popart_exception
        No device.
    TypeError
        An argument of a wrong type.
    """
    if deviceInfo is None:
        raise popart_exception("Must pass a valid deviceInfo to the session constructor.")
    flow = DataFlow(1, {}) if dataFlow is None else dataFlow
    for value, kind, what in (
        (flow, DataFlow, "dataFlow"),
        (inputShapeInfo or InputShapeInfo(), InputShapeInfo, "inputShapeInfo"),
        (patterns or Patterns(), Patterns, "patterns"),
        (userOptions or SessionOptions(), SessionOptions, "userOptions"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{what} must be a {kind.__name__}, got {type(value).__name__}")
    return Request(
        model=fnModel,
        data_flow=copy.deepcopy(flow),
        device=deviceInfo,
        options=copy.deepcopy(userOptions) if userOptions is not None else SessionOptions(),
        patterns=copy.deepcopy(patterns) if patterns is not None else _patterns_by_default(),
        shapes=copy.deepcopy(inputShapeInfo) if inputShapeInfo is not None else InputShapeInfo(),
        name=name,
        loss=loss,
        optimizer=None if optimizer is None else optimizer.clone(),
    )


def _arrays(weights: IWeightsIO) -> PyWeightsIO:
    if not isinstance(weights, PyWeightsIO):
        raise TypeError(f"Expected a PyWeightsIO, got {type(weights).__name__}")
    return weights


@checked
def _run_arguments(*args: Any, **kwargs: Any) -> tuple[str, Any]:
    values = list(args)
    handle = kwargs.pop("programHandle", None)
    if handle is None and values and isinstance(values[0], str):
        handle = values.pop(0)
    stepio = kwargs.pop("stepio", None)
    if stepio is None and values:
        stepio = values.pop(0)
    kwargs.pop("debugName", None)
    if kwargs or len(values) > 1 or stepio is None:
        raise TypeError("run(stepio, debugName='') or run(programHandle, stepio, debugName='')")
    return handle or MAIN, stepio


def _unknown_program(handle: str) -> popart_exception:
    return popart_exception(
        f"Unknown program handle '{handle}'. The only other program is '{FORWARD_ONLY}', which exists when "
        "createImplicitPipeliningFwdOnlyProgram is set."
    )
