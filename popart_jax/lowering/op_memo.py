"""Memo of operators: equal operators are traced once, in all walks of a program.

The layers of a network repeat: two in three nodes of ResNet-50 have the operand types and attributes of an earlier
one, and a session walks its graph twice, for the types and for the step. The jaxpr of the first such operator is
replayed, equation by equation, on the operands of the next; where only types matter, placeholders are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import numpy as np

from .._compat.jax import Tracer, flat_tree, jaxpr_of, primitive, replayer, setting
from ..ops.kernels import platform
from ..ops.options import OperatorOptions
from ..ops.registry import Lowering

_IN_THE_KEY = frozenset({"key", "n_outputs", "training", "popart", "options", "opset", "output_type"})
_SMALL = 1 << 10
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision")  # of those that tracing reads, the ones that change

_stand_in = primitive("stand_in")


@_stand_in.def_abstract_eval
def _its_type(*, aval: Any) -> Any:
    return aval


Compute = Callable[[Sequence[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class _Traced:
    """An operator as a jaxpr of its traced operands, and the function `again` that replays its equations.

    `fixed` are the results that do not depend on these operands, with `_MOVES` in place of the others.
    """

    closed: Any
    again: Callable[..., Sequence[Any]]
    tree: Any
    fixed: Sequence[Any]

    def results(self, values: Sequence[Any]) -> Any:
        """The operator's results, given the results of the jaxpr."""
        rest = iter(values)
        return jax.tree.unflatten(self.tree, [next(rest) if x is _MOVES else x for x in self.fixed])


_MOVES = object()


@dataclass(frozen=True)
class OpMemo:
    """Traced operators, by translation, attributes and types of operands."""

    types_only: bool = False  # results are placeholders, which nothing computes
    _known: dict[Any, _Traced | None] = field(default_factory=dict[Any, "_Traced | None"])

    def for_types(self) -> OpMemo:
        """The same memo, for a walk that only infers types."""
        return OpMemo(True, self._known)

    def forget(self) -> None:
        """Free the memory."""
        self._known.clear()

    def results(
        self, lowering: Lowering, operands: Sequence[Any], keywords: Mapping[str, Any], compute: Compute
    ) -> Any:
        """The result of ``compute(operands, keywords)``, traced now or replayed."""
        moving = [x for x in (*operands, *keywords.values()) if isinstance(x, Tracer)]
        key = _key_of(lowering, operands, keywords) if moving else None
        if key is None:
            return compute(operands, keywords)
        if key not in self._known:
            self._known[key] = _trace(operands, keywords, moving, compute)
        known = self._known[key]
        if known is None:
            return compute(operands, keywords)
        if self.types_only:
            return known.results([_stand_in.bind(aval=aval) for aval in known.closed.out_avals])
        return known.results(known.again(*moving))


def _trace(
    operands: Sequence[Any], keywords: Mapping[str, Any], moving: Sequence[Any], compute: Compute
) -> _Traced | None:
    """The operator as a jaxpr; None if it has side effects, or if its results are not arrays."""
    found: list[Any] = []

    def of(*values: Any) -> list[Any]:
        rest = iter(values)
        given = [next(rest) if isinstance(x, Tracer) else x for x in operands]
        named = {name: next(rest) if isinstance(x, Tracer) else x for name, x in keywords.items()}
        leaves, tree = flat_tree(compute(given, named))
        found[:] = [tree, [_MOVES if isinstance(x, Tracer) else x for x in leaves]]
        return [x for x in leaves if isinstance(x, Tracer)]

    closed = jaxpr_of(of, moving)
    return None if closed.effects or not closed.out_avals else _Traced(closed, replayer(closed), *found)


def _key_of(lowering: Lowering, operands: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Memo key: everything that the results depend on; None where a part of it can't be compared."""
    if not _IN_THE_KEY.issuperset(lowering.context.values()):
        return None
    parts = [_key(x) for x in operands]
    named = [(name, _key(x)) for name, x in keywords.items()]
    if None in parts or any(part is None for _, part in named):
        return None
    return (lowering.fn, platform(), *map(setting, _SETTINGS), tuple(parts), tuple(named))


def _key(x: Any) -> Any:
    """Part of the key for one operand: type of a traced array, else the value; None if the value is too large."""
    if isinstance(x, Tracer):
        return jax.typeof(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return (x.dtype, x.shape, x.tobytes()) if x.nbytes <= _SMALL and x.dtype != object else None
    if isinstance(x, tuple):
        parts = cast("tuple[Any, ...]", x)
        inner = tuple(map(_key, parts))
        return None if None in inner or any(isinstance(v, Tracer) for v in parts) else inner
    plain = x is None or isinstance(x, (bool, int, float, str, OperatorOptions))
    return (type(x), x) if plain else None
