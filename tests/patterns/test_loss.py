"""Softmax and negative log likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_ir import DataType

import patterns
from popart_jax.ops import facts

from .helpers import (
    assert_same_outputs,
    check_declines,
    check_fires,
    feeds_of,
    model,
    op_types,
    run,
    set_shapes,
    sweep_one,
)

FORWARD = """f (float[{rows},4] x, int64[{rows}] t) => (float l)
{{ p = Softmax<axis={axis}>(x) l = ai.graphcore.Nll<reduction="{reduction}">(p, t) {tail} }}"""


def forward(axis=1, reduction="Mean", tail="", rows=5):
    return set_shapes(model(FORWARD.format(axis=axis, reduction=reduction, tail=tail, rows=rows)), p=(rows, 4))


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_softmax_enters_the_loss(reduction):
    check_fires(forward(reduction=reduction), "SoftmaxGradDirect", expect=["SoftmaxNll"], mode="training")


def test_fused_loss_adds_epsilon():
    m = forward(rows=1)
    x = np.array([[0.0, 40.0, 0.0, 0.0]], np.float32)
    feeds = {"x": x, "t": np.array([2])}
    plain = run(m, feeds)["l"]
    log = patterns.apply(m, patterns.at_level(), facts, mode="training")
    assert log.counts() == {"SoftmaxGradDirect": 1, "NlllWithSoftmaxGradDirect": 1}
    np.testing.assert_allclose(plain, -np.log(1e-7), rtol=1e-5)
    np.testing.assert_allclose(run(m, feeds)["l"], -np.log(np.exp(-40.0) + 1e-7), rtol=1e-5)


def test_fused_loss_agrees_away_from_zero():
    m = forward()
    before = m.clone()
    patterns.apply(m, patterns.at_level(), facts, mode="training")
    assert_same_outputs(before, m)


@pytest.mark.parametrize(
    ("kind", "mode", "why"),
    [
        ({"axis": 0}, "training", "normalises from axis 0"),
        ({"tail": "q = Neg(p)"}, "training", "also read by Neg"),
        ({}, "inference", None),
    ],
)
def test_loss_declines(kind, mode, why):
    m = forward(**kind)
    log = sweep_one(m, "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect", mode=mode)
    assert not log.fired
    assert why is None or why in log.declined[0].outcome


def test_reading_the_prediction_does_not_matter():
    m = forward(tail="k = ArgMax<axis=1>(p)")
    assert sweep_one(m, "SoftmaxGradDirect", mode="training", protected=("k", "p")).fired
    assert sorted(op_types(m)) == ["ArgMax", "Softmax", "SoftmaxNll"]


def test_anchored_gradient_of_the_probabilities_keeps_the_loss():
    m = forward()
    log = patterns.apply(m, patterns.at_level(), facts, mode="training", protected=frozenset({"Gradient___p"}))
    assert op_types(m) == ["Softmax", "Nll"]
    assert "gradient of tensor 'p' is anchored" in log.declined[0].outcome


BACKWARD = """f (float[5,4] x, int64[5] t, float g) => (float l, float[5,4] dx) {{
 p = Softmax<axis=1>(x)
 l = ai.graphcore.Nll<reduction="{reduction}">(p, t)
 dp = ai.graphcore.NllGrad<reduction="{reduction}">({g}, p, t)
 {tail}
 dx = ai.graphcore.SoftmaxGrad(dp, p)
}}"""


def backward(reduction="Mean", g="g", tail=""):
    m = model(BACKWARD.format(reduction=reduction, g=g, tail=tail))
    return set_shapes(m, p=(5, 4), dp=(5, 4), dx=(5, 4), l=())


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_gradient_is_direct(reduction):
    m = backward(reduction)
    check_fires(m, "SoftmaxGradDirect", expect=["Softmax", "Nll", "SoftmaxGradDirect"])


def test_gradient_declines_second_reader():
    log = sweep_one(backward(), "SoftmaxGradDirect", protected=("dp",))
    assert "needed elsewhere" in log.declined[0].outcome


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_loss_and_gradient_in_one(reduction):
    m = backward(reduction)
    before = m.clone()
    assert sweep_one(m, "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect").fired
    assert op_types(m) == ["Softmax", "NlllWithSoftmaxGradDirect"]
    assert_same_outputs(before, m)


def test_loss_and_gradient_decline_when_coupled():
    m = backward(g="l")
    log = sweep_one(m, "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect")
    assert log.counts() == {"SoftmaxGradDirect": 1}
    assert "depends on the loss" in log.declined[-1].outcome


CAST = """f ({source}[1] s, float16[5,4] p, int64[5] t) => (float16[5,4] dp)
{{ c = Cast<to=10>(s) dp = ai.graphcore.NllGrad<reduction="Mean">(c, p, t) }}"""


def test_loss_scale_is_not_cast():
    m = set_shapes(model(CAST.format(source="float")), dtype=DataType.FLOAT16, c=(1,))
    before = m.clone()
    assert sweep_one(m, "RemoveUnnecessaryLossGradCast").fired
    assert op_types(m) == ["NllGrad"]
    feeds = feeds_of(before)
    np.testing.assert_allclose(run(m, feeds)["dp"], run(before, feeds)["dp"], rtol=2e-3)


def test_loss_scale_cast_declines_other_types():
    m = set_shapes(model(CAST.format(source="double")), dtype=DataType.FLOAT16, c=(1,))
    check_declines(m, "RemoveUnnecessaryLossGradCast", why="not a cast from FLOAT")
