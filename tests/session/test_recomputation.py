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
from popart_jax.execution.micro import run_micro_batch
from popart_jax.ops.kernels import IPU, tracing_for

from ..platforms import ON_CPUS
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


def run_again(session: popart.TrainingSession, place: str = IPU) -> tuple[int, int]:
    """How many products and sines run again in the backward pass."""
    function, given = step(session)
    with tracing_for(place):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    again = [e.primitive.name for e in equations(jaxpr) if "rematted_computation" in str(e.source_info.name_stack)]
    return again.count("dot_general"), again.count("sin")


CASES = {
    "Standard": ("Standard", ()),
    "all": ("RecomputeAll", ()),
    "norms": ("NormOnly", ()),
    "annotated sine": ("NoRecompute", ("first sine",)),
    "annotated products": ("NoRecompute", ("first product", "second product")),
    "annotated block": ("NoRecompute", ("first product", "first sine")),
}


@pytest.mark.parametrize("place", [IPU, "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_marked_runs_again_and_nothing_else(case: str, place: str) -> None:
    mode, again = CASES[case]
    session, names = built(mode, *again)
    marked = listed(session, names)
    assert marked >= set(again)
    products = len(marked & {"first product", "second product"})  # the sines' slopes need their results
    assert run_again(session, place) == (products, "first sine" in marked)  # nothing reads the last sine's result


def test_without_marks_everything_is_kept() -> None:
    program = built()[0]._parts.prepared.program
    assert program.training is not None
    assert not program.training.again


@pytest.mark.parametrize("place", [IPU, "cpu"])
@pytest.mark.parametrize("case", ["Standard", "all", "annotated block"])
def test_gradients_do_not_change(case: str, place: str) -> None:
    mode, again = CASES[case]
    found = []
    for session, _ in (built(mode, *again), built()):
        function, given = step(session)
        rng = np.random.default_rng(1)
        bound = {n: rng.normal(size=t.shape).astype(t.dtype) for n, t in given.items()}
        with tracing_for(place):
            found.append(jax.jit(function)(bound))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *found)


@pytest.mark.parametrize("mode", ["NoRecompute", "RecomputeAll"])
def test_what_is_drawn_is_drawn_alike_again(mode: str) -> None:
    """The gradient of a mean of ``2 (x w) * mask`` is the mask's, whatever runs again in a loop over micro-batches."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64]))
    weight = builder.addInitializedInputTensor(np.ones(64, np.float32), "w")
    kept = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, weight])], 1, 0.5)[0]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([kept, kept])], reduction=popart.ReductionType.Sum)
    flow = nets.flow(3, {kept: "All", "Gradient___w": "All"})
    options = nets.make_options(autoRecomputation=popart.RecomputationType[mode])
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, nets.sgd(0.0, const=False), nets.device(), userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones((3, 64), np.float32)}, anchors))
    assert set(np.unique(anchors[kept])) == {0, 2}
    np.testing.assert_array_equal(anchors["Gradient___w"], 4 * anchors[kept])  # 2 * kept * the mask's factor of 2


def test_blocks_run_again_one_after_the_other() -> None:
    """Each when its gradient arrives, from what is kept at its start."""
    session, _ = built("NoRecompute", "first product", "second product")
    function, given = step(session)
    with tracing_for(IPU):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    order = [e for e in equations(jaxpr) if e.primitive.name == "dot_general"]
    again = ["rematted_computation" in str(e.source_info.name_stack) for e in order]
    assert again == [False, False, True, False, False, True, False]  # two gradients of the second, one of the first
    assert sum(e.primitive.name == "optimization_barrier" for e in jaxpr.eqns) == 2


def peak(mode: str, *again: int) -> int:
    """Temporary memory of a compiled step: 4 layers with norms; of those `again` all three ops are annotated."""
    builder, rng = popart.Builder(), np.random.default_rng(0)
    value = builder.addInputTensor(popart.TensorInfo("FLOAT", [256, 16]))
    scale, bias = (builder.addInitializedInputTensor(rng.normal(size=16).astype(np.float32)) for _ in range(2))
    for layer in range(4):
        weight = builder.addInitializedInputTensor(rng.normal(size=(16, 16)).astype(np.float32))
        product = builder.aiOnnx.matmul([value, weight])
        norm = builder.aiGraphcore.groupnormalization([product, scale, bias], 1)
        value = builder.aiOnnx.relu([norm[0]])
        for results in ({product}, set(norm), {value}) if layer in again else ():
            builder.recomputeOutputInBackwardPass(results)
    loss = builder.aiGraphcore.l1loss([value], 0.1)
    options = nets.make_options(autoRecomputation=popart.RecomputationType[mode])
    session = popart.TrainingSession(
        builder.getModelProto(), nets.flow(1, {loss: "All"}), loss, nets.sgd(), nets.device(), userOptions=options
    )
    function, given = step(session)
    with tracing_for("cpu"):
        memory: Any = jax.jit(function).lower(given).compile().memory_analysis()
    return memory.temp_size_in_bytes


@pytest.fixture(scope="module")
def plain_peak() -> int:
    return peak("NoRecompute")


@ON_CPUS
@pytest.mark.parametrize(
    ("mode", "again", "least", "most"),
    [
        ("NormOnly", (), 0.4, 0.8),
        ("Standard", (), 0.4, 0.9),
        ("NoRecompute", (0, 2), 0.4, 0.8),
        ("RecomputeAll", (), 0.9, 1.2),  # all is made again at once, before the first gradient
    ],
)
def test_memory_follows_the_marks(
    mode: str, again: tuple[int, ...], least: float, most: float, plain_peak: int
) -> None:
    assert least * plain_peak < peak(mode, *again) < most * plain_peak


@pytest.mark.parametrize("by", ["operator", "environment"])
@pytest.mark.parametrize(("place", "call"), [(IPU, "pure_callback"), ("cpu", "io_callback"), ("gpu", "io_callback")])
def test_steps_that_print_run_all_but_the_prints_again(
    monkeypatch: pytest.MonkeyPatch, by: str, place: str, call: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("POPART_OPX_TRACE", "1")
    session, _ = built("RecomputeAll", printed=by == "operator")
    function, given = step(session)
    with tracing_for(place):
        jaxpr = jax.make_jaxpr(function)(given).jaxpr
    again = [e for e in equations(jaxpr) if "rematted_computation" in str(e.source_info.name_stack)]
    assert "sin" in [e.primitive.name for e in again]
    assert call not in [e.primitive.name for e in again]
    calls = sum(e.primitive.name == call for e in equations(jaxpr))
    assert calls >= len(STEPS) if by == "environment" else calls == 2 * len(STEPS)  # values and their gradients


def test_a_print_prints_once(capfd: pytest.CaptureFixture[str]) -> None:
    session, _ = built("RecomputeAll", printed=True)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"input": np.ones((2, 4), np.float32)}, anchors))
    shown = capfd.readouterr().err
    assert (shown.count(": [["), shown.count("Gradient___")) == (2 * len(STEPS), len(STEPS))


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
