"""Defines rewrites: functions of one node with three outcomes, and the registry of their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import onnx_ir as ir

from ._context import Context
from .operators import Mode

Stage = Literal["model", "view"]
ANY_OP = "*"
"""Root of a rule that looks at every node."""


class PatternError(Exception):
    """A pattern failed, or can't be selected."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node has the right shape but the rewrite does not apply; `why` goes into the log."""

    why: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """Replace the node's output by `value`, which takes over the output's name (its own name disappears)."""

    value: ir.Value


Values = Sequence[ir.Value | None]


@dataclass(frozen=True, slots=True)
class Fused:
    """Replace the node and `others` together; each takes one value per output (None for an output nobody reads)."""

    values: Values
    others: Sequence[tuple[ir.Node, Values]]


Outcome = ir.Value | Values | Renamed | Fused | Refused | None
"""Result of a rule: values in place of the node's outputs, a refusal with its reason, or None for "not mine"."""
Rewrite = Callable[[ir.Node, Context], Outcome]


@dataclass(frozen=True, slots=True)
class Rule:
    """One registered rewrite.

    Attributes
    ----------
    pattern
        Name by which a selection switches it on, one of the catalogue or a custom one.
    ops
        Op types at the root of the match, `domain::Type` outside ai.onnx and ai.graphcore; `ANY_OP` is every node.
    rewrite
        Returns the value(s) that replace the node's outputs (None for an output nobody reads), `Renamed`, `Fused`,
        `Refused(why)`, or None for "not mine".
    stages
        "model": the graph that is executed. "view": PopART's op-by-op picture of the training graph.
    modes
        Kinds of session for which the rewrite keeps values unchanged.
    """

    pattern: str
    ops: tuple[str, ...]
    rewrite: Rewrite
    stages: tuple[Stage, ...] = ("view",)
    modes: tuple[Mode, ...] = ("inference", "training")


RULES: dict[str, list[Rule]] = {}


def rewrites(
    pattern: str,
    *ops: str,
    stages: tuple[Stage, ...] = ("view",),
    modes: tuple[Mode, ...] = ("inference", "training"),
) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as a rewrite of `pattern` rooted at the given op types.

    Parameters
    ----------
    pattern
        Pattern name, from the catalogue or declared with `catalogue.declare`.
    *ops
        Root op types.
    stages, modes
        See `Rule`.

    Returns
    -------
    Callable
        Decorator that returns the function unchanged.

    Raises
    ------
    ValueError
        No root op given, an unknown stage or mode, or the same function registered twice for one pattern.
    """
    if not ops:
        raise ValueError(f"pattern '{pattern}': name at least one root op type, or ANY_OP")
    for given, known in ((stages, get_args(Stage)), (modes, get_args(Mode))):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"pattern '{pattern}': {unknown[0]!r} is none of {', '.join(known)}")

    def register(function: Rewrite) -> Rewrite:
        rules = RULES.setdefault(pattern, [])
        if any(rule.rewrite is function for rule in rules):
            raise ValueError(f"pattern '{pattern}': {function.__name__} is registered already")
        rules.append(Rule(pattern, ops, function, stages, modes))
        return function

    return register
