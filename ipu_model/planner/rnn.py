"""LSTM and GRU layers: a loop over time of matrix products and gate arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from ipu_model.checks import check_sizes
from ipu_model.planner.conv_grid import Options
from ipu_model.planner.convolution import fully_connected_passes, plan_matmul
from ipu_model.planner.plan import Plan
from ipu_model.target import Target


def plan_lstm(
    batch: int, steps: int, inputs: int, outputs: int, target: Target, data: str = "half", training: bool = False
) -> Plan:
    """One product of the concatenated input and state with all four gates per step, then the cell arithmetic.

    Training adds, per step, the product with the transposed weights and the accumulated weight gradient; the three are
    planned as the passes of one dense layer.
    """
    check_sizes("LSTM", batch=batch, steps=steps, inputs=inputs, outputs=outputs)
    return _layer("lstm", [(batch, inputs + outputs, 4 * outputs)], steps, target, data, training)


def plan_gru(
    batch: int, steps: int, inputs: int, outputs: int, target: Target, data: str = "half", training: bool = False
) -> Plan:
    """Update and reset gates from input and state, then the candidate from the reset state, per step."""
    check_sizes("GRU", batch=batch, steps=steps, inputs=inputs, outputs=outputs)
    products = [(batch, inputs + outputs, 2 * outputs), (batch, inputs + outputs, outputs)]
    return _layer("gru", products, steps, target, data, training)


def _layer(
    kind: str, products: list[tuple[int, int, int]], steps: int, target: Target, data: str, training: bool
) -> Plan:
    plans = _plans(products, target, data, training)
    kind = f"{kind}_train" if training else kind
    quantities: dict[str, float] = {}
    for plan in plans:
        _add(quantities, plan.quantities, steps)
    quantities[f"{kind}_step"] = float(steps)
    return Plan(
        "conv",
        quantities,
        plans[0].exchange,
        plans[0].exact,
        method=kind,
        tiles=max(p.tiles for p in plans),
        temporary_bytes=max(p.temporary_bytes for p in plans),
        interleaved_bytes=max(p.interleaved_bytes for p in plans),
        detail=plans,
    )


def _plans(products: list[tuple[int, int, int]], target: Target, data: str, training: bool) -> list[Plan]:
    """Plans of one time step: forward passes, then in training all backward passes and all weight updates."""
    if not training:
        return [plan_matmul(*shape, target, data=data, options=Options("fc_inference_fwd")) for shape in products]
    layers = [fully_connected_passes(*shape, 1, data, target.machine) for shape in products]
    return [plan for passes in zip(*layers, strict=True) for plan in passes]


def _add(total: dict[str, float], more: Mapping[str, float], times: float) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + times * value
