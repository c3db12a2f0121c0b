"""Prices at real-valued sizes: plans at the corners of a cell of sizes, interpolated linearly between them.

Planners round: a tile's share is a whole number of grains, so cycles are a step function of every size, without a
useful slope. Between two sizes where a share changes, the relaxation here replaces ``ceil(size / step)`` by ``size /
step``: the price is that of a plan at both ends, rests of vectors filled up, and linear in between, so that `jax.grad`
gives the cost of one more row. Sizes in between count as parts of whole grains: what the planner charges a size that
fills none (padding, operands moved for it) is left out, and may be more than the rest; `plan_matmul` and
`plan_convolution` price whole sizes with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import ConvParams, matmul_params
from ipu_model.planner.convolution import conv_plan, frozen_plan, plan_matmul
from ipu_model.planner.plan import Plan
from ipu_model.target import Target

CLEARLY = 0.9  # part of the price with the cell's splits below which a corner is planned again


@dataclass(frozen=True)
class Surface:
    """Plans at the corners of a cell of sizes."""

    # the corners of the cell, by the name of the size
    lower: Mapping[str, int]
    upper: Mapping[str, int]
    # one for each combination of lower (first) and upper sizes, the last name varying fastest
    corners: tuple[Plan, ...]
    around: Callable[..., Surface]  # the surface whose cell holds other sizes

    def holds(self, **sizes: float) -> bool:
        """Whether the sizes lie in the cell, its edges included."""
        return all(self.lower[name] <= size <= self.upper[name] for name, size in sizes.items())

    def weights(self, **sizes: Any) -> list[Any]:
        """Share of each corner at real `sizes`: products of the distances from the opposite faces, adding up to one.

        Raises TypeError where a size is missing or unknown.
        """
        if set(sizes) != set(self.lower):
            raise TypeError(f"the surface has sizes {sorted(self.lower)}, not {sorted(sizes)}")
        upper = [(sizes[n] - self.lower[n]) / (self.upper[n] - self.lower[n]) for n in self.lower]
        return [math.prod(pair) for pair in itertools.product(*((1.0 - u, u) for u in upper))]

    def cycles(self, target: Target, **sizes: Any) -> Any:
        """Cycles at real `sizes`; differentiable in them and in the leaves of `target`.

        Sizes outside the cell are planned again, in the cell that holds them. Inside `jax.jit`, where sizes are not
        known while a function is traced, the answer is not-a-number there: no straight line leads so far. Raises
        TypeError where a size is missing or unknown, ValueError where one is below one, infinite or no number.
        """
        shares = self.weights(**sizes)
        try:
            inside = self.holds(**sizes)
        except jax.errors.ConcretizationTypeError:
            edges = [(sizes[name] >= self.lower[name]) & (sizes[name] <= self.upper[name]) for name in sizes]
            return jnp.where(jnp.all(jnp.array(edges)), self._between(shares, target), jnp.nan)
        if inside:
            return self._between(shares, target)
        for name, size in sizes.items():
            if not 1 <= size < math.inf:
                raise ValueError(f"size {name} is {size}; sizes begin at 1 and are finite")
        whole = {name: math.floor(float(jax.lax.stop_gradient(size))) for name, size in sizes.items()}
        return self.around(**whole).cycles(target, **sizes)

    def _between(self, shares: Sequence[Any], target: Target) -> Any:
        return sum(share * plan.cycles(target) for share, plan in zip(shares, self.corners, strict=True))


def surface(
    plan_at: Callable[..., Plan],
    sizes: Mapping[str, int],
    steps: Mapping[str, int],
    around: Callable[..., Surface] | None = None,
) -> Surface:
    """The cell around `sizes`, whose edges are multiples of `steps`: how far apart sizes lie at which a share changes.

    `plan_at` plans for whole sizes given by keyword; below one step a cell begins at the size itself. `around` is the
    surface for other sizes, by default the same planner in the cell that holds them.
    """

    def elsewhere(**others: int) -> Surface:
        return surface(plan_at, others, steps)

    lower = {name: max(n // steps[name] * steps[name], min(n, steps[name])) for name, n in sizes.items()}
    upper = {name: low + steps[name] for name, low in lower.items()}
    ends = itertools.product(*((lower[name], upper[name]) for name in sizes))
    return Surface(
        lower, upper, tuple(plan_at(**dict(zip(sizes, corner, strict=True))) for corner in ends), around or elsewhere
    )


def _settled(cell: Surface, planned_at: Callable[..., Plan], target: Target) -> Surface:
    """The cell with a corner's own plan where that is clearly cheaper, and no corner cheaper than one of smaller sizes.

    Plans of larger sizes may happen to be cheaper. Where constants of the target are being differentiated, they have no
    values to compare, and the cell stays as it is.
    """
    corners = list(cell.corners)
    ends = itertools.product(*((cell.lower[name], cell.upper[name]) for name in cell.lower))
    try:
        for at, sizes in enumerate(ends):
            own = planned_at(**dict(zip(cell.lower, sizes, strict=True)))
            if own.cycles(target) < CLEARLY * corners[at].cycles(target):
                corners[at] = own
            smaller = (corners[at & ~(1 << bit)] for bit in range(len(cell.lower)))
            corners[at] = max((corners[at], *smaller), key=lambda plan: float(plan.cycles(target)))
    except jax.errors.ConcretizationTypeError:
        return cell
    return replace(cell, corners=tuple(corners))


def matmul_surface(
    m: int, k: int, n: int, target: Target, groups: int = 1, data: str = "half", options: Options | None = None
) -> Surface:
    """A product ``[m, k] x [k, n]`` at real ``m``, ``k``, ``n``.

    Corners keep the splits chosen for the given sizes, or have their own where those are clearly cheaper; no corner is
    cheaper than one of smaller sizes.
    """
    options = options or Options("none_matmul")
    plan = plan_matmul(m, k, n, target, groups, data, options=options)
    smooth = replace(options, whole_vectors=True)

    def at(m: int, k: int, n: int) -> Plan:
        return frozen_plan(matmul_params(m, k, n, groups, data, data), plan, target.machine, smooth)

    def planned_at(m: int, k: int, n: int) -> Plan:
        return plan_matmul(m, k, n, target, groups, data, options=options)

    split, v = plan.detail, plan.detail.vertex
    field, channels = split.field[-1] * split.batch, v.opg * split.out_parallel * split.out_serial
    rows, columns = (channels, field) if split.problem.swapped else (field, channels)
    depth = v.ipg * split.in_parallel * split.in_serial

    def elsewhere(m: int, k: int, n: int) -> Surface:
        return matmul_surface(m, k, n, target, groups, data, options)

    cell = surface(at, {"m": m, "k": k, "n": n}, {"m": rows, "k": depth, "n": columns}, elsewhere)
    return _settled(cell, planned_at, target)


def convolution_surface(params: ConvParams, target: Target, options: Options | None = None) -> Surface:
    """A convolution at a real batch and real channels per group; splits are held as in `matmul_surface`."""
    options = options or Options()
    plan = conv_plan(params, target.machine, options)
    smooth = replace(options, whole_vectors=True)

    def sized(batch: int, in_channels: int, out_channels: int) -> ConvParams:
        return replace(params, batch=batch, in_channels=in_channels, out_channels=out_channels)

    def at(batch: int, in_channels: int, out_channels: int) -> Plan:
        return frozen_plan(sized(batch, in_channels, out_channels), plan, target.machine, smooth)

    def planned_at(batch: int, in_channels: int, out_channels: int) -> Plan:
        return conv_plan(sized(batch, in_channels, out_channels), target.machine, options)

    split, v = plan.detail, plan.detail.vertex
    sizes = {"batch": params.batch, "in_channels": params.in_channels, "out_channels": params.out_channels}
    expanded: tuple[int, ...] = split.problem.expanded
    merged = math.prod(params.kernel[d] for d in expanded)  # kernel positions made channels
    steps = {
        "batch": split.batch,
        "in_channels": max(1, v.ipg * split.in_parallel * split.in_serial // merged),
        "out_channels": v.opg * split.out_parallel * split.out_serial,
    }
    if split.problem.swapped:
        steps["batch"], steps["out_channels"] = steps["out_channels"], steps["batch"]

    def elsewhere(batch: int, in_channels: int, out_channels: int) -> Surface:
        return convolution_surface(sized(batch, in_channels, out_channels), target, options)

    return _settled(surface(at, sizes, steps, elsewhere), planned_at, target)
