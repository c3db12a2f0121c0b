"""Rules of PopART's builder that differ from those of the operator in a session: checks and inferred shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import popart_exception
from .description import Description

Shape = tuple[int, ...]


def check_own_rules(
    op: str, inputs: Sequence[str], attributes: Mapping[str, Any], variables: Collection[str], rank: int | None
) -> None:
    """Apply the checks that PopART makes in single builder methods.

    Raises popart_exception for `conv` without weights, `pad` with a list of another length than twice the rank,
    `copyvarupdate` without a variable, `subsample` with a stride of 0.
    """
    if op == "Conv" and len(inputs) < 2:
        raise popart_exception(f"Conv requires at least two inputs: data, and weights. {len(inputs)} inputs provided.")
    if op == "CopyVarUpdate":
        if len(inputs) != 2:
            raise popart_exception("copyvarupdate should have two args.")
        if inputs[0] not in variables:
            raise popart_exception("The first arg of copyvarupdate should be an initalised tensor.")
    pads = attributes.get("pads") if op == "Pad" else None
    if pads is not None and rank is not None and len(pads) != 2 * rank:
        raise popart_exception(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input dimension {rank}"
        )
    strides: list[int] = list(attributes.get("strides") or ()) if op == "Subsample" else []
    if 0 in strides:
        raise popart_exception(f"Strides invalid. 0 stride at index {strides.index(0)}")


def own_shape(node: Description) -> Shape | None:
    """Shape that the builder reports of some operators' result; None where the operator's own rule holds.

    `subsample` rounds down, although the operator also returns the remainder. ONNX's inference ignores negative repeats
    of Tile, which are refused by the negative size computed here.
    """
    sizes = node.operands[0].type[1] if node.operands and node.operands[0] is not None else None
    if sizes is None:
        return None
    if (node.domain, node.op) == ("ai.graphcore", "Subsample"):
        strides = node.attribute("strides") or ()
        return tuple(d // s for d, s in zip(sizes, strides, strict=True)) if len(strides) == len(sizes) else None
    repeats = node.operands[1].array() if node.op == "Tile" and len(node.operands) > 1 and node.operands[1] else None
    if repeats is not None and repeats.shape == (len(sizes),) and repeats.min(initial=0) < 0:
        return tuple(int(d * n) for d, n in zip(sizes, repeats, strict=True))
    return None
