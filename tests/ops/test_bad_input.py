# ruff: noqa: E501 - tables read better unwrapped
"""Spoiled operands and attributes: an error of ours that names the node, or the answer of ONNX Runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popart_jax import NodeError, backend, popart_exception, to_jax

from ..conformance.bad_input import NODE, Spoiled, spoiled
from ..conformance.cases import Case, newest
from .single import model, run

F32 = np.float32
FAST = ("And", "Concat", "Conv", "Gather", "Slice", "Split", "TopK", "Where")
TOLERATED = {
    "without hidden_size": "ONNX Runtime wants the attribute; it follows from the weights",
    "keepdims": "any number but 0 means true",
}


@cache
def first_cases() -> dict[str, Case]:
    """One case of one node for each operator; not while tests are collected, since it makes the data of all cases.

    Operators with a body (If, Loop, Scan, SequenceMap) are left out: their errors name the node in the body.
    """
    found: dict[str, Case] = {}
    for case in newest(("node",)):
        nodes = case.model().graph.node
        if len(nodes) == 1 and not any(a.HasField("g") for a in nodes[0].attribute):
            found.setdefault(nodes[0].op_type, case)
    return dict(sorted(found.items()))


def outcome(bad: Spoiled) -> Any:
    """Results, or None where an error named the node."""
    try:
        return backend.run_model(bad.model, bad.feeds)
    except popart_exception as err:
        reason = str(err)
    assert NODE in reason, f"{bad.what}: {reason}"
    return None


def expected(bad: Spoiled) -> Any:
    """Results of ONNX Runtime, or None where it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    feeds = {n: np.asarray(x) if isinstance(x, np.generic) else x for n, x in bad.feeds.items()}
    try:
        return onnxruntime.InferenceSession(bad.model.SerializeToString(), options).run(None, feeds)
    except Exception as err:  # of many classes of its own
        reason = str(err)
    assert "NOT_IMPLEMENTED" not in reason, "choose a case that ONNX Runtime has"
    return None


@pytest.mark.parametrize("op_type", FAST)
def test_nothing_spoiled_passes_silently(op_type: str) -> None:
    for bad in spoiled(first_cases()[op_type]):
        ours = outcome(bad)
        if ours is None or any(word in bad.what for word in TOLERATED):
            continue
        theirs = expected(bad)
        assert theirs is not None, f"{bad.what}: refused by ONNX Runtime, answered here"
        for got, want in zip(ours, theirs, strict=True):
            assert got.dtype == want.dtype or want.dtype == object
            np.testing.assert_allclose(got, want, 1e-4, 1e-5) if want.dtype != object else None


@pytest.mark.sweep
def test_every_error_names_the_node() -> None:
    wrong = []
    for case in first_cases().values():
        for bad in spoiled(case):
            try:
                outcome(bad)
            except Exception as err:  # each is told
                wrong.append(f"{case.name}, {bad.what}: {type(err).__name__}: {err}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("op", "inputs", "match"),
    [
        ("Exp", [np.ones(2, bool)], r"input 0 \(input\) is BOOL; opset 22 takes BFLOAT16, DOUBLE, FLOAT, FLOAT16"),
        ("And", [np.ones(2, F32), np.ones(2, F32)], r"input 0 \(A\) is FLOAT; opset 22 takes BOOL"),
        ("Gather", [np.ones(2, F32), np.ones(2, F32)], r"input 1 \(indices\) is FLOAT; opset 22 takes INT32, INT64"),
        ("Not", [np.ones(2, np.int32)], "takes BOOL"),
        ("Where", [np.ones(2, F32), np.ones(2, F32), np.ones(2, F32)], r"input 0 \(condition\) is FLOAT"),
        ("MatMul", [np.ones((2, 2), np.int8), np.ones((2, 2), np.int8)], "is INT8"),
        ("BitwiseAnd", [np.ones(2, F32), np.ones(2, F32)], "is FLOAT"),
        ("Relu", [np.array(["a"], object)], "is STRING"),
        ("PRelu", [np.ones(2, F32), np.ones(2, np.float16)], "inputs X and slope must have one type, got FLOAT and FLOAT16"),
        ("Range", [np.int8(0), np.int8(3), np.int8(1)], "is INT8"),
        ("OneHot", [np.array([1]), np.array(-2), np.zeros(2, F32)], "depth must not be negative"),
        ("Conv", [np.ones((1, 1, 4, 4), F32), np.ones((1, 1, 2, 2), F32), np.ones((1, 1), F32)], "input B has rank 2; expected rank 1"),
        ("GatherElements", [np.ones((2, 2), F32), np.ones(2, np.int64)], "input indices has rank 1; expected the rank of data, 2"),
        ("Conv", [np.ones((1, 1, 4, 4), F32), np.ones((2, 1, 2, 2), F32), np.ones(1, F32)], r"expected \[2\], one value per output channel"),
    ],
)  # fmt: skip
def test_operands_of_wrong_types_and_ranks(op: str, inputs: list[Any], match: str) -> None:
    with pytest.raises(NodeError, match=rf"node 'node': {op} failed .*{match}"):
        run(
            op,
            inputs,
            static=[i for i in range(1, len(inputs)) if inputs[i].dtype.kind == "i"] if op == "OneHot" else (),
        )


