"""Costs and memory peaks: for steps in sequence a `Cost` is the sum of theirs, a `Peak` the maximum."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: A plain number in the normal path, a traced JAX scalar when a price is differentiated.
Number = Any


def larger(a: Number, b: Number) -> Number:
    """Maximum of two numbers, exact, of plain numbers or of traced JAX values alike."""
    if all(isinstance(x, (int, float, np.number)) for x in (a, b)):
        return a if a >= b else b
    return jnp.maximum(a, b)


def softer_larger(a: Number, b: Number, width: float) -> Number:
    """Smooth upper bound of the maximum: ``w log(exp(a/w) + exp(b/w))``, within ``w log 2`` of it."""
    if width <= 0:
        return larger(a, b)
    return width * jnp.logaddexp(a / width, b / width)


def cdiv(a: int, b: int) -> int:
    """Integer quotient, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of running something. ``a + b``: a then b; ``a | b``: at the same time on other tiles; ``a * n``: n times.

    Attributes
    ----------
    compute, exchange, sync, inter_ipu, host : cycles
        Tile cycles by kind: vertices, on-chip exchange, synchronisation, IPU-Link traffic, host and off-chip traffic.
    flops : floating point operations
    moved : bytes
        Bytes sent over the on-chip exchange, the links or to the host.
    """

    compute: Number = 0.0
    exchange: Number = 0.0
    sync: Number = 0.0
    inter_ipu: Number = 0.0
    host: Number = 0.0
    flops: Number = 0.0
    moved: Number = 0.0

    @property
    def total(self) -> Number:
        """Tile cycles of all kinds one after another."""
        return self.compute + self.exchange + self.sync + self.inter_ipu + self.host

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.compute + other.compute,
            self.exchange + other.exchange,
            self.sync + other.sync,
            self.inter_ipu + other.inter_ipu,
            self.host + other.host,
            self.flops + other.flops,
            self.moved + other.moved,
        )

    def __or__(self, other: Cost) -> Cost:
        return Cost(
            *(larger(getattr(self, n), getattr(other, n)) for n in CYCLE_FIELDS),
            flops=self.flops + other.flops,
            moved=self.moved + other.moved,
        )

    def __mul__(self, times: Number) -> Cost:
        return Cost(*(getattr(self, n) * times for n in FIELDS))

    __rmul__ = __mul__


CYCLE_FIELDS = ("compute", "exchange", "sync", "inter_ipu", "host")
FIELDS = tuple(f.name for f in fields(Cost))
ZERO = Cost()

jax.tree_util.register_dataclass(Cost, list(FIELDS), [])


@dataclass(frozen=True, slots=True)
class Peak:
    """A memory peak in bytes: the maximum over steps in sequence; data that coexist on one tile (``&``) add up."""

    bytes: Number = 0

    def __add__(self, other: Peak) -> Peak:
        return Peak(larger(self.bytes, other.bytes))

    def __and__(self, other: Peak) -> Peak:
        """Both at the same time on the same tile."""
        return Peak(self.bytes + other.bytes)

    def __mul__(self, times: int) -> Peak:
        return self if times else Peak(0)
