"""Benchmark rows that are not layers of products: pooling, reductions, embedding, solvers, CTC, recurrent layers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from ipu_model.checks import check_sizes
from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.convolution import plan_matmul, received_bytes
from ipu_model.planner.ctc import memory as ctc_memory
from ipu_model.planner.ctc import plan_ctc
from ipu_model.planner.embedding import UPDATE_STEPS, plan_embedding
from ipu_model.planner.embedding import memory as embedding_memory
from ipu_model.planner.plan import Plan
from ipu_model.planner.rnn import plan_gru, plan_lstm
from ipu_model.planner.solver import plan_cholesky, plan_triangular_solve
from ipu_model.planner.solver_memory import cholesky_memory, highest_of_vector, solve_memory
from ipu_model.published.benchmark import Benchmark
from ipu_model.published.formula import FIXED, Formula, of_plans
from ipu_model.published.words import PASS_WORDS, whole_program
from ipu_model.target import Target

SIZES = {"half": 2, "float": 4}
BESIDE = 24  # bytes of interleaved memory beside the partial results
Params = Mapping[str, Any]
BOTH, ALL = (0, 1), (0, 1, 2)  # parts of a program
#: Words for the parts of programs that are no layers; others have forward, backward and weight update.
PART_WORDS = {
    "embedding": (r"\b(gather|slices?|look-?ups?|fwd|forward|inference)\b", r"\b(scatter|updates?|wu|bwd|backward)\b"),
    "ctc_loss": (r"(?<!ctc )\bloss\b|\b(fwd|forward|inference)\b", r"\b(gradients?|bwd|backward)\b"),
}
TRAINED = rf"{'|'.join(PASS_WORDS[1:])}|\btrain|\ball\b"  # words of more than a forward pass


def flag(p: Params, name: str, default: bool) -> bool:
    """A flag of a benchmark program, as it stands in a row: true, or written as text."""
    value = p.get(name, default)
    return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "1")


def only(plan: Plan, steps: frozenset[str], inside: bool) -> Plan:
    """The plan with the quantities of some steps, or of all others."""
    kept = {name: value for name, value in plan.quantities.items() if (name in steps) == inside}
    return dataclasses.replace(
        plan, quantities=kept, exchange=plan.exchange & kept.keys(), exact=plan.exact & kept.keys()
    )


def _linear(family: str, quantities: Mapping[str, float], fixed: float = 0.0) -> Formula:
    terms = {f"{family}.{name}": float(value) for name, value in quantities.items()}
    return Formula(({FIXED: fixed, **terms} if fixed else terms,))


def embedding(p: Params, data: str, target: Target) -> Benchmark:
    """Look-ups of all indices, then an update that adds scaled deltas to the same rows; or one of the two."""
    rows, columns = p["shape"]
    n = p["num-indices"]
    plan = plan_embedding(rows, columns, n, target, data)
    if len(p.get("parts", BOTH)) == 1:
        return Benchmark(of_plans([only(plan, UPDATE_STEPS, p["parts"] == (1,))]))
    total, highest = embedding_memory(plan.detail, rows, columns, n, data, target.machine)
    return Benchmark(of_plans([plan]), _linear("", {}, total), _linear("", {}, highest))


def ctc(p: Params, data: str, target: Target) -> Benchmark:
    """Log-softmax of the logits, loss and gradient; lengths are the greatest allowed."""
    whole_program("ctc_loss", p, BOTH)
    batch, time, classes = p.get("batch-size", 1), p["max-time"], p["num-classes"]
    data = "half" if p.get("in-type", data) == "half" else "float"
    plan = plan_ctc(batch, time, p["max-label-length"], classes, target, data)
    total, highest = ctc_memory(plan.detail, batch, time, classes, data, target.machine)
    return Benchmark(of_plans([plan]), _linear("", {}, total), _linear("", {}, highest))


def solver(p: Params, data: str, target: Target) -> Benchmark:
    """Cholesky in place with the other triangle masked, or a triangular solve."""
    whole_program("matrix_solver", p, (0,))
    rank, batches, lower = p["a-rank"], p.get("batch-size", 1), flag(p, "lower", True)
    check_sizes("matrix_solver", **{"a-rank": rank, "block-size": p.get("block-size", 64)})
    block = min(p.get("block-size", 64), rank)
    if flag(p, "cholesky", False):
        plan = plan_cholesky(rank, block, target, batches, lower, data)
        total, highest = cholesky_memory(rank, block, batches, lower, data, target)
        return Benchmark(of_plans([plan]), _linear("", {}, total), _linear("", {}, highest))
    columns = p.get("b-rank", 1)
    plan = plan_triangular_solve(rank, columns, block, target, batches, flag(p, "left-side", True), lower, data)
    if columns > 1:
        total, highest = solve_memory(rank, columns, block, batches, data, target)
        return Benchmark(of_plans([plan]), _linear("", {}, total), _linear("", {}, highest))
    # the matrix and its masked clone, and what the tiles that hold them need for copies and products
    copies = 2 * batches * rank * rank * SIZES[data]
    memory = {"vector": min(target.tiles, cdiv(batches * rank * rank, block))}
    half = max(1, rank // 2) if plan.detail["leaves"] > 1 else 1
    product = plan_matmul(half, max(half, block), 1, target, batches, data)
    highest = highest_of_vector(target.machine, product)
    return Benchmark(of_plans([plan]), _linear("solver.memory", memory, copies), _linear("", {}, highest))


def lstm(p: Params, data: str, target: Target) -> Benchmark:
    """Forward only, or all passes."""
    return _recurrent(plan_lstm, 4, p, data, target)


def gru(p: Params, data: str, target: Target) -> Benchmark:
    """Forward only, or all passes."""
    return _recurrent(plan_gru, 3, p, data, target)


def _recurrent(planner: Callable[..., Plan], gates: int, p: Params, data: str, target: Target) -> Benchmark:
    batch, steps, ins, outs = p["batch-size"], p["sequence-size"], p["input-size"], p["output-size"]
    if int(p.get("layers", p.get("num-layers", 1))) > 1 or flag(p, "bidirectional", False):
        raise ValueError("a recurrent layer alone is priced, in one direction; several layers are not")
    whole_program("a recurrent layer", p, (0,), BOTH, ALL)  # its backward pass has the gradients of weights
    training = p.get("phase") == "all" or bool(re.search(TRAINED, p.get("pass", "").lower()))
    training = training and p.get("parts") != (0,)
    plan = planner(batch, steps, ins, outs, target, data, training)
    size = SIZES[data]
    weights = (ins + outs) * gates * outs * size
    # training keeps gradients and transposed weights, gates, cell and activation of every step
    passes = plan.detail[len(plan.detail) // 3 : 2 * len(plan.detail) // 3] if training else plan.detail
    memory = {
        "weights": weights * (3 if training else 1),
        "sequence": batch * steps * (ins + outs * (gates + 2 if training else 1)) * size,
        "temporary": max(received_bytes(each) * each.tiles for each in passes),
        "tiles": target.tiles,
    }
    # dot products need nothing interleaved, but their operands in memory elements of their own
    apart = 2 * target.machine.memory_element + size * plan.detail[0].detail.tile["weights"]
    start = target.machine.interleaved_start if plan.interleaved_bytes else apart
    return Benchmark(
        of_plans([plan]),
        _linear("rnn.memory", memory),
        Formula(({FIXED: start + plan.interleaved_bytes + BESIDE},)),
    )


OPS: dict[str, Callable[[Params, str, Target], Benchmark]] = {
    "embedding": embedding,
    "ctc_loss": ctc,
    "matrix_solver": solver,
    "lstm": lstm,
    "gru": gru,
}
