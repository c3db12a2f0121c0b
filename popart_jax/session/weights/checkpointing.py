"""Collects the state of a session that checkpoints save."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ...execution import HYPER
from ...execution.stored.held import ResidentState, fed_numbers
from ...execution.stored.key import model_facts
from ..engine import Engine
from ..preparing import Prepared
from ..start import MAIN
from .host_copies import HostWeights

_HYPER, _GENERATORS = "hyperparameters", "state of the generators"


def held(prepared: Prepared, engine: Engine, weights: HostWeights) -> ResidentState:
    """Variables, optimizer state and seed on the device, hyperparameters and the generators' state."""
    variables = engine.programs[MAIN].laid_out.program.variables

    def replace(arrays: Mapping[str, jax.Array], facts: Mapping[str, Any]) -> None:
        engine.changing = {**engine.changing, **arrays}
        if facts[_HYPER] is not None:
            engine.put_hyper(np.asarray(facts[_HYPER], np.float32))
        if facts[_GENERATORS] is not None:
            engine.put_generators(np.asarray(facts[_GENERATORS], np.uint32))
        weights.sync(engine)
        weights.sent = True

    reads_hyper = HYPER in engine.programs[MAIN].executable.step.fed
    facts = {
        _HYPER: fed_numbers(engine.hyper) if reads_hyper else None,
        _GENERATORS: engine.generators().tolist(),
    }
    return ResidentState(dict(engine.changing), variables, replace, facts, _model(prepared))


def _model(prepared: Prepared) -> dict[str, str]:
    names = frozenset(t.name for t in prepared.source.proto.graph.initializer)
    digest = hashlib.sha256(model_facts(prepared.source, names)).hexdigest()[:12]
    request = prepared.request
    kind = "none" if request.optimizer is None else type(request.optimizer).__name__
    return {"graph": f"{prepared.source.proto.graph.name} ({digest})", "loss": str(request.loss), "optimizer": kind}
