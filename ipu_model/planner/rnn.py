"""LSTM and GRU layers: a loop over time of matrix products and gate arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.convolution import plan_matmul
from ipu_model.planner.plan import Plan
from ipu_model.target import Target


def plan_lstm(
    batch: int, steps: int, inputs: int, outputs: int, target: Target, data: str = "half", training: bool = False
) -> Plan:
    """One product of the concatenated input and state with all four gates per step, then the cell arithmetic.

    Training adds, per step, the product with the transposed weights and the accumulated weight gradient.
    """
    wide, gates = inputs + outputs, 4 * outputs
    products = [(batch, wide, gates)]
    if training:
        products += [(batch, gates, wide), (wide, batch, gates)]
    return _layer("lstm_train" if training else "lstm", products, steps, target, data)


def plan_gru(
    batch: int, steps: int, inputs: int, outputs: int, target: Target, data: str = "half", training: bool = False
) -> Plan:
    """Update and reset gates from input and state, then the candidate from the reset state, per step."""
    products = [(batch, inputs + outputs, 2 * outputs), (batch, inputs + outputs, outputs)]
    if training:
        products += [(n, k, m) if m == batch else (m, k, n) for n, m, k in ((k, m, n) for m, k, n in products)]
        products += [(k, m, n) for m, k, n in products[:2]]
    return _layer("gru_train" if training else "gru", products, steps, target, data)


def _layer(kind: str, products: list[tuple[int, int, int]], steps: int, target: Target, data: str) -> Plan:
    plans = [plan_matmul(m, k, n, target, data=data, options=Options("none_matmul")) for m, k, n in products]
    quantities: dict[str, float] = {}
    for plan in plans:
        _add(quantities, plan.quantities, steps)
    quantities[f"{kind}_step"] = float(steps)
    return Plan(
        "conv",
        quantities,
        plans[0].exchange,
        method=kind,
        tiles=max(p.tiles for p in plans),
        temporary_bytes=max(p.temporary_bytes for p in plans),
        interleaved_bytes=max(p.interleaved_bytes for p in plans),
        detail=plans,
    )


def _add(total: dict[str, float], more: Mapping[str, float], times: float) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + times * value
