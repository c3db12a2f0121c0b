"""Checks that all processes of a job have made the same session."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import jax

from ..execution.stored.described import Undescribed, described
from ..execution.stored.key import model_facts
from ..launching.agreement import require_same
from .preparing import Prepared

_OWN = frozenset({"globalReplicaOffset", "cachePath", "logDir", "compilationProgressLogger"})


def require_same_session(prepared: Prepared) -> None:
    """Raise popart_runtime_error, in every process, where two processes make different sessions.

    Compared before anything is compiled: model, weights, options, data flow and optimizer.
    """
    if jax.process_count() > 1:
        require_same("session", _facts(prepared))


def _facts(prepared: Prepared) -> Mapping[str, str]:
    request, source = prepared.request, prepared.source
    weights = frozenset(t.name for t in source.proto.graph.initializer)
    optimizer = request.optimizer
    facts: dict[str, Any] = {
        "model": model_facts(source, weights),
        "data flow": request.data_flow,
        "loss": request.loss,
        "optimizer": None if optimizer is None else optimizer.fixed(),
        **{f"weight '{name}'": value for name, value in prepared.initial.items()},
        **{f"option {n}": v for n, v in vars(request.options).items() if n not in _OWN},
    }
    found: dict[str, str] = {}
    for name, value in facts.items():
        with contextlib.suppress(Undescribed):  # such as functions that the program defines
            found[name] = _short(described(value))
    return found


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"hash {hashlib.sha256(text.encode()).hexdigest()[:12]}"
