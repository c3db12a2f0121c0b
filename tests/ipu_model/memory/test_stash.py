"""Pipelines keep what later stages read: of the micro-batches that were begun since."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model import Argument, NodePlacement, Placement

WIDTH, BATCH, MICRO = 256, 128, 8
ACTIVATION = 2 * WIDTH * BATCH
KEPT = 1 + len(jax.tree.leaves(jax.vjp(jnp.tanh, jnp.ones(3))[1]))
"""Activations that the backward pass of a stage reads: its input, and what JAX's gradient of tanh keeps (1 or 2)."""


def step(weights, batches):
    def loss(weights, x):
        for k, w in enumerate(weights):
            with jax.named_scope(f"onnx[{k}]"):
                x = jnp.tanh(x @ w)
        return x.astype(jnp.float32).sum()

    def body(sums, x):
        gradients = jax.grad(loss)(weights, x)
        with jax.named_scope("accumulate"):  # its casts read no gradient, and belong to no stage
            wide = [(s.astype(jnp.float32) + g).astype(s.dtype) for s, g in zip(sums, gradients, strict=True)]
        return wide, None

    sums, _ = jax.lax.scan(body, [jnp.zeros_like(w) for w in weights], batches)
    with jax.named_scope("update"):
        return [w - 0.1 * d for w, d in zip(weights, sums, strict=True)]


def report(stages, *, pipelined=True, recompute=None):
    weights = [jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float16)] * stages
    nodes = {str(k): NodePlacement(k, k, recompute=recompute) for k in range(stages)}
    return ipu_model.profile(
        step, weights, jax.ShapeDtypeStruct((MICRO, BATCH, WIDTH), jnp.float16),
        placement=Placement(nodes, stages, pipelined), gradient_accumulation=MICRO,
        inputs=[*(Argument(f"w{k}", "weight", donated_to=k) for k in range(stages)), Argument("x", "stream")],
    )  # fmt: skip


def stashes(found):
    """Activations stashed on each IPU."""
    held = [v for v in found.memory.variables if v.kind == "pipeline stash"]
    return [sum(v.bytes for v in held if v.ipu == ipu) / ACTIVATION for ipu in range(len(found.ipus))]


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(("recompute", "kept"), [(None, KEPT), (True, 1)])  # recomputed from the input alone
def test_each_stage_stashes_what_its_backward_pass_reads_later(stages, recompute, kept):
    """Of stages 0 to n - 1 the backward pass of stage s comes 2 (n - 1 - s) cycles later."""
    found = report(stages, recompute=recompute)
    assert stashes(found) == pytest.approx([kept * 2 * (stages - 1 - s) for s in range(stages)], rel=0.01)


def test_the_memory_of_tiles_holds_the_stashes():
    piped, in_turn = report(4), report(4, pipelined=False)
    assert stashes(in_turn) == [0] * 4
    assert piped.memory.total - in_turn.memory.total == pytest.approx(KEPT * 12 * ACTIVATION, rel=0.02)
    assert ipu_model.Report.from_json(piped.to_json()) == piped
