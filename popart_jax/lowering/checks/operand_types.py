"""Operand types checked against the ONNX schemas, while tracing.

A type is accepted if the schema of the node's opset lists it. It is also accepted if another version of the operator
lists it and its kind (float, int, bool, ...) is one that this version takes: bfloat16 came later than most operators.
PopART accepts any type of a kind that some version takes. Operators without a schema are left to their translations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import jax
import numpy as np
import onnx_ir as ir
from onnx import defs

from ...ops import Trait, facts
from ...ops.arrays import device_dtype, dtype_name, is_text
from ..resolve import Step

_KINDS = (("FLOAT", "float"), ("DOUBLE", "float"), ("BFLOAT", "float"), ("INT", "int"), ("UINT", "int"),
          ("COMPLEX", "complex"))  # fmt: skip
_NARROWED = {"INT32": "INT64", "UINT32": "UINT64", "FLOAT": "DOUBLE", "COMPLEX64": "COMPLEX128"}
_CHECKED_BY_TRANSLATION = frozenset({("Loop", 0), ("If", 0)})  # PopART has its own words for them, or takes any type
_TAKEN_BY_POPART = {"Sum": "Add"}  # PopART makes Adds of a Sum, so it takes what Add takes
_STAND_INS = {"FLOAT": np.float32, "BOOL": np.bool_, "INT32": np.int32, "INT64": np.int32, "UINT8": np.uint8}
_POPART_FLOAT8 = (ir.DataType.FLOAT8E4M3FNUZ.numpy(), ir.DataType.FLOAT8E5M2FNUZ.numpy())


@dataclass(frozen=True, slots=True)
class Formal:
    """One input of a schema: its name, its type parameter, and the types that it takes.

    `own` are the types of this schema, `exact` also those of other versions that the module's first rule accepts, and
    `kinds` the kinds that PopART accepts. `lists` are the element types of sequences. `parameter` is '' where the
    operands of a variadic input may differ. A `Signature` has None for inputs of any type (optionals, maps).
    """

    name: str
    parameter: str
    own: tuple[str, ...]
    exact: frozenset[str]
    kinds: frozenset[str]
    lists: frozenset[str]


Signature = tuple[Formal | None, ...]


@cache
def kind(name: str) -> str:
    """Kind of an ONNX type: float, int, complex, or the type itself."""
    return next((k for stem, k in _KINDS if name.startswith(stem)), name)


@cache
def signature(domain: str, op: str, version: int) -> Signature:
    """Inputs of the operator in this opset, () if ONNX has no such operator; a variadic input is the last."""
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return ()
    family = _family(domain, op)
    return tuple(_formal(i, formal, family) for i, formal in enumerate(schema.inputs))


def _family(domain: str, op: str) -> list[Any]:
    """All versions of an operator, the newest first."""
    found = [defs.get_schema(op, domain)]
    with contextlib.suppress(defs.SchemaError):
        while found[-1].since_version > 1:
            found.append(defs.get_schema(op, found[-1].since_version - 1, domain))
    return found


def _formal(position: int, formal: Any, family: list[Any]) -> Formal | None:
    if any(t.startswith(("optional(", "map(", "seq(map")) for t in formal.types):
        return None
    own = _members(formal.types, "tensor(")
    kinds = {kind(t) for t in own}
    others = {t for s in family if position < len(s.inputs) for t in _members(s.inputs[position].types, "tensor(")}
    later = {t for t in others if kind(t) in kinds}
    parameter = formal.type_str if formal.is_homogeneous and "(" not in formal.type_str else ""
    return Formal(
        formal.name,
        parameter,
        tuple(sorted(own)),
        frozenset(own | later),
        frozenset(map(kind, own | others)),
        frozenset(_members(formal.types, "seq(tensor(")),
    )


def _members(types: Sequence[str], wrapper: str) -> set[str]:
    return {t[len(wrapper) :].rstrip(")").upper() for t in types if t.startswith(wrapper)}


def types_match(node: ir.Node, operands: Sequence[Any], version: int, popart: bool) -> bool:
    """Whether operands of these types are known to be valid; else `wrong_type` and `differing_types` say why not."""
    dtypes = tuple([getattr(x, "dtype", list) if x is not None else None for x in operands])
    wide = cast("bool", jax.config.read("jax_enable_x64"))
    return _types_match(node.domain, node.op_type, version, dtypes, popart, wide)


@cache
def _types_match(domain: str, op: str, version: int, dtypes: tuple[Any, ...], popart: bool, wide: bool) -> bool:
    if not all(d is None or isinstance(d, np.dtype) for d in dtypes):
        return False
    node = ir.Node(domain, op, [None] * len(dtypes))
    operands = [None if d is None else np.zeros(0, d) for d in dtypes]
    return not wrong_type(node, operands, version, popart) and (popart or not differing_types(node, operands, version))


def wrong_type(node: ir.Node, operands: Sequence[Any], version: int, popart: bool) -> str:
    """What is wrong with the type of an operand, '' if nothing."""
    op_type = _TAKEN_BY_POPART.get(node.op_type, node.op_type) if popart else node.op_type
    formals = signature(_domain(node), op_type, version)
    if not formals or (popart and any(getattr(x, "dtype", None) in _POPART_FLOAT8 for x in operands)):
        return ""  # no schema; or a scale stands where ONNX has something else
    for i, x in enumerate(operands):
        formal = formals[min(i, len(formals) - 1)]
        checked = popart and (node.op_type, i) in _CHECKED_BY_TRANSLATION
        if x is not None and formal is not None and not checked and not _takes(formal, x, popart):
            got = f"a sequence of {_name(x[0])}" if isinstance(x, list) and x else _name(x)
            takes = [*formal.own, *(["sequences"] if formal.lists else [])]
            return f"input {i} ({formal.name}) is {got}; opset {version} takes {', '.join(takes)}"
    return ""


def _takes(formal: Formal, x: Any, popart: bool) -> bool:
    if isinstance(x, list):
        return bool(formal.lists) and all(_fits(_name(e), formal.lists) for e in cast("list[Any]", x))
    if not hasattr(x, "dtype"):
        return True
    name = _name(x)
    return kind(name) in formal.kinds if popart else _fits(name, formal.exact)


def _fits(name: str, allowed: frozenset[str]) -> bool:
    return name in allowed or (_NARROWED.get(name) in allowed and device_dtype("int64") != "int64")


def _name(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    return _dtype_label(cast("np.dtype", dtype)) if isinstance(dtype, np.dtype) else dtype_name(x)


@cache
def _dtype_label(dtype: np.dtype) -> str:
    return "STRING" if dtype.kind in "OUS" else dtype_name(np.zeros(0, dtype))


def are_integers(node: ir.Node, operands: Sequence[Any]) -> bool:
    """Whether all operands are integers, and PopART's operator takes such too."""
    takes = facts(node.op_type).has(Trait.OF_INTEGERS)
    return takes and all(kind(_name(x)) == "int" for x in operands if hasattr(x, "dtype"))


