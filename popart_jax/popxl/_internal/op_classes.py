"""Python classes of the operators, made from the table; members beyond those of `Op` come from `members`."""

from __future__ import annotations

from functools import cache

from .classes import rows
from .op import Op


@cache
def all_classes() -> dict[str, type[Op]]:
    """Every class of the table by name."""
    from .members import MEMBERS

    made: dict[str, type[Op]] = {"Op": Op}
    pending = list(rows().values())
    while pending:
        ready = [r for r in pending if r.base in made]
        for row in ready:
            module = "popart._internal.ir.op" + (f".{row.module}" if row.module else "")
            body = {"__module__": module, "__doc__": f"Operator {row.name}.", **MEMBERS.get(row.name, {})}
            made[row.name] = type(row.name, (made[row.base],), body)
        pending = [r for r in pending if r.name not in made]
    return made


def find(name: str) -> type[Op]:
    """The class of that name; operators whose class is not in the table are plain `Op`."""
    return all_classes().get(name, Op)
