"""Memory of the solvers: matrices, the code of their blocks, and the matrix products between the blocks.

Constants per tile and per block were read off the benchmark table: those of a factor block off rows of one block, the
others off rows of several. They stand for vertex code, its state, exchange and control code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.convolution import plan_matmul
from ipu_model.planner.plan import Plan
from ipu_model.planner.steps import short_pointers
from ipu_model.target import Machine, Target

SIZES = {"half": 2, "float": 4}
END = 24  # bytes after the last variable of a tile

# Cholesky: codelet, stack, state and copies of a diagonal block, by type and length of pointers; code of an inverse.
FACTOR = {("float", True): 15_600, ("float", False): 15_780, ("half", True): 16_360, ("half", False): 16_430}
INVERSE = 4_000
#: Bytes for each tile of the largest product, and for each tile of each, by its vertex and whether the triangle is the
#: lower one, which on the convolution units has a transpose more.
PRODUCT_MOST = {("hmac", True): 1_770, ("hmac", False): 1_770, ("amp", True): 3_050, ("amp", False): 2_500}
PRODUCT_EACH = {("hmac", True): 370, ("hmac", False): 450, ("amp", True): 0, ("amp", False): 0}

# Triangular solve with several columns.
MATRICES, COLUMNS = 2, 4  # matrix and its masked clone; right sides, solution, temporaries and arguments of functions
CODE_MOST, CODE_LEVEL = 1_900, 950  # bytes per tile of the largest product, and of each product between levels
CODE_ROW = {False: 400, True: 535}  # bytes per tile of a row's product, subtraction and copy: without, with conv units
CALL_TILE, CALL_ALONE = 245, 124_000  # bytes per tile and call of the leaf with several matrices; with one, in all


@dataclass(frozen=True)
class Products:
    """Tiles of products, and whether any runs on the convolution units."""

    plans: tuple[Plan, ...]

    @property
    def most(self) -> int:
        """Tiles of the largest product."""
        return max((p.tiles for p in self.plans), default=0)

    @property
    def total(self) -> int:
        """Tiles of all products; a tile that several products use counts once for each."""
        return sum(p.tiles for p in self.plans)

    def by(self, method: str) -> Products:
        """Those that run on one kind of vertex: dot products, or the convolution units."""
        return Products(tuple(p for p in self.plans if (p.method == "amp") == (method == "amp")))

    @property
    def interleaved(self) -> float:
        """The most bytes of interleaved memory that a tile needs for one product."""
        return max((p.interleaved_bytes for p in self.plans), default=0.0)


def _product(m: int, k: int, n: int, target: Target, groups: int, data: str) -> Plan:
    return plan_matmul(m, k, n, target, groups, data, options=Options("none_matmul"))


def cholesky_memory(rank: int, block: int, batches: int, lower: bool, data: str, target: Target) -> tuple[float, float]:
    """Total bytes of a factorisation, and the highest address used on a tile."""
    machine, size, blocks = target.machine, SIZES[data], cdiv(rank, block)
    tile = block * block * size
    products = Products(tuple(_step_products(rank, block, batches, lower, data, target)))
    total = batches * blocks * (FACTOR[data, short_pointers(machine)] + tile) + batches * rank * rank * size
    total += batches * (blocks - 1) * INVERSE
    for method in ("hmac", "amp"):
        some = products.by(method)
        total += some.most * PRODUCT_MOST[method, lower] + some.total * PRODUCT_EACH[method, lower]
    if products.interleaved:
        return float(total), machine.interleaved_start + products.interleaved + END
    # a factor block and its copy lie in elements of their own; with an upper triangle or more blocks a third is in use
    third = blocks > 2 or (blocks == 2 and not lower)
    highest = 3 * machine.memory_element + 64 if third else 2 * machine.memory_element + tile
    return float(total), float(highest + END)


def _step_products(rank: int, block: int, batches: int, lower: bool, data: str, target: Target):
    """Products of each step: the panel times an inverse, and the update of what is left."""
    for done in range(block, rank, block):
        rest = rank - done
        panel = (rest, block, block) if lower else (block, block, rest)
        yield _product(*panel, target, batches, data)
        yield _product(rest, block, rest, target, batches, data)


def solve_memory(rank: int, columns: int, block: int, batches: int, data: str, target: Target) -> tuple[float, float]:
    """Total bytes of a triangular solve with several right-hand sides, and the highest address used on a tile."""
    machine, size = target.machine, SIZES[data]
    block = min(block, rank)
    blocks = 2 ** math.ceil(math.log2(cdiv(rank, block)))
    halvings = max(1, min(cdiv(columns, block), blocks))
    width = cdiv(columns, halvings)
    rows = Products(tuple(_product(1, i, width, target, batches, data) for i in range(1, block)))
    levels = Products(tuple(_level_products(block, blocks, width, batches, data, target)))
    total = batches * rank * (MATRICES * rank + COLUMNS * columns) * size + CODE_MOST * max(rows.most, levels.most)
    total += sum(CODE_ROW[p.method == "amp"] * p.tiles for p in rows.plans) + CODE_LEVEL * levels.total
    calls = blocks * halvings
    total += calls * (CALL_TILE * machine.tiles if batches > 1 else CALL_ALONE)
    interleaved = max(rows.interleaved, levels.interleaved)
    return float(total), machine.interleaved_start + interleaved + END


def _level_products(block: int, blocks: int, width: int, batches: int, data: str, target: Target):
    """Products between the halves of the matrix, one function for each size."""
    half, columns = block, width
    while half < block * blocks:
        yield _product(half, half, columns, target, batches, data)
        half, columns = 2 * half, 2 * columns


def highest_of_vector(machine: Machine, product: Plan) -> float:
    """Highest address of a solve with one right-hand side, whose products are those of a vector."""
    return machine.interleaved_start + product.interleaved_bytes + END
