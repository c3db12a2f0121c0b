"""The order of a graph's operators."""

from __future__ import annotations

import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl._internal import schedule


def test_an_operator_that_frees_memory_runs_as_soon_as_it_can():
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable([1.0] * 4)
        exponentials = [ops.exp(t) for _ in range(3)]
        for x in exponentials:
            ops.sum(x)
    assert [op.opType() for op in schedule.schedule(ir.main_graph)] == ["Exp", "ReduceSum"] * 3


def test_readers_of_one_tensor_are_weighed_a_few_times_each(monkeypatch):
    weighed = []
    growth = schedule._growth
    monkeypatch.setattr(schedule, "_growth", lambda op, *facts: weighed.append(op.id) or growth(op, *facts))
    ir = popxl.Ir()
    with ir.main_graph:
        t = ops.exp(popxl.variable([1.0]))
        for _ in range(100):
            ops.exp(t)
    schedule.schedule(ir.main_graph)
    assert len(weighed) < 300


def test_operators_that_wait_for_each_other_are_refused():
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable([1.0])
        ops.add_(t, ops.exp(t))
        ops.sin(t)
    graph = ir.main_graph._pb_graph
    exp, _, sin = graph.getOps()
    graph.topoCons().insert(exp, sin)
    graph.topoCons().insert(sin, exp)
    with pytest.raises(popart.popart_exception, match=r"Exp .* waits for .*Sin .* waits for|Sin .* waits for .*Exp"):
        popxl.Session(ir)


def test_updates_of_one_variable_wait_each_for_the_one_before():
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable([1.0])
        for _ in range(20):
            ops.sin(t)
            ops.add_(t, ops.cos(t))
    assert len(schedule.in_place_pairs(ir.main_graph)) == 19 * 4 + 2
    order = [op.id for op in schedule.schedule(ir.main_graph) if op.opType() != "Sin"]
    assert order == sorted(order)
