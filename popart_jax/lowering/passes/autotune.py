"""Compiler options chosen by measurement; off unless an engine option, argument or environment variable asks for it.

Sessions read the engine option ``popart_jax.autotune``, functions made by `to_jax` an argument of `with_weights`;
without these, both read ``POPART_JAX_AUTOTUNE``. When a program is prepared, each candidate is compiled and run on
zeros. The fastest is used, and stored under a hash of the program for later preparations of the same program. The
folder is the one named instead of plain "on", else ``~/.cache/popart_jax``.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from ipu_model.whole_files import write_whole

from ..._compat.jax import compile_with
from ...logs import module_logger
from ...ops.stopping import calls_host
from .compiler import IN_PLACE

VARIABLE = "POPART_JAX_AUTOTUNE"
ENGINE_OPTION = "popart_jax.autotune"
Options = Mapping[str, str]
CANDIDATES: Mapping[str, tuple[Options, ...]] = {
    "cpu": (
        IN_PLACE,
        {**IN_PLACE, "xla_cpu_experimental_ynn_fusion_type": ""},
        {**IN_PLACE, "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
    )
}
_RUNS = 5


def folder(asked: str | bool | None = None) -> Path | None:
    """The folder of stored measurements; None when autotuning is off.

    The program's setting is on or off in words, or a folder; if it is None, the environment decides.
    """
    given = os.environ.get(VARIABLE, "") if asked is None else str(asked)
    if given.lower() in ("", "0", "false", "off"):
        return None
    usual = given.lower() in ("1", "true", "on")
    return Path.home() / ".cache" / "popart_jax" if usual else Path(given).expanduser()


def choose(traced: Any, given: Options, place: Path) -> Options:
    """The fastest of the candidates for a traced program with flat arguments; `given` if nothing can be measured.

    Measurements are stored in the folder `place`.
    """
    platform = jax.default_backend()
    candidates = [given, *(c for c in CANDIDATES.get(platform, ()) if c != given)]
    if len(candidates) == 1 or calls_host(traced.jaxpr):
        return given
    lowered = traced.lower()
    facts = (lowered.as_text(), platform, jax.__version__, str(os.cpu_count()), json.dumps(candidates))
    key = hashlib.sha256("|".join(facts).encode()).hexdigest()[:24]
    file = place / f"{key}.json"
    found = _found(file)
    if found is not None:
        return found
    times = [_time(compile_with(lowered, options), traced.jaxpr.in_avals) for options in candidates]
    best = candidates[times.index(min(times))]
    module_logger("devicex").info("Autotuning: %s", dict(zip(map(str, candidates), times, strict=True)))
    place.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"options": dict(best), "seconds": times, "candidates": candidates}))
    return best


def _found(file: Path) -> Mapping[str, str] | None:
    """The options stored by an earlier measurement; None if there are none, or if the file is invalid."""
    try:
        options = json.loads(file.read_text())["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(options, dict):
        return None
    texts = cast("dict[str, Any]", options)
    return texts if all(isinstance(v, str) for v in texts.values()) else None


def _time(call: Any, avals: Sequence[Any]) -> float:
    """Least time of several runs on zeros [s]; arguments are created for each run, since the call may donate them."""
    times: list[float] = []
    for _ in range(_RUNS):
        args = cast("list[jax.Array]", jax.block_until_ready([jnp.zeros(a.shape, a.dtype) for a in avals]))
        started = time.perf_counter()
        jax.block_until_ready(call(*args))
        times.append(time.perf_counter() - started)
    return min(times)
