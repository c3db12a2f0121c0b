"""Operators that hold graphs: built, queried and run (semantics 2.6)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from popart_jax import Builder, popart_exception, to_jax


def run(builder: Builder, outputs: list[str], **inputs: np.ndarray) -> list[np.ndarray]:
    for out in outputs:
        builder.addOutputTensor(out)
    onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()))
    fn, params = to_jax(builder.getModelProto())
    found = fn(params, inputs)
    return [np.asarray(found[o]) for o in outputs]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("condition", [True, False])
def test_if_reads_outer_tensors(declared, condition):
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    cond = builder.aiOnnx.constant(np.array(condition))
    then, other = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    for branch in (then, other):
        if declared:
            branch.addInputTensorFromParentGraph(x)
    if not declared:
        then.addOutputTensor(then.aiOnnx.relu([x]))
        other.addOutputTensor(other.aiOnnx.neg([x]))
        out = builder.aiOnnx.logical_if([cond], 1, other, then, "choose")
        assert builder.getTensorShape(out[0]) == [3]
        value = np.array([-1, 0, 2], np.float32)
        assert run(builder, out, x=value)[0].tolist() == (np.maximum(value, 0) if condition else -value).tolist()
    else:
        assert then.getInputTensorIds() == [x]


def test_branches_must_have_as_many_outputs_as_asked():
    builder = Builder()
    cond = builder.aiOnnx.constant(np.array(True))
    then, other = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    with pytest.raises(popart_exception, match=r"then_branch|else_branch"):
        builder.aiOnnx.logical_if([cond], 1, other, then)
    with pytest.raises(TypeError):
        builder.aiOnnx.logical_if([cond], 1, "x", then)


def loop_body(builder: Builder, typed: bool) -> Builder:
    body = builder.createSubgraphBuilder()
    if typed:
        iteration = body.addInputTensor("INT64", [], "iteration")
        keep = body.addInputTensor("BOOL", [], "keep")
        value = body.addInputTensor("FLOAT", [2], "value")
    else:
        iteration, keep, value = (body.addUntypedInputTensor(n) for n in ("iteration", "keep", "value"))
    out = body.aiOnnx.add([value, value])
    for name in (keep, out, body.aiOnnx.identity([out])):
        body.addOutputTensor(name)
    del iteration
    return body


@pytest.mark.parametrize("typed", [True, False])
def test_loop_carries_and_scans(typed):
    builder = Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2], "x")
    trips = builder.aiOnnx.constant(np.array(3, np.int64))
    cond = builder.aiOnnx.constant(np.array(True))
    out = builder.aiOnnx.loop([trips, cond, x], 2, loop_body(builder, typed))
    assert [builder.getTensorShape(o) for o in out] == [[2], [3, 2]]
    final, scanned = run(builder, out, x=np.array([1, 2], np.float32))
    assert final.tolist() == [8, 16]
    assert scanned.tolist() == [[2, 4], [4, 8], [8, 16]]


def test_one_body_serves_several_loops():
    builder = Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2], "x")
    trips = builder.aiOnnx.constant(np.array(2, np.int64))
    body = loop_body(builder, True)
    first = builder.aiOnnx.loop([trips, "", x], 2, body)
    second = builder.aiOnnx.loop([trips, "", first[0]], 2, body)
    assert run(builder, second[:1], x=np.array([1, 1], np.float32))[0].tolist() == [16, 16]


def test_the_shape_of_what_scan_concatenates():
    builder = Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    total = builder.addInputTensor("FLOAT", [2], "total")
    rows = builder.addInputTensor("FLOAT", [3, 2], "rows")
    body = builder.createSubgraphBuilder()
    a, b = body.addUntypedInputTensor("a"), body.addUntypedInputTensor("b")
    new = body.aiOnnx.add([a, b])
    body.addOutputTensor(new)
    body.addOutputTensor(body.aiOnnx.identity([new]))
    out = builder.aiOnnx.scan([total, rows], 2, body, 1)
    assert [builder.getTensorShape(o) for o in out] == [[2], [6]]


def test_calls_share_one_subgraph_and_read_outer_tensors():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    scale = builder.aiOnnx.constant(np.array([2, 3], np.float32))
    callee = builder.createSubgraphBuilder()
    a = callee.addUntypedInputTensor("a")
    callee.addOutputTensor(callee.aiOnnx.mul([a, scale]))
    first = builder.aiGraphcore.call([x], 1, callee)
    second = builder.aiGraphcore.call(first, 1, callee, "again")
    assert builder.getTensorShape(second[0]) == [2]
    assert run(builder, second, x=np.ones(2, np.float32))[0].tolist() == [4, 9]
    names = {
        n.attribute[0].g.name
        for n in onnx.load_model_from_string(builder.getModelProto()).graph.node
        if n.op_type == "Call"
    }
    assert len(names) == 1


def test_a_body_may_call_one_subgraph_twice():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    square = builder.createSubgraphBuilder()
    a = square.addInputTensor("FLOAT", [2], "a")
    square.addOutputTensor(square.aiOnnx.mul([a, a]))
    body = builder.createSubgraphBuilder()
    value = body.addInputTensor("FLOAT", [2], "b")
    for _ in range(2):
        (value,) = body.aiGraphcore.call([value], 1, square)
    body.addOutputTensor(value)
    out = builder.aiGraphcore.call([x], 1, body)
    assert run(builder, out, x=np.array([2, -3], np.float32))[0].tolist() == [16, 81]


def test_a_subgraph_returns_only_its_own_tensors():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    with pytest.raises(popart_exception, match=r"'x' belongs to an enclosing graph.*aiOnnx\.identity"):
        builder.createSubgraphBuilder().addOutputTensor(x)
    builder.addOutputTensor(x)


def test_counts_of_a_call_are_checked():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    callee = builder.createSubgraphBuilder()
    a = callee.addInputTensor("FLOAT", [2])
    with pytest.raises(popart_exception) as caught:
        builder.aiGraphcore.call([x], 1, callee, "here")
    assert str(caught.value) == (
        "For CallOp 'here', number of outputs (1) does not match that of the callee subgraph (0)"
    )
    callee.addOutputTensor(callee.aiOnnx.relu([a]))
    with pytest.raises(
        popart_exception, match=r"number of inputs \(2\) does not match that of the callee subgraph \(1\)"
    ):
        builder.aiGraphcore.call([x, x], 1, callee)


def test_branch_inside_a_loop_sees_all_outer_levels():
    builder = Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2], "x")
    trips = builder.aiOnnx.constant(np.array(2, np.int64))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    keep = body.addInputTensor("BOOL", [])
    value = body.addInputTensor("FLOAT", [2])
    then, other = body.createSubgraphBuilder(), body.createSubgraphBuilder()
    then.addOutputTensor(then.aiOnnx.add([value, x]))
    other.addOutputTensor(other.aiOnnx.sub([value, x]))
    chosen = body.aiOnnx.logical_if([keep], 1, other, then)[0]
    body.addOutputTensor(keep)
    body.addOutputTensor(chosen)
    yes = builder.aiOnnx.constant(np.array(True))
    out = builder.aiOnnx.loop([trips, yes, x], 1, body)
    assert run(builder, out, x=np.array([1, 2], np.float32))[0].tolist() == [3, 6]


def test_packed_data_block_shape():
    builder = Builder()
    data = builder.addInputTensor("FLOAT", [10, 3])
    counts = [builder.addInputTensor("UINT32", [4]) for _ in range(4)]
    callback = builder.createSubgraphBuilder()
    x = callback.addUntypedInputTensor()
    callback.addOutputTensor(callback.aiOnnx.relu([x]))
    out = builder.aiGraphcore.packedDataBlock([data, *counts], [5], 12, 2, callback)
    assert isinstance(out, str)
    assert builder.getTensorShape(out) == [12, 3]


def test_a_call_holds_the_callee_as_it_was():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    callee = builder.createSubgraphBuilder()
    a = callee.addInputTensor("FLOAT", [2])
    y = callee.aiOnnx.relu([a])
    callee.addOutputTensor(y)
    first = builder.aiGraphcore.call([x], 1, callee)
    callee.addOutputTensor(callee.aiOnnx.neg([y]))
    second = builder.aiGraphcore.call(first, 2, callee)
    found = run(builder, [*first, *second], x=np.array([-1, 2], np.float32))
    assert [f.tolist() for f in found] == [[0, 2], [0, 2], [0, -2]]


def test_the_iteration_has_the_type_of_the_number_of_passes():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    trips, go = builder.aiOnnx.constant(np.array(3, np.int32)), builder.aiOnnx.constant(np.array(True))
    body = builder.createSubgraphBuilder()
    iteration, condition, value = (body.addUntypedInputTensor(n) for n in ("i", "c", "v"))
    body.addOutputTensor(body.aiOnnx.identity([condition]))
    body.addOutputTensor(body.aiOnnx.add([value, value]))
    builder.aiOnnx.loop([trips, go, x], 1, body)
    assert body.getTensorDtypeString(iteration) == "int32"
    assert body.getTensorShape(value) == [2]
