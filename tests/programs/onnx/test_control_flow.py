# ruff: noqa: E501 - programs read better unwrapped
"""Programs of If, Loop, Scan, sequences and model-local functions, against ONNX Runtime, eager and compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from popart_jax import backend, popart_exception, to_jax

HEADER = '<ir_version: 8, opset_import: ["": 18, "local": 1]>'
PROGRAMS: dict[str, str] = {
    "if_capture": """
g (float[3] x, bool c) => (float[N] y) {
  k = Constant <value = float[3] {1,2,3}> ()
  a = Add (x, k)
  y = If (c) <then_branch = t () => (float[N] o) { b = Mul(a, k)  o = Sub(b, x) }, else_branch = e () => (float[N] o2) { n = Neg(a)
     o2 = If (c) <then_branch = tt () => (float[N] p) { p = Identity(n) }, else_branch = ee () => (float[N] q) { q = Add(n, x) }> }>
}""",
    "loop_capture": """
g (float[3] x, int64 n) => (float[3] y, float[M,3] ys) {
  t = Constant <value = bool {1}> ()
  y, ys = Loop (n, t, x) <body = b (int64 i, bool cin, float[3] s) => (bool cout, float[3] so, float[3] sc) {
    cout = Identity(cin)
    f = Cast <to = 1> (i)
    w = Mul(x, f)
    so = Add(s, w)
    sc = Mul(so, s) }>
}""",
    "loop_early": """
g (float x) => (float y, float[M] ys) {
  n = Constant <value = int64 {10}> ()
  t = Constant <value = bool {1}> ()
  lim = Constant <value = float {20.0}> ()
  y, ys = Loop (n, t, x) <body = b (int64 i, bool cin, float s) => (bool cout, float so, float sc) {
    so = Add(s, s)
    cout = Less(so, lim)
    sc = Identity(so) }>
}""",
    "nested_loops": """
g (float[2] x) => (float[2] y, float[A,B,2] ys) {
  n = Constant <value = int64 {3}> ()
  m = Constant <value = int64 {2}> ()
  t = Constant <value = bool {1}> ()
  y, ys = Loop (n, t, x) <body = b (int64 i, bool cin, float[2] s) => (bool cout, float[2] so, float[B,2] sc) {
    cout = Identity(cin)
    fi = Cast <to=1> (i)
    so, sc = Loop (m, cin, s) <body = bb (int64 j, bool c2, float[2] q) => (bool c2o, float[2] qo, float[2] qs) {
       c2o = Identity(c2)
       fj = Cast <to=1> (j)
       u = Add(fi, fj)
       v = Mul(x, u)
       qo = Add(q, v)
       qs = Sub(qo, s) }> }>
}""",
    "scan_two_states": """
g (float[2] a, float[4,2] xs, float[2,4] zs, float[2] k) => (float[2] af, float[2] bf, float[4,2] ys, float[2,4] ws) {
  b0 = Constant <value = float[2] {0.5, -1}> ()
  af, bf, ys, ws = Scan (a, b0, xs, zs) <num_scan_inputs = 2, scan_input_axes = [0,1], scan_input_directions = [0,1], scan_output_axes = [0,1], scan_output_directions=[1,0], body = s (float[2] p, float[2] q, float[2] x, float[2] z) => (float[2] po, float[2] qo, float[2] y, float[2] w) {
     t = Mul(x, k)
     po = Add(p, t)
     qo = Sub(q, z)
     y = Mul(po, qo)
     w = Add(po, z) }>
}""",
    "loop_sequence": """
g (float[2] x, int64 n) => (float[M,2] y, int64 l) {
  t = Constant <value = bool {1}> ()
  e = SequenceEmpty <dtype=1> ()
  s = Loop (n, t, e) <body = b (int64 i, bool cin, seq(float[2]) q) => (bool cout, seq(float[2]) qo) {
    cout = Identity(cin)
    f = Cast <to=1> (i)
    v = Mul(x, f)
    qo = SequenceInsert(q, v) }>
  y = ConcatFromSequence <axis=0, new_axis=1> (s)
  l = SequenceLength (s)
}""",
    "function_attr": """
g (float[3] x, float[3] z) => (float[3] y, float[3] w, float[3] d) {
  y = local.scale <alpha = 2.5> (x, z)
  w = local.outer <beta = 3.0> (x)
  d = local.dflt (x)
}
<opset_import: ["": 18], domain: "local">
scale <alpha> (a, b) => (c) { k = Constant <value_float: float = @alpha> ()  m = Mul(a, k)  c = Add(m, b) }
<opset_import: ["": 18, "local": 1], domain: "local">
outer <beta> (a) => (c) { t = local.scale <alpha: float = @beta> (a, a)  c = Neg(t) }
<opset_import: ["": 18], domain: "local">
dflt <alpha: float = 0.1> (a) => (c) { c = LeakyRelu <alpha: float = @alpha> (a) }""",
    "function_if": """
