"""Every primitive that the operators of ONNX lower to has a rule: the official node cases, traced and priced."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

import ipu_model
import popart_jax
from ipu_model.tracing import tracing


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_node_cases_use_priced_primitives_only():
    missing, failed, priced = Counter(), {}, 0
    for case in collect_testcases():
        model = case.model
        try:
            fn, params = popart_jax.to_jax(model)
            with tracing():
                jaxpr = jax.make_jaxpr(fn)(params, _inputs(model))
        except Exception:
            continue
        try:
            missing.update(ipu_model.profile_jaxpr(jaxpr, levers=False).unpriced)
            priced += 1
        except Exception as err:
            failed[case.name] = repr(err)[:200]
    assert not failed
    assert not missing
    assert priced > 300


def _inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    kept = {i.name for i in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name in kept:
            continue
        t = value.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        found[value.name] = np.ones(shape, onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
    return found
