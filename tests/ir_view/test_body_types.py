"""Types of tensors inside Loop, Scan and Call, from what the op passes."""

from __future__ import annotations

import pytest

from patterns import static_shape
from popart_jax.ir_view import body_types, nodes

from .helpers import parse


@pytest.mark.parametrize(
    ("op", "expect"),
    [
        (
            (
                "hn, ys = Scan<num_scan_inputs = 1, scan_input_axes = [1],"
                " body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) { t = Add(s, e) u = Neg(t) }>(h, xs)"
            ),
            {"s": (2,), "e": (2,), "t": (2,), "u": (2,)},
        ),
        (
            (
                "hn = Loop<body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t)"
                " { on = Identity(go) t = Neg(s) }>(m, c, h)"
            ),
            {"i": (), "go": (), "s": (2,), "on": (), "t": (2,)},
        ),
        (
            "hn = ai.graphcore.Call<callee = b (float[2] s, float[2,3] e) => (float[2,3] u) { u = Relu(e) }>(h, xs)",
            {"s": (2,), "e": (2, 3), "u": (2, 3)},
        ),
    ],
)
def test_types_inside_a_body(op, expect):
    graph = parse(f"f (float[2] h, float[2,3] xs, int64 m, bool c) => () {{ {op} }}")
    (body,) = nodes.subgraphs(graph[0])
    values = [*body.inputs, *(o for node in body for o in node.outputs)]
    for value in values:
        value.type = value.shape = None
    body_types.fill(graph, 11)
    assert {v.name: static_shape(v) for v in values} == expect
    assert all(v.dtype is not None for v in values)
