"""Branches of an If that do not fit: what is said, when, and how often."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from . import nets

X = np.array([-1.0, 2.0, -3.0, 4.0], np.float32)


def choice(then, otherwise) -> tuple[popart.Builder, str]:
    """An If over x of shape [4] whose branches the two functions build."""
    builder = popart.Builder()
    x, flag = builder.addInputTensor("FLOAT", [4], "x"), builder.addInputTensor("BOOL", [], "flag")
    branches = []
    for build in (otherwise, then):
        branch = builder.createSubgraphBuilder()
        branch.addOutputTensor(build(branch, x))
        branches.append(branch)
    return builder, builder.aiOnnx.logical_if([flag], 1, *branches)[0]


def relu(branch, x):
    return branch.aiOnnx.relu([x])


def three(branch, x):
    return branch.aiOnnx.reshape([x, branch.aiOnnx.constant(np.array([3], np.int64))])


def test_a_branch_that_cannot_run_matters_only_when_it_is_taken(capfd):
    builder, out = choice(relu, three)
    session = nets.infer(builder.getModelProto(), {out: "All"})
    anchors = nets.run(session, x=X, flag=np.array(True))
    np.testing.assert_array_equal(anchors[out], np.maximum(X, 0))
    assert " E: " not in capfd.readouterr().err
    with pytest.raises(popart.popart_runtime_error, match="took a branch that does not fit"):
        nets.run(session, x=X, flag=np.array(False))
    said = capfd.readouterr().err
    assert said.count("took a branch that does not fit") == 1
    assert "Traceback" not in said
    np.testing.assert_array_equal(nets.run(session, x=X, flag=np.array(True))[out], np.maximum(X, 0))


def test_branches_that_both_cannot_run_are_reported_once(capfd):
    builder, out = choice(three, three)
    with pytest.raises(popart.popart_exception, match="number of elements cannot change"):
        nets.infer(builder.getModelProto(), {out: "All"})
    assert capfd.readouterr().err.count(" E: ") == 1


def test_branches_of_different_shapes_are_both_shown():
    builder, out = choice(relu, lambda branch, x: branch.aiOnnx.concat([x, x], 0))
    with pytest.raises(popart.popart_exception, match=r"float32\[4\].*float32\[8\]"):
        nets.infer(builder.getModelProto(), {out: "All"})


def test_a_refused_operator_is_named_where_it_is(capfd):
    def add(branch, x):
        return branch.aiOnnx.add([x, branch.aiOnnx.constant(np.ones(3, np.float32))], "inner")

    builder, out = choice(add, add)
    assert " E: " not in capfd.readouterr().err  # inference that fails while building is no error yet
    with pytest.raises(popart.popart_exception, match=r"failed on 'Op 0 \(ai.onnx.Add:7\)', frames"):
        nets.infer(builder.getModelProto(), {out: "All"})
    assert "input 0" not in capfd.readouterr().err


def test_any_number_may_be_the_condition():
    """PopART looks at no type here: what is not 0 picks the first branch."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1]))
    branches = []
    for op in ("neg", "exp"):
        inner = builder.createSubgraphBuilder()
        inner.setGraphName(op)
        inner.addOutputTensor(getattr(inner.aiOnnx, op)([x]))
        branches.append(inner)
    (out,) = builder.aiOnnx.logical_if([x], 1, branches[1], branches[0])
    builder.addOutputTensor(out)
    options = nets.make_options(engineOptions={"popart_jax.strict": "true"})
    flow = nets.flow(1, {out: "All"})
    session = popart.InferenceSession(builder.getModelProto(), flow, nets.device(), userOptions=options)
    session.prepareDevice()
    for given, wanted in ((0.0, 1.0), (0.5, -0.5)):
        assert nets.run(session, **{x: np.array([given], np.float32)})[out] == wanted


def test_weights_survive_a_wrong_branch():
    """That step fails half-way, so it must not have been given the only copy of the weights."""
    builder, out = choice(relu, three)
    w = builder.addInitializedInputTensor(np.ones(4, np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([out, w])], popart.ReductionType.Sum)
    session = nets.train(builder.getModelProto(), {out: "All"}, nets.sgd(0.5), loss=loss)
    for steps in (1, 2):
        nets.run(session, x=X, flag=np.array(True))
        with pytest.raises(popart.popart_runtime_error, match="that does not fit"):
            nets.run(session, x=X, flag=np.array(False))
        found = nets.weights_of(session, **{w: np.ones(4, np.float32)})[w]
        np.testing.assert_array_equal(found, 1 - steps * 0.5 * np.maximum(X, 0))
