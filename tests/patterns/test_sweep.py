"""The driver: fixed point, limit, log, speed; clean-up; in-place variants; ONNX forms."""

from __future__ import annotations

import gc
import time

import numpy as np
import onnx_ir as ir
import pytest

import patterns
from patterns._core import Rule
from popart_jax.ops import facts

from .helpers import assert_same_outputs, check_declines, check_fires, model, op_types, set_shapes, sweep_one


def test_rewrites_cascade():
    m = model("f (float[2] x) => (float[2] y) { a = Cast<to=1>(x) b = Neg(a) c = Sum(b) d = Identity(c) y = Relu(d) }")
    before = m.clone()
    log = sweep_one(m, "OpToIdentity", "PreUniRepl", "PostNRepl")
    assert op_types(m) == ["Neg", "Relu"]
    assert sum(log.counts().values()) >= 4
    assert_same_outputs(before, m)


def test_patterns_that_undo_each_other():
    swap = {"Sin": "Cos", "Cos": "Sin"}

    def flip(node, context):
        return context.op(swap[node.op_type], node.inputs[0], like=node.outputs[0])

    m = model("f (float[2] x) => (float[2] y) { y = Sin(x) }")
    with pytest.raises(patterns.SweepLimitError, match="PingPong"):
        patterns.sweep(m.graph, [Rule("PingPong", ("Sin", "Cos"), flip)], facts)


def test_wrong_number_of_values_is_refused():
    rule = Rule("Wrong", ("Neg",), lambda node, context: [node.inputs[0], node.inputs[0]])
    m = model("f (float[2] x) => (float[2] y) { a = Neg(x) y = Relu(a) }")
    log = patterns.sweep(m.graph, [rule], facts)
    assert "2 values offered for 1 outputs" in log.declined[0].outcome


def test_refused_replacement_leaves_no_reader():
    rule = Rule("Wrong", ("Neg",), lambda node, context: [context.op("Abs", node.inputs[0]), None])
    m = model("f (float[2] x) => (float[2] y) { a = Neg(x) y = Relu(a) }")
    patterns.sweep(m.graph, [rule], facts)
    assert len(m.graph.inputs[0].uses()) == 1


def test_log_text():
    m = model("f (float[2] x) => (float[2] y) { a = Identity(x) y = Neg(a) }")
    log = sweep_one(m, "PostNRepl", protected=("a",))
    assert "PostNRepl: Identity 'a' not rewritten: tensor 'a' must keep its name" in str(log)
    assert "PostNRepl: 1 rewritten" in str(sweep_one(m, "PostNRepl"))


def test_annotations_are_inherited():
    m = model("f (float[4] x) => (float[2] a, float[2] b) { a, b = Split<axis=0, split=[2,2], __ipu_number=3>(x) }")
    m.graph[0].name = "mine"
    sweep_one(m, "SplitOp")
    assert [n.attributes["__ipu_number"].as_int() for n in m.graph] == [3, 3]
    assert [n.name for n in m.graph] == ["mine", "mine"]


def test_unused_nodes_and_effects():
    m = model(
        "f (float[2] x) => (float[2] y) "
        "{ a = Neg(x) b = Relu(a) c = ai.graphcore.PrintTensor(x) y = Relu(x) d = Abs(x) }"
    )
    assert patterns.remove_unused(m.graph, facts, frozenset({"d"})) == 2
    assert op_types(m) == ["PrintTensor", "Relu", "Abs"]


def test_effects_inside_an_unread_op():
    m = model(
        "f (bool c, float[2] x) => (float[2] y) { y = Relu(x) "
        "a = If(c) <then_branch = t () => (float[2] p) { p = ai.graphcore.PrintTensor(x) },"
        " else_branch = e () => (float[2] q) { q = Neg(x) }> "
        "b = If(c) <then_branch = u () => (float[2] r) { r = Abs(x) },"
        " else_branch = v () => (float[2] s) { s = Neg(x) }> }"
    )
    assert patterns.remove_unused(m.graph, facts) == 1
    assert [n.outputs[0].name for n in m.graph] == ["y", "a"]


def test_functions_are_inlined():
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> f (float[2] x) => (float[2] y) { y = my.twice(x) }
    <domain: "my", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    m = ir.from_onnx_text(text)
    patterns.apply(m, patterns.at_level(), facts)
    assert op_types(m) == ["Add"]


@pytest.mark.parametrize("chain", [True, False])
def test_hundred_thousand_nodes(chain):
    """Time grows with the graph, not with its square: ten times the nodes take less than thirty times as long."""
    times = []
    for count in (3_000, 30_000):
        graph = long_graph(count, chain)
        gc.collect()
        gc.freeze()  # else the collector walks what earlier tests left, again and again
        start = time.process_time()
        log = patterns.apply(graph, patterns.at_level(), facts, protected=frozenset(o.name for o in graph[-1].outputs))
        times.append(time.process_time() - start)
        gc.unfreeze()
        assert len(log.fired) >= count // 2 - 1
    assert times[1] < 30 * times[0] + 0.5


