"""Factorisations, triangular solves, Fourier transforms."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.planner.plan import Plan
from ipu_model.planner.solver import plan_cholesky, plan_triangular_solve
from ipu_model.walk.program import Op

BLOCK = 64
# Floating point operations of a factorisation, in cubes of its rank.
SWEEPS = {"lu": 2 / 3, "lu_pivots_to_permutation": 0.1, "qr": 4 / 3, "geqrf": 4 / 3, "geqp3": 4 / 3, "ormqr": 4 / 3,
          "householder_product": 4 / 3, "svd": 22.0, "eigh": 9.0, "eig": 25.0, "hessenberg": 10 / 3, "schur": 25.0,
          "tridiagonal": 4 / 3, "tridiagonal_solve": 0.1}  # fmt: skip


def _batches(op: Op, ctx: Context) -> tuple[int, int, int]:
    """Rank, matrices and matrices of the fullest tile; a complex matrix is a real one of twice its rank."""
    source = op.inputs[0]
    batch = max(1, source.size // max(1, source.shape[-1] ** 2))
    return source.parts * source.shape[-1], batch, cdiv(batch, ctx.tiles)


def _sequential(op: Op, ctx: Context, name: str, bundles: float, fixed: float, flops: float) -> OpCost:
    _, batch, rounds = _batches(op, ctx)
    tiles = min(batch, ctx.tiles)
    step = Superstep(name, ctx.target.workers * bundles + fixed, tiles=tiles, vertices=tiles,
                     vertex=f"poplin::{name}<{op.inputs[0].dtype}>", times=rounds)  # fmt: skip
    return OpCost((step,), flops=flops * batch, outputs=(), layout="new")


def cholesky(op: Op, ctx: Context) -> OpCost:
    """Factors blocks of 64 rows as Poplibs plans it, ``n^3 / 3`` operations a matrix, matrices side by side."""
    if op.output.size == 0:
        return OpCost(view=True)
    n, batch, rounds = _batches(op, ctx)
    plan = plan_cholesky(n, BLOCK, ctx.target, min(batch, ctx.tiles), data=_data(op))
    return _planned(op, ctx, plan, "CholeskyBlock", rounds, batch * n**3 / 3)


def triangular_solve(op: Op, ctx: Context) -> OpCost:
    """Substitutes blocks of 64 rows as Poplibs plans it, ``n^2`` operations for each right side."""
    if op.output.size == 0:
        return OpCost(view=True)
    n, batch, rounds = _batches(op, ctx)
    columns = max(1, op.inputs[1].size * op.inputs[1].parts // max(1, n * batch))
    p = op.params
    plan = plan_triangular_solve(
        n, columns, BLOCK, ctx.target, min(batch, ctx.tiles), p["left_side"], p["lower"], _data(op)
    )
    return _planned(op, ctx, plan, "TriangularSolve", rounds, batch * n**2 * columns)


def _data(op: Op) -> str:
    return "half" if op.inputs[0].half else "float"


def _planned(op: Op, ctx: Context, plan: Plan, name: str, rounds: int, flops: float) -> OpCost:
    """Price of a solver's plan without the program launch: a solve is one step of a larger program here."""
    cycles = sum(c for what, c in plan.breakdown(ctx.target).items() if what != "program")
    tiles = max(1, min(plan.tiles, ctx.tiles))
    step = Superstep(name, cycles, tiles=tiles, vertices=tiles, vertex=f"poplin::{name}<{op.inputs[0].dtype}>",
                     settled=True, times=rounds)  # fmt: skip
    return OpCost((step,), flops=flops, temporary=plan.temporary_bytes, outputs=(), layout="new")


def dense(op: Op, ctx: Context) -> OpCost:
    """Factorisations without a library routine: n rank-one updates on one tile per matrix, at multiply-add rate."""
    n, sweeps = op.inputs[0].shape[-1], SWEEPS[op.primitive] * op.inputs[0].parts ** 2
    return _sequential(op, ctx, op.primitive.title(), 100 * n + sweeps * n**3 / 2, 1000, sweeps * n**3)


def rotated(op: Op, ctx: Context) -> OpCost:
    """A rank-one update of a Cholesky factor: n rotations in turn, each of a column and the vector, on one tile."""
    n, _, _ = _batches(op, ctx)
    return _sequential(op, ctx, op.primitive.title(), 100 * n + 3 * n**2 / 2, 1000, 3 * n**2)


def fourier(op: Op, ctx: Context) -> OpCost:
    """A Fourier transform as matrix products with the DFT matrices, as the library does below 512 points."""
    macs = 4 * op.output.size * sum(op.params.get("fft_lengths", (op.output.shape or (1,))[-1:]))
    rate = ctx.target.peak_flops("float", "float") / 2 / ctx.target.clock_hz
    step = Superstep("FFT", macs / rate + 1000, exchange=ctx.move(op.inputs[0].nbytes / ctx.tiles),
                     received=float(op.inputs[0].nbytes), tiles=ctx.tiles, vertices=ctx.tiles,
                     vertex="poplin::ConvPartial1x1Out<float,float>")  # fmt: skip
    return OpCost((step,), flops=2 * macs, outputs=(), layout="new")


RULES: dict[str, Rule] = {
    "cholesky": cholesky, "cholesky_update": rotated, "triangular_solve": triangular_solve, "fft": fourier,
    **dict.fromkeys(SWEEPS, dense),
}  # fmt: skip
