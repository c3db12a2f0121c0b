"""Turns the anchors of a data flow into those of the step program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...enums import AnchorReturnTypeId
from ...errors import popart_exception
from ...execution import Anchor, Structure
from ...model.op_names import listed

GRADIENT = "Gradient___"
UPDATED = "UpdatedVar___"
STASHES = ("Stashed___", "Restored___")


def anchors_of(
    data_flow: Any,
    structure: Structure,
    known: Collection[str],
    forward: Collection[str],
    copies: Mapping[str, str],
) -> tuple[Anchor, ...]:
    """The anchors of a data flow; popart_exception for a name that is not in `known`.

    A tensor of the `forward` graph gets a message about missing gradients; `copies` maps variables to the tensors that
    are written to them: the values of these variables after an update.
    """
    found: list[Anchor] = []
    for name in data_flow.anchors():
        source = copies.get(name.removeprefix(UPDATED)) if name.startswith(UPDATED) else None
        source = source_of(name, known) if source is None else source
        if source is None:
            raise _unknown(name, known, forward)
        kind, number = data_flow.art(name), data_flow.art(name).id()
        period = structure.micro_batches
        if number is AnchorReturnTypeId.All:
            period = 1
        elif number is AnchorReturnTypeId.EveryN:
            period = kind.rp()
        total, final = number is AnchorReturnTypeId.Sum, number is AnchorReturnTypeId.Final
        found.append(Anchor(name, source, period, total, final))
    return tuple(found)


def source_of(name: str, known: Collection[str]) -> str | None:
    """The tensor with the value of `name`: itself, or the tensor of which it is a stash, copy or recomputation."""
    if name in known:
        return name
    for prefix in STASHES:
        if name.startswith(prefix):
            return source_of(name[len(prefix) :], known)
    base = name.removesuffix("__re")
    if base != name:
        return source_of(base, known)
    head, mark, number = name.rpartition("_c")
    return source_of(head, known) if mark and number.isdigit() and head else None


def _unknown(name: str, known: Collection[str], forward: Collection[str]) -> popart_exception:
    text = f"Anchor tensor `{name}' not in Ir Tensors. "
    base = name.removeprefix(GRADIENT)
    if base != name and base in forward:
        lines = (
            f"Interestingly, `{base}' IS in tensors.",
            "Note that not all tensors can have their gradients anchored:",
            "if an activation tensor does not lead to the loss,",
            "its gradient is zero and never computed.",
        )
        return popart_exception(text + "".join(f"\n{line}" for line in lines))
    return popart_exception(f"{text}The tensors are:\n{listed(sorted(known))}")
