"""Split, Slice, Cast/Expand, Upsample, shapes of Like ops, sums and scales."""

from __future__ import annotations

import json

import numpy as np
import pytest

import patterns
import popart_jax as popart
from popart_jax.ops import facts

from .helpers import check_declines, check_fires, model, op_types, run, run_ort, set_shapes, sweep_one


def test_split():
    m = model("f (float[5,2] x) => (float[2,2] a, float[3,2] b) { a, b = Split<axis=0, split=[2,3]>(x) }")
    check_fires(m, "SplitOp", expect=["Slice", "Slice"])


def test_split_declines_unknown_shape():
    m = model("f (float[N,2] x) => (float[2,2] a, float[3,2] b) { a, b = Split<axis=0, split=[2,3]>(x) }")
    check_declines(m, "SplitOp", why="not static")


def test_split_declines_computed_sizes():
    m = model("f (float[5,2] x, int64[2] s) => (float[A,2] a, float[B,2] b) { a, b = Split<axis=0>(x, s) }", opset=13)
    check_declines(m, "SplitOp", why="computed while running")


@pytest.mark.parametrize(
    ("start", "end", "step", "length"), [(0, 7, 2, 4), (1, 6, 3, 2), (6, -8, -2, 4), (5, 0, -3, 2)]
)
def test_strided_slice(start, end, step, length):
    m = model(
        f"f (float[7,2] x) => (float[{length},2] y) "
        f"{{ y = ai.graphcore.Slice<axes=[0], starts=[{start}], ends=[{end}], steps=[{step}]>(x) }}"
    )
    check_fires(m, "Slice2SliceSubsample", expect=["Slice", "Subsample"])


def test_strided_slice_declines_unit_step():
    m = model("f (float[7] x) => (float[3] y) { y = ai.graphcore.Slice<axes=[0], starts=[1], ends=[4], steps=[1]>(x) }")
    check_declines(m, "Slice2SliceSubsample")


EXPAND = (
    "f (float[1,3] x) => (float16[2,3] y{more}) <int64[2] s = {{2, 3}}> "
    "{{ a = Expand(x, s) y = Cast<to=10>(a) {tail} }}"
)


def test_expand_cast():
    m = set_shapes(model(EXPAND.format(more="", tail="")), a=(2, 3))
    after = check_fires(m, "ExpandCast", expect=["Cast", "Expand"])
    assert op_types(after) == ["Cast", "Expand"]


def test_expand_cast_changes_what_runs_and_keeps_the_attributes_of_the_cast():
    m = set_shapes(
        model(
            "f (float[1,3] x) => (float8e4m3fn[2,3] y) <int64[2] s = {2, 3}> "
            "{ a = Expand(x, s) y = Cast<to=17, saturate=0>(a) }",
            opset=19,
        ),
        a=(2, 3),
    )
    patterns.sweep(m.graph, patterns.rules_of(patterns.from_names(["ExpandCast"]), "model", "inference"), facts)
    patterns.remove_unused(m.graph, facts, frozenset())
    cast, expand = m.graph
    assert (cast.op_type, expand.op_type) == ("Cast", "Expand")
    assert cast.attributes["saturate"].as_int() == 0


def test_expand_cast_declines_second_reader():
    check_declines(model(EXPAND.format(more=", float[2,3] z", tail="z = Neg(a)")), "ExpandCast", why="needed elsewhere")


def test_upsample():
    m = model(
        "f (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1., 1., 2., 2.}> { y = Upsample(x, s) }", opset=9
    )
    feeds = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)}
    wanted = run_ort(m, feeds)
    assert sweep_one(m, "UpsampleToResize").counts() == {"UpsampleToResize": 1}
    m.graph.opset_imports[""] = 10
    np.testing.assert_array_equal(run_ort(m, feeds), wanted)


def test_upsample_is_shown_as_resize():
    builder = popart.Builder()
    onnx = builder.aiOnnxOpset9
    scales = onnx.constant(np.array([1, 1, 2, 2], np.float32))
    out = onnx.upsample([builder.addInputTensor("FLOAT", [1, 1, 2, 2]), scales])
    flow, device = popart.DataFlow(1, [out]), popart.DeviceManager().createCpuDevice()
    for level, wanted in ((popart.PatternsLevel.Default, "Resize"), (popart.PatternsLevel.Minimal, "Upsample")):
        session = popart.InferenceSession(builder.getModelProto(), flow, device, patterns=popart.Patterns(level))
        shown = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
        assert [op["type"] for ops in shown.values() for op in ops] == [wanted]


