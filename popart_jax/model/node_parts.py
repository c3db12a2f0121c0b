"""What a call of a builder method becomes, before it is a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class NodeParts:
    """Names of input tensors, attributes and number of outputs."""

    inputs: list[Any]
    attributes: dict[str, Any]
    outputs: int
