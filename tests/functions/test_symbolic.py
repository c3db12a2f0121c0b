"""`jax.export` with sizes that are symbols: shapes that a model works out stay right for every size."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart

LIMITS = ["s >= 2", "s <= 16"]
HEAD = '<ir_version: 9, opset_import: ["": 20]> g'
SUM = "(float[b] x) => (float[b] y) { y = Add(x, x) }"
HEADS = """(float[b,s,8] x) => (float[b,2,s,4] y) {
  sh = Shape(x) zero = Constant<value_int=0>() one = Constant<value_int=1>() first = Constant<value_ints=[0]>()
  b = Gather(sh, zero) s = Gather(sh, one) b1 = Unsqueeze(b, first) s1 = Unsqueeze(s, first)
  tail = Constant<value_ints=[2,4]>() target = Concat<axis=0>(b1, s1, tail)
  parts = Reshape(x, target) y = Transpose<perm=[0,2,1,3]>(parts) }"""
MERGED = """(float[b,s,8] x) => (float[n,8] y) {
  sh = Shape<start=0, end=2>(x) keep = Constant<value_int=1>() n = ReduceProd<keepdims=1>(sh)
  tail = Constant<value_ints=[8]>() target = Concat<axis=0>(n, tail) y = Reshape(x, target) }"""
PLACES = """(float[b,s,8] x) => (int64[s] places, float[s,b] zeros, int64[3] sh, int64[] count, float[b,s,8] scaled) {
  sh = Shape(x) zero = Constant<value_int=0>() one = Constant<value_int=1>() first = Constant<value_ints=[0]>()
  b = Gather(sh, zero) s = Gather(sh, one) b1 = Unsqueeze(b, first)
  s1 = Unsqueeze(s, first) cast = Cast<to=7>(s) places = Range(zero, cast, one)
  turned = Concat<axis=0>(s1, b1) zeros = ConstantOfShape(turned) count = Size(x)
  f = Cast<to=1>(s) scaled = Div(x, f) }"""
EXPANDED = """(float[b,s,8] x, float[1,s,8] p) => (float[b,s,8] y) {
  sh = Shape(x) minus = Constant<value_ints=[-1,-1,-1]>() ones = Constant<value_ints=[1,1,1]>()
  is = Equal(sh, minus) target = Where(is, ones, sh) y = Expand(p, target) }"""
SLICED = """(float[b,s,8] x, float[16,8] table) => (float[b,s,8] y, float[b,t,8] rest) {
  sh = Shape(x) one = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>() zero = Constant<value_ints=[0]>()
  s = Slice(sh, one, two, zero) rows = Slice(table, zero, s, zero) y = Add(x, rows)
  far = Constant<value_ints=[9223372036854775807]>() rest = Slice(x, one, far, one) }"""
HALVED = """(float[b,s,8] x) => (float[c,s,4] y) {
  sh = Shape(x) i = Constant<value_ints=[0]>() j = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>()
  b = Gather(sh, i) s = Gather(sh, j) c = Mul(b, two) c8 = Mul(c, two) back = Div(c8, two)
  four = Constant<value_ints=[4]>() target = Concat<axis=0>(back, s, four) y = Reshape(x, target) }"""
GRID = """(float[b,2,3] theta, float[b,1,4,5] x) => (float[b,h,w,2] y) {
  size = Shape(x) y = AffineGrid(theta, size) }"""
PLACED = """(float[b,2,5,6] x) => (float[b,2,2,3] y, int64[b,2,2,3] i) {
  y, i = MaxPool<kernel_shape = [3,2], strides = [2,2], storage_order = 1>(x) }"""
REGIONS = """(float[2,3,6,6] x, float[b,4] rois, float[b] which) => (float[b,3,2,2] y) {
  zero = Constant<value_float = 0.0>() low = Less(which, zero) i = Cast<to = 7>(low)
  y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, rois, i) }"""
CACHED = """(float[b,s] x, float[b,2] past) => (float[b,t] y, float[b,u] z) {
  one = Constant<value_int=1>() zero = Constant<value_int=0>() first = Constant<value_ints=[0]>()
  sx = Shape(x) sp = Shape(past) s = Gather(sx, one) before = Gather(sp, one) total = Add(s, before)
  r = Range(zero, total, one) all = Concat<axis=1>(past, x) f = Cast<to=1>(r) y = Add(all, f)
  last = Range(before, total, one) g = Cast<to=1>(last) z = Mul(x, g) }"""
MODELS = {"sum": SUM, "heads": HEADS, "merged": MERGED, "places": PLACES, "expanded": EXPANDED, "sliced": SLICED,
          "halved": HALVED, "grid": GRID, "placed": PLACED, "regions": REGIONS, "cached": CACHED}  # fmt: skip


def _exported(model: onnx.ModelProto) -> tuple[jax.export.Exported, popart.OnnxFunction]:
    """The model with every named size a symbol."""
    with pytest.warns(UserWarning, match="no float weights"):
        fn, params = popart.to_jax(model)
    names = dict.fromkeys(d for spec in fn.inputs.values() for d in spec.shape or () if isinstance(d, str))
    symbols = dict(
        zip(
            names,
            jax.export.symbolic_shape(",".join(names), constraints=LIMITS if "s" in names else ()),
            strict=True,
        )
    )
    avals = {
        n: jax.ShapeDtypeStruct(tuple(symbols.get(d, d) for d in spec.shape or ()), np.float32)
        for n, spec in fn.inputs.items()
    }
    with fn.precision():
        return jax.export.export(jax.jit(lambda x: fn(params, x)))(avals), fn


@pytest.mark.parametrize("name", MODELS)
def test_every_size_is_right(name: str) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    exported, fn = _exported(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for sizes in ({"b": 1, "s": 2}, {"b": 3, "s": 5}, {"b": 4, "s": 7}):
        given = _inputs(fn, sizes)
        with fn.precision():
            found = exported.call(given)
        for end, theirs in zip(session.get_outputs(), session.run(None, given), strict=True):
            np.testing.assert_allclose(found[end.name], theirs, rtol=1e-5, atol=1e-6)
            assert found[end.name].dtype == theirs.dtype


def _inputs(fn: popart.OnnxFunction, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {n: tuple(sizes.get(str(d), d) for d in spec.shape or ()) for n, spec in fn.inputs.items()}
    return {n: generator.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}  # pyright: ignore[reportArgumentType]


def test_a_reshape_that_contradicts_the_symbols_names_the_node() -> None:
    body = "(float[b,3] x) => (float[c,d] y) { to = Constant<value_ints=[7,5]>() [wrong] y = Reshape(x, to) }"
    with pytest.raises(popart.popart_exception, match=r"node 'wrong': Reshape.*float32\[b, 3\]"):
        _exported(onnx.parser.parse_model(HEAD + body))


def test_tile_by_a_symbolic_size() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x, float[2,3] z) => (float[M,K] y) {
      s = Shape<start=0, end=1>(x) two = Constant<value_ints=[2]>() r = Concat<axis=0>(s, two) y = Tile(z, r) }"""
    with pytest.warns(UserWarning, match="no float weights"):
        fn, _ = popart.to_jax(onnx.parser.parse_model(text))
    (batch,) = jax.export.symbolic_shape("batch")
    shapes = [jax.ShapeDtypeStruct((size, 3), np.float32) for size in (batch, 2)]
    whole = jax.export.export(jax.jit(lambda x, z: fn({}, {"x": x, "z": z})["y"]))(*shapes)
    z = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(whole.call(np.ones((4, 3), np.float32), z), np.tile(z, (4, 2)))
