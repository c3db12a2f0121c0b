"""Builder methods of ai.graphcore operators, declared beside their translations; ONNX's follow from its schemas.

A signature reads ``name(parameters) -> outputs`` in PopART's order of parameters. Kinds: int float str bool array
builder, and enumerations by name; a plural is a list; "?" may be left out (default None); lists = list of lists of int;
groups = list of lists of tensor names; debug = the debug context, where it is not the usual last "debugContext". "args"
are the names of the tensors. Outputs, if not one: a number, "n" = parameter num_outputs ("n<=5" with a limit), "each" =
one for each entry of args.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..model.node_parts import BodyTypes, NodeParts
from .registry import load_domain, resolve


@dataclass(frozen=True, slots=True)
class BuilderMethod:
    """A builder method of an operator."""

    signature: str  # in the notation that the module's docstring describes
    # converts the node's parts where its attributes are not simply the arguments
    write: Callable[[NodeParts], None] | None = None
    shaped: bool = True  # whether the shapes of the results are known while building
    bodies: BodyTypes | None = None  # for operators with a subgraph: its type rules


_METHODS: dict[str, tuple[BuilderMethod, ...]] = {}


def builder_method(
    op: str,
    *signatures: str,
    write: Callable[[NodeParts], None] | None = None,
    shaped: bool = True,
    bodies: BodyTypes | None = None,
) -> None:
    """Declare the builder methods of an ai.graphcore operator; see `BuilderMethod`. A second time raises ValueError."""
    if op in _METHODS:
        raise ValueError(f"the builder methods of {op} are declared twice")
    _METHODS[op] = tuple(BuilderMethod(signature, write, shaped, bodies) for signature in signatures)


def builder_methods() -> Mapping[str, tuple[BuilderMethod, ...]]:
    """Builder methods of ai.graphcore, by operator type."""
    load_domain("ai.graphcore")
    return _METHODS


def methods_of(op: str) -> tuple[BuilderMethod, ...]:
    """Builder methods of one operator of ai.graphcore."""
    resolve("ai.graphcore", op, 1)  # imports its module
    return _METHODS.get(op, ())
