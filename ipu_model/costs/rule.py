"""The interface of cost rules: a rule takes an operation and a `Context` and returns an `OpCost`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ipu_model import partition
from ipu_model.cost import Cost, Number
from ipu_model.options import ModelOptions
from ipu_model.partition import Spread
from ipu_model.target import Target
from ipu_model.walk.program import Op, Tensor


@dataclass(frozen=True, slots=True)
class Superstep:
    """Exchange, then compute, on all tiles together.

    Attributes
    ----------
    name : str
        Last part of the step's name in reports, such as ``Convolve``.
    compute, exchange, inter_ipu, host : cycles
        On the slowest tile; `exchange` without set-up and sync, which pricing adds for each phase that is not empty.
    received : bytes
        Received by all tiles together.
    tiles, vertices : int
        Tiles with work, and vertex instances over them.
    vertex : str
        Codelet; its code is held once on each tile that uses it.
    balance : float
        Mean work of the tiles in use over that of the busiest.
    times : int
        The superstep runs this often in a row (an inner loop of the library).
    overhead : cycles
        Part of `compute` that disappears when the vertex is fused into the next one.
    settled : bool
        True when the figures already contain set-up and sync (planners with constants fitted to whole passes).
    """

    name: str
    compute: Number = 0.0
    exchange: Number = 0.0
    inter_ipu: Number = 0.0
    host: Number = 0.0
    received: float = 0.0
    tiles: int = 0
    vertices: int = 0
    vertex: str = ""
    balance: float = 1.0
    times: float = 1
    overhead: Number = 0.0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class OpCost:
    """Price of one operation.

    Attributes
    ----------
    temporary : bytes
        Bytes that the fullest tile needs only while the operation runs.
    beside_outputs : bytes, optional
        The part of it that is still needed when the outputs are written; None for all of it.
    interleaved : bytes
        Part of it that must lie in interleaved memory.
    outputs : tuple of Spread
        Tile mapping of each output; empty for the linear mapping.
    view : bool
        The output is another view of the first input's memory.
    elementwise : bool
        Operands are brought to the mapping of the first; may be fused, and may write over a dying operand.
    layout : {"keep", "permute", "new", "linear"}
        Element order of the output over the tiles, relative to the first input.
    known : bool
        False for the default price of a primitive without a rule.
    """

    supersteps: tuple[Superstep, ...] = ()
    flops: float = 0.0
    temporary: float = 0.0
    beside_outputs: float | None = None
    interleaved: float = 0.0
    outputs: tuple[Spread, ...] = ()
    view: bool = False
    elementwise: bool = False
    layout: str = "new"
    known: bool = True

    def fused(self) -> OpCost:
        """Price of the same work inside the vertex of its consumer."""
        return replace(self, supersteps=tuple(replace(s, compute=s.compute - s.overhead) for s in self.supersteps))


@dataclass(frozen=True)
class Context:
    """What a rule may read besides the operation: target and options; `training`: the program has a backward pass."""

    target: Target
    options: ModelOptions = field(default_factory=ModelOptions)
    training: bool = False

    @property
    def tiles(self) -> int:
        """Tiles for compute."""
        return self.target.machine.tiles - self.options.io_tiles

    def narrowed(self, on_io: bool) -> Context:
        """The context for one operation: a chip with only the tiles that the operation may use, compute or IO tiles."""
        aside, tiles = self.options.io_tiles, self.target.machine.tiles
        if aside >= tiles:
            raise ValueError(f"io_tiles is {aside}, expected fewer than the {tiles} tiles of {self.target.name}")
        if not aside:
            return self
        chip = self.target.replace(tiles=aside if on_io else self.tiles)
        return replace(self, target=chip, options=replace(self.options, io_tiles=0))

    def spread(self, t: Tensor) -> Spread:
        """The linear mapping of a tensor: equal stretches of whole vectors, at least 128 bytes on each tile."""
        return partition.linear(t.size, t.width, self.tiles, self.target.machine.vector_bytes)

    def move(self, bytes_per_tile: Number) -> Number:
        """Cycles to receive bytes on the busiest tile."""
        return bytes_per_tile / self.target.exchange_bytes_per_cycle

    def cost(self, price: OpCost) -> Cost:
        """Sum of the supersteps, with set-up and sync of each exchange and each compute set."""
        t = self.target
        total = Cost(flops=price.flops)
        for s in price.supersteps:
            total = total + superstep_cost(s, t)
        return total


def superstep_cost(s: Superstep, t: Target) -> Cost:
    """Cost of one superstep, all its repetitions."""
    if s.settled:
        return Cost(s.compute, s.exchange, 0.0, s.inter_ipu, s.host, 0.0, s.received) * s.times
    moves, runs = s.received > 0, s.tiles > 0
    exchange = s.exchange + (t.exchange_setup_cycles if moves and nonzero(s.exchange) else 0.0)
    outside = nonzero(s.inter_ipu) or nonzero(s.host)
    sync = t.sync_cycles * (moves + runs) + (t.external_sync_cycles if outside else 0.0)
    return Cost(s.compute, exchange, sync, s.inter_ipu, s.host, 0.0, s.received) * s.times


def nonzero(x: Number) -> bool:
    """Whether a number is not zero; a traced number always counts as not zero."""
    return not isinstance(x, (int, float)) or x != 0


Rule = Callable[[Op, Context], OpCost]
