"""MatMul and convolution: grouped form, gradients, flipped weights, batch norm folding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

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
    run_ort,
    sweep_one,
)

MATMUL_SHAPES = [
    ((2, 3), (3, 4), (2, 4)),
    ((3,), (3, 4), (4,)),
    ((2, 3), (3,), (2,)),
    ((3,), (3,), ()),
    ((5, 2, 3), (3, 4), (5, 2, 4)),
    ((2, 3), (5, 3, 4), (5, 2, 4)),
    ((5, 6, 2, 3), (5, 6, 3, 4), (5, 6, 2, 4)),
    ((5, 1, 2, 3), (6, 3, 4), (5, 6, 2, 4)),
    ((5, 1, 2, 3), (1, 6, 3, 4), (5, 6, 2, 4)),
    ((1, 6, 2, 3), (5, 6, 3, 4), (5, 6, 2, 4)),
]


def dims(shape):
    return f"float[{','.join(map(str, shape))}]" if shape else "float"


@pytest.mark.parametrize(("a", "b", "y"), MATMUL_SHAPES)
def test_grouped_matmul(a, b, y):
    m = model(f"f ({dims(a)} a, {dims(b)} b) => ({dims(y)} y) {{ y = MatMul(a, b) }}")
    after = check_fires(m, "MatMulOp")
    product = next(n for n in after.graph if n.op_type == "MatMul")
    assert [len(v.shape) for v in (*product.inputs, *product.outputs)] == [3, 3, 3]


def test_each_grouped_matmul_takes_three_names_counted_from_zero():
    """As PopART counts them: the left operand, the right one, the product; operands of three axes too."""
    m = model(
        "f (float[1,4,4] a, float[4,4] b, float[4,4] c) => (float[1,4,4] y) { x = MatMul(a, b) y = MatMul(x, c) }"
    )
    after = check_fires(m, "MatMulOp")
    numbered = [o.name for n in after.graph for o in n.outputs if "__t" in o.name]
    assert numbered == ["a__t0", "b__t1", "x__t2", "x__t3", "c__t4", "y__t5"]


def test_grouped_matmul_declines_grouped():
    check_declines(model("f (float[5,2,3] a, float[5,3,4] b) => (float[5,2,4] y) { y = MatMul(a, b) }"), "MatMulOp")


@pytest.mark.parametrize("side", ["Lhs", "Rhs"])
@pytest.mark.parametrize(("a", "b", "y"), [s for s in MATMUL_SHAPES if len(s[0]) > 1 and len(s[1]) > 1])
def test_matmul_gradient(side, a, b, y):
    target, other = (a, b) if side == "Lhs" else (b, a)
    shape = f"shape=[{','.join(map(str, target))}]"  # for the reference alone: the rule looks at the output
    m = model(
        f"f ({dims(y)} g, {dims(other)} other) => ({dims(target)} d) "
        f"{{ d = ai.graphcore.MatMul{side}Grad<{shape}>(g, other) }}"
    )
    after = check_fires(m, f"MatMul{side}GradOp")
    product = next(n for n in after.graph if n.op_type == "MatMul")
    assert product.inputs[0 if side == "Lhs" else 1].name == "g"


@pytest.mark.parametrize("side", ["Lhs", "Rhs"])
def test_matmul_gradient_declines_vector(side):
    m = model(f"f (float[4] g, float[3,4] other) => (float[3] d) {{ d = ai.graphcore.MatMul{side}Grad(g, other) }}")
    check_declines(m, f"MatMul{side}GradOp", why="no matrix")


def conv_gradient(stride, pad, dilation, group):
    height, width, k = 7, 6, 3
    rows, columns = ((s + 2 * pad - (k - 1) * dilation - 1) // stride + 1 for s in (height, width))
    attributes = (
        f"strides=[{stride},{stride}], pads=[{pad},{pad},{pad},{pad}], dilations=[{dilation},{dilation}], group={group}"
    )
    return model(
        f"f (float[2,4,{rows},{columns}] g, float[4,{4 // group},3,3] w) => (float[2,4,{height},{width}] d) "
        f"{{ d = ai.graphcore.ConvDataGrad<{attributes}, height={height}, width={width}>(g, w) }}"
    )


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "group"), [(1, 1, 1, 1), (2, 1, 1, 1), (2, 0, 2, 2), (1, 3, 1, 4), (3, 1, 1, 1)]
)
def test_conv_data_gradient(stride, pad, dilation, group):
    m = conv_gradient(stride, pad, dilation, group)
    before = m.clone()
    assert sweep_one(m, "ConvDataGrad").fired
    assert op_types(m) == ["ConvFlipWeights", "Conv"]
    mark_dilated(m)
    assert_same_outputs(before, m, rtol=1e-4, atol=1e-5)


def mark_dilated(m):
    """ONNX's Conv has no input dilation: let the evaluator use our own definition."""
    for node in m.graph:
        if node.op_type == "Conv":
            node.op_type, node.domain = "DilatedConv", "ai.graphcore"


