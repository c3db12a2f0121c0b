"""The parts of a session; one that starts from a file makes them only when one is asked for."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from .. import ir_view
from .. import session as later
from ..enums import DeviceType
from ..errors import popart_exception
from ..timings import Timings

if TYPE_CHECKING:
    from . import start
    from .devices.device_engine import DeviceEngine
    from .optimizer_values import OptimizerValues
    from .preparing import Prepared
    from .reports.op_list import OpList
    from .reports.reports import Reports
    from .requests import Request
    from .running import Runner
    from .seeds import RandomSeed
    from .stored_programs import StoredPrograms
    from .weights.host_copies import HostWeights
    from .weights.saving import ModelFiles


class Parts:
    """The objects that compile a session, run it and describe it."""

    prepared: Prepared
    op_list: OpList
    weights: HostWeights
    optimizer: OptimizerValues
    seed: RandomSeed
    place: DeviceEngine
    stored: StoredPrograms
    runner: Runner
    reports: Reports
    files: ModelFiles

    def __init__(self) -> None:
        self.timings = Timings()  # times of the phases of preparing
        # the session's start from a file, which does the work as long as the other parts do not exist
        self.first: start.Start | None = None
        # the file in which the next process looks for the program that this one compiles
        self.next: start.Place | None = None
        self._completing = threading.RLock()

    def start(self, asked: start.Asked) -> None:
        """Take the program from a file, or make the parts; popart_exception for wrong arguments of the constructor."""
        with self.timings.collect():
            self.next, self.first = later.find_start(asked)
            if self.first is not None:
                self.next = None
            else:
                self._make(later.request_of(asked))

    def _make(self, request: Request) -> None:
        try:
            self.prepared = later.prepare(request)
        except popart_exception:
            with contextlib.suppress(popart_exception):  # a model that can't even be read
                later.dump(lambda: later.forward_text(request))
            raise
        prepared = self.prepared
        self.op_list = later.OpList(prepared)
        self.op_list.check()
        self.weights = later.HostWeights(prepared)
        self.optimizer = later.OptimizerValues(request.optimizer, prepared.hyper)
        self.seed = later.seeds.RandomSeed()
        uploads = (self.weights.upload, self.seed.send, self.optimizer.send)
        self.place = later.DeviceEngine(request.device, uploads)
        self.stored = later.StoredPrograms(prepared)
        self.runner = later.Runner(prepared, self.place, self.weights)
        self.reports = later.Reports(prepared, self.place, self.stored)
        self.files = later.ModelFiles(prepared.source)
        later.at_construction(request.options, self.op_list.text, self.op_list.stages)

    def __getattr__(self, name: str) -> Any:
        if name in Parts.__annotations__ and "_completing" in self.__dict__:
            with self._completing:
                if self.first is not None:
                    self._complete(self.first)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)

    def _complete(self, first: start.Start) -> None:
        """Make the other parts of a session that started from a file, and bring them to its present state.

        Other threads see all of them or none; if one can't be made, also after Ctrl-C, the session goes on as before.
        """
        with self.timings.collect():
            made = Parts()
            made._make(later.request_of(first.asked, later.model_of(first)))
            first.hand_over(made)
        self.__dict__.update({name: made.__dict__[name] for name in Parts.__annotations__})
        self.first = None

    def prepare_device(self, load: bool, err: Any) -> None:
        """See `SessionCore.prepareDevice`."""
        self._check_placement()
        options = self.prepared.request.options
        self.place.unload()
        later.require_same_session(self.prepared)
        engine = later.Engine(self.prepared)
        if options.compileEngine:
            later.compile_into(engine, self.prepared, self.stored, self.weights.copy)
        self.place.engine = engine
        later.at_prepare(options, self.op_list.text)
        device, name = self.prepared.request.device, self.prepared.request.name
        later.check_memory(device, options, name, lambda: self.reports.priced, err)
        if load and options.compileEngine and device.type is not DeviceType.OfflineIpu:
            self.place.load()

    def _check_placement(self) -> None:
        request, facts = self.prepared.request, self.prepared.facts
        self.prepared.require_device_types()
        raise_all = later.raise_all
        raise_all(later.check_device_options(request.options, facts))
        ipus = facts.ipus_per_replica(request.options)
        if later.is_misplaced(request.options, facts.ops, ipus):
            raise_all(ir_view.misplaced(self.prepared.op_list_facts, ipus))
        if ir_view.may_be_unlowered(request.patterns.selection):
            raise_all(ir_view.unlowered(self.prepared.op_list_facts))
