"""Where PopART differs from ONNX, and what only a whole graph shows: fused losses, collectives, called subgraphs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from popart_jax.errors import NodeError, popart_exception, poplibs_exception
from popart_jax.lowering import Settings, evaluate
from popart_jax.ops import replicas

from .single import function, run

POPART = {"popart": True}
GC = "ai.graphcore"
rng = np.random.default_rng(5)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def graph(nodes, inputs, outputs, opsets=(("", 11), (GC, 1))):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inputs]
    ends = [helper.make_empty_tensor_value_info(n) for n in outputs]
    made = helper.make_graph(nodes, "g", infos, ends)
    return ir.from_proto(helper.make_model(made, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=8))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_fused_softmax_and_nll():
    logits, labels = np.array([[0.0, 30.0, 0.0]], np.float32), np.array([0], np.int32)
    p = softmax(logits)
    for add, expected in ((1, -np.log(p[0, 0] + 1e-7)), (0, -np.log(1e-7))):
        fn = function("SoftmaxNll", [logits, labels], domain=GC, reduction="Sum", add_epsilon=add)
        np.testing.assert_allclose(fn(logits, labels)[0], expected, rtol=1e-6)
        grad = jax.grad(lambda v, fn=fn: fn(v, labels)[0])(logits)  # no clamp, although p = 9e-14
        np.testing.assert_allclose(grad, p - [[1, 0, 0]], atol=1e-6)


def test_batch_norm_needs_rank_three_and_matching_statistics():
    with pytest.raises(popart_exception, match="rank >= 3"):
        run("BatchNormalization", [f32(4, 3), *[f32(3)] * 4], at=9, settings=POPART)
    with pytest.raises(popart_exception, match="expected shape of batch norm"):
        run("BatchNormalization", [f32(4, 3, 2), *[f32(4)] * 4], at=9, settings=POPART)


def test_inference_form_of_batch_norm_has_no_gradient_in_training():
    inputs = [f32(4, 3, 2), *[abs(f32(3)) for _ in range(4)]]
    fn = function("BatchNormalization", inputs, at=9, settings={**POPART, "training": True})
    assert fn(*inputs)[0].shape == (4, 3, 2)
    with pytest.raises(popart_exception, match="but its gradient Op is being created"):
        jax.grad(lambda x: fn(x, *inputs[1:])[0].sum())(inputs[0])
    fixed = function("BatchNormalization", inputs, at=9)
    assert jax.grad(lambda x: fixed(x, *inputs[1:])[0].sum())(inputs[0]).shape == (4, 3, 2)


def test_five_output_batch_norm_uses_batch_statistics():
    x, scale, bias, mean, var = f32(4, 3, 5), f32(3), f32(3), f32(3), abs(f32(3))
    _, new_mean, new_var, batch_mean, batch_var = run(
        "BatchNormalization", [x, scale, bias, mean, var], 5, at=9, settings=POPART, momentum=0.8
    )
    np.testing.assert_allclose(batch_mean, x.mean((0, 2)), atol=1e-6)
    np.testing.assert_allclose(batch_var, x.var((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(new_var, 0.8 * var + 0.2 * x.var((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(new_mean, 0.8 * mean + 0.2 * x.mean((0, 2)), rtol=1e-4, atol=1e-6)


def test_resize_gradients():
    x, scales = f32(1, 1, 5), np.array([1, 1, 1.6], np.float32)
    settings = {**POPART, "training": True}
    fn = function("Resize", [x, None, scales], at=11, settings=settings, static=[2], mode="nearest")
    grad = jax.grad(lambda v: (fn(v, None, scales)[0] * jnp.arange(8)).sum())(x)
    expected = np.zeros((1, 1, 5), np.float32)
    np.add.at(expected, (0, 0, np.floor(np.arange(8) / 1.6).astype(int)), np.arange(8))
    np.testing.assert_allclose(grad, expected)
    linear = function("Resize", [x, None, scales], at=11, settings=settings, static=[2], mode="linear")
    with pytest.raises(popart_exception, match="'linear' is not supported when training"):
        jax.grad(lambda v: linear(v, None, scales)[0].sum())(x)
    (down,) = run("Resize", [x, np.array([1, 1, 0.6], np.float32)], at=10, settings=POPART, static=[1])
    np.testing.assert_array_equal(down, x[..., [0, 1, 3]])


def test_rejections():
    x = f32(1, 1, 4, 4)
    with pytest.raises(popart_exception, match="count_include_pad"):
        run("AveragePool", [x], at=11, settings=POPART, kernel_shape=[2, 2], count_include_pad=1)
    with pytest.raises(popart_exception, match="storage_order != 0"):
        run("MaxPool", [x], at=11, settings=POPART, kernel_shape=[2, 2], storage_order=1)
    with pytest.raises(popart_exception, match="Non default value for dilations"):
        run("ConvTranspose", [x, f32(1, 1, 2, 2)], at=11, settings=POPART, dilations=[2, 2])
    with pytest.raises(poplibs_exception, match="samplingRatio"):
        run(
            "RoiAlign", [x, f32(1, 4), np.array([0], np.int32)], at=10, settings=POPART, output_height=1, output_width=1
        )
    with pytest.raises(popart_exception, match="interval"):
        run("Dropout", [x], at=10, settings={**POPART, "training": True}, ratio=1.0)
    with pytest.raises(popart_exception, match="Invalid value for group"):
        run("Conv", [f32(1, 3, 4, 4), f32(2, 2, 1, 1)], at=11, settings=POPART, group=2)


def test_lstm_last_output_is_that_of_the_last_step():
    x, w, r, lens = f32(4, 2, 3), f32(1, 8, 3), f32(1, 8, 2), np.array([4, 2], np.int32)
    y, y_h, y_c = run("LSTM", [x, w, r, None, lens], 3, at=7, settings=POPART, hidden_size=2)
    np.testing.assert_array_equal(y_h, y[-1])
    np.testing.assert_array_equal(y_h[0, 1], 0)
    two = np.array([2, 2], np.int32)
    _, short_h, short_c = run("LSTM", [x[:2], w, r, None, two], 3, at=7, settings=POPART, hidden_size=2)
    np.testing.assert_allclose(short_h[0, 1], y[1, 0, 1], rtol=3e-7)  # two programs
    np.testing.assert_allclose(short_c[0, 1], y_c[0, 1], rtol=3e-7)  # two programs
    onnx_y, onnx_h, onnx_c = run("LSTM", [x, w, r, None, lens], 3, at=7, hidden_size=2)
    np.testing.assert_array_equal(onnx_h[0, 1], onnx_y[1, 0, 1])
    np.testing.assert_allclose(y_c, onnx_c, atol=2e-7)  # gates of PopART's are more accurate


@pytest.mark.parametrize("operator", range(8))
@pytest.mark.parametrize("group", [(), (1, 2), (2, 2), (4, 2, 2), (3, 0)])
def test_collectives_in_groups(operator, group):
    x = rng.integers(-2, 4, (4, 3)).astype(np.float32)
    members = {(): [[0, 1, 2, 3]], (1, 2): [[0, 1], [2, 3]], (3, 0): [[0], [1], [2], [3]]}.get(group, [[0, 2], [1, 3]])
    reduce = [np.sum, np.mean, np.prod, np.min, np.max, lambda v, a: (v != 0).all(a), lambda v, a: (v != 0).any(a),
              lambda v, a: (v**2).sum(a)][operator]  # fmt: skip
    expected = np.zeros_like(x)
    for group_members in members:
        expected[group_members] = reduce(x[group_members], 0)

    def one(v):
        return replicas.all_reduce(v, operator, replicas.groups_from(group))

    np.testing.assert_allclose(jax.vmap(one, axis_name="replica")(x), expected, rtol=1e-6)


def test_reduce_scatter_and_gather():
    x = f32(4, 5)
    scatter = jax.vmap(lambda v: replicas.reduce_scatter(v, 0), axis_name="replica")(x)
    np.testing.assert_allclose(np.asarray(scatter).ravel()[:5], x.sum(0), rtol=1e-5)
    pairs = jax.vmap(lambda v: replicas.reduce_scatter(v, 0, replicas.Groups(2, 2)), axis_name="replica")(x)
    np.testing.assert_allclose(np.concatenate([pairs[1], pairs[3]])[:5], x[1] + x[3], rtol=1e-5)
    local = jax.vmap(lambda v: replicas.reduce_scatter(v, replicas.LOCAL), axis_name="replica")(x)
    np.testing.assert_array_equal(local[1], x[1, 2:4])
    whole = jax.vmap(replicas.all_gather, axis_name="replica")(x)
    np.testing.assert_array_equal(whole[2], x.ravel())
    np.testing.assert_array_equal(replicas.all_reduce(x[0]), x[0])
    with pytest.raises(popart_exception, match="don't divide"):
        jax.vmap(lambda v: replicas.all_reduce(v, 0, replicas.groups_from((1, 3))), axis_name="replica")(x)


def subgraph(name, nodes, inputs, outputs):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inputs]
    return helper.make_graph(nodes, name, infos, [helper.make_empty_tensor_value_info(n) for n in outputs])


def test_call_captures_and_differentiates():
    body = subgraph("body", [helper.make_node("Mul", ["a", "w"], ["b"])], ["a"], ["b"])
    nodes = [
        helper.make_node("Call", ["x"], ["y"], domain=GC, callee=body),
        helper.make_node("Call", ["y"], ["z"], domain=GC, callee=body),
    ]
    m = graph(nodes, ["x", "w"], ["z"])
    settings = Settings(dict(m.opset_imports), popart=True)
    fn = lambda w: evaluate(m.graph, {"x": jnp.float32(2), "w": w}, ["z"], settings)["z"]  # noqa: E731
    assert fn(jnp.float32(3)) == 18
    assert jax.grad(fn)(jnp.float32(3)) == 12


def test_packed_data_block():
    doubled = subgraph("double", [helper.make_node("Add", ["s", "s"], ["t"])], ["s"], ["t"])
    node = helper.make_node(
        "PackedDataBlock", ["d", "o", "l", "ro", "rl"], ["y"], domain=GC, callback=doubled, resultSize=8,
        callbackBatchSize=2, maxSequenceLengths=[3],
    )  # fmt: skip
    m = graph([node], ["d", "o", "l", "ro", "rl"], ["y"])
    data = f32(7, 2)
    vectors = [np.array(v, np.uint32) for v in ([0, 3, 5, 6], [3, 2, 1, 1], [4, 0, 7, 2], [3, 2, 1, 1])]
    fed = dict(zip(["d", "o", "l", "ro", "rl"], [data, *vectors], strict=True))
    (y,) = evaluate(m.graph, fed, ["y"], Settings(dict(m.opset_imports), popart=True)).values()
    expected = np.zeros((8, 2), np.float32)
    expected[4:7], expected[0:2], expected[7], expected[2] = 2 * data[:3], 2 * data[3:5], 2 * data[5], 2 * data[6]
    np.testing.assert_allclose(y, expected)


def loop(body, inputs, outputs):
    return graph([helper.make_node("Loop", inputs, outputs, body=body)], [n for n in inputs if n], outputs)


def test_loop_ending_early_pads_scan_outputs_with_zeros():
    nodes = [
        helper.make_node("Add", ["v", "v"], ["w"]),
        helper.make_node("Less", ["w", "limit"], ["go"]),
        helper.make_node("Identity", ["w"], ["s"]),
    ]
    body = subgraph("body", nodes, ["i", "c", "v"], ["go", "w", "s"])
    m = graph([helper.make_node("Loop", ["m", "", "x"], ["y", "ys"], body=body)], ["m", "x", "limit"], ["y", "ys"])
    settings = Settings(dict(m.opset_imports), popart=True)

    def fn(x, limit):
        found = evaluate(m.graph, {"m": np.int32(6), "x": x, "limit": limit}, ["y", "ys"], settings)
        return found["y"], found["ys"]

    y, ys = jax.jit(fn)(jnp.float32(1), jnp.float32(5))
    assert y == 8
    np.testing.assert_array_equal(ys, [2, 4, 8, 0, 0, 0])
    assert jax.grad(lambda x: fn(x, jnp.float32(5))[0])(jnp.float32(1)) == 0  # Loop has no gradient in PopART


@pytest.mark.parametrize(("cond", "rows"), [("", [2, 4, 8, 0, 0, 0]), ("never", [0] * 6)])
@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn])
def test_scan_outputs_are_as_long_as_the_trip_count_where_constants_end_the_loop(cond, rows, wrap):
    nodes = [
        helper.make_node("Add", ["v", "v"], ["w"]),
        helper.make_node("Less", ["i", "last"], ["go"]),
        helper.make_node("Identity", ["w"], ["s"]),
    ]
    body = subgraph("body", nodes, ["i", "c", "v"], ["go", "w", "s"])
    node = helper.make_node("Loop", ["m", cond, "x"], ["y", "ys"], body=body)
    m = graph([node], ["m", "x", "last", "never"], ["y", "ys"])
    settings = Settings(dict(m.opset_imports), popart=True)
    fixed = {"m": np.int32(6), "last": np.int32(2), "never": np.array(False)}
    found = wrap(lambda x: evaluate(m.graph, {**fixed, "x": x}, ["y", "ys"], settings))(jnp.float32(1))
    assert found["y"] == (1 if cond else 8)
    np.testing.assert_array_equal(found["ys"], rows)


def test_loop_outside_popart_has_gradient_and_data_dependent_length():
    nodes = [
        helper.make_node("Mul", ["v", "x"], ["w"]),
        helper.make_node("Less", ["w", "limit"], ["go"]),
        helper.make_node("Identity", ["w"], ["s"]),
    ]
    body = subgraph("body", nodes, ["i", "c", "v"], ["go", "w", "s"])
    whole = graph([helper.make_node("Loop", ["m", "", "x"], ["y", "ys"], body=body)], ["m", "x", "limit"], ["y", "ys"])
    settings = Settings(dict(whole.opset_imports))

    def fn(x, limit, want="y"):
        return evaluate(whole.graph, {"m": np.int32(9), "x": x, "limit": limit}, [want], settings)[want]

    assert fn(jnp.float32(2), jnp.float32(10), "ys").shape == (3,)
    with pytest.raises(popart_exception, match="known only at run time"):
        jax.jit(lambda a, b: fn(a, b, "ys"))(jnp.float32(2), jnp.float32(10))
    plain = subgraph("plain", nodes[:2], ["i", "c", "v"], ["go", "w"])
    m = graph([helper.make_node("Loop", ["m", "", "x"], ["y"], body=plain)], ["m", "x", "limit"], ["y"])

    def last(x, limit):
        return evaluate(m.graph, {"m": np.int32(9), "x": x, "limit": limit}, ["y"], settings)["y"]

    assert jax.jit(last)(jnp.float32(2), jnp.float32(10)) == 16  # 2^4: four passes until 16 >= 10
    assert jax.jit(jax.grad(last))(jnp.float32(2), jnp.float32(10)) == 32


def test_if_picks_known_branches_and_differentiates_unknown_ones():
    then = subgraph("then", [helper.make_node("Mul", ["x", "x"], ["t"])], [], ["t"])
    other = subgraph("else", [helper.make_node("Neg", ["x"], ["e"])], [], ["e"])
    m = graph([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)], ["c", "x"], ["y"])
    fn = lambda c, x: evaluate(m.graph, {"c": c, "x": x}, ["y"], Settings(dict(m.opset_imports)))["y"]  # noqa: E731
    slope = jax.jit(jax.grad(fn, argnums=1))
    assert slope(jnp.array(True), jnp.float32(3)) == 6
    assert slope(jnp.array([False]), jnp.float32(3)) == -1
    assert "cond" not in str(jax.make_jaxpr(lambda x: fn(np.array(True), x))(1.0))
    assert "cond" in str(jax.make_jaxpr(fn)(jnp.array(True), 1.0))


def _finish(y):
    jax.block_until_ready(y)
    jax.effects_barrier()


def test_branch_that_does_not_fit_fails_only_when_taken():
    then = subgraph("then", [helper.make_node("MatMul", ["x", "x"], ["t"])], [], ["t"])
    other = subgraph("else", [helper.make_node("Neg", ["x"], ["e"])], [], ["e"])
    m = graph([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)], ["c", "x"], ["y"])
    fn = jax.jit(lambda c, x: evaluate(m.graph, {"c": c, "x": x}, ["y"], Settings(dict(m.opset_imports)))["y"])
    x = f32(2, 3)
    np.testing.assert_array_equal(fn(jnp.array(False), x), -x)
    with pytest.raises(Exception, match="does not fit"):
        _finish(fn(jnp.array(True), x))


def test_scan_with_axes_and_directions():
    nodes = [helper.make_node("Add", ["s", "a"], ["t"]), helper.make_node("Mul", ["t", "a"], ["o"])]
    body = subgraph("body", nodes, ["s", "a"], ["t", "o"])
    node = helper.make_node(
        "Scan", ["s0", "xs"], ["s1", "ys"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1], scan_output_directions=[0],
    )  # fmt: skip
    m = graph([node], ["s0", "xs"], ["s1", "ys"])
    fed = {"s0": f32(2), "xs": f32(2, 5)}
    found = evaluate(m.graph, fed, ["s1", "ys"], Settings(dict(m.opset_imports)))
    s, outs = fed["s0"], []
    for k in range(4, -1, -1):
        s = s + fed["xs"][:, k]
        outs.append(s * fed["xs"][:, k])
    np.testing.assert_allclose(found["s1"], s, rtol=1e-5)
    np.testing.assert_allclose(found["ys"], np.stack(outs, 1), rtol=1e-5)


def test_loop_with_growing_shapes_is_unrolled():
    nodes = [helper.make_node("Concat", ["v", "v"], ["w"], axis=0), helper.make_node("Identity", ["c"], ["go"])]
    body = subgraph("body", nodes, ["i", "c", "v"], ["go", "w"])
    m = graph([helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)], ["m", "x"], ["y"])
    fn = jax.jit(lambda x: evaluate(m.graph, {"m": np.int64(3), "x": x}, ["y"], Settings(dict(m.opset_imports)))["y"])
    assert fn(f32(2)).shape == (16,)


def test_fixed_loop_is_one_scan():
    nodes = [helper.make_node("Mul", ["v", "k"], ["w"]), helper.make_node("Identity", ["c"], ["go"])]
    body = subgraph("body", nodes, ["i", "c", "v"], ["go", "w"])
    m = graph([helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)], ["m", "x", "k"], ["y"])

    def fn(x, k):
        return evaluate(m.graph, {"m": np.int64(5), "x": x, "k": k}, ["y"], Settings(dict(m.opset_imports)))["y"]

    assert str(jax.make_jaxpr(fn)(1.0, 2.0)).count("scan[") == 1
    assert jax.jit(jax.grad(fn, 1))(jnp.float32(1), jnp.float32(2)) == 80


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_sum_takes_what_add_takes(dtype):
    """PopART makes Adds of it; ONNX's takes floats alone."""
    x, y = np.array([250, 3], dtype), np.array([7, 4], dtype)
    np.testing.assert_array_equal(run("Sum", [x, y, x], settings=POPART)[0], x + y + x)
    with pytest.raises(NodeError, match="takes"):
        run("Sum", [x, y])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_activations_of_integers_drop_the_fractions(dtype):
    """PopART's take integers, ONNX's don't; those that neither takes are refused."""
    kinds = {
        "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "Selu": lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x)),
        "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
        "Softplus": lambda x: np.log1p(np.exp(x)),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    }
    x = np.array([7, 1, 0] if dtype is np.uint8 else [-7, -1, 5], dtype)
    whole = graph([helper.make_node(kind, ["x"], [kind]) for kind in kinds], ["x"], kinds)
    settings = Settings(dict(whole.opset_imports), popart=True)
    found = jax.jit(lambda x: evaluate(whole.graph, {"x": x}, list(kinds), settings))(x)
    for kind, reference in kinds.items():
        assert found[kind].dtype == dtype
        np.testing.assert_array_equal(found[kind], np.trunc(reference(x.astype(float))).astype(dtype), err_msg=kind)
        with pytest.raises(NodeError, match="takes"):
            run(kind, [x])
    with pytest.raises(NodeError, match="takes"):
        run("Sigmoid", [x], settings=POPART)
