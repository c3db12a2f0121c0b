"""Poplar's engine options as a program and its environment give them, and which reports they ask for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, cast

from ...errors import poplar_exception

CHECK = "POPART_JAX_CHECK_MEMORY"
ENVIRONMENT = "POPLAR_ENGINE_OPTIONS"
DIRECTORY = "autoReport.directory"
_ALLOW = "debug.allowOutOfMemory"
_PROFILES = ("autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")
_OWN = "popart_jax."


def engine_options(options: Any) -> dict[str, str]:
    """The session options' engine options; those of ``POPLAR_ENGINE_OPTIONS`` win, as with Poplar.

    Raises
    ------
    poplar_exception
        The variable is no JSON object, or has keys of this runtime, which are read from the session options alone.
    """
    return {**options.engineOptions, **_of_environment(os.environ.get(ENVIRONMENT, ""))}


def _of_environment(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError as err:
        raise poplar_exception(f"{ENVIRONMENT} must be a JSON object, got {text!r}: {err}") from err
    if not isinstance(given, dict):
        raise poplar_exception(f"{ENVIRONMENT} must be a JSON object, got {text!r}")
    values = cast("dict[str, Any]", given)
    if own := [n for n in values if n.startswith(_OWN)]:
        raise poplar_exception(f"{ENVIRONMENT} has {', '.join(own)}: set it in SessionOptions.engineOptions.")
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in values.items()}


def wants_report(engine: Mapping[str, str]) -> bool:
    """Whether the program asks for anything that needs it priced."""
    return wants_check(engine) or wants_profile(engine)


def wants_check(engine: Mapping[str, str]) -> bool:
    """Whether the program asks for the memory check."""
    return _ALLOW in engine or os.environ.get(CHECK, "") not in ("", "0")


def wants_profile(engine: Mapping[str, str]) -> bool:
    """Whether the program asks for profile files."""
    return any(engine.get(key) == "true" for key in _PROFILES)
