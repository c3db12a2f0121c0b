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
    if domain == "ai.onnx":
        return schema_methods.methods(version)
    from ..ops.builder_methods import builder_methods  # imports JAX

    found: dict[str, list[Method]] = {}
    for op in builder_methods():
        for method in _graphcore(op):
            found.setdefault(method.name, []).append(method)
    return found


def overloads(domain: str, version: int, name: str) -> Sequence[Method]:
    """The overloads of one method; for ai.graphcore, only the modules of operators with that name are imported."""
    if domain == "ai.onnx":
        return schema_methods.methods(version).get(name, ())
    from ..ops.registry import operators_of  # imports JAX

    plain = name.replace("_", "")
    for op in operators_of("ai.graphcore"):
        if plain.startswith(op.lower()):
            found = [method for method in _graphcore(op) if method.name == name]
            if found:
                return found
    return methods(domain, version).get(name, ())


def _graphcore(op: str) -> list[Method]:
    from ..ops.builder_methods import methods_of  # imports JAX

    return [replace(_parse(one.signature, op), write=one.write, bodies=one.bodies) for one in methods_of(op)]


@cache
def _parse(signature: str, op: str) -> Method:
    return parse(signature, "ai.graphcore", op)
