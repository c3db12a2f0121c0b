"""The operator classes of the internal IR: those that rows of the operator table name, and their abstract bases."""

from __future__ import annotations

from functools import cache

from ...ops import Operator, facts, operators
from ...ops.operator import PopxlClass
from .members import MEMBERS
from .op import Op

ABSTRACT = {
    "AccumulateBaseOp": "VarUpdateWithUpdaterOp",
    "ArgExtremaOp": "Op",
    "HasReceptiveFieldOp": "Op",
    "MatMulBaseGradOp": "MatMulBaseOp",
    "MatMulBaseOp": "Op",
    "MultiConvBaseOp": "Op",
    "VarUpdateOp": "Op",
    "VarUpdateWithUpdaterOp": "VarUpdateOp",
}
"""Classes without operators of their own, and what they derive from. Source: PopART 3.4's Python bindings."""


@cache
def class_of(op_type: str) -> type[Op]:
    """The class of an operator type of PopART; plain `Op` where PopXL has none."""
    return make_class(facts(op_type))


def make_class(row: Operator) -> type[Op]:
    """The class for the operators of a row; plain `Op` where PopXL has none."""
    if row.popxl is None:
        return Op
    if row.popxl not in _MADE:
        _MADE[row.popxl] = _make(row.popxl.name, _base(row), row.popxl.module, row)
    return _MADE[row.popxl]


_MADE: dict[PopxlClass, type[Op]] = {}
"""The classes made so far, so that operators of one kind have the same one."""


def _base(row: Operator) -> type[Op]:
    assert row.popxl is not None
    name = row.popxl.base
    if name in ABSTRACT or name == "Op" or row.forward:
        return _abstract(name if name in ABSTRACT else "Op")
    return class_of(name.removesuffix("Op"))


@cache
def _abstract(name: str) -> type[Op]:
    if name == "Op":
        return Op
    shown = PopxlClass(name, "ai.graphcore", parameters="type factor" if name == "AccumulateBaseOp" else "")
    _MADE[shown] = made = _make(name, _abstract(ABSTRACT[name]), "", Operator(name.removesuffix("Op"), popxl=shown))
    return made


def _make(name: str, base: type[Op], module: str, row: Operator) -> type[Op]:
    where = "popart._internal.ir.op" + (f".{module}" if module else "")
    body = {"__module__": where, "__doc__": f"Operator {name}.", "_facts": row, **MEMBERS.get(name, {})}
    return type(name, (base,), body)


@cache
def all_classes() -> dict[str, type[Op]]:
    """Every class by name."""
    rows = [row for row in operators().values() if row.popxl is not None]
    made = {row.popxl.name: class_of(row.op_type) for row in rows if row.popxl is not None}
    return dict(sorted({"Op": Op, **{name: _abstract(name) for name in ABSTRACT}, **made}.items()))
