"""The backward pass computes again what the op list marks, and reads what else it needs as it was kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import popart_jax as popart
from popart_jax._compat.jax import Literal
from popart_jax.execution.micro import run_micro_batch
from popart_jax.ops.kernels import IPU, tracing_for

from . import nets

STEPS = ("first product", "first sine", "second product", "second sine")  # gradients need the operands of each


def built(
    mode: str = "NoRecompute", *again: str, printed: bool = False
) -> tuple[popart.TrainingSession, dict[str, str]]:
    """A session, and which step makes a tensor; the steps `again` are annotated."""
    builder, rng = popart.Builder(), np.random.default_rng(0)
    value, names = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4])), {}
    for step in STEPS:
        if step.endswith("product"):
            weight = builder.addInitializedInputTensor(rng.normal(size=(4, 4)).astype(np.float32))
            value = builder.aiOnnx.matmul([value, weight])
        else:
            value = builder.aiOnnx.sin([value])
        names[value] = step
        if printed:
            value = builder.aiGraphcore.printtensor([value])
        if step in again:
            builder.recomputeOutputInBackwardPass(value)
    loss = builder.aiGraphcore.identityloss([value])
    options = nets.make_options(autoRecomputation=popart.RecomputationType[mode], enableOutlining=False)
    flow = nets.flow(1, {loss: "All"})
    proto = builder.getModelProto()
    session = popart.TrainingSession(proto, flow, loss, nets.sgd(), nets.device(), userOptions=options)
    return session, names


def listed(session: popart.TrainingSession, names: dict[str, str]) -> set[str]:
    """Steps that the op list marks."""
    ops = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    marked = [o["name"] for op in ops if op["attributes"]["recompute"] == "YES" for o in op["outputs"]]
    return {names[n] for n in marked if n in names}


def equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from equations(inner)


def step(session: popart.TrainingSession) -> tuple[Callable[..., Any], dict[str, jax.ShapeDtypeStruct]]:
    """The gradients of a step as a function of its operands, and their types."""
    program = session._parts.prepared.program
    types = {**program.streams, **{n: v.type for n, v in program.variables.items()}}
    given = {n: jax.ShapeDtypeStruct(t.shape, t.dtype) for n, t in types.items()}
    return lambda bound: run_micro_batch(program, bound, np.float32(1), None).gradients, given


def traced(session: popart.TrainingSession, names: dict[str, str]) -> tuple[set[str], int]:
    """Steps whose results the backward pass reads, and how many sines it computes again."""
    function, given = step(session)
    with tracing_for(IPU):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    backward = [e for e in jaxpr.eqns if e.primitive.name == "remat2"]
    makers = {v: e for e in jaxpr.eqns for v in e.outvars}
    read = set()
    for value in (v for e in backward for v in e.invars if not isinstance(v, Literal)):
        while value in makers and makers[value].primitive.name == "reduce_precision":
            (value,) = makers[value].invars
        if value in makers and makers[value].primitive.name == "name":
            read.add(names[makers[value].params["name"]])
    return read, sum(e.primitive.name == "sin" for b in backward for e in equations(b.params["jaxpr"]))


CASES = {
    "Standard": ("Standard", ()),
    "all": ("RecomputeAll", ()),
    "norms": ("NormOnly", ()),
    "annotated sine": ("NoRecompute", ("first sine",)),
    "annotated products": ("NoRecompute", ("first product", "second product")),
    "annotated block": ("NoRecompute", ("first product", "first sine")),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_marked_is_computed_again(case: str) -> None:
    mode, again = CASES[case]
    session, names = built(mode, *again)
    marked = listed(session, names)
    assert marked >= set(again)
    read, sines = traced(session, names)
    needed = {"first product", "first sine", "second product"}  # nothing reads the result of the last step
    assert read == needed - marked
    assert sines == ("first sine" in marked)


def test_without_marks_everything_is_kept() -> None:
    session, _ = built()
    assert session._parts.prepared.program.training.saved is None


@pytest.mark.parametrize("case", CASES)
def test_gradients_do_not_change(case: str) -> None:
    mode, again = CASES[case]
    found = []
    for session, _ in (built(mode, *again), built()):
        function, given = step(session)
        rng = np.random.default_rng(1)
        bound = {n: rng.normal(size=t.shape).astype(t.dtype) for n, t in given.items()}
        with tracing_for(IPU):
            found.append(jax.jit(function)(bound))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *found)


def test_blocks_are_computed_again_one_after_the_other() -> None:
    """Where all that is read later is kept, a segment ends."""
    session, _ = built("NoRecompute", "first product", "second product")
    function, given = step(session)
    with tracing_for(IPU):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    assert sum(e.primitive.name == "remat2" for e in jaxpr.eqns) == 2
    with tracing_for("cpu"):
        jaxpr = jax.make_jaxpr(step(session)[0])(given).jaxpr
    assert all(e.primitive.name != "remat2" for e in jaxpr.eqns)


@pytest.mark.parametrize("by", ["operator", "environment"])
@pytest.mark.parametrize(("place", "again"), [(IPU, True), ("gpu", False)])
def test_steps_that_print_are_priced_with_recomputation_and_run_without(
    monkeypatch: pytest.MonkeyPatch, by: str, place: str, again: bool
) -> None:
    if by == "environment":
        monkeypatch.setenv("POPART_OPX_TRACE", "1")
    session, _ = built("RecomputeAll", printed=by == "operator")
    function, given = step(session)
    with tracing_for(place):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    made = [e.primitive.name for e in equations(jaxpr)]
    assert ("remat2" in made) == again
    assert ("pure_callback" if again else "io_callback") in made


def test_the_report_says_that_prints_are_not_counted() -> None:
    session, _ = built("RecomputeAll", printed=True)
    session.prepareDevice()
    assert "callback(s) into Python: nothing is counted" in session.getSummaryReport()


def test_a_print_makes_nothing_else_run_again() -> None:
    products = []
    for printed in (False, True):
        function, given = step(built("RecomputeAll", printed=printed)[0])
        with tracing_for(IPU):
            jaxpr = jax.make_jaxpr(function)(given).jaxpr
        products.append(sum(e.primitive.name == "dot_general" for e in equations(jaxpr)))
    assert products[0] == products[1]
