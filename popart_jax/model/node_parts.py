"""Parts of a node that a builder call makes, and the type rules of operators with subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..enums import ReductionType

REDUCTIONS = {ReductionType.Sum: "Sum", ReductionType.Mean: "Mean", ReductionType.NoReduction: "None"}
"""Reductions of losses as nodes name them."""

Type = tuple[ir.DataType | None, tuple[int, ...] | None]
"""Element type and shape of a tensor, each None where it is not known."""


@dataclass
class NodeParts:
    """Names of input tensors, attributes, number of outputs, and the program's name for the node."""

    inputs: list[Any]
    attributes: dict[str, Any]
    outputs: int
    label: str = ""


def reduction_as_text(parts: NodeParts) -> None:
    """Write the reduction into the node as text."""
    parts.attributes["reduction"] = REDUCTIONS[parts.attributes["reduction"]]


@dataclass(frozen=True, slots=True)
class SubgraphNode:
    """A node that holds a graph, while it is built."""

    label: str  # the program's name for the node
    arguments: Sequence[Type]  # types of its inputs
    first: np.ndarray | None  # its first input, where that is a constant
    attributes: Mapping[str, Any]  # its attributes by name, without the graphs
    outputs: int  # the requested number of outputs


@dataclass(frozen=True, slots=True)
class BodyTypes:
    """Type rules of an operator with a subgraph."""

    passed: Callable[[SubgraphNode], Sequence[Type]]  # from the node to the types of the graph's inputs
    # from the node and the types of the graph's outputs to the types of the node's outputs
    returned: Callable[[SubgraphNode, Sequence[Type]], Sequence[Type]]
    # from the node, the graph's attribute and its numbers of inputs and outputs to an error text, '' if they fit
    complaint: Callable[[SubgraphNode, str, int, int], str] = lambda node, name, inputs, outputs: ""
