"""Sharded against unsharded on eight devices; started by test_sharding."""

from __future__ import annotations

import json
import re

import jax
import numpy as np
import onnx
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import popart_jax

WIDTH, HEADS, ROWS, WORDS = 32, 4, 8, 64
NET = """<ir_version: 8, opset_import: ["" : 17]> g (int64[8,6] ids) => (float[8,6,64] scores) {
    x = Gather(table, ids)
    n = LayerNormalization(x, scale1, shift1)
    q0 = MatMul(n, wq) q1 = Add(q0, bq) q2 = Reshape(q1, heads) q = Transpose<perm = [0, 2, 1, 3]>(q2)
    k0 = MatMul(n, wk) k2 = Reshape(k0, heads) k = Transpose<perm = [0, 2, 3, 1]>(k2)
    v0 = MatMul(n, wv) v2 = Reshape(v0, heads) v = Transpose<perm = [0, 2, 1, 3]>(v2)
    s = MatMul(q, k) p = Softmax(s) a0 = MatMul(p, v) a1 = Transpose<perm = [0, 2, 1, 3]>(a0)
    a2 = Reshape(a1, rows) a = MatMul(a2, wo) a3 = Add(a, bo) y = Add(x, a3)
    m = LayerNormalization(y, scale2, shift2)
    u = MatMul(m, up) u1 = Add(u, bu) u2 = Relu(u1) d = MatMul(u2, down) z = Add(y, d)
    flat = Reshape(z, two) f = Gemm<transB = 1>(flat, head) scores = Reshape(f, three)
}"""


def model() -> bytes:
    rng = np.random.default_rng(0)
    shapes = {"table": (WORDS, WIDTH), "wq": (WIDTH, WIDTH), "bq": (WIDTH,), "wk": (WIDTH, WIDTH)}
    shapes |= {"wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH), "bo": (WIDTH,), "up": (WIDTH, 128), "bu": (128,)}
    shapes |= {"down": (128, WIDTH), "head": (WORDS, WIDTH)}
    shapes |= {f"{n}{i}": (WIDTH,) for n in ("scale", "shift") for i in (1, 2)}
    weights = {n: (0.2 * rng.normal(size=s)).astype(np.float32) for n, s in shapes.items()}
    weights |= {"heads": np.array([ROWS, 6, HEADS, WIDTH // HEADS]), "rows": np.array([ROWS, 6, WIDTH])}
    weights |= {"two": np.array([ROWS * 6, WIDTH]), "three": np.array([ROWS, 6, WORDS])}
    proto = onnx.parser.parse_model(re.sub(r"\)\s+(?=[a-z0-9]+ = )", ")\n", NET))
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return proto.SerializeToString()


def main() -> None:
    jax.config.update("jax_num_cpu_devices", 8)
    fn, params = popart_jax.to_jax(model())
    rng = np.random.default_rng(1)
    ids, labels = rng.integers(0, WORDS, (2, ROWS, 6))
    rule = optax.adam(1e-2)

    def train(call, params):
        def loss(p):
            return optax.softmax_cross_entropy_with_integer_labels(call(p, {"ids": ids})["scores"], labels).mean()

        @jax.jit
        def step(p, slots):
            value, slope = jax.value_and_grad(loss)(p)
            moves, slots = rule.update(slope, slots)
            return optax.apply_updates(p, moves), slots, value

        slots, losses = rule.init(params), []
        for _ in range(3):
            params, slots, value = step(params, slots)
            losses.append(float(value))
        return params, losses

    want, losses = train(fn, params)
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    every = {
        "tensor_parallel": "tensor_parallel",
        "fsdp": "fsdp",
        "names": [("^w[qkv]$", PartitionSpec(None, "model"))],
    }
    report = {"losses": losses}
    for name, rules in every.items():
        sharded = fn.shard(mesh, rules, batch="data")
        got, found = train(sharded, sharded.place(params))
        report[name] = {
            "losses": found,
            "specs": {n: [a or "" for a in s] for n, s in sharded.specs.items()},
            "gap": max(float(abs(np.asarray(got[n]) - np.asarray(want[n])).max()) for n in want),
            "held": {n: x.addressable_shards[0].data.size / x.size for n, x in got.items()},
            "text": repr(sharded),
        }
    print(
        json.dumps(report | {kind.name: placed(fn, params, ids, kind) for kind in (AxisType.Auto, AxisType.Explicit)})
    )


def placed(fn, params, ids, kind: AxisType) -> dict[str, object]:
    """Arrays put on a mesh by the caller: gaps to one device, and what the results' shardings are."""
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(kind, kind))
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    wide = NamedSharding(mesh, PartitionSpec(None, "model"))
    held = {n: jax.device_put(x, wide if n in ("wq", "up") else whole) for n, x in params.items()}
    feed = {"ids": jax.device_put(ids.astype(np.int32), rows)}

    def total(p, inputs):
        return (fn(p, inputs)["scores"] ** 2).mean()

    want, slopes = fn(params, {"ids": ids})["scores"], jax.grad(total)(params, {"ids": ids})
    other = jax.devices()[1]
    ways = {
        "plain": lambda: fn(held, feed),
        "jit": lambda: jax.jit(fn)(held, feed),
        "fn.jit": lambda: fn.jit(held, feed),
        "with_weights": lambda: fn.with_weights(held)(feed),
        "with_weights, then split": lambda: _then(fn.with_weights(params), {"ids": ids}, feed),
        "with_weights, another device": lambda: fn.with_weights(params)({"ids": jax.device_put(ids, other)}),
    }
    found = {name: way()["scores"] for name, way in ways.items()}
    with jax.set_mesh(mesh):
        got = jax.jit(jax.grad(total))(held, feed)
    return {
        "gaps": {n: float(abs(np.asarray(y) - np.asarray(want)).max()) for n, y in found.items()},
        "slopes": max(float(abs(np.asarray(got[n]) - np.asarray(slopes[n])).max()) for n in slopes),
        "held": {n: y.addressable_shards[0].data.size / y.size for n, y in found.items()},
        "kinds": [a.name for a in found["jit"].sharding.mesh.axis_types],
    }


def _then(infer, first, second):
    infer(first)
    return infer(second)


if __name__ == "__main__":
    main()
