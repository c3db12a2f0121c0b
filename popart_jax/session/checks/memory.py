"""Whether a session's program fits into the memory of the modelled IPU, and the profile files that options ask for.

The check must price the program, so it is made only on request: with engine option
``debug.allowOutOfMemory``, or with ``POPART_JAX_CHECK_MEMORY=1`` in the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...enums import DeviceType
from ..options.engine_options import DIRECTORY, engine_options, wants_check, wants_profile, wants_report
from ..reports.memory import OutOfMemoryError, OutOfMemoryException
from ..reports.reports import encoded

if TYPE_CHECKING:
    import ipu_model

    from ..devices.devices import DeviceInfo


def check_memory(
    device: DeviceInfo,
    options: Any,
    name: str,
    price: Callable[[], ipu_model.Report],
    error: OutOfMemoryError | None = None,
) -> None:
    """Write the profile files and check the memory, each if the options ask for it; a CPU has neither.

    The session's `name` is that of its folder of profiles; `price` gives the report of the IPU model. Where the program
    does not fit, `error` is filled or, without one, OutOfMemoryException raised.
    """
    engine = engine_options(options)
    if device.type is DeviceType.Cpu or not wants_report(engine):
        return
    from ipu_model.report.overflow import render as explain

    report = price()
    path = _write_profile(Path(engine.get(DIRECTORY, ".")) / name, report) if wants_profile(engine) else ""
    if not wants_check(engine) or report.overflow is None:
        return
    failure = OutOfMemoryError() if error is None else error
    failure.fill(
        f"{explain(report.overflow)}\n(modelled, not measured)",
        report.summary(),
        path,
        lambda as_cbor: encoded(report.graph_report(), as_cbor),
    )
    if error is None:
        raise OutOfMemoryException(failure)


def _write_profile(folder: Path, report: ipu_model.Report) -> str:
    from ipu_model import pva

    folder.mkdir(parents=True, exist_ok=True)
    return str(pva.save_profile(report, folder / "profile.pop"))
