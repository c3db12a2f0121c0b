"""Random numbers. The device has a generator per tile; JAX's counter-based bits are priced as its uniform vertex."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.costs.rule import Context, OpCost, Rule, Superstep
from ipu_model.walk.program import Op


def bits(op: Op, ctx: Context) -> OpCost:
    """``4 + 4 cdiv(n, 32) + 22 * 6`` tile cycles for n words, plus the remainder."""
    out = max(op.outputs, key=lambda t: t.size)
    spread = ctx.spread(out)
    compute = 4 + 4 * cdiv(spread.most, 32) + 22 * ctx.target.workers + 12
    step = Superstep(
        "Uniform", compute, balance=spread.balance, tiles=spread.tiles, vertices=spread.tiles,
        vertex=f"poprand::UniformSupervisor<{out.dtype}>",
    )  # fmt: skip
    return OpCost((step,), outputs=tuple(ctx.spread(t) for t in op.outputs), layout="linear")


def seeds(op: Op, ctx: Context) -> OpCost:
    """Keys are a few words on one tile."""
    step = Superstep("setSeed", 50.0, tiles=1, vertices=1, vertex="poprand::SetSeedSupervisor")
    return OpCost((step,), layout="linear")


def gamma(op: Op, ctx: Context) -> OpCost:
    """Rejection sampling: two rounds of a normal, a uniform, two logarithms and twelve multiplies per element."""
    spread = ctx.spread(op.output)
    n = cdiv(spread.most, ctx.target.workers)
    compute = ctx.target.workers * (60 + n * 2 * (16 + 4 + 2 * 7 + 12 * 2))
    step = Superstep("Gamma", compute, tiles=spread.tiles, vertices=spread.tiles, vertex="poprand::Gamma<float32>")
    return OpCost((step,), outputs=(spread,), layout="linear")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform", "threefry4x32", "philox2x32", "philox4x32"),
        bits,
    ),
    **dict.fromkeys(("random_seed", "random_split", "random_fold_in", "random_clone"), seeds),
    "random_gamma": gamma,
}