def long_graph(count: int, chain: bool) -> ir.Graph:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    nodes, value = [], x
    for i in range(count):
        source = value if chain or i % 2 else x
        nodes.append(ir.node("Relu" if i % 2 else "Identity", [source]))
        value = nodes[-1].outputs[0]
    outputs = [value] if chain else [n.outputs[0] for n in nodes if n.op_type == "Relu"]
    return ir.Graph([x], outputs, nodes=nodes, opset_imports={"": 11})


# -- in place


def inplaced(body: str, shapes: tuple[int, ...] = (2,), **keywords) -> list[str]:
    m = model(f"f (float[2] x, float[2] z) => (float[2] out) {{ {body} out = Neg(y) }}")
    values = {o.name: shapes for n in m.graph for o in n.outputs}
    patterns.make_inplace(set_shapes(m, **values).graph, facts, **keywords)
    return op_types(m)[:-1]


@pytest.mark.parametrize(
    ("body", "expect"),
    [
        ("a = Neg(x) y = Relu(a)", ["Neg", "ReluInplace"]),
        ("y = Relu(x)", ["Relu"]),  # a streamed input stays
        ("a = Neg(x) b = Relu(a) y = Add(a, b)", ["Neg", "Relu", "AddLhsInplace"]),
        ("a = Neg(x) y = Add(x, a)", ["Neg", "AddRhsInplace"]),
        ("a = Neg(x) y = Add(a, a)", ["Neg", "Add"]),
        ("a = Neg(x) b = Identity(a) c = Relu(b) y = Mul(c, a)", ["Neg", "IdentityInplace", "Relu", "MulLhsInplace"]),
        ("a = Neg(x) b = Transpose(a) y = Exp(b)", ["Neg", "TransposeInplace", "ExpInplace"]),
        ("a = Neg(x) y = my.Relu(a)", ["Neg", "Relu"]),  # nothing is assumed of operators of other domains
    ],
)
def test_inplace(body, expect):
    assert inplaced(body) == expect


def test_inplace_keeps_protected():
    assert inplaced("a = Neg(x) y = Relu(a)", protected=frozenset({"a"})) == ["Neg", "Relu"]


def test_inplace_prefers_products():
    body = "a = Neg(x) b = MatMul(x, z) y = Add(a, b)"
    assert inplaced(body)[-1] == "AddLhsInplace"
    assert inplaced(body, prefer_products=True)[-1] == "AddRhsInplace"


@pytest.mark.parametrize(
    ("given", "expect"),
    [
        ({}, "AddLhsInplace"),
        ({"AddRhsInplace": 11.0}, "AddRhsInplace"),
        ({"AddLhsInplace": 0.5}, "AddRhsInplace"),
        ({"AddLhsInplace": -1.0, "AddRhsInplace": 0.0}, "Add"),
    ],
)
def test_inplace_follows_priorities(given, expect):
    """The highest goes first; without a positive one a form is not taken."""
    pairs = ", ".join(f'"{name}"' for name in given), ", ".join(map(str, given.values()))
    notes = f"<__inplace_op_names=[{pairs[0]}], __inplace_op_priorities=[{pairs[1]}]>" if given else ""
    assert inplaced(f"a = Neg(x) b = Neg(z) y = Add{notes}(a, b)")[-1] == expect


def test_inplace_of_a_view_can_be_refused():
    notes = '<__inplace_op_names=["IdentityInplace"], __inplace_op_priorities=[-10.0]>'
    assert inplaced(f"a = Neg(x) b = Identity{notes}(a) y = Exp(b)") == ["Neg", "Identity", "ExpInplace"]


def test_inplace_leaves_excluded_ops_alone():
    notes = '<__exclude_patterns=["InPlace"]>'
    assert inplaced(f"a = Neg(x) b = Identity{notes}(a) c = Exp{notes}(b) y = Exp(c)")[1:] == [
        "Identity", "Exp", "ExpInplace",
    ]  # fmt: skip


def test_inplace_goes_by_priority_before_the_schedule():
    """Both read the same tensor, the second for the last time: it may overwrite it, whatever the first may."""
    notes = '<__inplace_op_names=["ExpInplace"], __inplace_op_priorities=[99.0]>'
    assert inplaced(f"a = Neg(x) b = Exp{notes}(a) c = Relu(a) y = Add(b, c)")[1:3] == ["Exp", "ReluInplace"]


def test_inplace_needs_equal_shapes():
    m = model("f (float[1] x, float[2] z) => (float[2] out) { a = Neg(x) b = Neg(z) y = Add(a, b) out = Neg(y) }")
    patterns.make_inplace(set_shapes(m, a=(1,), b=(2,), y=(2,)).graph, facts)
    assert op_types(m)[2] == "AddRhsInplace"


# -- forms of ONNX ops