def cast_operands(step: Step, operands: Sequence[Any], version: int) -> list[Any]:
    """Operands cast to types that the operator takes, except static operands: the translation checks those.

    PopART builds operators without looking at types (supplement 4.2); their results have types too (`cast_results`),
    and they are refused only when the device is prepared. Integers of an operator `OF_INTEGERS` are not refused.
    Different types of an elementwise operator stay: its translation refuses them, as broadcasting does in PopART.
    """
    if facts(step.node.op_type).has(Trait.ELEMENTWISE) and differing_types(step.node, operands, version):
        return list(operands)
    formals = signature(_domain(step.node), step.node.op_type, version)
    taken = list(operands)
    for i, x in enumerate(operands):
        formal = formals[min(i, len(formals) - 1)]
        fixed = step.lowering.is_static(i) or not hasattr(x, "dtype") or is_text(x)
        if formal is not None and not fixed and not _takes(formal, x, True):
            taken[i] = x.astype(next((_STAND_INS[k] for k in _STAND_INS if k in formal.own), x.dtype))
    return taken


def cast_results(node: ir.Node, operands: Sequence[Any], results: Sequence[Any], version: int) -> tuple[Any, ...]:
    """Results cast to the operand's type where the schema ties the two types together."""
    schema = defs.get_schema(node.op_type, version, _domain(node))
    pairs = zip(schema.inputs, operands, strict=False)
    own = {formal.type_str: x.dtype for formal, x in reversed(list(pairs)) if hasattr(x, "dtype")}
    formals = [schema.outputs[min(i, len(schema.outputs) - 1)] for i in range(len(results))]
    return tuple(x.astype(own.get(f.type_str, x.dtype)) for f, x in zip(formals, results, strict=True))


def differing_types(node: ir.Node, operands: Sequence[Any], version: int) -> str:
    """Which operands differ in type although the schema requires one type, '' if none."""
    formals = signature(_domain(node), node.op_type, version)
    first: dict[str, tuple[Formal, Any]] = {}
    for i, x in enumerate(operands if formals else ()):
        formal = formals[min(i, len(formals) - 1)]
        if formal is None or not formal.parameter or not hasattr(x, "dtype"):
            continue
        other, y = first.setdefault(formal.parameter, (formal, x))
        if x.dtype != y.dtype and device_dtype(x.dtype) != device_dtype(y.dtype) and not (is_text(x) and is_text(y)):
            names = f"{_name(y)} and {_name(x)}"
            return f"inputs {other.name} and {formal.name} must have one type, got {names}"
    return ""


def _domain(node: ir.Node) -> str:
    return "" if node.domain == "ai.onnx" else node.domain
