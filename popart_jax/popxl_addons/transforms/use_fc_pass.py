"""Whether matrix products are planned as the passes of one fully connected layer; for the cost model."""

from __future__ import annotations

from ... import popxl


def disable_fc_pass(ir: popxl.Ir) -> None:
    """Plan forward and gradient products on their own."""
    _set(ir, False)


def enable_fc_pass(ir: popxl.Ir) -> None:
    """Plan forward and gradient products together."""
    _set(ir, True)


def _set(ir: popxl.Ir, on: bool) -> None:
    for graph in ir._pb_ir.getAllGraphs():
        for op in graph.getOps():
            if op.opType() == "MatMul":
                op.setUseFullyConnectedPass(on)
