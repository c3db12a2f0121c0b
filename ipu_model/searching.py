"""Search for the best sizes of a program: descent along finite differences between exactly planned programs.

Planners round, so a figure is a step function of every size and has no useful derivative at a point. The straight line
between two planned programs has one; this is the relaxation of `ipu_model.planner.surface` for whole programs. A step
follows the slopes of all sizes at once, is planned, and is kept only when it is better. Where no such step helps, all
sizes move together, and along a limit one size is traded for another; then the strides are halved, down to single steps
of the grid, and once more from wide ones. Where a size changes nothing, as a proportion of memory that no plan reaches,
what lies beyond is tried. The result has no better neighbour on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, permutations
from typing import Any, cast

from ipu_model.checks import check_between, check_kind, check_sizes
from ipu_model.options import ModelOptions
from ipu_model.profiling import profile_jaxpr
from ipu_model.report.report import Report
from ipu_model.target import Target
from ipu_model.traced import name_of, traced

Sizes = dict[str, Any]
Figure = Callable[[Report], float]
Bounds = Mapping[str, Sequence[Any] | tuple[int, int]]


def _seconds_per_sample(report: Report) -> float:
    if not report.schedule.samples_per_second:
        raise ValueError(
            "the program does not say how many samples it handles: "
            "return ipu_model.profile(fn, *args, samples_per_step=...)"
        )
    return 1 / report.schedule.samples_per_second


FIGURES: dict[str, Figure] = {
    "cycles": lambda r: r.total_cycles,
    "seconds": lambda r: r.schedule.seconds,
    "seconds_per_sample": _seconds_per_sample,
    "fullest_tile": lambda r: r.memory.max_tile,
    "total_memory": lambda r: r.memory.total,
}


@dataclass(frozen=True)
class Tried:
    """A program that was planned."""

    sizes: Sizes
    objective: float  # infinite where there is no such program
    excess: float  # how far the worst limit is exceeded, as a share of it; 0 where all hold
    why: str = ""  # what the function said when there is no such program

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better: first the limits, then the objective."""
        return self.excess, self.objective


@dataclass(frozen=True)
class Found:
    """The best program of a search; `tried` holds every one that was planned, in order."""

    sizes: Sizes
    objective: float
    report: Report
    tried: tuple[Tried, ...] = field(repr=False)

    def __str__(self) -> str:
        first, sizes = self.tried[0], ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        start = ", ".join(f"{k}={v}" for k, v in first.sizes.items())
        return f"{sizes}: {self.objective:,.6g}\n  from {start}: {first.objective:,.6g}\n  {len(self.tried)} planned"


