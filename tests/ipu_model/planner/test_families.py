"""Planners of the other families against published vertex arithmetic and simple invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_model import target
from ipu_model.planner.mapping import linear_share, split_regions
from ipu_model.planner.reduction import plan_reduction
from ipu_model.planner.rnn import plan_gru, plan_lstm
from ipu_model.planner.solver import cholesky_block, plan_cholesky, plan_triangular_solve, triangular_vector

MK1, MK2 = target.get("mk1"), target.get("mk2")


@given(st.integers(1, 10**6), st.sampled_from([1, 2, 4, 8]), st.integers(1, 1500), st.integers(0, 512))
@settings(max_examples=200, deadline=None)
def test_dealt_regions_cover_everything(elements, grain, parts, minimum):
    used, largest = split_regions(elements, grain, parts, minimum)
    assert 1 <= used <= parts
    assert largest * used >= elements
    assert (largest - grain) * used < elements + grain * used
    if minimum and elements >= minimum:
        assert largest >= min(minimum, elements)


def test_linear_mapping_keeps_128_bytes_together():
    assert linear_share(64 * 10, 2, MK2.machine) == 64
    assert linear_share(1472 * 100, 4, MK2.machine) == 100


def test_cholesky_of_one_block_is_its_vertex():
    plan = plan_cholesky(16, 16, MK1)
    assert plan.quantities["vertices"] == 6 * cholesky_block(16, "float") == 191_556


def test_cholesky_upper_and_lower_differ_only_with_several_blocks():
    assert plan_cholesky(16, 16, MK1, lower=True).quantities == plan_cholesky(16, 16, MK1, lower=False).quantities
    lower, upper = (plan_cholesky(64, 16, MK1, lower=flag).quantities["vertices"] for flag in (True, False))
    assert lower > upper


def test_triangular_solve_for_a_vector():
    plan = plan_triangular_solve(256, 1, 64, MK2, left=True)
    assert plan.quantities["vertices"] == 4 * 6 * triangular_vector(64, "float", True) == 4 * 105_228
    right = plan_triangular_solve(256, 1, 64, MK2, left=False)
    assert right.quantities["vertices"] == 4 * 228_996


def test_triangular_solve_counts_its_leaves():
    assert plan_triangular_solve(256, 256, 64, MK1).detail["leaves"] == 16
    assert plan_triangular_solve(64, 64, 64, MK1).detail["leaves"] == 1


@pytest.mark.parametrize("layer", [plan_lstm, plan_gru])
def test_recurrent_layers_scale_with_steps_and_training(layer):
    short = layer(8, 10, 256, 256, MK2)
    long = layer(8, 20, 256, 256, MK2)
    assert long.cycles(MK2) == pytest.approx(2 * short.cycles(MK2))
    assert layer(8, 10, 256, 256, MK2, training=True).cycles(MK2) > 2 * short.cycles(MK2)
    # what a step computes: input and state times all gates, in every product of the plan
    gates = {plan_lstm: 4, plan_gru: 3}[layer]
    work = sum(p.detail.problem.params.macs for p in short.detail)
    assert work == 8 * 512 * gates * 256


def test_quantities_are_finite_numbers():
    plans = [plan_reduction((64, 64), (0,), MK2)]
    for plan in plans:
        assert all(np.isfinite(v) and v >= 0 for v in plan.quantities.values())