def test_conv_data_gradient_declines():
    m = model("f (float[N,4,5,5] g, float[4,4,3,3] w) => (float[N,4,7,7] d) { d = ai.graphcore.ConvDataGrad(g, w) }")
    check_declines(m, "ConvDataGrad", why="static")


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("strides=[2,2], pads=[1,1,1,1]", 7),
        ("strides=[2,2], pads=[0,1,1,0], output_padding=[1,1]", 9),
        ("strides=[1,1], dilations=[2,2]", 8),
        ("strides=[2,2], output_shape=[8,8]", 8),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_conv_transpose(attributes, size, bias):
    extra, argument = (", float[6] b", ", b") if bias else ("", "")
    m = model(
        f"f (float[2,4,4,4] x, float[4,3,3,3] w{extra}) => (float[2,6,{size},{size}] y) "
        f"{{ y = ConvTranspose<{attributes}, group=2>(x, w{argument}) }}"
    )
    before = m.clone()
    assert sweep_one(m, "ConvTranspose").fired
    mark_dilated(m)
    assert op_types(m) == ["ConvFlipWeights", "DilatedConv"] + ["AddBias"] * bias
    feeds = feeds_of(before)
    np.testing.assert_allclose(run(m, feeds)["y"], run_ort(before, feeds), rtol=1e-4, atol=1e-5)


def test_conv_transpose_declines():
    m = model("f (float[N,4,5,5] x, float[4,3,3,3] w) => (float[N,3,7,7] y) { y = ConvTranspose(x, w) }")
    check_declines(m, "ConvTranspose", why="static")


def conv_norm(bias: bool) -> ir.Model:
    rng = np.random.default_rng(3)
    m = model(
        "f (float[2,3,5,5] x, float[4,3,3,3] w, float[4] b, float[4] s, float[4] h, float[4] m, float[4] v)"
        " => (float[2,4,3,3] y) "
        f"{{ c = Conv(x, w{', b' if bias else ''}) y = BatchNormalization<epsilon=0.01>(c, s, h, m, v) }}"
    )
    for value in list(m.graph.inputs)[1:]:
        value.const_value = ir.tensor(
            rng.uniform(0.2, 1, patterns.static_shape(value)).astype(np.float32), name=value.name
        )
        m.graph.register_initializer(value)
        m.graph.inputs.remove(value)
    return m


@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_folds(bias):
    m = conv_norm(bias)
    before = m.clone()
    log = patterns.apply(m, patterns.at_level(), facts, mode="inference", protected=frozenset("wbshmv"))
    assert log.counts()["ConvBatchNormFold"] == 1
    assert "BatchNormalization" not in op_types(m)
    weights = set(m.graph.initializers.values())
    for node in m.graph:  # everything but the Conv follows from the weights
        made = {o for n in m.graph for o in n.outputs}
        assert node.op_type == "Conv" or all(v in weights | made for v in node.inputs)
    feeds = feeds_of(before)
    np.testing.assert_allclose(run_ort(m, feeds), run_ort(before, feeds), rtol=1e-5, atol=1e-5)


def test_batch_norm_declines():
    computed = conv_norm(True)
    computed.graph.inputs.append(computed.graph.initializers.pop("v"))
    computed.graph.inputs[-1].const_value = None
    half = conv_norm(True)
    for name in "wsv":
        half.graph.initializers[name].dtype = ir.DataType.FLOAT16
    for m, mode, protected, why in (
        (conv_norm(True), "inference", {"c"}, "must keep its name"),
        (computed, "inference", set(), "computed while running"),
        (half, "inference", set(), "precision"),
        (conv_norm(True), "training", set(), None),
    ):
        log = patterns.apply(m, patterns.at_level(), facts, mode=mode, protected=frozenset(protected))
        assert op_types(m) == ["Conv", "BatchNormalization"]
        assert why is None or any(why in e.outcome for e in log.declined)
