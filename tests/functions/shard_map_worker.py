"""Losses and gradients under `jax.shard_map`, against those of the rows one by one; started by test_shard_map."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.sharding import PartitionSpec

import popart_jax

DEVICES = 8
_RECURRENT = "(float[3,1,2] x) => (float[3,d,1,4] y) {{ y = {op}<hidden_size = 4{more}>(x, w, r) }}"
_ZEROS = "start = Constant<value = float[1,2] {0, 0}>()"
_STEP = "a = Mul(row, w) m = Add(s, a) t = Tanh(m)"
_LOOP = (
    "(float[3,1,2] x) => (float[1,2] y) { "
    + _ZEROS
    + """ n = Constant<value_int = 3>()
  go = Constant<value = bool {1}>() y = Loop(n, go, start)
    <body = b (int64 i, bool c, float[1,2] s) => (bool d, float[1,2] t) { row = Gather(x, i) """
    + _STEP
    + " COND }> }"
)
_BY_DATA = """ax = Constant<value_ints = [0, 1]>() size = ReduceSum<keepdims = 0>(t, ax)
    most = Constant<value_float = 0.5>() d = Less(size, most)"""


def _gates(op: str, gates: int, directions: int = 1, more: str = "") -> tuple[str, dict[str, tuple[int, ...]]]:
    shapes = {"w": (directions, 4 * gates, 2), "r": (directions, 4 * gates, 4)}
    return _RECURRENT.format(op=op, more=more), shapes


MODELS = {
    "GRU": _gates("GRU", 3),
    "GRU, linear before reset, reverse": _gates("GRU", 3, more=', linear_before_reset = 1, direction = "reverse"'),
    "LSTM": _gates("LSTM", 4),
    "LSTM, other activations": _gates("LSTM", 4, more=', activations = ["HardSigmoid", "Tanh", "Relu"]'),
    "Scan": (
        f"""(float[3,1,2] x) => (float[3,1,2] y) {{ {_ZEROS} last, y = Scan<num_scan_inputs = 1,
          body = b (float[1,2] s, float[1,2] row) => (float[1,2] t, float[1,2] o) {{ {_STEP} o = Identity(t) }}
        >(start, x) }}""",
        {"w": (2,)},
    ),
    "Loop": (_LOOP.replace("COND", "d = Identity(c)"), {"w": (2,)}),
    "Loop that stops by the data": (_LOOP.replace("COND", _BY_DATA), {"w": (2,)}),
    "If": (
        """(float[3,1,2] x) => (float[3,1,2] y) {
          ax = Constant<value_ints = [0, 1, 2]>() size = ReduceSum<keepdims = 0>(x, ax)
          zero = Constant<value_float = 0.0>() flag = Greater(size, zero) y = If(flag) <
          then_branch = a () => (float[3,1,2] p) { p = Mul(x, w) },
          else_branch = e () => (float[3,1,2] q) { sh = Shape(x) q = Expand(w, sh) }> }""",
        {"w": (1, 1, 2)},
    ),
    "Conv": (
        """(float[3,1,2] x) => (float[2,32,1,1] y) { to = Constant<value_ints = [1, 1, 3, 2]>() small = Reshape(x, to)
          times = Constant<value_ints = [2, 32, 16, 24]>() large = Tile(small, times)
          c = Conv<pads = [1, 1, 1, 1]>(large, w) mean = ReduceMean<axes = [2, 3]>(c)
          small_enough = Constant<value_float = 0.05>() y = Mul(mean, small_enough) }""",
        {"w": (32, 32, 3, 3)},
    ),
    "LayerNormalization": (
        "(float[3,1,2] x) => (float[3,1,2] y) { y = LayerNormalization(x, w, r) }",
        {"w": (2,), "r": (2,)},
    ),
}


def model(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """The model with weights drawn once."""
    parsed = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)
    generator = np.random.default_rng(0)
    for name, shape in shapes.items():
        weight = 0.5 * generator.normal(size=shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return parsed


def main() -> None:
    """Write, of each model, how far value and gradients are apart, and how large they are."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    x = np.random.default_rng(1).normal(size=(3, DEVICES, 2)).astype(np.float32)
    report = {}
    for name, (text, shapes) in MODELS.items():
        fn, params = popart_jax.to_jax(model(text, shapes))

        def loss(params, x, fn=fn):
            return jnp.sum(jnp.square(fn(params, x)["y"]))

        def of_all(params, x, loss=loss):
            return jax.lax.psum(loss(params, x), "data")

        split = jax.shard_map(
            jax.value_and_grad(of_all), mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec(None, "data")),
            out_specs=PartitionSpec(),
        )  # fmt: skip
        found = jax.jit(split)(params, x)
        alone = jax.jit(jax.value_and_grad(loss))
        each = [alone(params, x[:, i : i + 1]) for i in range(DEVICES)]
        want = jax.tree.map(lambda *parts: sum(parts), *each)
        gap = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), found, want)
        report[name] = {"gap": max(jax.tree.leaves(gap)), "size": float(abs(want[1]["w"]).max())}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
