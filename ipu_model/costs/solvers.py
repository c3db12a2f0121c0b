"""Factorisations and triangular solves: a few blocks in sequence, priced by the polynomials of their vertices."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op

BLOCK = 64
CHOLESKY_STEP_CYCLES = 5600.0
SOLVE_LEAF_CYCLES = 6000.0
SOLVE_ROW_CYCLES = 2830.0


def cholesky_block(n: int) -> float:
    return n**3 + 102 * n**2 + 101 * n + 102


def inverse_block(n: int) -> float:
    return 6 * n**3 + 264 * n**2 + 78 * n - 120


def solve_block(n: int) -> float:
    return 1.5 * n**2 + 180 * n - 126


def _batches(op: Op, ctx: Context) -> tuple[int, int, int]:
    shape = op.inputs[0].shape
    n = shape[-1]
    batch = max(1, op.inputs[0].size // max(1, n * n))
    return n, batch, cdiv(batch, ctx.tiles)


def _sequential(op: Op, ctx: Context, name: str, bundles: float, fixed: float, flops: float) -> OpCost:
    _, batch, rounds = _batches(op, ctx)
    tiles = min(batch, ctx.tiles)
    step = Superstep(name, ctx.target.workers * bundles + fixed, tiles=tiles, vertices=tiles,
                     vertex=f"poplin::{name}<{op.inputs[0].dtype}>", times=rounds)  # fmt: skip
    return OpCost((step,), flops=flops * batch, outputs=(), layout="new")


def cholesky(op: Op, ctx: Context) -> OpCost:
    n, _, _ = _batches(op, ctx)
    b, blocks = min(n, BLOCK), cdiv(n, BLOCK)
    bundles = blocks * cholesky_block(b) + (blocks - 1) * inverse_block(b)
    return _sequential(op, ctx, "CholeskyBlock", bundles, 1000 + CHOLESKY_STEP_CYCLES * (blocks - 1), n**3 / 3)


def triangular_solve(op: Op, ctx: Context) -> OpCost:
    n, batch, _ = _batches(op, ctx)
    b = min(n, BLOCK)
    columns = max(1, op.inputs[1].size // max(1, n * batch))
    if columns == 1:
        leaves = cdiv(n, b)
        return _sequential(op, ctx, "TriangularSolve", leaves * solve_block(b), SOLVE_LEAF_CYCLES * leaves, n**2)
    leaves = cdiv(n, b) * max(1, min(cdiv(columns, b), cdiv(n, b)))
    fixed = leaves * (b - 1) * SOLVE_ROW_CYCLES + (leaves - 1) * 4000
    return _sequential(op, ctx, "TriangularSolve", 0.0, fixed, n**2 * columns)


def dense(op: Op, ctx: Context) -> OpCost:
    """No library routine: n steps of a rank-one update on one tile per matrix, at the rate of a fused multiply-add."""
    n, _, _ = _batches(op, ctx)
    sweeps = {"lu": 2 / 3, "lu_pivots_to_permutation": 0.1, "qr": 4 / 3, "geqrf": 4 / 3, "householder_product": 4 / 3,
              "svd": 22.0, "eigh": 9.0, "eig": 25.0, "hessenberg": 10 / 3, "schur": 25.0,
              "tridiagonal": 4 / 3, "tridiagonal_solve": 0.1}[op.primitive]  # fmt: skip
    return _sequential(op, ctx, op.primitive.title(), 100 * n + sweeps * n**3 / 2, 1000, sweeps * n**3)


def fourier(op: Op, ctx: Context) -> OpCost:
    """As matrix products with the DFT matrix of each length, the way the library does below 512 points."""
    macs = 4 * op.output.size * sum(op.params.get("fft_lengths", (op.output.shape or (1,))[-1:]))
    rate = ctx.target.peak_flops("float", "float") / 2 / ctx.target.clock_hz
    step = Superstep("FFT", macs / rate + 1000, exchange=ctx.move(op.inputs[0].nbytes / ctx.tiles),
                     received=float(op.inputs[0].nbytes), tiles=ctx.tiles, vertices=ctx.tiles,
                     vertex="poplin::ConvPartial1x1Out<float,float>")  # fmt: skip
    return OpCost((step,), flops=2 * macs, outputs=(), layout="new")


DENSE = ("lu", "lu_pivots_to_permutation", "qr", "geqrf", "householder_product", "svd", "eigh", "eig", "hessenberg",
         "schur", "tridiagonal", "tridiagonal_solve")  # fmt: skip
RULES: dict[str, Rule] = {
    "cholesky": cholesky, "triangular_solve": triangular_solve, "fft": fourier, **dict.fromkeys(DENSE, dense),
}  # fmt: skip