def test_upsample_declines_attribute_form():
    m = model("f (float[1,1,2,2] x) => (float[1,1,4,4] y) { y = Upsample<scales=[1.0, 1.0, 2.0, 2.0]>(x) }", opset=7)
    check_declines(m, "UpsampleToResize", why="attribute")


def test_zeros_like():
    m = model("f (float[2,3] x) => (float[2,3] y) { y = ai.graphcore.ZerosLike(x) }")
    check_fires(m, "ZerosLikeOpPattern", expect=["Zeros"])


def test_zeros_like_declines():
    check_declines(
        model("f (float[N] x) => (float[N] y) { y = ai.graphcore.ZerosLike(x) }"), "ZerosLikeOpPattern", why="static"
    )


@pytest.mark.parametrize("kind", ["Uniform", "Normal"])
def test_random_like(kind):
    m = model(f"f (float[200,100] x) => (float[200,100] y) {{ y = Random{kind}Like<seed=1.0>(x) }}")
    feeds = {"x": np.zeros((200, 100), np.float32)}
    before = run(m, feeds)["y"]
    assert sweep_one(m, f"Random{kind}LikeOpPattern").fired
    after = run(m, feeds)["y"]
    assert op_types(m) == [f"Random{kind}"]
    assert after.shape == before.shape
    assert abs(after.mean() - before.mean()) < 0.02
    assert abs(after.std() - before.std()) < 0.02


@pytest.mark.parametrize("kind", ["Uniform", "Normal"])
def test_random_like_declines(kind):
    check_declines(
        model(f"f (float[N] x) => (float[N] y) {{ y = Random{kind}Like(x) }}"),
        f"Random{kind}LikeOpPattern",
        why="static",
    )


def test_sum_to_add():
    check_fires(model("f (float[2] a, float[2] b) => (float[2] y) { y = Sum(a, b) }"), "SumToAdd", expect=["Add"])


def test_sum_to_add_declines():
    m = model("f (float[2] a, float[2] b) => (float[2] y) { y = Sum(a, b, a) }")
    check_declines(m, "SumToAdd", why="3 inputs")


def test_negative_one_scale():
    m = model("f (float[2] a) => (float[2] y) { y = ai.graphcore.Scale<scale=-1.0>(a) }")
    check_fires(m, "NegativeOneScale", expect=["Neg"])


def test_negative_one_scale_declines():
    m = model("f (float[2] a) => (float[2] y) { y = ai.graphcore.Scale<scale=-2.0>(a) }")
    check_declines(m, "NegativeOneScale", why="-2")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("number", "op"), list(enumerate(["Add", "Sub", "Mul", "Div", "Pow"])))
def test_binary_const_scalar(number, op, first):
    m = model(
        f"f (float[2] a) => (float[2] y) "
        f"{{ y = ai.graphcore.BinaryConstScalar<value=1.5, op={number}, scalar_in_index={first}>(a) }}"
    )
    check_fires(m, "DecomposeBinaryConstScalar", expect=[op])


def test_binary_const_scalar_declines():
    m = model("f (float[2] a) => (float[2] y) { y = ai.graphcore.BinaryConstScalar<value=1.5, op=9>(a) }")
    check_declines(m, "DecomposeBinaryConstScalar", why="op number 9")


PADS = """f (float[2,2] a, float[1,2] b)
  => (float[3,2] y) <int64[4] p = {{0, 0, 1, 0}}, int64[4] q = {{{start}, 0, {end}, 0}}>
{{ c = Pad(a, p) d = Pad(b, q) y = Sum(d, c) }}"""


def test_sum_of_pads():
    m = set_shapes(model(PADS.format(start=2, end=0)), c=(3, 2), d=(3, 2))
    check_fires(m, "PadSum", expect=["Concat"])


def test_sum_of_pads_declines_overlap():
    m = set_shapes(model(PADS.format(start=1, end=1)), c=(3, 2), d=(3, 2))
    check_declines(m, "PadSum", why="overlap")


GATHER = """f (float[4,2] w, int32[3] i) => (float[3,2] y, float[3,2] z)
{{ a = Gather<axis=0, __ipu_number=0>(w, i) y = Neg<__ipu_number=0>(a) z = Relu<__ipu_number={second}>(a) }}"""


def test_split_gather():
    check_fires(model(GATHER.format(second=1)), "SplitGather", expect=["Gather", "Gather", "Neg", "Relu"])


def test_split_gather_declines_one_place():
    check_declines(model(GATHER.format(second=0)), "SplitGather")