def search(
    fn_of_sizes: Callable[..., Any],
    bounds: Bounds,
    target: str | Target = "mk2",
    objective: str | Figure = "cycles",
    limits: Mapping[str | Figure, float] | None = None,
    *,
    start: Mapping[str, Any] | None = None,
    most: int = 100,
) -> Found:
    """Sizes within `bounds` at which a program is best under `limits`.

    Parameters
    ----------
    fn_of_sizes : callable
        Called with the sizes as keywords. It returns a report, or a function and its example arguments as
        ``(fn, *args)``, which are profiled for `target`. A `ValueError` says that there is no such program.
    bounds : dict
        For each size its values in order, or a pair ``(lowest, highest)`` of whole numbers. Batch sizes, widths,
        splits, positions of pipeline cuts and proportions of memory are all sizes.
    target : str or Target
    objective : str or callable
        The figure to minimise: one of ``"cycles"``, ``"seconds"``, ``"seconds_per_sample"``, ``"fullest_tile"``,
        ``"total_memory"``, or a function of the report.
    limits : dict, optional
        The most that figures may be, by name or function. Without one of ``"fullest_tile"``, that is what a tile holds.
    start : dict, optional
        Where to begin; the middle of each range by default.
    most : int
        Programs to plan at most.

    Raises
    ------
    ValueError
        An unknown figure, no size or an empty range, a start outside the bounds, or no program within the limits was
        found; the message says how near the best one came.
    TypeError
        The function takes other names than the bounds have, or makes no program of such values (of a negative width,
        say); the message names the sizes.

    Examples
    --------
    >>> import jax.numpy as jnp, ipu_model
    >>> def program(width):
    ...     return jnp.matmul, jnp.ones((16, width)), jnp.ones((width, width))
    >>> found = ipu_model.search(program, {"width": (64, 4096)}, objective=lambda r: -r.cycles.flops,
    ...                          limits={"cycles": 20_000})
    >>> found.report.total_cycles <= 20_000
    True
    """
    check_sizes("search", most=most)
    if not callable(fn_of_sizes):
        raise TypeError(f"fn_of_sizes is {fn_of_sizes!r:.80}, expected a function of the sizes")
    check_kind("bounds", bounds, Mapping, "a dictionary of sizes by name")
    for name, given in {"limits": limits, "start": start}.items():
        check_kind(name, {} if given is None else given, Mapping, "a dictionary of numbers by name")
    if not bounds:
        raise ValueError("search: bounds name no size, so there is nothing to search")
    grid = {name: _values(name, given) for name, given in bounds.items()}
    here = {name: len(values) // 2 for name, values in grid.items()} | _positions(start or {}, grid)
    planner = _Planner(fn_of_sizes, grid, target, _figure(objective), _limits(limits or {}), most)
    wide = strides = {name: max(1, len(values) // 4) for name, values in grid.items()}
    settled = None  # where the last pass from wide strides to single ones ended
    while planner.left:
        better = _step(planner, here, strides)
        if better is not None:
            here = better
        elif planner.top is None and any(here.values()):  # no program anywhere near: begin with the smallest sizes
            here = dict.fromkeys(here, 0)
        elif any(s > 1 for s in strides.values()):
            strides = {name: max(1, s // 2) for name, s in strides.items()}
        elif (beyond := _beyond(planner, here)) is not None:
            here = beyond
        elif here == settled:
            break
        else:
            settled, strides = here, wide
    return planner.best()


def _values(name: str, given: Any) -> Sequence[Any]:
    if isinstance(given, str | bytes | Set | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"size {name!r}: {given!r} is neither values in order nor a pair (lowest, highest)")
    values: Any = given if isinstance(given, range) else list(cast("Iterable[Any]", given))
    if isinstance(given, tuple) and len(values) == 2 and all(type(x) is int for x in values):
        values = range(values[0], values[1] + 1)
    if not len(values):
        raise ValueError(f"size {name!r} has no values: {given}")
    return values


def _positions(start: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    outside = {n: v for n, v in start.items() if n not in grid or v not in grid[n]}
    if outside:
        raise ValueError(f"the start {outside} is outside the bounds of {sorted(grid)}")
    return {name: grid[name].index(value) for name, value in start.items()}


def _figure(named: str | Figure) -> Figure:
    if callable(named):
        return named
    if named not in FIGURES:
        raise ValueError(f"no figure {named!r}; figures are {sorted(FIGURES)}, or a function of the report")
    return FIGURES[named]


def _limits(given: Mapping[str | Figure, float]) -> list[tuple[Figure, Figure]]:
    """Each figure, and the most that it may be on a report."""
    check_between("search", -math.inf, math.inf, **{f"limits[{name!r}]": most for name, most in given.items()})
    found = [(_figure(name), _always(most)) for name, most in given.items()]
    if "fullest_tile" not in given:
        found.append((FIGURES["fullest_tile"], lambda r: r.memory.bytes_per_tile))
    return found


def _always(most: float) -> Figure:
    return lambda _: most


def _number(figure: Figure, report: Report) -> float:
    value = figure(report)
    try:
        return float(value)
    except (TypeError, ValueError) as err:
        said = f"search: an objective or a figure with a limit gave {value!r:.80}, expected a number"
        raise TypeError(said) from err


def _over(value: float, most: float) -> float:
    """How far a figure exceeds its limit, as a share of it (of 1 where it is 0); negative below."""
    return (value - most) / (abs(most) or 1.0) if math.isfinite(most) else -most


@dataclass
class _Planner:
    """Plans programs at positions of the grid, each once."""

    fn: Callable[..., Any]
    grid: Mapping[str, Sequence[Any]]
    target: str | Target
    objective: Figure
    limits: Sequence[tuple[Figure, Figure]]
    most: int
    tried: dict[tuple[int, ...], Tried] = field(default_factory=dict[tuple[int, ...], Tried])
    top: tuple[Tried, Report] | None = None

    @property
    def left(self) -> bool:
        return len(self.tried) < self.most

    def may(self, at: Mapping[str, int]) -> bool:
        """Whether the program at a position is planned, or may still be."""
        return self.left or tuple(at.values()) in self.tried

    def __call__(self, at: Mapping[str, int]) -> Tried:
        key = tuple(at.values())
        if key not in self.tried:
            self.tried[key] = self._plan({name: self.grid[name][k] for name, k in at.items()})
        return self.tried[key]

    def _plan(self, sizes: Sizes) -> Tried:
        try:
            report = self._report(self.fn(**sizes))
        except ValueError as err:
            return Tried(sizes, math.inf, math.inf, str(err))
        except TypeError as err:
            given = ", ".join(f"{name}={value!r}" for name, value in sizes.items())
            raise TypeError(f"search: there is no program of {given}: {err}") from err
        over = [_over(_number(figure, report), _number(most, report)) for figure, most in self.limits]
        found = Tried(sizes, _number(self.objective, report), max(0.0, *over))
        if math.isnan(found.objective) or any(map(math.isnan, over)):
            return Tried(sizes, math.inf, math.inf, "its objective, or a figure with a limit, is not a number")
        if self.top is None or found.rank < self.top[0].rank:
            self.top = found, report
        return found

    def _report(self, given: Any) -> Report:
        """Profile what the function returned, without levers for programs that do not fit, which would plan more."""
        if isinstance(given, Report):
            return given
        parts = list(cast("Iterable[Any]", given)) if isinstance(given, tuple | list) else []
        if not parts or not callable(parts[0]):
            raise TypeError(f"the function returned {given!r:.80}, expected a report or (fn, *args)")
        fn, *args = parts
        jaxpr, inputs = traced(fn, args)
        options = ModelOptions(name=name_of(fn))
        return profile_jaxpr(jaxpr, target=self.target, options=options, inputs=inputs, levers=False)

    def best(self) -> Found:
        tried = tuple(self.tried.values())
        if self.top is None:
            raise ValueError(f"no program at any of {len(tried)} sizes; at {tried[0].sizes}: {tried[0].why}")
        best, report = self.top
        if best.excess > 0:
            raise ValueError(
                f"no program within the limits among {len(tried)}; nearest is {best.sizes}, {best.excess:.1%} over"
            )
        return Found(best.sizes, best.objective, report, tried)


@dataclass(frozen=True)
class _Neighbour:
    """A planned program one stride away in one size; `way`, -1 or 1, is the direction."""

    at: dict[str, int]
    name: str
    way: int
    planned: Tried


def _step(plan: _Planner, here: dict[str, int], strides: Mapping[str, int]) -> dict[str, int] | None:
    """A better position: along the slopes of all sizes, else by one size alone, by all together, or by a trade.

    None where none is better.
    """
    now, around = plan(here), list(_neighbours(plan, here, strides))
    gains = _gains(now, around)
    places = [n.at for n in sorted(around, key=lambda n: n.planned.rank)]
    if len(gains) > 1 and plan.left:
        steepest = max(abs(g) for g in gains.values())
        moves = {name: round(strides[name] * gain / steepest) for name, gain in gains.items()}
        places.insert(0, _clamped(plan, {name: k + moves.get(name, 0) for name, k in here.items()}))
    places += [_clamped(plan, {n: k + way * strides[n] for n, k in here.items()}) for way in (-1, 1)]
    limited = any(0 < n.planned.excess < math.inf for n in around)
    trades = _traded(plan, here, strides) if limited else ()
    return next((at for at in chain(places, trades) if plan.may(at) and plan(at).rank < now.rank), None)


def _beyond(plan: _Planner, here: dict[str, int]) -> dict[str, int] | None:
    """A better position behind others as good as this one, by one size at doubling distances; None without one."""
    now = plan(here)
    for name in here:
        for way in (-1, 1):
            distance, before, at = 1, here, _clamped(plan, {**here, name: here[name] + way})
            while at != before and plan.may(at) and _as_good(there := plan(at), now):
                if there.rank < now.rank:
                    return at
                distance, before = 2 * distance, at
                at = _clamped(plan, {**here, name: here[name] + way * distance})
    return None


def _as_good(there: Tried, now: Tried) -> bool:
    """Whether a position is no worse: by its limits alone where those are exceeded."""
    return there.excess <= now.excess < math.inf if now.excess else there.rank <= now.rank


def _traded(plan: _Planner, here: Mapping[str, int], strides: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """More of one size for less of another, at several rates: the way along a limit, where no size moves alone."""
    for more, less in permutations(here, 2):
        up, down = strides[more], strides[less]
        for k, n in ((up, down), (up, 2 * down), (2 * up, down), (up, 1), (2 * up, 1)):
            at = {**here, more: here[more] + k, less: here[less] - n}
            if _clamped(plan, at) == at:
                yield at


def _neighbours(plan: _Planner, here: Mapping[str, int], strides: Mapping[str, int]) -> Iterator[_Neighbour]:
    """Neighbours on both sides of every size, as far as there are programs left to plan."""
    for name in here:
        for way in (-1, 1):
            at = _clamped(plan, {**here, name: here[name] + way * strides[name]})
            if at != here and plan.left:
                yield _Neighbour(at, name, way, plan(at))


def _clamped(plan: _Planner, at: Mapping[str, int]) -> dict[str, int]:
    return {n: min(max(k, 0), len(plan.grid[n]) - 1) for n, k in at.items()}


def _gains(now: Tried, around: Sequence[_Neighbour]) -> dict[str, float]:
    """Signed gain of a stride by size: in the exceeded limits until all hold, then in the objective."""
    gains: dict[str, float] = {}
    for n in around:
        there = n.planned
        gain = now.excess - there.excess if now.excess else now.objective - there.objective
        if math.isfinite(gain) and gain > abs(gains.get(n.name, 0.0)) and there.excess <= now.excess:
            gains[n.name] = n.way * gain
    return gains
