"""Exchange operators: nodes that move data, alone or as parts of a merged exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import onnx_ir as ir

from ...ops.registry import TRANSLATION


@dataclass
class Part:
    """One exchange: type, attributes, operands, results; a part of a merged one has those of the merged operator."""

    op_type: str
    attributes: dict[str, ir.Attr]
    inputs: list[ir.Value | None]
    outputs: list[ir.Value]

    @classmethod
    def of(cls, node: ir.Node) -> Part:
        """The exchange that an unmerged node does."""
        return cls(cast("str", node.meta[TRANSLATION][1]), dict(node.attributes), list(node.inputs), list(node.outputs))


def parts(node: ir.Node) -> Sequence[Part]:
    """The exchanges of a node: the parts of a merged exchange, or the node itself."""
    return cast("Sequence[Part]", node.meta["parts"]) if node.op_type == "MultiExchange" else (Part.of(node),)


def state_of(op_type: str, attributes: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Program state that an exchange reads and writes; none of other operators, and without attributes."""
    if op_type in ("HostLoad", "HostStore") and "stream" in attributes:
        kind = "h2d" if op_type == "HostLoad" else "d2h"
        data, cursor = f"{kind}:{attributes['stream']}", f"{kind}#{attributes['stream']}"
        return [data], [cursor] if kind == "h2d" else [data, cursor]
    if op_type in ("RemoteLoad", "RemoteStore") and "buffer" in attributes:
        state = [f"remote:{attributes['buffer']}"]
        return state, [] if op_type == "RemoteLoad" else state
    return [], []