g (float[3] x, bool c) => (float[3] y) {
  y = local.choose <alpha = 2.0> (x, c)
}
<opset_import: ["": 18], domain: "local">
choose <alpha> (a, c) => (r) {
  k = Constant <value_float: float = @alpha> ()
  r = If (c) <then_branch = t () => (float[3] o) { o = Mul(a, k) }, else_branch = e () => (float[3] o2) { q = Constant <value_float: float = @alpha> ()  o2 = Sub(a, q) }>
}""",
    "scalar_empty": """
g (float x, int64 n) => (float y, float[M] ys) {
  t = Constant <value = bool {0}> ()
  y, ys = Loop (n, t, x) <body = b (int64 i, bool cin, float s) => (bool cout, float so, float sc) {
    cout = Identity(cin)
    so = Add(s, s)
    sc = Identity(s) }>
}""",
    "loop_no_trip": """
g (float x) => (float y, int64 k) {
  lim = Constant <value = float {100.0}> ()
  z = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  c0 = Less(x, lim)
  y, k = Loop ("", c0, x, z) <body = b (int64 i, bool cin, float s, int64 cnt) => (bool cout, float so, int64 co) {
    so = Add(s, s)
    co = Add(cnt, one)
    cout = Less(so, lim) }>
}""",
    "if_seq": """
g (float[2] x, bool c) => (float[M] y) {
  s = If (c) <then_branch = t () => (seq(float[2]) o) { o = SequenceConstruct(x, x) }, else_branch = e () => (seq(float[2]) o2) { n = Neg(x) o2 = SequenceConstruct(n) }>
  y = ConcatFromSequence <axis=0> (s)
}""",
    "shadow": """
g (float[2] x, bool c) => (float[2] y) {
  a = Neg(x)
  b = If (c) <then_branch = t () => (float[2] o) { h = Add(a, x) o = Mul(h, a) }, else_branch = e () => (float[2] o2) { h = Sub(a, x) o2 = Mul(h, a) }>
  y = Add(b, a)
}""",
    "if_in_loop_in_scan": """
g (float s0, float[3] xs) => (float sf, float[3] ys) {
  n = Constant <value = int64 {2}> ()
  t = Constant <value = bool {1}> ()
  zero = Constant <value = float {0.0}> ()
  sf, ys = Scan (s0, xs) <num_scan_inputs = 1, body = sc (float s, float x) => (float so, float y) {
     so = Loop (n, t, s) <body = lb (int64 i, bool c, float q) => (bool co, float qo) {
         co = Identity(c)
         neg = Less(x, zero)
         qo = If (neg) <then_branch = a () => (float r) { r = Sub(q, x) }, else_branch = b () => (float r2) { fi = Cast <to=1> (i) u = Mul(x, fi) r2 = Add(q, u) }> }>
     y = Mul(so, x) }>
}""",
    "loop_growing": """
g (float[1] x) => (float[M] y) {
  n = Constant <value = int64 {3}> ()
  t = Constant <value = bool {1}> ()
  y = Loop (n, t, x) <body = b (int64 i, bool cin, float[K] s) => (bool cout, float[L] so) {
    cout = Identity(cin)
    so = Concat <axis=0> (s, x) }>
}""",
    "optional": """
g (float[2] x) => (float[2] y, bool h, bool h2) {
  o = Optional (x)
  h = OptionalHasElement (o)
  y = OptionalGetElement (o)
  h2 = OptionalHasElement ()
}""",
    "seqmap": """
