"""Splitting a traced program: work that depends on weights alone is hoisted out and done once, when they are loaded.

Graph passes and operators may transpose, fold or widen weights wherever they need to: `split` moves those equations out
of the program, even out of loops, and their results become arguments of the remaining program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import jax
from jax import lax

from ipu_model.compat import inner_jaxprs, scan_counts

from ..._compat.jax import Literal, bind, is_kept, staging

_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_closed_call": "call_jaxpr",
            "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}  # fmt: skip
_CONSTANT, _EARLY, _LATE = range(3)
_PLAIN, _SPREAD, _WORKED = range(3)
_COSTLY = {
    *("sin", "cos", "tan", "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "pow", "erf", "erf_inv", "erfc"),
    *("sqrt", "rsqrt", "dot_general", "conv_general_dilated"),
}
"""Primitives whose results are read faster than computed again."""
_MOST_SPREAD = 1 << 22
"""Most elements of a result that has more of them than its operands, and is computed early nevertheless."""


@dataclass(frozen=True, slots=True)
class Split:
    """A program in two halves: ``late(*early(*known), *others)`` is ``program(*args)``."""

    early: Callable[..., tuple[Any, ...]]  # takes the known arguments, in order, and computes what `late` reads of them
    # the rest of the program: takes the results of `early`, then the other arguments in order
    late: Callable[..., list[Any]]
    # for each result of `early`: the index of the argument that it is, None if it is computed
    passed: tuple[int | None, ...]


def split(closed: Any, known: Sequence[bool]) -> Split | None:
    """Split a program by which of its arguments are known early; None if nothing is computed from those alone.

    Equations whose results have more elements than their operands are moved only if something costly follows from them
    early too, since reading the results would cost more than computing them: a table of sines is moved, a broadcast is
    not. Nor are equations with effects.
    """
    halves, moved = _halves(closed, known)
    return halves if moved else None


def _halves(closed: Any, known: Sequence[bool]) -> tuple[Split, bool]:
    """The halves as `split` returns them, and whether anything is computed early."""
    walk = _Walk()
    args = [_Place(i, _EARLY if k else _LATE) for i, k in enumerate(known)]
    walk.size = len(args)
    outputs = walk.enter(closed, args, "")
    walk.records, outputs = _demoted(walk.records, outputs)
    late_records = _live(walk.records, outputs, late=True)
    frontier = tuple(_frontier(late_records, outputs))
    early_records = _live(walk.records, [_Place(n, _EARLY) for n in frontier], late=False)
    early_args = [i for i, k in enumerate(known) if k]
    late_args = [i for i, k in enumerate(known) if not k]

    def early(*values: Any) -> tuple[Any, ...]:
        env = dict(zip(early_args, values, strict=True))
        _execute(early_records, env)
        return tuple(env[place] for place in frontier)

    def late(*values: Any) -> list[Any]:
        env = dict(zip((*frontier, *late_args), values, strict=True))
        _execute(late_records, env)
        return [_read(env, x) for x in outputs]

    known_at = {place: i for i, place in enumerate(early_args)}
    moved = any(record.when == _EARLY for record in walk.records)
    return Split(early, late, tuple(map(known_at.get, frontier))), moved


def _demoted(records: Sequence[_Record], outputs: Sequence[_Operand]) -> tuple[list[_Record], list[_Operand]]:
    """Equations and results; those that spread early values, cost little and are read late count as constants.

    Either half then computes them where it reads them: an early equation may read the same values.
    """
    read = {x.number for x in outputs if isinstance(x, _Place)}
    demoted: set[int] = set()
    for record in reversed(records):
        if record.when == _EARLY and record.kind == _SPREAD and not read.isdisjoint(record.results):
            demoted.update(record.results)
        if record.when == _LATE or not demoted.isdisjoint(record.results):
            read.update(x.number for x in record.operands if isinstance(x, _Place))

    if not demoted:
        return [*records], [*outputs]

    def place(x: _Operand) -> _Operand:
        return replace(x, when=_CONSTANT) if isinstance(x, _Place) and x.number in demoted else x

    found = [
        replace(r, operands=tuple(map(place, r.operands)), when=r.when if demoted.isdisjoint(r.results) else _CONSTANT)
        for r in records
    ]
    return found, [*map(place, outputs)]


@dataclass(frozen=True, slots=True)
class _Place:
    """A value by its number, when it is known, and whether it has more elements than what it follows from."""

    number: int
    when: int
    kind: int = _PLAIN


_Operand = Any
"""A `_Place`, or the value of a constant."""


@dataclass(frozen=True, slots=True)
class _Record:
    """One equation: its function, its operands, the numbers of its results."""

    fn: Callable[..., Sequence[Any]]
    operands: tuple[_Operand, ...]
    results: tuple[int, ...]
    when: int
    scope: str
    effects: bool = False
    kind: int = _PLAIN


def _read(env: dict[int, Any], operand: _Operand) -> Any:
    return env[operand.number] if isinstance(operand, _Place) else operand


@dataclass
class _Walk:
    """The equations of a program in order; calls that mix early and late operands are inlined, but for kept ones."""

    records: list[_Record] = field(default_factory=list[_Record])
    size: int = 0

    def enter(self, closed: Any, args: Sequence[_Operand], scope: str) -> list[_Operand]:
        """Record the equations of a program on these operands; returns its results."""
        jaxpr = closed.jaxpr
        env: dict[Any, _Operand] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            operands = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
            inner = "/".join(filter(None, (scope, str(eqn.source_info.name_stack))))
            env.update(zip(eqn.outvars, self._equation(eqn, operands, inner), strict=True))
        return [v.val if isinstance(v, Literal) else env[v] for v in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[_Operand], scope: str) -> Sequence[_Operand]:
        when = [x.when if isinstance(x, _Place) else _CONSTANT for x in operands]
        mixed = _EARLY in when and _LATE in when
        if mixed and eqn.primitive.name in _INLINED and not is_kept(eqn):
            return self.enter(eqn.params[_INLINED[eqn.primitive.name]], operands, scope)
        if mixed and eqn.primitive.name == "scan":
            return self._scan(eqn, operands, scope)
        if mixed and eqn.primitive.name == "cond":
            return self._cond(eqn, operands, scope)
        latest = max(when, default=_CONSTANT)
        if eqn.effects or (latest == _EARLY and _grows(eqn) and _largest(eqn.outvars) > _MOST_SPREAD):
            latest = _LATE
        kind = _kind(eqn, operands) if latest == _EARLY else _PLAIN
        return self._append(partial(_bound, eqn), operands, len(eqn.outvars), latest, scope, bool(eqn.effects), kind)

    def _append(
        self,
        fn: Callable[..., Sequence[Any]],
        operands: Sequence[_Operand],
        count: int,
        when: int,
        scope: str,
        effects: bool = False,
        kind: int = _PLAIN,
    ) -> list[_Place]:
        places = [_Place(self.size + i, when, kind) for i in range(count)]
        self.size += count
        results = tuple(p.number for p in places)
        self.records.append(_Record(fn, tuple(operands), results, when, scope, effects, kind))
        return places

    def _scan(self, eqn: Any, operands: list[_Operand], scope: str) -> list[_Place]:
        """A scan: equations of its body that depend on early loop constants alone are moved out of it."""
        body, (count, carried) = eqn.params["jaxpr"], scan_counts(eqn)
        early = [isinstance(x, _Place) and x.when == _EARLY for x in operands[:count]]
        halves = split(body, [*early, *[False] * (len(operands) - count)])
        if halves is None:
            return self._append(partial(_bound, eqn), operands, len(eqn.outvars), _LATE, scope, bool(eqn.effects))
        known = [x for x, k in zip(operands, early, strict=False) if k]
        others = [x for x, k in zip(operands, [*early, *[False] * len(operands)], strict=False) if not k]
        avals = [v.aval for v in body.jaxpr.invars]
        made = jax.eval_shape(halves.early, *(a for a, k in zip(avals, early, strict=False) if k))
        places = self._made(halves, known, scope)
        rest = partial(_scanned, eqn, halves.late, len(made) + count - sum(early), carried)
        return self._append(rest, [*places, *others], len(eqn.outvars), _LATE, scope, bool(eqn.effects))

    def _made(self, halves: Split, known: Sequence[_Operand], scope: str) -> list[_Operand]:
        """The values of an inner program's early half: computed places, or known operands passed through."""
        places = self._append(halves.early, known, len(halves.passed), _EARLY, scope)
        return [place if p is None else known[p] for place, p in zip(places, halves.passed, strict=True)]

    def _cond(self, eqn: Any, operands: list[_Operand], scope: str) -> list[_Place]:
        """A cond: equations of a branch that depend on early operands alone are moved out, and run in any case."""
        index, *inner = operands
        early = [isinstance(x, _Place) and x.when == _EARLY for x in inner]
        found = [_halves(branch, early) for branch in eqn.params["branches"]]
        if not any(moved for _, moved in found):
            return self._append(partial(_bound, eqn), operands, len(eqn.outvars), _LATE, scope, bool(eqn.effects))
        known, others = ([x for x, k in zip(inner, early, strict=True) if k is wanted] for wanted in (True, False))
        avals = [v.aval for v in eqn.params["branches"][0].jaxpr.invars]
        of_known, of_others = ([a for a, k in zip(avals, early, strict=True) if k is w] for w in (True, False))
        made = [jax.eval_shape(halves.early, *of_known) for halves, _ in found]
        branches: list[Any] = []
        begin = 0
        for (halves, _), own in zip(found, made, strict=True):
            late = partial(_late_branch, halves.late, begin, len(own), sum(map(len, made)))
            branches.append(jax.make_jaxpr(late)(*(a for one in made for a in one), *of_others))
            begin += len(own)
        places = [place for halves, _ in found for place in self._made(halves, known, scope)]
        rest = partial(_bound, eqn, params={**eqn.params, "branches": tuple(branches)})
        return self._append(rest, [index, *places, *others], len(eqn.outvars), _LATE, scope, bool(eqn.effects))


