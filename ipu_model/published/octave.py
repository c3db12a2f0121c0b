"""Benchmark rows of octave convolutions: up to four convolutions between fine and coarse channels, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ipu_model.checks import check_between
from ipu_model.planner.conv_grid import SIZES
from ipu_model.planner.conv_multi import plan_parallel
from ipu_model.planner.convolution import ConvParams, Options, as_plan, scaled_add
from ipu_model.planner.plan import Plan
from ipu_model.planner.pooling import PoolParams, plan_pooling
from ipu_model.published.benchmark import Benchmark, Operands
from ipu_model.published.formula import FIXED, of_plans
from ipu_model.published.layer_memory import Layer, highest, total
from ipu_model.published.layers import ALL, PASSES, conv_layer, conv_params, operands_of
from ipu_model.published.words import ratio
from ipu_model.target import Target

TRANSPOSED = 1 / 4 + 1 / 8  # cycles per byte of weights that a backward pass brings into order: exchange and copy
POOLED_GROUP = 16  # channels that lie together where they are pooled
OF_PASS: tuple[Callable[[ConvParams], ConvParams], ...] = (
    lambda part: part, ConvParams.backward, ConvParams.weight_update,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Octave:
    """Convolutions from fine or coarse inputs to fine or coarse outputs; None for those without channels."""

    fine_fine: ConvParams | None
    fine_coarse: ConvParams | None
    coarse_fine: ConvParams | None
    coarse_coarse: ConvParams | None

    @property
    def parts(self) -> tuple[ConvParams, ...]:
        """The convolutions that have channels, from fine inputs first."""
        found = (self.fine_fine, self.fine_coarse, self.coarse_fine, self.coarse_coarse)
        return tuple(part for part in found if part is not None)

    def operands(self) -> Operands:
        """Bytes of inputs, weights and outputs; coarse inputs and outputs have a quarter of the points."""
        each = [operands_of(part) for part in self.parts]
        fine, coarse = self.fine_fine or self.fine_coarse, self.coarse_coarse or self.coarse_fine
        above, below = self.fine_fine or self.coarse_fine, self.coarse_coarse or self.fine_coarse
        inputs = [operands_of(side).inputs for side in (fine, coarse) if side is not None]
        outputs = [operands_of(side).outputs for side in (above, below) if side is not None]
        wide = 1 if self.fine_fine is not None else 4  # others that start from or end in fine points run on a quarter
        if fine is not None:
            inputs[0] *= wide
        if above is not None:
            outputs[0] *= wide
        return Operands(sum(inputs), sum(one.weights for one in each), sum(outputs))


def octave(p: dict[str, Any], data: str, target: Target) -> Benchmark:
    """Forward; then backward and weight update, up to four convolutions in each.

    A pass takes, step by step, as long as the slowest of its convolutions. Beside them, fine inputs are pooled for the
    coarse outputs, coarse results are repeated and added to fine ones, and weights are transposed for each convolution.
    Raises ValueError where a share of coarse channels is not between 0 and 1.
    """
    params = conv_params(p, data)
    form = octave_form(params, _share(p, "alpha-in"), _share(p, "alpha-out"))
    alone, passes = form.fine_fine or form.coarse_coarse, p.get("parts", ALL)
    if len(form.parts) == 1 and alone is not None:
        return conv_layer(alone, target, passes=passes)
    plans = {i: _pass(form, i, target) for i in passes}
    operands = form.operands()
    update = [scaled_add(operands.weights // SIZES[data], target.machine, data)] if 2 in plans else []
    beside = {FIXED: 0.0, "oct.gathered": sum(_flattened(plans[i]) for i in plans if i < 2)}
    if 0 in plans:
        beside[FIXED] += _pooling_cycles(form, target)
        beside["oct.gathered"] += _added(form, plans[0])
    if 1 in plans:
        each = zip(form.parts, plans[1], strict=True)
        beside[FIXED] += TRANSPOSED * sum(operands_of(part).weights / plan.tiles for part, plan in each)
    splits = [[plan.detail for plan in each] for each in plans.values()]
    layer = Layer("oct", splits, operands, compiled=True, copies=1 if passes == (0,) else 2)
    cycles = of_plans([*map(side_by_side, plans.values()), *update], extra=beside)
    return Benchmark(cycles, total(layer, target), highest(layer, target))


def _share(p: Mapping[str, Any], name: str) -> float:
    """Share of coarse channels of the inputs or outputs; `alpha`, one or a pair, where a side has none of its own."""
    given = p[name] if name in p else p["alpha"]
    of_sides = (given, given)
    if isinstance(given, list) and len(pair := cast("list[Any]", given)) == 2:
        of_sides = (pair[0], pair[1])
    side: Any = of_sides[name == "alpha-out"]
    share: Any = ratio(side) if str(side)[:1].isdigit() else side
    check_between("oct_conv", 0.0, 1.0, **{name: share})
    return share


def octave_form(params: ConvParams, inputs: float, outputs: float) -> Octave:
    """The convolutions of an octave convolution with these shares of coarse channels.

    Coarse channels have half the height and width; all convolutions but that between fine channels run there.
    """
    coarse_in, coarse_out = int(params.in_channels * inputs), int(params.out_channels * outputs)
    half = tuple(n // 2 for n in params.field)

    def part(ins: int, outs: int, field: tuple[int, ...]) -> ConvParams | None:
        if not ins or not outs:
            return None
        return dataclasses.replace(params, field=field, in_channels=ins, out_channels=outs)

    fine_in, fine_out = params.in_channels - coarse_in, params.out_channels - coarse_out
    return Octave(
        part(fine_in, fine_out, params.field), part(fine_in, coarse_out, half),
        part(coarse_in, fine_out, half), part(coarse_in, coarse_out, half),
    )  # fmt: skip


def _pass(form: Octave, index: int, target: Target) -> list[Plan]:
    convolutions, options = tuple(OF_PASS[index](part) for part in form.parts), Options(PASSES[index])
    splits = plan_parallel(convolutions, target.machine, options)
    return [as_plan(c, s, target.machine, options) for c, s in zip(convolutions, splits, strict=True)]


def side_by_side(plans: Sequence[Plan]) -> Plan:
    """The combined plan of plans that run in the same steps: each step takes as long as its slowest part."""
    names = dict.fromkeys(name for plan in plans for name in plan.quantities)
    slowest = {name: max(plan.quantities.get(name, 0.0) for plan in plans) for name in names}
    most = max(plans, key=lambda plan: plan.tiles)
    return dataclasses.replace(most, quantities=slowest, tiles=sum(plan.tiles for plan in plans), detail=None)


def _pooling_cycles(form: Octave, target: Target) -> float:
    """Averaging two by two the fine inputs that coarse outputs read."""
    part = form.fine_coarse
    if part is None:
        return 0.0
    field = form.fine_fine.field if form.fine_fine is not None else tuple(2 * n for n in part.field)
    two, none = (2,) * len(field), (0,) * len(field)
    params = PoolParams(
        part.batch, part.in_channels * part.groups, field, two, two, none, none, "average", part.data, POOLED_GROUP
    )
    return sum(plan_pooling(params, target).quantities.values())


def _added(form: Octave, forward: Sequence[Plan]) -> float:
    """Bytes per tile of coarse results that are repeated in the order of the fine ones they are added to."""
    if form.fine_fine is None or form.coarse_fine is None:
        return 0.0
    return operands_of(form.fine_fine).outputs / forward[0].tiles


def _flattened(plans: Sequence[Plan]) -> float:
    """Bytes per tile of operands whose positions become channels: gathered element by element."""
    moved = (plan.detail.tile["moved_operands"] for plan in plans if plan.detail.problem.out_flattened)
    return float(max(moved, default=0.0))
