"""Gradient ops spelled out: each fires, keeps its output, and declines without static shapes where it needs them."""

from __future__ import annotations

import pytest

from patterns.families.gradients import BINARY, UNARY

from .helpers import check_declines, check_fires, model, set_shapes, sweep_one

DOMAIN = {op: "" if op == "Cosh" else "ai.graphcore." for op in UNARY}


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    arguments = "x" if op == "Cosh" else "g, x"
    m = model(f"f (float[2,3] g, float[2,3] x) => (float[2,3] y) {{ y = {DOMAIN[op]}{op}({arguments}) }}")
    after = check_fires(m, UNARY[op][0])
    assert op not in [n.op_type for n in after.graph]


@pytest.mark.parametrize("op", UNARY)
def test_unary_declines_other_domain(op):
    m = model("f (float[2] g, float[2] x) => (float[2] y) { y = Mul(g, x) }")
    for node in m.graph:
        node.op_type, node.domain = op, "com.example"
    assert not sweep_one(m, UNARY[op][0]).entries


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("shapes", [("2,3", "2,3"), ("2,3", "3"), ("3", "2,3"), ("2,1", "1,3"), ("4,2,3", "")])
def test_binary(op, shapes):
    a, b = shapes
    wide = {("2,3", "3"): "2,3", ("3", "2,3"): "2,3", ("2,1", "1,3"): "2,3"}.get(shapes, a)
    target = shapes[BINARY[op][1] - 1]
    kind = {shape: f"float[{shape}]" if shape else "float" for shape in (wide, a, b, target)}
    text = (
        f"f ({kind[wide]} g, {kind[a]} a, {kind[b]} b, {kind[wide]} y) => ({kind[target]} d) "
        f"{{ d = ai.graphcore.{op}(g, a, b, y) }}"
    )
    after = check_fires(model(text), BINARY[op][0])
    assert op not in [n.op_type for n in after.graph]


@pytest.mark.parametrize("op", BINARY)
def test_binary_declines_unknown_shape(op):
    m = model(
        f"f (float[N] g, float[N] a, float[1] b, float[N] y) => (float[N] d) {{ d = ai.graphcore.{op}(g, a, b, y) }}"
    )
    check_declines(m, BINARY[op][0], why="not static")


def test_split_grad_to_concat():
    m = model("f (float[2,1] a, float[2,2] b) => (float[2,3] y) { y = ai.graphcore.SplitGrad<axis=1>(a, b) }")
    check_fires(m, "SplitGradOpToConcat", expect=["Concat"])


def test_flip_gradient():
    m = model("f (float[4,3,2,2] w) => (float[6,2,2,2] y) { y = ai.graphcore.ConvFlipWeightsGrad<group=2>(w) }")
    check_fires(m, "ConvFlipWeightsGradOp", expect=["ConvFlipWeights"])


def test_double_flip():
    m = model(
        "f (float[4,3,2,2] w) => (float[4,3,2,2] y) "
        "{ a = ai.graphcore.ConvFlipWeights<group=2>(w) y = ai.graphcore.ConvFlipWeights<group=2>(a) }"
    )
    check_fires(m, "ConvFlipWeightsDoubleFlip", expect=["Identity"])


def test_double_flip_declines_other_group():
    m = model(
        "f (float[4,2,2,2] w) => (float[4,2,2,2] y) "
        "{ a = ai.graphcore.ConvFlipWeights<group=2>(w) y = ai.graphcore.ConvFlipWeights<group=1>(a) }"
    )
    check_declines(m, "ConvFlipWeightsDoubleFlip", why="groups")


def test_reshape_gradient_of_equal_shape():
    m = model("f (float[2,3] g, float[2,3] x) => (float[2,3] y) { y = ai.graphcore.ReshapeGrad(g, x) }")
    check_fires(m, "OpToIdentity", expect=["Identity"])


def test_reshape_gradient_declines():
    m = model("f (float[6] g, float[2,3] x) => (float[2,3] y) { y = ai.graphcore.ReshapeGrad(g, x) }")
    check_declines(m, "OpToIdentity")


def test_copied_gradient_of_add():
    m = model(
        "f (float[2] g, float[2] a, float[2] b) => (float[2] y) { c = ai.graphcore.AddArg0Grad(g, a, b) y = Neg(c) }"
    )
    check_fires(set_shapes(m, c=(2,)), "PostNRepl", expect=["Neg"])


def test_copied_gradient_declines_broadcast():
    m = model(
        "f (float[3,2] g, float[2] a, float[3,2] b) => (float[2] y) "
        "{ c = ai.graphcore.AddArg0Grad(g, a, b) y = Neg(c) }"
    )
    check_declines(set_shapes(m, c=(2,)), "PostNRepl", why="broadcast")
