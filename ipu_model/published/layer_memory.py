"""Memory of benchmark rows of layers: tensors, the largest temporaries of each tile, code and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ipu_model.planner.conv_grid import SIZES, Split
from ipu_model.planner.conv_memory import MESSAGE, code, messages, peaks, rows
from ipu_model.planner.convolution import interleaved_bytes
from ipu_model.published.benchmark import Operands
from ipu_model.published.formula import FIXED, Formula
from ipu_model.target import Target

# Fitted constants by family: bytes of code and lists for which the library has no table.
BESIDE = {
    "conv": ("conv.memory.pass_tiles", "conv.memory.moved_tiles", "conv.memory.moved_outputs", "conv.memory.rows"),
    "oct": ("conv.memory.pass_tiles", "conv.memory.moved_tiles", "conv.memory.moved_outputs", "conv.memory.rows",
            "oct.memory.tiles"),
    "fc": ("fc.memory.pass_tiles", "fc.memory.reduce_tiles", "fc.memory.moved_outputs"),
    "gemm": ("gemm.memory.tiles", "gemm.memory.received"),
}  # fmt: skip
END = 24  # bytes behind the last variable of a tile


@dataclass(frozen=True)
class Layer:
    """A benchmark program."""

    family: str  # prefix of its constants
    passes: Sequence[Sequence[Split]]  # the convolutions of each pass, side by side
    operands: Operands
    compiled: bool  # whether the benchmark compiles vertex code
    copies: int = 2  # inputs and outputs that always live: with their gradients where the program trains

    @property
    def splits(self) -> list[Split]:
        """The convolutions of all passes in one list."""
        return [split for each in self.passes for split in each]


def total(layer: Layer, target: Target) -> Formula:
    """Bytes over all tiles: always-live data, and the peak of the temporaries of each tile."""
    held = layer.operands
    live = layer.copies * (held.inputs + held.outputs) + held.weights
    known = live + float(peaks(layer.passes, target.tiles).sum())
    if layer.compiled:
        known += code(layer.passes, target.tiles) + MESSAGE * messages(layer.splits)
    beside = {name: _amount(name, layer.splits, target) for name in BESIDE[layer.family]}
    return Formula(({FIXED: known, **beside},))


def _amount(constant: str, splits: Sequence[Split], target: Target) -> float:
    """The quantity that a constant of `BESIDE` is multiplied by."""
    amounts: dict[str, Callable[[Split], float]] = {
        "pass_tiles": lambda s: s.tiles,
        "reduce_tiles": lambda s: s.tiles if s.depth > 1 else 0,
        "moved_tiles": lambda s: s.tiles if s.tile["moved_operands"] > 0 else 0,
        "moved_outputs": lambda s: s.tiles * s.tile["moved_output"],
        "rows": lambda s: s.tiles * rows(s),
        "received": lambda s: s.tiles * s.tile["inputs"] * SIZES[s.vertex.data],
    }
    name = constant.rpartition(".")[2]
    return float(target.tiles if name == "tiles" else sum(map(amounts[name], splits)))


def highest(layer: Layer, target: Target) -> Formula:
    """The highest address used on a tile: behind the largest interleaved variable, or behind all of them."""
    machine, held = target.machine, layer.operands
    interleaved = max(interleaved_bytes(split) for split in layer.splits)
    # vertices that need nothing interleaved still want their two operands in different memory elements
    apart = 2 * machine.memory_element + layer.splits[0].tile["weights"] * SIZES[layer.splits[0].vertex.data]
    fixed = {FIXED: END + (machine.interleaved_start + interleaved if interleaved else apart)}
    spread = {
        "conv.max_tile.code": 1.0,
        "conv.max_tile.temporary": max(split.temp for split in layer.splits),
        "conv.max_tile.variables": (layer.copies * held.inputs + held.weights + 2 * held.outputs) / target.tiles,
    }
    return Formula((fixed, spread))
