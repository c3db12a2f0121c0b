"""The work of one micro-batch, block by block: seconds, bytes of weights and activations, bytes passed on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A part of a program that is never cut, an operator of a model for instance.

    Attributes
    ----------
    forward, backward, update : float
        Seconds on one chip, of one micro-batch (of one weight update).
    weights : float
        Bytes of the weights that it is the first to read.
    activations : float
        Bytes of its results, which the backward pass reads.
    handed_on : float
        Bytes that cross to the next block.
    divides : bool
        Tensor parallelism divides its time and its results.
    divides_weights : bool
        Tensor parallelism divides its weights.
    summed : float
        Bytes that tensor parallelism adds up over its chips in the forward pass, and as many in the backward pass.
    """

    name: str
    forward: float
    backward: float = 0.0
    update: float = 0.0
    weights: float = 0.0
    activations: float = 0.0
    handed_on: float = 0.0
    divides: bool = False
    divides_weights: bool = False
    summed: float = 0.0


@dataclass(frozen=True)
class Work:
    """A program as blocks in order.

    Attributes
    ----------
    blocks : tuple of Block
    samples : float
        Samples of a micro-batch.
    training : bool
        Weights have gradients and `state` more values of an optimizer each.
    state : float
        Values of optimizer state for each weight.
    """

    blocks: tuple[Block, ...]
    samples: float
    training: bool = True
    state: float = 2.0

    @property
    def copies(self) -> float:
        """Values held for each weight: itself, its gradient, optimizer state."""
        return 2 + self.state if self.training else 1
