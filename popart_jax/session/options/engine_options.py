"""Poplar's engine options as a program and its environment give them, and which reports they ask for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ...errors import poplar_exception
from ...lowering.passes.autotune import ENGINE_OPTION as AUTOTUNE

CHECK = "POPART_JAX_CHECK_MEMORY"
ENVIRONMENT = "POPLAR_ENGINE_OPTIONS"
DIRECTORY = "autoReport.directory"
_ALLOW = "debug.allowOutOfMemory"
_PROFILES = ("autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")
_OWN = "popart_jax."
STRICT, TRAINABLE, STAGES = f"{_OWN}strict", f"{_OWN}trainable", f"{_OWN}stages"
SHARD, DEVICES = f"{_OWN}shard", f"{_OWN}shard.devices"
_OWN_KEYS = (AUTOTUNE, STRICT, TRAINABLE, STAGES, SHARD, DEVICES)
_OF_POPLAR = ("autoReport.", "debug.", "exchange.", "opt.", "prng.", "profiler.", "streamCallbacks.", "target.")
_READ = {
    "convolutionOptions": ("availableMemoryProportion", "enableConvDithering", "partialsType"),
    "reportOptions": ("showExecutionSteps", "showVarStorage"),
}


def engine_options(options: Any) -> dict[str, str]:
    """The session options' engine options; those of ``POPLAR_ENGINE_OPTIONS`` win, as with Poplar.

    Raises poplar_exception where the variable is no JSON object, or has keys of this runtime, which are read from the
    session options alone.
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


def without_effect(options: Any) -> Iterator[str]:
    """A sentence for each key of the engine, convolution and report options that nothing reads.

    Keys of Poplar's groups of engine options are not among them: a program for an IPU sets them for its device.
    """
    for key in options.engineOptions:
        if key not in _OWN_KEYS and not key.startswith(_OF_POPLAR):
            yield _said("engineOptions", key, _OWN_KEYS if key.startswith(_OWN) else ())
    for name, read in _READ.items():
        for key in getattr(options, name):
            if key not in read:
                yield _said(name, key, read)


def _said(name: str, key: str, read: Sequence[str]) -> str:
    text = f"{name}['{key}'] has no effect here"
    return f"{text}; the keys that have are {', '.join(read)}" if read else text