g (float[2] x, float[2] z) => (float[M] y) {
  s = SequenceConstruct (x, z, x)
  r = SequenceMap (s, z) <body = b (float[2] e, float[2] k) => (float[2] o) { o = Mul(e, k) }>
  y = ConcatFromSequence <axis=0> (r)
}""",
}
FEEDS: dict[str, list[dict[str, np.ndarray]]] = {
    "if_capture": [
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "c": np.array(True, np.bool_)},
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "c": np.array(False, np.bool_)},
    ],
    "loop_capture": [
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "n": np.array(3, np.int64)},
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "n": np.array(1, np.int64)},
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "n": np.array(0, np.int64)},
    ],
    "loop_early": [
        {"x": np.array(1.0, np.float32)},
        {"x": np.array(30.0, np.float32)},
        {"x": np.array(0.0010000000474974513, np.float32)},
    ],
    "nested_loops": [{"x": np.array([1.0, -2.0], np.float32)}],
    "scan_two_states": [
        {
            "a": np.array([1.0, 2.0], np.float32),
            "xs": np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]], np.float32),
            "zs": np.array([[-0.0, -1.0, -2.0, -3.0], [-4.0, -5.0, -6.0, -7.0]], np.float32),
            "k": np.array([2.0, 0.5], np.float32),
        }
    ],
    "loop_sequence": [{"x": np.array([1.0, -2.0], np.float32), "n": np.array(3, np.int64)}],
    "function_attr": [{"x": np.array([1.0, -2.0, 3.0], np.float32), "z": np.array([0.0, 1.0, 2.0], np.float32)}],
    "function_if": [
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "c": np.array(True, np.bool_)},
        {"x": np.array([1.0, -2.0, 3.0], np.float32), "c": np.array(False, np.bool_)},
    ],
    "scalar_empty": [{"x": np.array(1.0, np.float32), "n": np.array(5, np.int64)}],
    "loop_no_trip": [{"x": np.array(1.0, np.float32)}, {"x": np.array(300.0, np.float32)}],
    "if_seq": [
        {"x": np.array([1.0, -2.0], np.float32), "c": np.array(True, np.bool_)},
        {"x": np.array([1.0, -2.0], np.float32), "c": np.array(False, np.bool_)},
    ],
    "shadow": [
        {"x": np.array([1.0, -2.0], np.float32), "c": np.array(True, np.bool_)},
        {"x": np.array([1.0, -2.0], np.float32), "c": np.array(False, np.bool_)},
    ],
    "if_in_loop_in_scan": [{"s0": np.array(1.0, np.float32), "xs": np.array([1.0, -2.0, 3.0], np.float32)}],
    "loop_growing": [{"x": np.array([2.0], np.float32)}],
    "optional": [{"x": np.array([1.0, -2.0], np.float32)}],
    "seqmap": [{"x": np.array([1.0, -2.0], np.float32), "z": np.array([3.0, 4.0], np.float32)}],
}
RUNTIME_LENGTH = {"loop_capture", "loop_early", "scalar_empty", "loop_sequence", "if_seq"}
"""Sizes and lengths known only at run time: refused while compiling."""
CASES = [pytest.param(name, feeds, id=f"{name}-{i}") for name in PROGRAMS for i, feeds in enumerate(FEEDS[name])]


def build(name: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEADER}{PROGRAMS[name]}")


def compare(got: Any, want: Any) -> None:
    for mine, theirs in zip(got, want, strict=True):
        assert np.asarray(mine).shape == np.asarray(theirs).shape
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize(("name", "feeds"), CASES)
def test_program(name: str, feeds: dict[str, np.ndarray]) -> None:
    proto = build(name)
    want = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    compare(backend.run_model(proto, feeds), want)
    fn, params = to_jax(proto)
    if name in RUNTIME_LENGTH:
        with pytest.raises(popart_exception, match="node '"):
            jax.jit(fn)(params, feeds)
        return
    got = jax.jit(fn)(params, feeds)
    compare([got[o.name] for o in proto.graph.output], want)


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - RUNTIME_LENGTH - {"loop_no_trip", "optional"}))
def test_gradient_of_a_program(name: str) -> None:
    fn, params = to_jax(build(name))
    for feeds in FEEDS[name]:
        varied = {k: v for k, v in feeds.items() if v.dtype == np.float32}

        def total(some: Any, feeds: Any = feeds) -> Any:
            results = fn(params, {**feeds, **some}).values()
            return sum(
                jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))
                for y in results
                if jnp.issubdtype(y.dtype, jnp.floating)
            )

        slopes, eps = jax.jit(jax.grad(total))(varied), 1e-2
        for key, x in varied.items():
            direction = np.cos(1 + np.arange(x.size)).reshape(x.shape).astype(np.float32)
            ends = [total({**varied, key: x + s * eps * direction}) for s in (1, -1)]
            found = float(np.sum(slopes[key] * direction))
            np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * eps), rtol=2e-2, atol=2e-2)


def test_an_open_loop_has_forward_mode_and_says_how_to_get_a_gradient() -> None:
    feeds = FEEDS["loop_no_trip"][0]
    fn, params = to_jax(build("loop_no_trip"))
    y, slope = jax.jvp(lambda x: fn(params, {"x": x})["y"], (feeds["x"],), (np.float32(1),))
    assert (y, slope) == (128, 128)
    with pytest.raises(popart_exception, match=r"no gradient.*bounds=\{'OUTPUT': N\}"):
        jax.jit(jax.grad(lambda x: fn(params, {"x": x})["y"]))(feeds["x"])
    fn, params = to_jax(build("loop_no_trip"), bounds={"y": 10})
    assert jax.jit(jax.grad(lambda x: fn(params, {"x": x})["y"]))(feeds["x"]) == 128
