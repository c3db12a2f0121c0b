"""The facts of operators that rewrites need. The caller passes a look-up by type into its operator table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import onnx_ir as ir

GRAPHCORE = "ai.graphcore"
"""Domain of PopART's own operators."""
POPART_DOMAINS = frozenset({"", "ai.onnx", GRAPHCORE})

Mode = Literal["inference", "training"]
"""Kind of session that the graph is for: some rules belong to one of them."""
"""Kind of session."""


class OperatorFacts(Protocol):
    """Facts of one operator type."""

    @property
    def inplace(self) -> Mapping[int, str]:
        """Operand that the result may overwrite -> type of the in-place form."""
        ...

    @property
    def view(self) -> str:
        """Type of the in-place form whose result is a view of the operand; '' without one."""
        ...

    @property
    def has_effect(self) -> bool:
        """Whether it must run even if nobody reads its results."""
        ...

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient may flow through it."""
        ...


Operators = Callable[[str], OperatorFacts]
"""A look-up of operator facts by type; the caller of the patterns passes one."""
"""Facts of an operator by PopART's type."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Facts of an operator of another domain: none are assumed."""

    inplace: Mapping[int, str] = field(default_factory=dict[int, str])
    view: str = ""
    has_effect: bool = False
    has_gradient: bool = True


_UNKNOWN = Unknown()


def facts_of(node: ir.Node, operators: Operators) -> OperatorFacts:
    """Facts of a node's operator."""
    return operators(node.op_type) if node.domain in POPART_DOMAINS else _UNKNOWN
