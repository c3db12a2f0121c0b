"""T5: an encoder and a decoder with relative positions, trained as one graph, and decoding step by step."""

from dataclasses import dataclass
from functools import partial

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Embedding, Linear


@dataclass(frozen=True)
class Config:
    """Sizes of an encoder-decoder and of its tensor-parallel group."""

    vocab: int = 64
    hidden: int = 16
    heads: int = 4
    size: int = 4
    wide: int = 32
    layers: int = 2
    source: int = 7
    target: int = 5
    micro: int = 2
    buckets: int = 8
    distance: int = 16
    tensor: int = 2
    gated: bool = False


def buckets(c: Config, queries: int, keys: int, both_ways: bool) -> np.ndarray:
    """Bucket of the distance from each query to each key: exact when near, logarithmic when far."""
    distance = np.arange(keys)[None] - np.arange(queries)[:, None]
    count, found = c.buckets, np.zeros(distance.shape, int)
    if both_ways:
        count //= 2
        found += np.where(distance > 0, count, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    near = count // 2
    far = near + np.log(np.maximum(distance, 1) / near) / np.log(c.distance / near) * (count - near)
    return found + np.where(distance < near, distance, np.minimum(far.astype(int), count - 1))


class Sharded(addons.Module):
    """A layer of which each member of the group has a part."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.group = popxl.gcg().ir.replica_grouping(group_size=config.tensor)
        self.shared = self.group.transpose()

    def part(self, features):
        return Linear(features, bias=False, replica_grouping=self.shared)

    def enter(self, x):
        return addons_ops.replicated_all_reduce_identical_inputs(x, group=self.group)

    def leave(self, x):
        return addons_ops.replicated_all_reduce_identical_grad_inputs(x, group=self.group)


class RMSNorm(addons.Module):
    """Division by the root of the mean square, without mean or bias."""

    def build(self, x):
        scale = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        return x / ops.sqrt(ops.mean(x * x, -1, keepdims=True) + 1e-6) * scale


class Attention(Sharded):
    """Attention of queries to keys of the same or another sequence, with a bias for each pair and head."""

    def __init__(self, config: Config):
        super().__init__(config)
        inner = config.heads * config.size // config.tensor
        self.q, self.k, self.v, self.o = self.part(inner), self.part(inner), self.part(inner), self.part(config.hidden)

    def build(self, x, keys, bias):
        c = self.config
        heads = c.heads // c.tensor

        def apart(t):
            return t.reshape((c.micro, t.shape[0] // c.micro, heads, c.size)).transpose((0, 2, 1, 3))

        q, k, v = apart(self.q(x)), apart(self.k(keys)), apart(self.v(keys))
        scores = q @ k.transpose((0, 1, 3, 2))
        weights = ops.softmax(scores if bias is None else scores + bias, -1)
        return self.o((weights @ v).transpose((0, 2, 1, 3)).reshape((x.shape[0], heads * c.size)))


class Block(Sharded):
    """Self-attention, attention to the encoder (in the decoder), feed-forward."""

    def __init__(self, config: Config, decoder: bool):
        super().__init__(config)
        self.norms = addons.Module.from_list([RMSNorm() for _ in range(3 if decoder else 2)])
        self.attention = Attention(config)
        self.cross = Attention(config) if decoder else None
        self.up, self.down = self.part(config.wide // config.tensor), self.part(config.hidden)
        self.gate = self.part(config.wide // config.tensor) if config.gated else None

    def build(self, x, bias, encoded=None):
        z = self.enter(self.norms[0](x))
        x = x + self.leave(self.attention(z, z, bias))
        if self.cross is not None:
            z = self.enter(self.norms[1](x))
            x = x + self.leave(self.cross(z, self.enter(encoded), None))
        z = self.enter(self.norms[-1](x))
        wide = ops.relu(self.up(z)) if self.gate is None else ops.gelu(self.gate(z)) * self.up(z)
        return x + self.leave(self.down(wide))


class Stack(Sharded):
    """Blocks that share the positions' table of the stack, and a normalisation."""

    def __init__(self, config: Config, decoder: bool):
        super().__init__(config)
        self.decoder = decoder
        self.last = RMSNorm()

    def build(self, x, encoded=None):
        c = self.config
        length = x.shape[0] // c.micro
        table = self.add_variable_input(
            "positions", partial(np.zeros, (c.buckets, c.heads // c.tensor)), x.dtype, replica_grouping=self.shared
        )
        where = popxl.constant(buckets(c, length, length, not self.decoder).astype(np.uint32))
        bias = ops.gather(table, where).transpose((2, 0, 1))
        if self.decoder:
            bias = bias + popxl.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
        given = [bias] if encoded is None else [bias, encoded]
        factories, block = Block(c, self.decoder).create_graph(x, *given)
        for i in range(c.layers):
            (x,) = block.bind(self.add_variable_inputs(i, factories)).call(x, *given)
        return self.last(x)


class Model(Sharded):
    """Logits of the group's part of the vocabulary."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.words = Embedding(popxl.float32, config.vocab, config.hidden, replica_grouping=self.shared)
        self.encoder, self.decoder = Stack(config, False), Stack(config, True)
        self.head = self.part(config.vocab // config.tensor)

    def build(self, source, target):
        """Both sequences are looked up at once: a module is inlined once."""
        c = self.config
        both = self.leave(self.words(ops.concat([source, target])))
        x, y = ops.split(both, [c.micro * c.source, c.micro * c.target])
        return self.head(self.enter(self.decoder(y, self.encoder(x))))


class Loss(Sharded):
    """Cross entropy over the whole vocabulary."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.model = Model(config)

    def build(self, source, target, labels):
        return addons_ops.cross_entropy_sharded_loss(self.model(source, target), labels, replica_grouping=self.group)
