"""All builder methods: those of ai.onnx from its schemas, those of ai.graphcore from beside their translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ..model import node_parts
from . import known, schema_methods
from .method import Method
from .signatures import parse


def methods(domain: str, version: int) -> Mapping[str, Sequence[Method]]:
    """Methods of a domain at an opset version by name, with their overloads."""
    if domain == "ai.onnx":
        return schema_methods.methods(version)
    from ..ops.builder_methods import builder_methods  # imports JAX

    found: dict[str, list[Method]] = {}
    for op in builder_methods():
        for _, method in _graphcore(op):
            found.setdefault(method.name, []).append(method)
    return found


def overloads(domain: str, version: int, name: str) -> Sequence[Method]:
    """The overloads of one method; for ai.graphcore, only the modules of operators with that name are imported."""
    if domain == "ai.onnx":
        return schema_methods.methods(version).get(name, ())
    noted = known.recall("builder method", name)
    if noted is not None:
        return [_with_write(signature, op, write) for signature, op, write in noted]
    op = _operator_with(name)
    if op is None:
        return methods(domain, version).get(name, ())
    found = [(signature, method) for signature, method in _graphcore(op) if method.name == name]
    writes = [None if method.write is None else method.write.__name__ for _, method in found]
    rows = [(signature, op, write) for (signature, _), write in zip(found, writes, strict=True)]
    if [method for _, method in found] == [_with_write(*row) for row in rows]:
        known.note((domain, op, version), rows, "builder method", name)
    return [method for _, method in found]


def _with_write(signature: str, op: str, write: str | None) -> Method:
    """A method without bodies, whose conversion is a function of `node_parts`."""
    return replace(_parse(signature, op), write=None if write is None else getattr(node_parts, write, None))


def _operator_with(name: str) -> str | None:
    """The operator of ai.graphcore whose name begins that of a method."""
    from ..ops.registry import operators_of  # imports JAX

    begun = (op for op in operators_of("ai.graphcore") if name.replace("_", "").startswith(op.lower()))
    return next((op for op in begun if any(method.name == name for _, method in _graphcore(op))), None)


def _graphcore(op: str) -> list[tuple[str, Method]]:
    """The methods of an operator, each with its signature."""
    from ..ops.builder_methods import methods_of  # imports JAX

    declared = [(one, _parse(one.signature, op)) for one in methods_of(op)]
    return [(one.signature, replace(method, write=one.write, bodies=one.bodies)) for one, method in declared]


@cache
def _parse(signature: str, op: str) -> Method:
    return parse(signature, "ai.graphcore", op)
