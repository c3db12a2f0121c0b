"""Priorities of the schedule, and products that may share a subgraph."""

from __future__ import annotations

import pytest

from .helpers import inference, ops, training, view


@pytest.mark.parametrize(("first", "second", "order"), [(0, 0, "ab"), (1, 5, "ba"), (5, 1, "ab"), (-1, 0, "ba")])
def test_the_highest_priority_goes_first(first, second, order):
    text = f"""BuilderGraph_1 (float[2] x) => () {{
      a = Sin<__schedule_priority={first:.1f}>(x)
      b = Cos<__schedule_priority={second:.1f}>(x)
      c = Add(a, b)
    }}"""
    types = dict.fromkeys("abc", (2,))
    listed = [op["outputs"][0]["name"] for op in ops(inference(training(text, "", types, "c"), "c"))]
    assert listed == [*order, "c"]


def test_priority_does_not_break_the_data_flow():
    text = """BuilderGraph_1 (float[2] x) => () {
      a = Sin<__schedule_priority=-5.0>(x)
      b = Cos<__schedule_priority=9.0>(a)
      c = Exp(x)
      d = Add(b, c)
    }"""
    types = dict.fromkeys("abcd", (2,))
    listed = [op["outputs"][0]["name"] for op in ops(inference(training(text, "", types, "d"), "d"))]
    assert listed == ["c", "a", "b", "d"]


@pytest.mark.parametrize(("told_apart", "products"), [(True, 3), (False, 1)])
def test_products_of_all_passes_share_a_subgraph_unless_told_apart(told_apart, products):
    text = """BuilderGraph_1 (float[8,8] x, float[8,8] w, float[8,8] v) => () {
      a = MatMul(x, w)
      b = MatMul(a, v)
      l = ReduceSum<keepdims=0>(b)
    }"""
    facts = training(
        text, "w v", {"l": (), "a": (8, 8), "b": (8, 8)}, "l", outlining=True, fully_connected_pass=told_apart
    )
    assert sum(op["type"] == "MatMul" for listed in view(facts).values() for op in listed) == products
