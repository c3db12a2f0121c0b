"""The walk: names, phases, trips, values; and the algebra of costs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import ipu_model
from ipu_model.cost import ZERO, Cost, Peak
from ipu_model.partition import linear, split_regions
from ipu_model.walk import scope


def trace(fn, *args, **how):
    return ipu_model.trace(jax.make_jaxpr(fn)(*args), **how)


@pytest.mark.parametrize(
    ("stack", "node", "phase", "path"),
    [
        ("onnx[fc1]", "fc1", "forward", ("fc1",)),
        ("jvp(onnx[/enc/fc1])", "/enc/fc1", "forward", ("/enc/fc1",)),
        ("transpose(jvp(onnx[a/b]))/onnx[c]", "c", "backward", ("a/b", "c")),
        ("update/mul", "", "update", ("update", "mul")),
        ("onnx[update]", "update", "forward", ("update",)),
        ("onnx[a(b)]", "a(b)", "forward", ("a(b)",)),
        ("onnx[x[0]]", "x[0]", "forward", ("x[0]",)),
        ("transpose(jvp(layer))/checkpoint/rematted_computation/onnx[y]", "y", "backward", ("layer", "y")),
        ("", "", "forward", ()),
    ],
)
def test_scope_of_a_name_stack(stack, node, phase, path):
    read = scope.read(stack)
    assert (read.node, read.phase, read.path) == (node, phase, path)


def test_glue_that_reads_gradients_belongs_to_the_backward_pass():
    def step(w, x):
        g = jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
        return w * 2.0, g + 1.0

    program = trace(step, jnp.ones((8, 8)), jnp.ones((4, 8)))
    assert [s.scope.phase for s in program.steps if s.op.primitive == "add"] == ["backward"]
    assert program.steps[-2].scope.phase == "forward"


def test_of_branches_by_platform_the_default_is_priced():
    """An IPU is none of the platforms that JAX names."""

    def by_platform(x):
        return lax.platform_dependent(x, cpu=lambda x: jnp.exp(jnp.sin(x)), default=jnp.tanh)

    x = jnp.ones((8, 8))
    program, expected = trace(lambda x: by_platform(x) + x, x), trace(lambda x: jnp.tanh(x) + x, x)
    ops = [s.op.primitive for s in program.steps if s.op.primitive != "platform_index"]
    assert ops == [s.op.primitive for s in expected.steps]
    assert not program.assumptions


def test_rematerialised_work_is_marked():
    assert scope.read("transpose(jvp(f))/checkpoint/rematted_computation").recomputed


def test_phases_of_a_training_step_with_a_loop_inside():
    def loss(w, x):
        def body(h, _):
            with jax.named_scope("onnx[inner]"):
                return jnp.tanh(h @ w), None

        with jax.named_scope("onnx[Loop]"):
            h, _ = lax.scan(body, x, None, length=5)
        return h.sum()

    def step(w, x):
        g = jax.grad(loss)(w, x)
        with jax.named_scope("update"):
            return w - 0.1 * g

    program = trace(step, jnp.ones((8, 8)), jnp.ones((4, 8)))
    dots = [s for s in program.steps if s.op.primitive == "dot_general"]
    assert [(s.scope.node, s.scope.phase, program.trips(s)) for s in dots] == [
        ("inner", "forward", 5),
        ("inner", "backward", 5),
        ("inner", "backward", 5),
    ]
    assert {s.scope.phase for s in program.steps if s.op.primitive == "sub"} >= {"update"}


def test_trips_multiply_through_nested_loops():
    def fn(x):
        return lax.fori_loop(0, 3, lambda _, a: lax.fori_loop(0, 4, lambda _, b: jnp.sin(b), a), x)

    program = trace(fn, jnp.ones(8))
    assert [program.trips(s) for s in program.steps if s.op.primitive == "sin"] == [12]
    assert not program.assumptions


def test_carried_values_of_a_while_that_nobody_reads_are_no_work():
    def loop(x, more):
        def body(carry):
            i, x, *rest = carry
            return (i + 1, jnp.tanh(x), *(jnp.sin(x) + r for r in rest))

        return lax.while_loop(lambda c: c[0] < 5, body, (0, x, *more))

    x = jnp.ones(64)
    alone = ipu_model.profile(lambda x: loop(x, ())[1], x)
    beside = ipu_model.profile(lambda x: loop(x, (x, x))[1], x)
    assert [s.primitive for s in beside.steps] == [s.primitive for s in alone.steps]
    assert beside.total_cycles == alone.total_cycles
    read = ipu_model.profile(lambda x: loop(x, (x, x))[1:3], x)
    assert [s.primitive for s in read.steps].count("sin") == 1


def test_unknown_while_is_reported_and_can_be_told():
    def fn(x):
        return lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x)

    program = trace(fn, jnp.ones(8))
    assert any("trip count not known" in a for a in program.assumptions)
    told = trace(fn, jnp.ones(8), options=ipu_model.ModelOptions(trip_counts={"*": 7}))
    assert {told.trips(s) for s in told.steps if s.op.primitive == "mul"} == {7}


def test_equal_equations_share_one_operation():
    def fn(x):
        for _ in range(20):
            x = jnp.sin(x)
        return x

    program = trace(fn, jnp.ones(8))
    assert len(program.steps) == 20
    assert len({id(s.op) for s in program.steps}) == 1


def test_stream_inputs_are_read_per_trip_and_take_no_device_memory():
    def fn(w, xs):
        return lax.scan(lambda c, x: (c + (w * x).sum(), c * x), 0.0, xs)

    A = ipu_model.Argument
    program = trace(
        fn, jnp.ones(16), jnp.ones((10, 16)),
        inputs=[A("w", "weight"), A("x", "stream")], outputs=[A("c"), A("y", "stream")],
    )  # fmt: skip
    kinds = {s.op.primitive: program.trips(s) for s in program.steps}
    assert kinds["host_read"] == 10
    assert kinds["host_write"] == 10
    assert "loop_slice" not in kinds


def test_a_stream_is_read_once_however_often_it_is_used():
    def fn(x):
        return (
            jnp.sum(x)
            + jax.jit(jnp.max)(x)
            + jnp.sin(x.reshape(4, 4)).sum()
            + lax.fori_loop(0, 3, lambda _, c: c + x[0], 0.0)
        )

    program = trace(fn, jnp.ones(16), inputs=[ipu_model.Argument("x", "stream")])
    assert [program.trips(s) for s in program.steps if s.op.primitive == "host_read"] == [1]


numbers = st.integers(0, 1000).map(float)
costs = st.builds(Cost, numbers, numbers, numbers, numbers, numbers, numbers, numbers)


@given(costs, costs, costs, st.integers(0, 50))
def test_cost_algebra(a, b, c, n):
    assert a + ZERO == a
    assert (a + b) + c == a + (b + c)
    assert (a + b) * n == a * n + b * n
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert (a | b).total <= (a + b).total
    assert (a + b).total == a.total + b.total


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 9))
def test_peak_is_a_maximum(a, b, n):
    assert Peak(a) + Peak(b) == Peak(max(a, b))
    assert Peak(a) * n == Peak(a)
    assert Peak(a) & Peak(b) == Peak(a + b)


@given(st.integers(1, 10_000), st.sampled_from((1, 2, 4, 16)), st.integers(1, 1472), st.sampled_from((0, 32, 64)))
def test_regions_cover_everything_evenly(n, grain, parts, minimum):
    s = split_regions(n, grain, parts, minimum)
    assert s.tiles * s.most >= n
    assert s.tiles <= parts
    assert (s.tiles - 1) * max(0, s.most - 2 * grain) <= n
    assert s.tiles == 1 or s.most >= min(minimum, n)


def test_linear_mapping_puts_at_least_128_bytes_on_a_tile():
    assert linear(64, 2, 1472).tiles == 1
    assert linear(1472 * 64, 2, 1472) == linear(1472 * 64, 2, 1472)
    assert linear(1472 * 64, 2, 1472).tiles == 1472
    assert linear(1472 * 64, 2, 1472).most == 64


def test_a_placed_program_is_that_of_a_walk_with_the_placement():
    def fn(p, x):
        for k in range(4):
            with jax.named_scope(f"layer{k}"):
                x = jnp.tanh(x @ p[k])
        x, _ = lax.scan(lambda h, _: (jnp.sin(h), None), x, None, length=3)
        return x.sum()

    nodes = {f"layer{k}": ipu_model.NodePlacement(k // 2, k // 2) for k in range(4)}
    placement = ipu_model.Placement(nodes, 2, pipelined=True)
    args = [jnp.ones((8, 8))] * 4, jnp.ones((8, 8))
    jaxpr = jax.make_jaxpr(jax.grad(fn))(*args)
    walked, placed = ipu_model.trace(jaxpr, placement=placement), ipu_model.trace(jaxpr).placed(placement)

    def facts(program):
        first = {}  # equal operations are one object, at equal places
        return [
            (
                first.setdefault(id(s.op), at), s.op.primitive, s.op.inputs, s.op.outputs, s.op.phase, s.op.attributes,
                s.scope, s.inputs, s.outputs, s.frame, s.line,
            )
            for at, s in enumerate(program.steps)
        ]  # fmt: skip

    assert facts(placed) == facts(walked)
    assert {s.op.attributes.ipu for s in placed.steps} == {0, 1}
    assert (placed.frames, placed.values, placed.carries) == (walked.frames, walked.values, walked.carries)


@pytest.mark.parametrize(
    ("fn", "plain"),
    [
        (lambda x: (x @ x, x + 1)[1], lambda x: x + 1),
        (lambda x: jax.jit(lambda y: (y @ y, y + 1))(x)[1], lambda x: jax.jit(lambda y: y + 1)(x)),
        (
            lambda x: lax.scan(lambda c, _: (c + 1, c @ c), x, None, length=3)[0],
            lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0],
        ),
    ],
)
def test_what_nothing_reads_is_not_priced(fn, plain):
    x = jnp.ones((8, 8))
    found, expected = ([s.op.primitive for s in trace(f, x).steps] for f in (fn, plain))
    assert found == expected


def test_what_has_an_effect_stays():
    def watched(x):
        jax.debug.print("{}", jnp.sin(x).sum())
        return x + 1

    steps = trace(watched, jnp.ones(8)).steps
    assert {"sin", "reduce_sum", "add"} < {s.op.primitive for s in steps}


def test_numbers_made_of_literals_alone_are_no_work():
    x = jnp.ones((8, 8), jnp.float16)
    assert [s.op.primitive for s in trace(lambda x: jnp.clip(x, 0, 6), x).steps] == ["max", "min"]
    assert "convert_element_type" not in {s.op.primitive for s in trace(lambda x: jnp.where(x > 1, x, 0), x).steps}
    assert [s.op.primitive for s in trace(lambda a, b: a * b, x[0, 0], x[0, 1]).steps] == ["mul"]
