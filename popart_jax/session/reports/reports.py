"""Reports of a prepared session, from the IPU model: everything is modelled, nothing measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cbor2

from ... import session as later
from ...enums import DeviceType, Instrumentation
from ...errors import popart_runtime_error, poplar_exception
from ..devices.device_engine import DeviceEngine
from ..engine import Engine
from ..preparing import Prepared
from ..stored_programs import StoredPrograms

if TYPE_CHECKING:
    import ipu_model


class Reports:
    """Reports of a session's step, which is priced once."""

    def __init__(self, prepared: Prepared, place: DeviceEngine, stored: StoredPrograms) -> None:
        self._prepared, self._place, self._stored = prepared, place, stored

    @cached_property
    def priced(self) -> ipu_model.Report:
        """The model's report of one step."""
        return later.price(self._prepared)

    def report(self, *, profiles: bool = True) -> ipu_model.Report:
        """The model's report, if the session may show it; with `profiles` a CPU device has none.

        Raises popart_runtime_error where the session is not prepared, or its executable came from a cache;
        poplar_exception on a CPU device.
        """
        self._engine()
        if profiles and self._place.device.type is DeviceType.Cpu:
            raise poplar_exception("Cannot fetch a report: Profiling is disabled for current device type.")
        return self.priced

    def _engine(self) -> Engine:
        if self._place.engine is None:
            raise popart_runtime_error("Session must have been prepared before a report can be fetched")
        if self._stored.path is not None:
            raise popart_runtime_error(
                "Unable to get reports when using a cached executable.\nEither remove the cache file "
                f"({self._stored.path}), or \ndisable engine caching (userOptions.enableEngineCaching = false)"
            )
        return self._place.engine

    def summary(self) -> str:
        """Summary of the step, as text."""
        options = self._prepared.request.options
        return self.report().summary(
            show_execution_steps=options.reportOptions.get("showExecutionSteps") == "true",
            show_var_storage=options.reportOptions.get("showVarStorage") == "true",
            group_host_copies=options.groupHostSync,
        )

    def stable_hlo(self) -> bytes:
        """The program as XLA has it, as StableHLO text."""
        return self._engine().stable_hlo().encode()

    def cycle_count(self, counter: str) -> int:
        """As `cycle_count` below, of this session's step."""
        batches = max(self._prepared.program.structure.batches, 1)
        return cycle_count(counter, self._prepared.request.options, lambda: self.priced, batches)


def cycle_count(counter: str, options: Any, price: Callable[[], ipu_model.Report], batches: int) -> int:
    """Cycles of one run of some batches, as one of the counters that the options ask for shows them.

    A `counter` that they do not ask for raises popart_runtime_error.
    """
    if not options.instrumentWithHardwareCycleCounter:
        raise popart_runtime_error(
            "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle count"
        )
    kinds, report = options.hardwareInstrumentations, price()
    if counter == "" and Instrumentation.Outer in kinds:
        return round(report.total_cycles)
    inner = {f"inner_ipu_{row.ipu}": row for row in report.ipus}
    if counter in inner and Instrumentation.Inner in kinds:
        return round(inner[counter].cycles.total / batches)
    raise popart_runtime_error(
        f"Invalid id for cycle counter, '{counter}'. "
        "Make sure you have set SessionOption::hardwareInstrumentations correctly."
    )


def encoded(tree: dict[str, Any], as_cbor: bool) -> bytes:
    """A profile as JSON or CBOR."""
    return cbor2.dumps(tree) if as_cbor else json.dumps(tree).encode()