def test_a_float_that_came_later_passes_where_floats_do() -> None:
    x = np.array([-1, 2], ml_dtypes.bfloat16)
    assert run("Relu", [x], at=6)[0].dtype == ml_dtypes.bfloat16
    with pytest.raises(NodeError, match="is INT32"):
        run("Relu", [np.array([-1, 2], np.int32)], at=6)


def test_popart_takes_every_kind_that_some_version_takes() -> None:
    x = np.array([-1, 2], np.int32)
    np.testing.assert_array_equal(run("Relu", [x], at=6, settings={"popart": True})[0], [0, 2])
    with pytest.raises(NodeError, match="is BOOL"):
        run("Exp", [x > 0], at=6, settings={"popart": True})


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND"])
def test_indices_out_of_range_are_refused_wherever_they_are_known(op: str) -> None:
    data, index = np.arange(4, dtype=F32), np.array([[7]]) if op.endswith("ND") else np.array([7])
    inputs = [data, index, *([np.ones(1, F32)] if op.startswith("Scatter") else [])]
    with pytest.raises(popart_exception, match="index out of range"):
        backend.run_model(model(op, inputs), inputs)
    fn, params = to_jax(model(op, inputs))
    jax.jit(fn)(params, {f"x{i}": x for i, x in enumerate(inputs)})  # known on the device only


SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
KINDS = st.sampled_from([np.float32, np.int32, np.int64, np.bool_, np.float16, np.uint8])
OPERATORS = ["Add", "MatMul", "Concat", "Gather", "Conv", "Gemm", "Where", "Max", "PRelu", "ScatterElements", "Einsum",
             "CumSum", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GatherND"]  # fmt: skip
ATTRIBUTES = {"Concat": {"axis": 1}, "Einsum": {"equation": "ij,jk->ik"}}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(OPERATORS), st.lists(st.tuples(SHAPES, KINDS), min_size=1, max_size=4))
def test_arbitrary_operands_give_a_result_or_an_error_that_names_the_node(op: str, kinds: list[Any]) -> None:
    inputs = [np.ones(shape, dtype) for shape, dtype in kinds]
    try:
        backend.run_model(model(op, inputs, **ATTRIBUTES.get(op, {})), inputs)
    except popart_exception as err:
        reason = str(err)
    else:
        return
    assert "node 'node'" in reason


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_layouts_that_there_are_not(op: str, gates: int) -> None:
    x, w, r = np.zeros((3, 2, 4), F32), np.zeros((1, gates * 5, 4), F32), np.zeros((1, gates * 5, 5), F32)
    with pytest.raises(popart_exception, match="Unknown layout 99"):
        run(op, [x, w, r], hidden_size=5, layout=99)
