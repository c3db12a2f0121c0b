"""BLOOM with weights of 4 bits, divided over replicas; a loop over layers loads each from remote memory.

The reference is NumPy in float64 with the same weights unpacked.
"""

from functools import partial

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import LayerNorm
from popart_jax.popxl_addons.layers.linear_gq import LinearGQ
from popart_jax.popxl_addons.ops.quantize import (
    group_quantize_compress_numpy,
    group_quantize_decompress_numpy,
)
from popart_jax.popxl_addons.remote import load_remote_graph, named_variable_buffers

from .grid import slopes

PARTS, LENGTH, HIDDEN, HEADS, LAYERS, GROUP = 2, 6, 16, 4, 3, 4
HALF, SIZE, LOCAL = popxl.float16, HIDDEN // HEADS, HEADS // PARTS
SHAPES = {"qkv": (1, 3 / PARTS), "out": (1 / PARTS, 1), "up": (1, 4 / PARTS), "down": (4 / PARTS, 1)}
"""Rows and columns of a replica's weights, in units of the hidden size."""
MASK = np.triu(np.full((LENGTH, LENGTH), -6e4), 1)


class Block(addons.Module):
    """Attention that falls off with distance, then feed-forward; products have weights of 4 bits."""

    def __init__(self, parts: popxl.ReplicaGrouping):
        super().__init__()
        self.members = parts.transpose()
        packed = partial(LinearGQ, replica_grouping=parts, group_size=GROUP, dim=-1)
        self.norm_1, self.norm_2 = LayerNorm(), LayerNorm()
        self.qkv, self.out = packed(3 * HIDDEN // PARTS, bias=True), packed(HIDDEN, bias=False)
        self.up, self.down = packed(4 * HIDDEN // PARTS, bias=True), packed(HIDDEN, bias=False)

    def build(self, x, slope):
        z = self.out(self.attention(self.qkv(self.norm_1(x)), slope))
        x = x + addons_ops.replicated_all_reduce(z, group=self.members) + self.bias("out_bias")
        z = self.down(ops.gelu(self.up(self.norm_2(x))))
        return x + addons_ops.replicated_all_reduce(z, group=self.members) + self.bias("down_bias")

    def bias(self, name):
        return self.add_variable_input(name, partial(np.zeros, HIDDEN), HALF)

    def attention(self, qkv, slope):
        q, k, v = (t.reshape((LENGTH, LOCAL, SIZE)).transpose((1, 0, 2)) for t in ops.split(qkv, 3, axis=-1))
        where = popxl.constant(np.arange(LENGTH).reshape(1, 1, -1), HALF)
        scores = q @ k.transpose((0, 2, 1)) * popxl.constant(SIZE**-0.5, HALF) + slope.reshape((-1, 1, 1)) * where
        z = ops.softmax(scores + popxl.constant(MASK, HALF), axis=-1) @ v
        return z.transpose((1, 0, 2)).reshape((LENGTH, HIDDEN // PARTS))


def program():
    """The Ir, its streams, and the variables of each layer."""
    ir = popxl.Ir(replication=PARTS)
    with ir.main_graph, popxl.in_sequence():
        parts = ir.replica_grouping(stride=PARTS, group_size=1)
        source, sink = (make((LENGTH, HIDDEN), HALF) for make in (popxl.h2d_stream, popxl.d2h_stream))
        factories, block = Block(parts).create_graph(source.spec, popxl.TensorSpec((LOCAL,), HALF))
        buffers = named_variable_buffers(factories, LAYERS, shard_over_dict=False)
        load, names = load_remote_graph(buffers, LAYERS)
        layers = [factories.init_remote(buffers, n, f"layer.{n}") for n in range(LAYERS)]
        slope = popxl.variable(slopes(HEADS).reshape(PARTS, LOCAL), HALF, replica_grouping=parts)

        def one(row, x, slope):
            (y,) = block.bind(NamedTensors.pack(names, load.call(row))).call(x, slope)
            return row + 1, y

        first, x = popxl.constant(0), ops.host_load(source)
        _, x = ops.repeat(ir.create_graph(one, first, x, slope), LAYERS, first, x, slope)
        ops.host_store(sink, x)
    return ir, source, sink, layers


def weights(rng, layers):
    """What the variables are given, and for each layer the same in float64, products unpacked."""
    given, plain = {}, []
    for layer in layers:
        shown, known = layer.to_dict(), {}
        for name, variable in shown.items():
            if "weight_" not in name:
                shape = (PARTS, *variable.shape) if name in ("qkv.bias", "up.bias") else variable.shape
                known[name] = given[variable] = (rng.normal(size=shape) / 5 + (".weight" in name)).astype(np.float16)
        for name, (rows, columns) in SHAPES.items():
            whole = rng.normal(size=(PARTS, int(rows * HIDDEN), int(columns * HIDDEN))).astype(np.float32) / 4
            packed = [group_quantize_compress_numpy(part, GROUP) for part in whole]
            ends = ("weight_compressed", "weight_decompression_scale", "weight_decompression_bias")
            given.update(
                {shown[f"{name}.{end}"]: np.stack(t) for end, t in zip(ends, zip(*packed, strict=True), strict=True)}
            )
            known[name] = [group_quantize_decompress_numpy(*part).astype(np.float64) for part in packed]
        plain.append(known)
    return given, plain


def normalised(x, known, name):
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred / scale * known[f"{name}.weight"] + known[f"{name}.bias"]


def attended(qkv, slope):
    q, k, v = (t.reshape(LENGTH, LOCAL, SIZE).transpose(1, 0, 2) for t in np.split(qkv, 3, -1))
    scores = q @ k.transpose(0, 2, 1) / SIZE**0.5 + slope.reshape(-1, 1, 1) * np.arange(LENGTH) + MASK
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return (weight / weight.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(LENGTH, -1)


def expected(x, plain):
    gelu = lambda t: t / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (t + 0.044715 * t**3)))  # noqa: E731
    divided = slopes(HEADS).reshape(PARTS, LOCAL)
    for w in plain:
        z = normalised(x, w, "norm_1")
        heads = [attended(z @ w["qkv"][p] + w["qkv.bias"][p], divided[p]) @ w["out"][p] for p in range(PARTS)]
        x = x + sum(heads) + w["out_bias"]
        z = normalised(x, w, "norm_2")
        x = x + sum(gelu(z @ w["up"][p] + w["up.bias"][p]) @ w["down"][p] for p in range(PARTS)) + w["down_bias"]
    return x


def test_layers_of_four_bits_in_a_loop():
    rng = np.random.default_rng(0)
    ir, source, sink, layers = program()
    given, plain = weights(rng, layers)
    x = rng.normal(size=(LENGTH, HIDDEN)).astype(np.float16)
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data(given)
        found = session.run({source: np.stack([x] * PARTS)})[sink]
    np.testing.assert_array_equal(found[0], found[1])
    wanted = expected(x.astype(np.float64), plain)
    assert np.abs(found[0] - wanted).max() < 0.02 * np.abs(wanted).max()
