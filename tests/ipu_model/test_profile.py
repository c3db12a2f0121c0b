"""Profiles of JAX functions: laws of the costs, phases, branches, plug-ins, differentiability."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import ipu_model
from ipu_model.costs import Context, rules
from ipu_model.walk import Op, tensor


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def f16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float16)


def mlp(p, x):
    return jnp.tanh(x @ p[0]) @ p[1]


@pytest.mark.parametrize("target", ["mk1", "mk2", "bow"])
def test_profile_of_a_function_on_every_target(target):
    r = ipu_model.profile(mlp, (f32(256, 512), f32(512, 64)), f32(128, 256), target=target)
    assert r.fits
    assert not r.unpriced
    assert r.total_cycles == pytest.approx(r.cycles.total)
    assert r.cycles.total == pytest.approx(sum(c.total for c in r.phases.values()))
    assert r.cycles.total == pytest.approx(sum(o.cycles.total for o in r.operations))
    assert r.cycles.total == pytest.approx(sum(s.cycles.total * s.trips for s in r.steps))
    assert r.cycles.flops >= 2 * 128 * (256 * 512 + 512 * 64)


def test_shapes_only_no_arrays_and_name():
    assert ipu_model.profile(mlp, (f32(8, 8), f32(8, 8)), f32(8, 8)).name == "mlp"


class Layer:
    """A module as libraries make them: a tree of weights and of the function behind them."""

    def __init__(self, weights, then):
        self.weights, self.then = weights, then

    def __call__(self, x):
        return self.then(x @ self.weights)


jax.tree_util.register_pytree_node(Layer, lambda m: ((m.weights, m.then), None), lambda _, parts: Layer(*parts))


def test_modules_among_the_arguments_keep_what_is_no_array():
    x, layer = jnp.ones((8, 16)), Layer(jax.ShapeDtypeStruct((16, 4), jnp.float32), jnp.tanh)
    report = ipu_model.profile(lambda m, x: m(x), layer, x)
    plain = ipu_model.profile(lambda w, x: jnp.tanh(x @ w), layer.weights, x)
    assert report.total_cycles == plain.total_cycles
    assert {"m[<flat index 0>]", "x"} <= {v.name for v in report.memory.variables}
    assert ipu_model.profile(jax.vmap(Layer(jnp.ones((16, 4)), jnp.tanh)), x).name == "Layer"


def test_a_loop_of_unknown_length_is_said_in_the_first_line():
    def run(x):
        return lax.while_loop(lambda c: c[0] < x.sum(), lambda c: (c[0] + 1, c[1] * 2), (0.0, x))

    assert "1 note in summary()" in str(ipu_model.profile(run, jnp.ones(8))).splitlines()[0]
    assert "note" not in str(ipu_model.profile(jnp.tanh, jnp.ones(8)))


def test_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="unknown option"):
        ipu_model.profile(mlp, (f32(8, 8), f32(8, 8)), f32(8, 8), recompute=True)


UNARY = ("exp", "tanh", "sin", "sqrt", "abs", "negative", "floor")


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(UNARY), st.integers(1, 5), st.integers(50_000, 60_000), st.integers(1, 7))
def test_cost_never_falls_when_a_tensor_grows(name, rows, columns, factor):
    fn = getattr(jnp, name)
    small = ipu_model.profile(fn, f32(rows, columns)).cycles.total
    large = ipu_model.profile(fn, f32(rows * factor, columns)).cycles.total
    assert large >= small


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 9), st.integers(1, 9))
def test_splitting_a_loop_adds_up(a, b):
    def loop(n):
        return lambda x: lax.fori_loop(0, n, lambda _, c: jnp.sin(c), x)

    def cycles(n):
        return ipu_model.profile(loop(n), f32(64)).cycles.total

    assert cycles(a) + cycles(b) == pytest.approx(cycles(a + b))


def test_only_the_dearest_branch_counts():
    def fn(p, x):
        return lax.cond(p, lambda v: jnp.sin(v), lambda v: v + 1.0, x)

    r = ipu_model.profile(fn, jax.ShapeDtypeStruct((), bool), f32(4096))
    assert any("branches" in a for a in r.assumptions)
    trips = {s.primitive: s.trips for s in r.steps}
    assert trips["sin"] == 1
    assert trips["add"] == 0


def test_a_primitive_without_rule_is_listed_and_not_free():
    from jax.extend.core import Primitive

    p = Primitive("mystery")
    p.def_abstract_eval(lambda a: a)
    r = ipu_model.profile(lambda x: p.bind(x), f32(4096))
    assert r.unpriced == {"mystery": 1}
    assert r.cycles.total > ipu_model.profile(jnp.abs, f32(4096)).cycles.total
    assert "mystery x1" in r.summary()


def test_fusion_within_one_node_saves_launches_and_memory():
    def fn(x):
        with jax.named_scope("onnx[gelu]"):
            return jnp.tanh(x * 2.0) + 1.0

    on = ipu_model.profile(fn, f32(100_000))
    off = ipu_model.profile(fn, f32(100_000), fuse_elementwise=False)
    assert on.cycles.total < off.cycles.total
    assert sum(s.fused for s in on.steps) == 2


def test_half_data_is_added_up_without_a_copy_in_float():
    def sums(x):
        return x.astype(jnp.float32).sum(1)

    fused, apart = (ipu_model.profile(sums, f16(4096, 512), fuse_elementwise=on) for on in (True, False))
    plain = ipu_model.profile(lambda x: lax.reduce_sum(x, (1,)), f16(4096, 512))
    assert fused.cycles == plain.cycles
    assert fused.cycles.total < apart.cycles.total
    assert fused.memory.total < apart.memory.total - 3 * 4096 * 512
    both = ipu_model.profile(lambda x: (sums(x), x.astype(jnp.float32)), f16(4096, 512))
    assert "Cast" in both.summary(show_execution_steps=True)


def test_transposed_operand_costs_an_exchange_only_where_layouts_meet():
    square = f32(256, 256)
    same = ipu_model.profile(lambda x, y: x.T + y.T, square, square).cycles
    mixed = ipu_model.profile(lambda x, y: x.T + y, square, square).cycles
    back = ipu_model.profile(lambda x, y: x.T.T + y, square, square).cycles
    assert same.exchange == 0
    assert back.exchange == 0
    assert mixed.exchange > 0


def test_matmul_phases_and_passes():
    def step(w, x, y):
        return jax.grad(lambda w, x: ((x @ w - y) ** 2).sum(), argnums=(0, 1))(w, x)

    r = ipu_model.profile(step, f16(256, 512), f16(64, 256), f16(64, 512))
    dots = [s for s in r.steps if s.primitive == "dot_general"]
    assert [d.phase for d in dots] == ["forward", "backward", "backward"]
    assert {d.cycles.flops for d in dots} == {2 * 64 * 256 * 512}


def test_convolution_names_follow_the_library():
    def loss(w, x):
        with jax.named_scope("onnx[conv]"):
            return lax.conv_general_dilated(x, w, (1, 1), "SAME").sum()

    r = ipu_model.profile(jax.grad(loss, argnums=(0, 1)), f16(32, 16, 3, 3), f16(2, 16, 14, 14))
    text = r.summary(show_execution_steps=True)
    assert "OnTileExecute: conv/convolution/Conv_3x3/Convolve" in text
    assert "OnTileExecute: conv/weightDeltas/Conv_14x14/Convolve" in text
    assert "poplin::ConvPartial" in text


def convnet(w, x, p):
    with jax.named_scope("onnx[conv]"):
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME")
    with jax.named_scope("onnx[pool]"):
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = lax.cond(p, jnp.tanh, lambda v: v * 2.0, x)
    x, _ = lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)
    return (x.reshape(2, -1) @ jnp.ones((8 * 49, 10))).sum()


LEAVES = (
    "sync_cycles",
    "supervisor_cycles",
    "exchange_bytes_per_cycle",
    "exchange_setup_cycles",
    "memcpy_bytes_per_cycle",
    "host_in_bytes_per_second",
    "clock_hz",
    "links_per_ipu",
    "external_sync_cycles",
)


@pytest.mark.parametrize("pipelined", [False, True])
def test_gradient_of_cycles_with_respect_to_the_hardware(pipelined):
    def step(w, x, p):
        g = jax.grad(convnet)(w, x, p)
        with jax.named_scope("update"):
            return w - 0.1 * lax.psum(g, "replica")

    args = (np.ones((8, 4, 3, 3), np.float32), np.ones((2, 4, 14, 14), np.float32), True)
    jaxpr = jax.make_jaxpr(step, axis_env=[("replica", 4)])(*args)
    options = ipu_model.ModelOptions(replicas=4, batches_per_step=3)
    nodes = {"conv": ipu_model.NodePlacement(0, 0), "pool": ipu_model.NodePlacement(1, 1)}
    placement = ipu_model.Placement(nodes, 2, pipelined)
    inputs = [ipu_model.Argument("w", "weight"), ipu_model.Argument("x", "stream")]
    program = ipu_model.trace(jaxpr, options=options, inputs=inputs, placement=placement)
    target = ipu_model.get_target("mk2")

    def total(t):
        return ipu_model.cycles(program, t, options=options, placement=placement)

    g = jax.grad(total)(target)
    for name in LEAVES:
        step_size = 1e-4 * getattr(target, name)
        up, down = (total(target.replace(**{name: getattr(target, name) + s})) for s in (step_size, -step_size))
        assert float(getattr(g, name)) == pytest.approx((up - down) / (2 * step_size), rel=1e-3, abs=1e-12), name
    for name in ("conv.compute", "conv.passes", "conv.weight_exchange"):
        moved = [total(target.with_fitted({name: target.fitted[name] * f})) for f in (1.0001, 0.9999)]
        slope = (moved[0] - moved[1]) / (2e-4 * target.fitted[name])
        assert float(g.fitted[name]) == pytest.approx(slope, rel=1e-3)


def test_runs_of_rows_with_a_matrix_each_are_a_grouped_product():
    sizes = jax.ShapeDtypeStruct((4,), jnp.int32)
    grouped = ipu_model.profile(jnp.matmul, f16(4, 64, 32), f16(4, 32, 128))

    def run(a, b, g):
        return lax.ragged_dot(a, b, g)

    def update(a, b, g):
        return jax.grad(lambda b: lax.ragged_dot(a, b, g).astype(jnp.float32).sum())(b)

    ragged = ipu_model.profile(run, f16(256, 32), f16(4, 32, 128), sizes)
    assert ragged.cycles == grouped.cycles
    back = ipu_model.profile(update, f16(256, 32), f16(4, 32, 128), sizes)
    assert back.cycles.flops >= ragged.cycles.flops
    assert not back.unpriced


def test_counters_are_control_code_not_vertices():
    def fn(x, i):
        i = (i + 1) // 3
        with jax.named_scope("onnx[node]"):
            j = i // 3
        return lax.dynamic_index_in_dim(x, i + j, keepdims=False)

    r = ipu_model.profile(fn, f32(8, 64), jax.ShapeDtypeStruct((), jnp.int32))
    counted = {(s.node, s.primitive): s.cycles.total for s in r.steps if s.primitive == "div"}
    assert counted["", "div"] == ipu_model.get_target("mk2").supervisor_cycles
    assert counted["node", "div"] > 1000


def test_smooth_maximum_is_an_upper_bound_that_tightens():
    x = np.ones((64, 64))
    program = ipu_model.trace(jax.make_jaxpr(mlp)((x, x), x))
    target = ipu_model.get_target("mk2")
    nodes = {"a": ipu_model.NodePlacement(0, 0)}
    placement = ipu_model.Placement(nodes, 2, pipelined=True)

    def total(width):
        options = ipu_model.ModelOptions(smooth=width, batches_per_step=4)
        return float(ipu_model.cycles(program, target, options=options, placement=placement))

    assert total(0.0) <= total(1.0) * (1 + 1e-6)
    assert total(1.0) < total(1000.0)
    assert total(1e-3) == pytest.approx(total(0.0), rel=1e-6)


def test_ten_thousand_equations_stay_quick():
    def fn(x):
        for _ in range(5000):
            x = jnp.sin(x) + 1.0
        return x

    jaxpr = jax.make_jaxpr(fn)(f32(64))
    import time

    start = time.process_time()
    r = ipu_model.profile_jaxpr(jaxpr)
    assert len(r.steps) == 10_000
    assert time.process_time() - start < 15


def op(primitive, ins, outs, **params):
    return Op(primitive, tuple(tensor(*i) for i in ins), tuple(tensor(*o) for o in outs), params)


def test_ring_all_reduce_follows_its_formula():
    target = ipu_model.get_target("mk2")
    ctx = Context(target)
    n, size = 8, 1 << 20
    data = ((size,), "float32")
    price = rules()["psum"](op("psum", [data], [data], axis_size=n), ctx)
    wire = 2 * (n - 1) / n * size * 4 / (target.link_rate / target.clock_hz)
    expected = wire + 2 * (n - 1) * target.external_sync_cycles
    assert price.supersteps[0].inter_ipu == pytest.approx(expected)


def test_collectives_of_a_traced_axis():
    jaxpr = jax.make_jaxpr(lambda x: lax.psum(x, "replica"), axis_env=[("replica", 4)])(np.ones((1000,), np.float32))
    alone = ipu_model.profile_jaxpr(jaxpr)
    four = ipu_model.profile_jaxpr(jaxpr, options=ipu_model.ModelOptions(replicas=4))
    assert alone.cycles.inter_ipu == 0
    assert four.cycles.inter_ipu > 0


def test_every_primitive_of_jax_lax_that_we_lower_to_has_a_rule():
    x = np.abs(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    i = np.arange(8, dtype=np.int32)
    samples = [
        lambda a: jnp.sort(a, axis=0),
        lambda a: lax.top_k(a, 3),
        jnp.cumsum,
        jnp.linalg.cholesky,
        lambda a: jnp.linalg.solve(a, a),
        lambda a: a[i][:, i],
        lambda a: a.at[i].add(1.0),
        lambda a: jnp.pad(a, 1),
        lambda a: jnp.argmax(a, 1),
        lambda a: jax.random.normal(jax.random.key(0), (8,)) + a,
        lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (2, 2), "VALID"),
        jax.scipy.special.erf,
        lambda a: jnp.where(a > 0, a, -a),
        lambda a: jnp.concatenate([a, a]),
        lambda a: jnp.clip(a, 0, 1),
        jax.nn.softmax,
        jnp.fft.fft,
        jnp.linalg.svd,
        lambda a: lax.dynamic_slice(a, (i[0], i[0]), (2, 2)),
        lambda a: jax.image.resize(a, (16, 16), "linear"),
        lambda a: jnp.einsum("ij,kj->ik", a, a),
        jnp.prod,
        jax.scipy.special.gammaln,
        lambda a: jnp.tile(a, (2, 3)),
        lambda a: jnp.unstack(a)[0],
        lambda a: jnp.roll(a, 2, 0),
        lambda a: lax.ragged_dot(a, jnp.stack([a, a]), jnp.asarray([3, 5], jnp.int32)),
        lambda a: lax.mulhi(a.astype(jnp.uint32), a.astype(jnp.uint32)),
        lambda a: jax.debug.print("{}", a),
    ]
    for fn in samples:
        assert not ipu_model.profile(fn, x).unpriced


def test_callbacks_into_python_are_noted():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    report = ipu_model.profile(lambda x: jax.pure_callback(np.sin, x, x) + 1, x)
    assert report.assumptions == ("1 callback(s) into Python: nothing is counted for them, nor for moving their data",)
    assert "1 note in summary()" in str(report)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"target": 3}, "a registered name or an ipu_model.Target, not 3"),
        ({"options": {"io_tiles": 32}}, "options are an ipu_model.ModelOptions"),
        ({"w": 1}, "arguments of the function go by position"),
    ],
)
def test_wrong_arguments_are_named(how, text):
    with pytest.raises(TypeError, match=text):
        ipu_model.profile(jnp.sin, jnp.ones(4), **how)