@pytest.mark.parametrize("op", ["Tan", "Asinh", "Atanh", "Acos"])
def test_formulas(op):
    m = model(f"f (float[2] a) => (float[2] y) {{ h = ai.graphcore.Scale<scale=0.5>(a) y = {op}(h) }}")
    assert op not in op_types(check_fires(set_shapes(m, h=(2,)), "OnnxForms"))


def test_acosh():
    m = model("f (float[2] a) => (float[2] y) { h = Add(a, a) y = Acosh(h) }")
    check_fires(set_shapes(m, h=(2,)), "OnnxForms")


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod(fmod):
    m = model(f"f (float[4] a, float[4] b) => (float[4] y) {{ n = Neg(a) y = Mod<fmod={fmod}>(n, b) }}")
    set_shapes(m, n=(4,))
    if fmod == 0:  # ONNX knows fmod=0 for integers only; the sign must be that of the divisor
        sweep_one(m, "OnnxForms")
        assert op_types(m) == ["Neg", "Fmod", "Add", "Fmod"]
    else:
        check_fires(m, "OnnxForms", expect=["Neg", "Fmod"])


@pytest.mark.parametrize(
    ("a", "b", "attributes"), [("2,3", "3,4", ""), ("3,2", "4,3", "<transA=1, transB=1, alpha=0.5, beta=2.0>")]
)
def test_gemm(a, b, attributes):
    m = model(f"f (float[{a}] a, float[{b}] b, float[4] c) => (float[2,4] y) {{ y = Gemm{attributes}(a, b, c) }}")
    assert "Gemm" not in op_types(check_fires(m, "OnnxForms"))


def test_new_tensors_take_no_name_that_is_there():
    """A model may have a tensor called as the next one that a rewrite makes."""
    m = model(
        "f (float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y, float[2,4] z)"
        " { z__t1 = Neg(c) z__t2 = Exp(c) z = Gemm<alpha=0.5>(a, b, z__t1) y = Gemm(a, b, z__t2) }"
    )
    check_fires(set_shapes(m, z__t1=(4,), z__t2=(4,)), "OnnxForms")
    names = [value.name for node in m.graph for value in node.outputs]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode):
    m = model(f'f (float[1,8,2,3] x) => (float[1,2,4,6] y) {{ y = DepthToSpace<blocksize=2, mode="{mode}">(x) }}')
    check_fires(m, "OnnxForms", expect=["Reshape", "Transpose", "Reshape"])


def test_space_to_depth():
    m = model("f (float[1,2,4,6] x) => (float[1,8,2,3] y) { y = SpaceToDepth<blocksize=2>(x) }")
    check_fires(m, "OnnxForms", expect=["Reshape", "Transpose", "Reshape"])


def test_convolution_bias():
    m = model("f (float[1,2,4,4] x, float[3,2,3,3] w, float[3] b) => (float[1,3,2,2] y) { y = Conv(x, w, b) }")
    check_fires(m, "OnnxForms", expect=["Conv", "AddBias"])
    m = model("f (float[1,2,4,4] x, float[3,2,3,3] w) => (float[1,3,2,2] y) { y = Conv(x, w) }")
    check_declines(m, "OnnxForms")


def test_constants_are_known_to_rules():
    context = patterns.Context("training", frozenset({"w"}), facts)
    value = ir.Value(name="w", const_value=ir.tensor(np.ones(2, np.float32)))
    assert context.constant(value) is None
    assert patterns.Context("inference", frozenset(), facts).constant(value) is not None
    assert (
        patterns.Context("training", frozenset(), facts).static(
            ir.Value(name="s", const_value=ir.tensor(np.ones(2, np.int64)))
        )
        is not None
    )


def test_a_pattern_that_fails_names_itself_and_the_node():
    def broken(node, context):
        raise KeyError("nothing")

    m = model("f (float[2] x) => (float[2] y) { y = Sin(x) }")
    with pytest.raises(patterns.PatternError, match=r"Pattern 'Broken' failed at node .*\(Sin\)"):
        patterns.sweep(m.graph, [Rule("Broken", ("Sin",), broken)], facts)


@pytest.mark.parametrize("given", [3, True, "x", [3], {"y": None}])
def test_a_pattern_that_gives_no_values_names_itself_and_the_node(given):
    m = model("f (float[2] x) => (float[2] y) { y = Sin(x) }")
    with pytest.raises(patterns.PatternError, match=r"Pattern 'Wrong' gave .* at node 'y'; it is to give the values"):
        patterns.sweep(m.graph, [Rule("Wrong", ("Sin",), lambda node, context: given)], facts)


@pytest.mark.parametrize("given", [{"stages": ("views",)}, {"modes": ("Training",)}])
def test_stages_and_modes_have_names(given):
    with pytest.raises(ValueError, match=r"'(views|Training)' is none of (model|inference), (view|training)"):
        patterns.rewrites("Wrong", "Sin", **given)
