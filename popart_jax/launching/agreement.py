"""Checks that facts agree in all processes of a job before anything depends on them."""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jaxlib.version import __version__ as jaxlib_version

from .._compat.jax import job_values
from ..errors import popart_runtime_error
from ..version import __version__

_WAIT = 300  # seconds to wait for the slowest process
_numbers = itertools.count()


def require_same(what: str, facts: Mapping[str, object], *, seconds: float = _WAIT) -> None:
    """Compare facts, by their texts, with those of the other processes; nothing happens in a job of one process.

    All processes must call it, in the same order, and wait up to `seconds` for each other. Raises popart_runtime_error
    in every process where a fact differs or processes are missing; the text names `what`, facts and processes.
    """
    mine = {name: str(value) for name, value in facts.items()}
    everyone = from_all(what, {"what": what, **mine}, seconds=seconds)
    differing = [name for name in ("what", *mine) if len({one.get(name) for one in everyone}) > 1]
    if differing:
        raise popart_runtime_error("\n".join(_difference(what, name, everyone) for name in differing))


def from_all(what: str, mine: Any, *, seconds: float = _WAIT) -> list[Any]:
    """Gather a value (JSON) from each process of the job, in their order; all must call it, in the same order.

    Raises popart_runtime_error, which names `what`, where processes are missing after `seconds`.
    """
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return [mine]
    texts = job_values(f"popart_jax/agreement/{next(_numbers)}", json.dumps(mine), seconds)
    missing = [i for i, text in enumerate(texts) if text is None]
    if missing:
        raise popart_runtime_error(
            f"Processes {missing} of {len(texts)} did not compare their {what} within {seconds:g} s: they run another "
            "program, or have stopped.\n  fix: every process must make the same sessions in the same order."
        )
    return [json.loads(text) for text in texts if text is not None]


def _difference(what: str, name: str, everyone: Sequence[Mapping[str, str]]) -> str:
    by_value: dict[str | None, list[int]] = {}
    for index, one in enumerate(everyone):
        by_value.setdefault(one.get(name), []).append(index)
    found = "; ".join(f"{value!r} in processes {members}" for value, members in by_value.items())
    label = "What is compared" if name == "what" else f"The {name} of the {what}"
    return f"{label} differs between the processes of this job: {found}."


def require_same_program(script: str) -> None:
    """Compare versions, and the text of the script that all processes are to run."""
    path = Path(script)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else script
    facts = {
        "version of popart_jax": __version__,
        "version of jax": jax.__version__,
        "version of jaxlib": jaxlib_version,
        "version of Python": ".".join(platform.python_version_tuple()[:2]),
        f"text of {path.name}": digest,
    }
    require_same("installation", facts)
