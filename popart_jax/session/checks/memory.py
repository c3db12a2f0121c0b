"""Whether a session's program fits into the memory of the modelled IPU, and the profile files that options ask for.

The check must price the program, so it is made only on request: with engine option
``debug.allowOutOfMemory``, or with ``POPART_JAX_CHECK_MEMORY=1`` in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...enums import DeviceType
from ..options.session_options import SessionOptions
from ..reports.memory import OutOfMemoryError, OutOfMemoryException
from ..reports.reports import encoded
from ..requests import Request

if TYPE_CHECKING:
    import ipu_model

VARIABLE = "POPART_JAX_CHECK_MEMORY"
_ALLOW = "debug.allowOutOfMemory"
_DIRECTORY = "autoReport.directory"
_PROFILES = ("autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")


def wants_check(options: SessionOptions) -> bool:
    """Whether the program asks for the memory check."""
    return _ALLOW in options.engineOptions or os.environ.get(VARIABLE, "") not in ("", "0")


def wants_profile(options: SessionOptions) -> bool:
    """Whether the program asks for profile files."""
    engine = options.engineOptions
    return any(engine.get(key) == "true" for key in _PROFILES)


def check_memory(request: Request, price: Callable[[], ipu_model.Report], error: OutOfMemoryError | None) -> None:
    """Write the profile files and check the memory, each if the options ask for it.

    Raises
    ------
    OutOfMemoryException
        The program does not fit, and no error object was given to be filled instead.
    """
    options = request.options
    if request.device.type is DeviceType.Cpu:
        return
    if not (wants_check(options) or wants_profile(options)):
        return
    from ipu_model.report.overflow import render as explain

    report = price()
    path = _write_profile(request, report) if wants_profile(options) else ""
    if not wants_check(options) or report.overflow is None:
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


def _write_profile(request: Request, report: ipu_model.Report) -> str:
    from ipu_model import pva

    folder = Path(request.options.engineOptions.get(_DIRECTORY, ".")) / request.name
    folder.mkdir(parents=True, exist_ok=True)
    return str(pva.save_profile(report, folder / "profile.pop"))
