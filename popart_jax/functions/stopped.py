"""Warning about parameters whose gradient is zero because all that depends on them is rounded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import onnx_ir as ir

from ..lowering.resolve import needs

_ROUNDS = re.compile(r"(Dynamic)?QuantizeLinear|QLinear\w*|QGemm|\w*Integer(ToFloat)?")


def warn_of_rounding(graph: ir.Graph, names: Sequence[str]) -> None:
    """Warn about parameters that reach outputs only through operators that round."""
    if not any(map(_ROUNDS.fullmatch, {node.op_type for node in graph})):
        return
    reached, pending = set[ir.Value](), list(graph.outputs)
    while pending:
        value = pending.pop()
        node = value.producer()
        if value not in reached and node is not None and not _ROUNDS.fullmatch(node.op_type):
            pending.extend(needs(node))
        reached.add(value)
    rounded = [n for n in names if graph.initializers[n] not in reached and graph.initializers[n].uses()]
    if rounded:
        shown = ", ".join(rounded[:5]) + (", ..." if len(rounded) > 5 else "")
        warnings.warn(
            f"The gradient of {len(rounded)} of {len(names)} parameters is zero, since what is made of them is rounded "
            f"({shown}). to_jax(..., straight_through=True) passes it through rounding.",
            UserWarning,
            stacklevel=4,  # who called `to_jax`
        )
