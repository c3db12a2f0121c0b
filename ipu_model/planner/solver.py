"""Cholesky factorisation and triangular solve by blocks."""

from __future__ import annotations

import math

from ipu_model.checks import check_choice, check_sizes
from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.plan import Plan
from ipu_model.target import Target

EXACT = frozenset({"vertices"})


def cholesky_block(n: int, data: str) -> float:
    """Worker bundles of factoring one block of rank `n`."""
    if data == "float":
        return n**3 + 102 * n**2 + 101 * n + 102
    return n**3 / 2 + 795 * n**2 / 4 + 191 * n / 2 + 426


def triangular_inverse(n: int, data: str, lower: bool) -> float:
    """Worker bundles of inverting a triangular block."""
    if data == "float":
        return 6 * n**3 + 264 * n**2 + 78 * n - 120 if lower else 6 * n**3 + 51 * n**2 + 213 * n + 12
    if lower:
        return 7 * n**3 + 387 * n**2 / 2 + 272 * n - 120
    return 7 * n**3 + 123 * n**2 + 269 * n - 24


def triangular_vector(n: int, data: str, lower: bool) -> float:
    """Worker bundles of solving a triangular block for one right-hand side."""
    if data == "float":
        return 3 * n**2 / 2 + 180 * n - 126 if lower else 27 * n**2 / 4 + 327 * n / 2 + 54
    return 3 * n**2 / 4 + 318 * n - 150 if lower else 135 * n**2 / 16 + 1089 * n / 4 + 12


def plan_cholesky(
    rank: int, block: int, target: Target, batches: int = 1, lower: bool = True, data: str = "float"
) -> Plan:
    """Factor `batches` matrices of `rank`; each runs on tiles of its own, the diagonal block on one worker.

    A step factors a block, inverts it and multiplies the rest; the benchmark ends by masking the other triangle.
    """
    check_sizes("Cholesky", rank=rank, block=block, batches=batches)
    check_choice("Cholesky", "data", data)
    block = min(block, rank)
    blocks = cdiv(rank, block)
    vertices = blocks * cholesky_block(block, data) + (blocks - 1) * triangular_inverse(block, data, lower)
    quantities = {
        "vertices": target.workers * vertices,
        "program": 1.0,
        "block_products": float(blocks - 1),
    }
    size = 4 if data == "float" else 2
    return Plan(
        "solver",
        quantities,
        exact=EXACT,
        method="cholesky",
        tiles=batches if blocks == 1 else target.tiles,
        temporary_bytes=float(block * block * size),
        detail={"blocks": blocks, "batches": batches},
    )


def plan_triangular_solve(
    rank: int,
    columns: int,
    block: int,
    target: Target,
    batches: int = 1,
    left: bool = True,
    lower: bool = True,
    data: str = "float",
) -> Plan:
    """Solve ``A X = B`` (or ``X A = B``) with triangular A of `rank` and `columns` right-hand sides.

    The recursion halves A down to `block`, and B in both directions. With one right-hand side a leaf is one vertex;
    with more it is a loop over rows, each a product, a subtraction and a copy that are almost all overhead.
    """
    check_sizes("triangular solve", rank=rank, columns=columns, block=block, batches=batches)
    check_choice("triangular solve", "data", data)
    block = min(block, rank)
    blocks = cdiv(rank, block)
    if columns == 1:
        # a solve from the right is the transposed problem, which turns a lower into an upper triangle
        vertex = triangular_vector(block, data, lower == left)
        quantities = {"vertices": target.workers * blocks * vertex, "vector_leaves": float(blocks)}
        return Plan(
            "solver",
            quantities,
            exact=EXACT,
            method="vector",
            tiles=blocks,
            detail={"leaves": blocks, "batches": batches},
        )
    leaves = blocks * max(1, min(cdiv(columns, block), blocks))
    rows = float(leaves * (block - 1))
    quantities = {
        "row_spread": rows * math.sqrt(batches * columns),
        "row_tiles": rows * target.tiles,
        "leaf_products": float(leaves - 1),
    }
    return Plan("solver", quantities, method="rows", tiles=target.tiles, detail={"leaves": leaves, "batches": batches})
