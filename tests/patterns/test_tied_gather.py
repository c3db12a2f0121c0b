"""TiedGather on the view and on the program."""

from __future__ import annotations

import numpy as np
import pytest

import patterns
from popart_jax.ops import facts

from .helpers import assert_same_outputs, feeds_of, model, op_types, run, set_shapes

TEXT = """f (float[6,4] w, int32[3] i) => (float[3,6] y) {{
  {left}
  e = Gather<axis=0>({gathered}, i)
  y = MatMul{attributes}(e, {multiplied})
}}"""


def tied(transposed="MatMul", attributes=""):
    turned = "t = Transpose<perm=[1,0]>(w)"
    if transposed == "MatMul":
        m = model(TEXT.format(left=turned, gathered="w", multiplied="t", attributes=attributes))
    else:
        m = model(
            TEXT.replace("[6,4] w", "[4,6] w").format(left=turned, gathered="t", multiplied="w", attributes=attributes)
        )
    return set_shapes(m, t=(4, 6) if transposed == "MatMul" else (6, 4), e=(3, 4))


def view_sweep(m):
    rules = patterns.rules_of(patterns.from_names(["TiedGather"]), "view", "training")
    return patterns.sweep(m.graph, rules, facts, mode="training")


@pytest.mark.parametrize("transposed", ["MatMul", "Gather"])
def test_fires(transposed):
    m = tied(transposed)
    before = m.clone()
    assert view_sweep(m).counts() == {"TiedGather": 1}
    assert {"Detach", "PopartTiedGather"} <= set(op_types(m))
    assert next(n for n in m.graph if n.op_type == "MatMul").attributes["__fully_connected_off"].as_int() == 1
    assert_same_outputs(before, m)


def test_serialised():
    m = tied(attributes='<__serialize_matmul_mode="output_channels", __serialize_matmul_factor=3>')
    before = m.clone()
    assert view_sweep(m).fired
    counts = {t: op_types(m).count(t) for t in ("PopartTiedGather", "Slice", "Sub", "Add")}
    assert counts == {"PopartTiedGather": 3, "Slice": 3, "Sub": 3, "Add": 2}
    assert_same_outputs(before, m)


@pytest.mark.parametrize("mode", ["input_channels", "reducing_dim"])
def test_declines_other_serialisation(mode):
    m = tied(attributes=f'<__serialize_matmul_mode="{mode}", __serialize_matmul_factor=2>')
    log = view_sweep(m)
    assert not log.fired
    assert "another dimension" in log.declined[0].outcome


def test_declines_same_orientation():
    m = model("f (float[4,4] w, int32[3] i) => (float[3,4] y) { e = Gather<axis=0>(w, i) y = MatMul(e, w) }")
    log = view_sweep(set_shapes(m, e=(3, 4)))
    assert "same orientation" in log.declined[0].outcome


def test_ordinary_gather():
    m = model("f (float[4,4] w, int32[3] i) => (float[3,4] y) { y = Gather<axis=0>(w, i) }")
    assert not view_sweep(m).entries


@pytest.mark.parametrize(
    ("names", "accumulates", "detaches"),
    [
        (["TiedGather"], True, True),
        (["TiedGather"], False, False),
        (["TiedGather", "TiedGatherAccumulate"], True, False),
    ],
)
def test_program(names, accumulates, detaches):
    m = tied()
    before = m.clone()
    patterns.apply(m, patterns.from_names(names), facts, mode="training", accumulates=accumulates)
    assert ("Detach" in op_types(m)) == detaches
    np.testing.assert_allclose(run(m, feeds_of(m))["y"], run(before, feeds_of(m))["y"])
