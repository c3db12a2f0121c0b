"""Seed models of the fuzzer: ONNX's own small test cases, with their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tests.conformance.cases import newest

_MOST = 8_000  # bytes of a model


@dataclass(frozen=True)
class Seed:
    """A valid model, as bytes, and its feeds."""

    name: str
    data: bytes
    feeds: dict[str, Any]


@cache
def corpus() -> tuple[Seed, ...]:
    """All models of ONNX's suites that are small."""
    found = []
    for case in newest(("node", "simple", "pytorch-operator")):
        model = case.model()
        data = model.SerializeToString()
        inputs = next(iter(case.data_sets()))[0] if len(data) <= _MOST else []
        if len(data) <= _MOST and sum(np.size(x) for x in inputs if x is not None and not isinstance(x, list)) < 10_000:
            found.append(Seed(case.name, data, {v.name: x for v, x in zip(model.graph.input, inputs, strict=False)}))
    return tuple(found)
