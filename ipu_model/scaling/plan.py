"""A parallelisation plan (data, tensor, pipeline) of a program over chips, and its cost.

Micro-batches flow through pipeline stages, one forward and one backward in turn (1F1B): a step of `a` micro-batches on
`p` stages takes ``a + p - 1`` times the slowest stage (D. Narayanan et al., 2021). With fewer than `p` in flight,
stages hold fewer activations, and a micro-batch enters when an earlier one is done. Communication is never overlapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_model.scaling.interconnect import Interconnect
from ipu_model.scaling.work import Block, Work


@dataclass(frozen=True)
class Spread:
    """Degrees of parallelism: `data` replicas of `pipeline` stages of `tensor` chips each."""

    data: int
    tensor: int
    pipeline: int

    @property
    def chips(self) -> int:
        """Number of chips."""
        return self.data * self.tensor * self.pipeline


@dataclass(frozen=True)
class Batches:
    """Micro-batches of a step on each replica: `count`, of which at most `in_flight` at once (0: as many as stages)."""

    count: int
    in_flight: int = 0

    def under_way(self, stages: int) -> int:
        """How many are between the first and the last stage at once."""
        return min(self.in_flight or stages, stages, self.count)

    def turns(self, stages: int) -> int:
        """Times that the slowest stage takes from the first micro-batch's entry to the last one's end."""
        rounds, rest = divmod(self.count - 1, self.under_way(stages))
        return (rounds + 1) * stages + rest


@dataclass(frozen=True)
class Parts:
    """Seconds of a step by cause; `waiting` is the slowest stage's idle time: filling, draining, few in flight."""

    compute: float
    tensor: float
    stages: float
    waiting: float
    gradients: float
    update: float

    @property
    def total(self) -> float:
        """The whole step."""
        return self.compute + self.tensor + self.stages + self.waiting + self.gradients + self.update

    @property
    def communication(self) -> float:
        """Share of the step in which data cross between chips."""
        return (self.tensor + self.stages + self.gradients) / self.total if self.total else 0.0


@dataclass(frozen=True)
class Plan:
    """A priced plan."""

    spread: Spread
    recompute: bool  # stages keep only their inputs, and recompute the rest for the backward pass
    parts: Parts
    memory: float  # bytes on the fullest chip
    throughput: float  # samples per second
    micro_batch: float  # samples of a micro-batch
    accumulation: int  # micro-batches of a step on each replica
    in_flight: int  # how many of them are in a replica's pipeline at once
    efficiency: float = 1.0  # throughput over that of as many single chips with unlimited memory and no communication


@dataclass(frozen=True)
class _Stage:
    """Sums over the blocks of one stage, on one of its tensor-parallel chips."""

    forward: float
    backward: float
    update: float
    tensor: float
    weights: float
    activations: float
    handed_on: float

    @property
    def busy(self) -> float:
        return self.forward + self.backward + self.tensor


def priced(work: Work, stages: Sequence[Sequence[Block]], spread: Spread, links: Interconnect, batches: Batches,
           recompute: bool) -> Plan:  # fmt: skip
    """The priced plan of blocks already in stages; the caller sets `efficiency`, which needs a single chip's rate."""
    found = [_stage(work, blocks, spread.tensor, links, recompute) for blocks in stages]
    sends = [0.0] * len(found)
    for at, stage in enumerate(found[:-1]):  # results to the next stage, their gradients back
        cross = links.send(stage.handed_on, spread.tensor) * (2 if work.training else 1)
        sends[at] += cross
    slowest = max(range(len(found)), key=lambda at: found[at].busy + sends[at])
    stage, cross = found[slowest], sends[slowest]
    gradients = 0.0
    if work.training:
        stride = spread.tensor * spread.pipeline
        gradients = max(links.all_reduce(s.weights, spread.data, stride) for s in found)
    parts = Parts(
        compute=batches.count * (stage.forward + stage.backward),
        tensor=batches.count * stage.tensor,
        stages=batches.count * cross,
        waiting=(batches.turns(len(found)) - batches.count) * (stage.busy + cross),
        gradients=gradients,
        update=max(s.update for s in found),
    )
    entering = [0.0, *(s.handed_on for s in found[:-1])]
    most = batches.under_way(len(found))
    under_way = [min(len(found) - at, most) for at in range(len(found))]
    memory = max(_memory(work, *facts, recompute) for facts in zip(found, entering, under_way, strict=True))
    rate = work.samples * spread.data * batches.count / parts.total
    return Plan(spread, recompute, parts, memory, rate, work.samples, batches.count, most)


def _stage(work: Work, blocks: Sequence[Block], tensor: int, links: Interconnect, recompute: bool) -> _Stage:
    def part(value: float, divides: bool) -> float:
        return value / tensor if divides else value

    forward = sum(part(b.forward, b.divides) for b in blocks)
    passes = (2 + recompute) if work.training else 1  # sums over tensor-parallel chips, in each pass
    return _Stage(
        forward=forward * (1 + (recompute and work.training)),
        backward=sum(part(b.backward, b.divides) for b in blocks) if work.training else 0.0,
        update=sum(part(b.update, b.divides_weights) for b in blocks) if work.training else 0.0,
        tensor=passes * sum(links.all_reduce(b.summed, tensor) for b in blocks if b.summed),
        weights=sum(part(b.weights, b.divides_weights) for b in blocks),
        activations=sum(part(b.activations, b.divides and not b.summed) for b in blocks),
        handed_on=blocks[-1].handed_on if blocks else 0.0,
    )


def _memory(work: Work, stage: _Stage, entering: float, under_way: int, recompute: bool) -> float:
    """Bytes of a stage: weights with gradients and optimizer state, and activations of the micro-batches in flight."""
    held = stage.weights * work.copies
    if not work.training:
        return held + stage.activations
    if recompute:
        return held + stage.activations + under_way * entering
    return held + under_way * stage.activations
