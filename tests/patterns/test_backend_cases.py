"""ONNX backend node cases before and after the patterns, with the reference evaluator (by name: `-m sweep`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

import patterns
from popart_jax.ops import facts

from .reference_ops import CUSTOM_OPS

# Cases whose outputs cannot be compared this way, and why.
NOT_COMPARED: Mapping[str, str] = {
    "test_bernoulli": "draws other random numbers",
    "test_convtranspose": "the evaluator's Conv has no input dilation; tests/patterns/test_linear.py compares these",
    "test_mod_float_edge_cases": "PopART's formula has no special case for infinities",
    "test_range_float_type_positive_delta_expanded": "the evaluator's Loop stacks scalars as columns",
    "test_range_int32_type_negative_delta_expanded": "the evaluator's Loop stacks scalars as columns",
    "test_upsample_nearest": "the model stays at opset 9, where the evaluator has no Resize",
}


def same(wanted: Any, got: Any) -> None:
    if isinstance(wanted, list):
        for a, b in zip(wanted, got, strict=True):
            same(a, b)
    elif wanted is not None and np.asarray(wanted).dtype.kind in "fiub":
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=1e-3, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", ["model", "view"])
def test_backend_cases(stage):
    fired, failures = 0, []
    rules = patterns.rules_of(patterns.at_level("All"), stage, "inference")
    for case in collect_testcases(None):
        skipped = stage == "view" and any(case.name.startswith(name) for name in NOT_COMPARED)
        if case.model is None or not case.data_sets or skipped:
            continue
        model = ir.from_proto(case.model)
        if not patterns.sweep(model.graph, rules, facts).fired:
            continue
        fired += 1
        model.graph.opset_imports.setdefault("ai.graphcore", 1)
        feeds = {i.name: v for i, v in zip(case.model.graph.input, case.data_sets[0][0], strict=False)}
        try:
            wanted = ReferenceEvaluator(case.model).run(None, feeds)
            same(wanted, ReferenceEvaluator(ir.to_proto(model), new_ops=list(CUSTOM_OPS)).run(None, feeds))
        except Exception as error:  # collect all, then fail
            failures.append(f"{case.name}: {type(error).__name__} {str(error)[:120]}")
    assert fired > 100
    assert not failures, "\n".join(failures)
