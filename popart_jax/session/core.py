"""What training and inference sessions have in common; each method checks, converts and calls."""

from __future__ import annotations

import contextlib
import copy
import weakref
from typing import Any

import numpy as np

from .. import ir_view
from .._calls import checked
from .._collector import without_collector
from ..enums import DeviceConnectionType, VirtualGraphMode
from ..errors import logs_errors_of_methods, popart_exception, popart_runtime_error
from ..logs import module_logger
from ..model.debug import recording
from ..model.dtypes import BY_NUMPY
from ..model.tensor_info import _TensorInfoCore
from . import developer_output, memory_check, numeric_checks, option_checks, program_cache, seeds
from .anchor_arrays import init_anchor_arrays
from .dataflow import DataFlow
from .engine import FORWARD_ONLY, MAIN, Engine
from .executables import EngineCache, ExecutableMethods
from .ir_facts import ir_facts
from .ir_methods import IrMethods, forward_text
from .placement_checks import is_misplaced
from .preparing import Prepared, Request, prepare
from .preparing.anchoring import source_of
from .remote import RemoteMethods
from .reports import ReportMethods
from .running import RunMethods
from .seeds import SeedMethods
from .weight_methods import WeightMethods
from .weights import HostWeights


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


@logs_errors_of_methods
class SessionCore(RunMethods, WeightMethods, SeedMethods, ReportMethods, IrMethods, ExecutableMethods, RemoteMethods):
    """A prepared model, its engine once there is one, and the host's side of weights and seed."""

    _prepared: Prepared

    @without_collector()
    def _start(self, request: Request) -> None:
        self._request = request
        try:
            self._prepared = prepare(request)
            if self._prepared.program.training is not None and self._prepared.program.training.scaling is not None:
                self._prepared = prepare(request, ir_view.tracked_gradients(ir_facts(self._prepared)))
        except popart_exception:
            with contextlib.suppress(popart_exception):  # a model that can't even be read
                developer_output.dump(lambda: forward_text(request))
            raise
        if request.options.virtualGraphMode is VirtualGraphMode.Auto:
            ir_view.build(ir_facts(self._prepared))  # raises when the graph has too few parts for the IPUs
        if request.options.batchSerializationSettings.factor > 1:
            ir_view.check_batch(ir_facts(self._prepared))
        if recording():
            from .ir_records import record_ir

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
        options = self._request.options
        option_checks.raise_all(option_checks.check_device_options(options, self._facts))
        ipus = self._facts.ipus_per_replica(options)
        if is_misplaced(options, self._facts.ops, ipus):
            option_checks.raise_all(ir_view.misplaced(ir_facts(self._prepared), ipus))
        if ir_view.may_be_unlowered(self._request.patterns.selection):
            option_checks.raise_all(ir_view.unlowered(ir_facts(self._prepared)))
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
        if not program_cache.load(engine, handles, self._prepared):
            program_cache.fill(engine, handles, self._prepared)
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
        self._weights.send(engine)
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
