"""Operators with an effect: Abort stops a run and leaves the state as it was, prints happen at every run."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import popart_jax as popart

from .tester import Recorder, session_of


def weights_of(session):
    values = {"w": np.zeros(2, np.float32)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(values))
    return values["w"]


def test_an_abort_that_fires_is_an_error_and_changes_no_weight():
    builder = Recorder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    x = builder.feed(np.ones(2, np.float32))
    limit = builder.aiOnnx.constant(np.array(5, np.float32))
    builder.aiGraphcore.abort([builder.aiOnnx.greater([builder.aiOnnx.reducemax([x], [0], 0), limit])])
    session = session_of(builder, [builder.aiOnnx.mul([x, w])], train=True, optimizer=popart.ConstSGD(0.5))
    step = popart.PyStepIO(builder.fed, session.initAnchorArrays())

    session.run(step)
    np.testing.assert_array_equal(weights_of(session), [0.5, 0.5])
    builder.fed[x][:] = 9
    for _ in range(2):
        with pytest.raises(popart.popart_runtime_error, match="stopped by an Abort operator") as error:
            session.run(step)
        assert isinstance(error.value, popart.poplar_application_runtime_error)
        np.testing.assert_array_equal(weights_of(session), [0.5, 0.5])
    builder.fed[x][:] = 1
    session.run(step)
    np.testing.assert_array_equal(weights_of(session), [0, 0])


def test_an_abort_late_in_a_long_run_changes_no_weight():
    """Such a run goes on when the call that started it has returned, unless it is waited for."""
    builder, size = Recorder(), 800
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    x = builder.feed(np.full((size, size), 1 / size, np.float32))
    y = x
    for _ in range(6):
        y = builder.aiOnnx.matmul([y, x])
    largest = builder.aiOnnx.reducemax([y], [0, 1], 0)
    builder.aiGraphcore.abort([builder.aiOnnx.greater([largest, builder.aiOnnx.constant(np.array(5, np.float32))])])
    session = session_of(builder, [builder.aiOnnx.mul([largest, w])], train=True, optimizer=popart.ConstSGD(size / 2))
    step = popart.PyStepIO(builder.fed, session.initAnchorArrays())
    session.run(step)
    before = weights_of(session).copy()
    assert np.all(before < 1)
    builder.fed[x][:] = 1
    for _ in range(3):  # the third goes straight to the program
        with pytest.raises(popart.popart_runtime_error, match="stopped by an Abort operator"):
            session.run(step)
        np.testing.assert_array_equal(weights_of(session), before)
    jax.effects_barrier()  # as at the end of the process


def test_without_an_input_it_always_fires():
    builder = Recorder()
    builder.aiGraphcore.abort()
    session = session_of(builder, [builder.aiOnnx.relu([builder.feed(np.ones(2, np.float32))])])
    with pytest.raises(popart.poplar_exception, match="Abort"):
        session.run(popart.PyStepIO(builder.fed, session.initAnchorArrays()))


def test_printing_a_constant_happens_at_every_run(capfd):
    builder = Recorder()
    shown = builder.aiGraphcore.printtensor([builder.aiOnnx.constant(np.array([1, 2], np.int32))], title="C")
    session = session_of(builder, [builder.aiOnnx.add([shown, builder.feed(np.ones(2, np.int32))])])
    assert "C:" not in capfd.readouterr().err
    for _ in range(2):
        session.run(popart.PyStepIO(builder.fed, session.initAnchorArrays()))
        assert capfd.readouterr().err.count("C: [1 2]") == 1


@pytest.mark.parametrize(("title", "shown"), [("T", "T_gradient"), ("", "Gradient___input")])
def test_the_gradient_of_a_print_is_printed_although_nobody_needs_it(
    title: str, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = Recorder()
    printed = builder.aiGraphcore.printtensor([builder.feed(np.ones(2, np.float32))], title=title)
    session = session_of(builder, [builder.aiGraphcore.scale([printed], 3.0)], train=True)
    session.run(popart.PyStepIO(builder.fed, session.initAnchorArrays()))
    lines = capfd.readouterr().err.splitlines()
    assert lines[-2:] == [f"{title or 'input'}: [1.0000000 1.0000000]", f"{shown}: [3.0000000 3.0000000]"]
