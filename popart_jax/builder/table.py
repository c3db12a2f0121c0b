"""All builder methods: those of ai.onnx from its schemas, those of ai.graphcore from beside their translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from . import schema_methods
from .method import Method
from .signatures import parse


def methods(domain: str, version: int) -> Mapping[str, Sequence[Method]]:
    """Methods of a domain at an opset version by name, with their overloads."""
    return schema_methods.methods(version) if domain == "ai.onnx" else _graphcore()


def _graphcore() -> dict[str, list[Method]]:
    from ..ops.builder_methods import builder_methods  # imports JAX

    found: dict[str, list[Method]] = {}
    for op, declared in builder_methods().items():
        for one in declared:
            method = replace(_parse(one.signature, op), write=one.write, bodies=one.bodies)
            found.setdefault(method.name, []).append(method)
    return found


@cache
def _parse(signature: str, op: str) -> Method:
    return parse(signature, "ai.graphcore", op)
