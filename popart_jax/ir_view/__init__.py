"""PopART's op-by-op picture of a session: what `_serializeIr` prints and which tensors exist to be anchored.

The program that runs is another one (a traced JAX function). This view is built on demand from plain facts.
"""

from __future__ import annotations

from . import nodes
from .build import CHECKPOINTS, View, build
from .facts import ClipGroup, IrFacts, Location, OptimizerFacts, ViewOptions
from .queries import (
    may_be_unlowered,
    misplaced,
    serialize_forward,
    serialize_ir,
    serialize_stages,
    tensor_types,
    tracked_gradients,
    unlowered,
)

__all__ = [
    "CHECKPOINTS",
    "ClipGroup",
    "IrFacts",
    "Location",
    "OptimizerFacts",
    "View",
    "ViewOptions",
    "build",
    "may_be_unlowered",
    "misplaced",
    "nodes",
    "serialize_forward",
    "serialize_ir",
    "serialize_stages",
    "tensor_types",
    "tracked_gradients",
    "unlowered",
]
