"""What stays for the backward pass: against every set of cuts, on a model of memory written for the test."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from popart_jax.ir_view.checkpoints import Result, checkpoints

from .helpers import ops, training


def _peak(results: list[Result], stays: frozenset[int]) -> int:
    """Most bytes at once: what stays, and one run of ops that are computed again, or the tail that never is."""
    last_again = max((p for p in range(len(results)) if p not in stays), default=-1)
    tail = sum(r.size for p, r in enumerate(results) if p > last_again)
    stored = sum(results[p].size for p in stays if p <= last_again)
    runs, run = [tail], 0
    for place, result in enumerate(results):
        if place in stays:
            runs.append(run)
            run = 0
        else:
            run += result.size
    return stored + max(*runs, run)


def _chain(sizes: list[int]) -> list[Result]:
    return [Result(size, min(place + 1, len(sizes) - 1)) for place, size in enumerate(sizes)]


def test_chains_near_the_best_cuts():
    shares = []
    for seed in range(10):
        results = _chain(np.random.default_rng(seed).integers(1, 20, 10).tolist())
        last = len(results) - 1
        sets = [cuts for n in range(len(results)) for cuts in combinations(range(last), n)]
        tails = [frozenset(cuts) | frozenset(range(max(cuts, default=-1) + 1, len(results))) for cuts in sets]
        shares.append(_peak(results, checkpoints(results)) / min(_peak(results, stays) for stays in tails))
    assert max(shares) <= 1.45
    assert np.mean(shares) <= 1.2


def test_a_long_chain_needs_about_twice_the_root():
    assert _peak(_chain([1] * 100), checkpoints(_chain([1] * 100))) <= 22


def test_what_is_read_far_behind_stays():
    """A residual connection crosses every cut on its way."""
    results = [Result(1, 9), *(Result(5, place + 1) for place in range(1, 9)), Result(1, 9)]
    stays = checkpoints(results)
    assert 0 in stays
    assert set(range(1, 9)) - stays


def test_standard_marks_a_part_of_a_long_network():
    layers = "\n".join(f"r{i + 1} = Relu(a{i}) a{i + 1} = MatMul(r{i + 1}, w)" for i in range(16))
    text = f"""BuilderGraph_1 (float[4,4] x, float[4,4] w) => () {{
      a0 = MatMul(x, w)
      {layers}
      l = ReduceSum<keepdims=0>(a16)
    }}"""
    types = {"l": (), **{f"{n}{i}": (4, 4) for n in "ar" for i in range(17)}}
    plain, marked = (training(text, "w", types, "l", recomputation=mode) for mode in ("NoRecompute", "Standard"))
    kinds = {op["attributes"]["recomputetype"] for op in ops(marked) if op["type"] == "MatMul"}
    assert kinds == {"Recompute", "Checkpoint"}
    assert ops(marked)[0]["attributes"]["recompute"] == "YES"
    made = [sorted(op["type"].removesuffix("Inplace") for op in ops(facts)) for facts in (marked, plain)]
    assert made[0] == made[1]
