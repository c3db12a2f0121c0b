"""The work of one micro-batch, block by block: seconds, bytes of weights and activations, bytes passed on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A part of a program that is never cut, an operator of a model for instance."""

    name: str
    # seconds on one chip, of one micro-batch (of one weight update)
    forward: float
    backward: float = 0.0
    update: float = 0.0
    weights: float = 0.0  # bytes of the weights that it is the first to read
    activations: float = 0.0  # bytes of its results, which the backward pass reads
    handed_on: float = 0.0  # bytes that cross to the next block
    divides: bool = False  # tensor parallelism divides its time and its results
    divides_weights: bool = False  # tensor parallelism divides its weights
    # bytes that tensor parallelism adds up over its chips in the forward pass, and as many in the backward pass
    summed: float = 0.0


@dataclass(frozen=True)
class Work:
    """A program as blocks in order."""

    blocks: tuple[Block, ...]
    samples: float  # samples of a micro-batch
    training: bool = True  # weights have gradients and `state` more values of an optimizer each
    state: float = 2.0  # values of optimizer state for each weight

    @property
    def copies(self) -> float:
        """Values held for each weight: itself, its gradient, optimizer state."""
        return 2 + self.state if self.training else 1