def _scanned(eqn: Any, body: Callable[..., Sequence[Any]], constants: int, carried: int, *args: Any) -> list[Any]:
    """The scan of an equation with another body; `args` are constants, then the initial carry, then scanned arrays."""

    def step(carry: Sequence[Any], slices: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        found = body(*args[:constants], *carry, *slices)
        return tuple(found[:carried]), tuple(found[carried:])

    how = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    begin = constants + carried
    with eqn.ctx.manager:
        last, rows = lax.scan(step, tuple(args[constants:begin]), tuple(args[begin:]), **how)
    return [*last, *rows]


def _late_branch(late: Callable[..., list[Any]], begin: int, count: int, made: int, *args: Any) -> list[Any]:
    """The late half of one branch: `args` are the early results of all branches, then the other operands."""
    return late(*args[begin : begin + count], *args[made:])


def _live(records: Sequence[_Record], outputs: Sequence[_Operand], *, late: bool) -> list[_Record]:
    """One half's equations that its outputs or side effects depend on; either half computes constants it reads."""
    wanted = {x.number for x in outputs if isinstance(x, _Place)}
    found: list[_Record] = []
    for record in reversed(records):
        ours = record.when == _CONSTANT or (record.when == _LATE) == late
        if ours and ((record.effects and late) or not wanted.isdisjoint(record.results)):
            found.append(record)
            wanted.update(x.number for x in record.operands if isinstance(x, _Place))
    return found[::-1]


def _frontier(late: Sequence[_Record], outputs: Sequence[_Operand]) -> Iterator[int]:
    """Numbers of early values that late equations or the results read, each once."""
    read = [x for record in late for x in record.operands]
    early = (x.number for x in (*read, *outputs) if isinstance(x, _Place) and x.when == _EARLY)
    return iter(dict.fromkeys(early))


def _execute(records: Sequence[_Record], env: dict[int, Any]) -> None:
    for scope, run in groupby(records, key=attrgetter("scope")):
        with jax.named_scope(scope) if scope else nullcontext():
            for record in run:
                results = record.fn(*(_read(env, x) for x in record.operands))
                env.update(zip(record.results, results, strict=True))


def _bound(eqn: Any, *args: Any, params: Any = None) -> Sequence[Any]:
    stage = staging() if params is None and not eqn.effects else None
    return bind(eqn, args, params) if stage is None else stage(eqn, args)


def _grows(eqn: Any) -> bool:
    """Whether the results have more elements than the operands."""
    inputs = sum(_elements(v) for v in eqn.invars)
    return sum(_elements(v) for v in eqn.outvars) > inputs


def _kind(eqn: Any, operands: Sequence[_Operand]) -> int:
    """Whether the results have more elements than what they follow from, and something costly has been done since."""
    kinds = [x.kind for x in operands if isinstance(x, _Place)]
    if _grows(eqn):
        return _WORKED if _is_costly(eqn) else _SPREAD
    if not any(kinds) or _largest(eqn.outvars) < _largest(eqn.invars):
        return _PLAIN
    return _WORKED if _WORKED in kinds or _is_costly(eqn) else _SPREAD


def _is_costly(eqn: Any) -> bool:
    inner = (body for _, body in inner_jaxprs(eqn.params))
    return eqn.primitive.name in _COSTLY or any(_is_costly(e) for body in inner for e in body.eqns)


def _largest(atoms: Sequence[Any]) -> int:
    return max(map(_elements, atoms), default=0)


def _elements(atom: Any) -> int:
    return math.prod(getattr(atom.aval, "shape", ()))
