"""Functions as users have them: jitted with static and donated arguments, partial, with trees, wrong."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import export

import ipu_model

BIG = jax.ShapeDtypeStruct((1 << 20,), jnp.float32)
SMALL = jax.ShapeDtypeStruct((8,), jnp.float16)


def step(state, rate, gradient):
    """One step of descent, and the size of the gradient."""
    return {name: state[name] - rate * gradient[name] for name in state}, gradient["b"].sum()


TREE = {"b": BIG, "s": SMALL}


def names(report):
    return [v.name for v in report.memory.variables if v.kind == "inputs"]


def test_donated_arguments_are_written_over():
    kept, donated = (
        ipu_model.profile(jax.jit(step, static_argnums=1, donate_argnums=which), TREE, 0.1, TREE)
        for which in ((), (0,))
    )
    assert kept.memory.total - donated.memory.total == pytest.approx(4 << 20, rel=0.01)
    assert kept.total_cycles == donated.total_cycles
    assert names(donated) == names(kept) == ["state['b']", "gradient['b']", "state['s']", "gradient['s']"]


def test_a_donated_argument_without_a_result_of_its_type_stays():
    fn = jax.jit(lambda x, y: (x.sum(), y * 2), donate_argnums=(0, 1))
    report = ipu_model.profile(fn, BIG, BIG)
    assert report.memory.total == ipu_model.profile(jax.jit(fn, donate_argnums=1), BIG, BIG).memory.total


def test_a_donation_inside_of_a_function_has_no_effect():
    """XLA takes donations of whole programs only."""
    inner = jax.jit(lambda x: x * 2, donate_argnums=0)
    within, plain = (ipu_model.profile(fn, BIG).memory.total for fn in (lambda x: inner(x), lambda x: x * 2))
    assert within == plain


def test_a_search_sees_donations():
    def program(n):
        return jax.jit(lambda x: x * 2, donate_argnums=0), jax.ShapeDtypeStruct((n << 20,), jnp.float32)

    kept = ipu_model.search(
        lambda n: (lambda x: x * 2, program(n)[1]), {"n": (1, 300)}, objective=lambda r: -r.cycles.flops
    )
    found = ipu_model.search(program, {"n": (1, 300)}, objective=lambda r: -r.cycles.flops)
    assert found.sizes["n"] == pytest.approx(2 * kept.sizes["n"], rel=0.02)


def test_static_arguments_of_any_kind():
    def fn(mode, x):
        return jnp.tanh(x) if mode == "tanh" else x

    report = ipu_model.profile(jax.jit(fn, static_argnums=0), "tanh", SMALL)
    assert (report.name, names(report)) == ("fn", ["x"])
    assert [row.primitives for row in report.operations] == [("tanh",)]
    assert ipu_model.profile(functools.partial(fn, "tanh"), SMALL).name == "fn"


def test_a_traced_function_is_a_jaxpr_too():
    made = jax.jit(jnp.tanh).trace(SMALL)
    assert ipu_model.profile_jaxpr(made) == ipu_model.profile_jaxpr(made.jaxpr)


@pytest.mark.parametrize(
    ("fn", "args", "kind", "told"),
    [
        (3, (SMALL,), TypeError, "fn is 3, expected a function"),
        (jax.jit(jnp.matmul), (BIG, SMALL), TypeError, "contracting dimensions"),
        (jnp.tanh, (jax.ShapeDtypeStruct(export.symbolic_shape("b, 8"), jnp.float32),), ValueError,
         r"input 'x' has the sizes \(b, 8\), expected numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_priced(fn, args, kind, told):
    with pytest.raises(kind, match=told):
        ipu_model.profile(fn, *args)
