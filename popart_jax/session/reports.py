"""Reports of a prepared session, from the IPU model."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cbor2

from ..enums import DeviceType, Instrumentation
from ..errors import logs_errors_of_methods, popart_runtime_error, poplar_exception

if TYPE_CHECKING:
    import ipu_model

    from .profile_report import ProfileReport


@logs_errors_of_methods
class ReportMethods:
    """Report queries of a session; everything is modelled, nothing measured."""

    _prepared: Any
    _request: Any
    _engine: Any
    _has_run: bool
    _run_names: Any
    _from_cache: bool

    @cached_property
    def _priced(self) -> ipu_model.Report:
        from .pricing import price  # the IPU model takes a while to import

        return price(self._prepared)

    def _report(self, *, profiles: bool = True) -> ipu_model.Report:
        if self._engine is None:
            raise popart_runtime_error("Session must have been prepared before a report can be fetched")
        if self._from_cache:
            raise popart_runtime_error("Unable to get reports when using a cached executable.")
        if profiles and self._request.device.type is DeviceType.Cpu:
            raise poplar_exception("Cannot fetch a report: Profiling is disabled for current device type.")
        return self._priced

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Summary of the modelled step, as text.

        Raises
        ------
        popart_runtime_error
            The session is not prepared, or its executable came from a cache.
        poplar_exception
            On a CPU device.
        """
        options = self._request.options.reportOptions
        return self._report().summary(
            show_execution_steps=options.get("showExecutionSteps") == "true",
            show_var_storage=options.get("showVarStorage") == "true",
        )

    def getReport(self) -> ProfileReport:
        """The profile as an object; raises as `getSummaryReport` does."""
        from .profile_report import ProfileReport

        return ProfileReport(self._report(), tuple(self._run_names))

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The graph profile as JSON or CBOR (older interface)."""
        return encoded(self._report(profiles=False).graph_report(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """The execution profile as JSON or CBOR (older interface)."""
        return encoded(self._report(profiles=False).execution_report(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """The program as XLA has it, as bytes of StableHLO text.

        Raises
        ------
        popart_runtime_error
            As `getSummaryReport`.
        """
        if self._engine is None:
            raise popart_runtime_error("Session must have been prepared before a report can be fetched")
        if self._from_cache:
            raise popart_runtime_error("Unable to get the serialised graph when using a cached executable.")
        return self._engine.stable_hlo().encode()

    def getCycleCount(self, id: str = "") -> int:
        """Modelled cycles of the last run, on the first replica.

        Raises
        ------
        popart_runtime_error
            Nothing ran yet, the counter option is off, or `id` is no counter that was asked for.
        """
        options = self._request.options
        if not self._has_run:
            raise popart_runtime_error("Must call run before getCycleCount.")
        if not options.instrumentWithHardwareCycleCounter:
            raise popart_runtime_error(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle count"
            )
        kinds, report = options.hardwareInstrumentations, self._priced
        if id == "" and Instrumentation.Outer in kinds:
            return round(report.total_cycles)
        inner = {f"inner_ipu_{row.ipu}": row for row in report.ipus}
        if id in inner and Instrumentation.Inner in kinds:
            batches = max(self._prepared.program.structure.batches, 1)
            return round(inner[id].cycles.total / batches)
        raise popart_runtime_error(
            f"Invalid id for cycle counter, '{id}'. "
            "Make sure you have set SessionOption::hardwareInstrumentations correctly."
        )


def encoded(tree: dict[str, Any], as_cbor: bool) -> bytes:
    """A profile as JSON or CBOR."""
    return cbor2.dumps(tree) if as_cbor else json.dumps(tree).encode()
